"""Folders of `transformers` -> our spec and weights."""

from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from preprocessing.errors import BadInput
from training.formats.all import FORMATS
from training.formats.weights import read_file, read_json
from training.model import Model, ModelSpec


def from_transformers(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Spec and weights of a folder that `save_pretrained` or `to_transformers` wrote; its heads are those with tensors.

    BadInput where the folder does not hold a net of the kinds that we build.
    """
    where, file = folder / "config.json", folder / "model.safetensors"
    config = read_json(where)
    try:
        tensors = safetensors.torch.load(read_file(file))
    except SafetensorError as error:
        raise BadInput(f"{file}: not a safetensors file ({error}); fetch it again") from None
    types = {format.model_type: format for format in FORMATS}
    if config.get("model_type") not in types:
        raise BadInput(f"{where}: model_type is {config.get('model_type')!r}, allowed is one of {sorted(types)}")
    format = types[config["model_type"]]
    try:
        spec = format.spec(config, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where}: describes no net that we build ({error})") from None
    with torch.device("meta"):
        wanted = dict(Model(spec.trunk, spec.losses, spec.vocab_size, seed=0).named_parameters())
    try:
        state = format.ours(tensors, spec, wanted)
    except KeyError as error:
        missing = error.args[0]
        raise BadInput(
            f"{file}: has no tensor {missing}, which config.json asks for; fetch both of one model"
        ) from None
    for name, empty in wanted.items():
        if state[name].shape != empty.shape:
            found, asked = list(state[name].shape), list(empty.shape)
            raise BadInput(f"{file}: {name} is {found}, config.json asks for {asked}; fetch both of one model")
    return spec, state
