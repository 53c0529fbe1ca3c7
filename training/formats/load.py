"""Folders of `transformers` -> our spec and weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training.checkpoint import StoredWeights
from training.formats import sharded
from training.formats.all import FORMATS
from training.formats.format import ModelFormat
from training.formats.weights import load_weights, read_json
from training.model import Model, ModelSpec
from training.workers import ALONE, Workers


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is read when it is called for, each time, and whose shape is known before."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    def __call__(self) -> Tensor:
        return self.read()


Lazy = Mapping[str, LazyTensor]
"""What gives the tensors of a net, by our names."""


def load_lazily(folder: Path, workers: Workers = ALONE) -> tuple[ModelSpec, Lazy]:
    """Spec and weights of a folder, ours or of transformers; BadInput as of load_weights and from_transformers.

    All `workers` call it.
    """
    if (folder / "spec.json").exists():
        spec, weights = load_weights(folder, workers)
        stored = (
            weights.shapes
            if isinstance(weights, StoredWeights)
            else {name: each.shape for name, each in weights.items()}
        )
        return spec, {
            name: LazyTensor(tuple(shape), partial(weights.__getitem__, name)) for name, shape in stored.items()
        }
    format, spec, tensors = _opened(folder)
    wanted = _wanted(spec)
    # whether all are there and of the right shapes is known without reading them
    _taken(folder, format, spec, {name: tensor.to("meta") for name, tensor in tensors.items()}, wanted)

    def get(name: str) -> Tensor:
        return _taken(folder, format, spec, tensors, {name: wanted[name]})[name]

    return spec, {name: LazyTensor(tuple(empty.shape), partial(get, name)) for name, empty in wanted.items()}


def from_transformers(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Spec and weights of a folder that `save_pretrained` or `to_transformers` wrote; its heads are those with tensors.

    BadInput where the folder does not hold a net of the kinds that we build.
    """
    format, spec, tensors = _opened(folder)
    return spec, _taken(folder, format, spec, tensors, _wanted(spec))


def _opened(folder: Path) -> tuple[ModelFormat, ModelSpec, dict[str, Tensor]]:
    """What a folder holds: its format, what it describes, and its tensors, which stay in their files."""
    where = folder / "config.json"
    config = read_json(where)
    tensors = sharded.read(folder, "model")
    types = {format.model_type: format for format in FORMATS}
    if config.get("model_type") not in types:
        raise BadInput(f"{where}: model_type is {config.get('model_type')!r}, allowed is one of {sorted(types)}")
    format = types[config["model_type"]]
    try:
        return format, format.spec(config, tensors), tensors
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where}: describes no net that we build ({error})") from None


def _wanted(spec: ModelSpec) -> dict[str, Tensor]:
    """The weights of a net by name, on the meta device."""
    with torch.device("meta"):
        return dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())


def _taken(
    folder: Path, format: ModelFormat, spec: ModelSpec, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Those of our weights that are wanted; BadInput where one is missing or of another shape."""
    file = folder / "model.safetensors"
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
    return state
