"""Load our spec and weights from directories of `transformers`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from training.checkpoint import StoredWeights
from training.formats import sharded
from training.formats.all import FORMATS
from training.formats.format import Format
from training.formats.spec_file import read_json
from training.formats.weights import load_weights
from training.model import Model
from training.model_spec import ModelSpec
from training.workers import ALONE, Workers


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is read on each call; its shape is known without reading it."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    def __call__(self) -> Tensor:
        return self.read()


Lazy = Mapping[str, LazyTensor]
"""Maps our names to lazily read tensors."""


def load_lazily(folder: Path, workers: Workers = ALONE) -> tuple[ModelSpec, Lazy]:
    """Return the spec and weights of a directory, in our format or of transformers.

    Raises BadInput like load_weights and from_transformers. All `workers` must call this function.
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
    format, spec, tensors = open_folder(folder)
    empty = empty_weights(spec)
    _refuse_other_layers(folder, format, spec, tensors, empty)
    # checks names and shapes without reading the tensors
    convert(folder, format, spec, {name: tensor.to("meta") for name, tensor in tensors.items()}, empty)

    def get(name: str) -> Tensor:
        return convert(folder, format, spec, tensors, {name: empty[name]})[name]

    return spec, {name: LazyTensor(tuple(one.shape), partial(get, name)) for name, one in empty.items()}


def from_transformers(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Return the spec and weights of a directory written by `save_pretrained` or `to_transformers`.

    Heads are loaded if they have tensors. Raises BadInput if the directory has no supported model.
    """
    format, spec, tensors = open_folder(folder)
    _refuse_other_layers(folder, format, spec, tensors, empty := empty_weights(spec))
    return spec, convert(folder, format, spec, tensors, empty)


def model_spec(folder: Path) -> ModelSpec:
    """Return the spec of a directory of transformers, without its weights. Raises BadInput if it is not supported."""
    return open_folder(folder)[1]


def open_folder(folder: Path) -> tuple[Format, ModelSpec, dict[str, Tensor]]:
    """Return the format, the spec and the tensors of a directory. Tensors are not read from disk yet."""
    where = folder / "config.json"
    config = read_json(where)
    tensors = sharded.read(folder, "model")
    types = {format.model_type: format for format in FORMATS}
    if config.get("model_type") not in types:
        raise BadInput(
            f"{where}: invalid model_type: got {config.get('model_type')!r}, expected one of {sorted(types)}; "
            "use another model"
        )
    format = types[config["model_type"]]
    try:
        return format, format.spec(config, tensors), tensors
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where}: unsupported model ({error}); use another model") from None


def empty_weights(spec: ModelSpec) -> dict[str, Tensor]:
    """The empty weights of a model by name, on the meta device."""
    with torch.device("meta"):
        return dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())


def convert(
    folder: Path, format: Format, spec: ModelSpec, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return our weights `wanted`. Raises BadInput if one is missing or has another shape."""
    file = folder / "model.safetensors"
    try:
        state = format.ours(tensors, spec, wanted)
    except KeyError as error:
        missing = error.args[0]
        raise BadInput(
            f"{file}: missing tensor {missing}, which config.json requires; download both files of the same model"
        ) from None
    for name, empty in wanted.items():
        if state[name].shape != empty.shape:
            shapes = f"got {list(state[name].shape)}, expected {list(empty.shape)} from config.json"
            raise BadInput(f"{file}: invalid shape of {name}: {shapes}; download both files of the same model")
    return state


def _refuse_other_layers(
    folder: Path, format: Format, spec: ModelSpec, tensors: Iterable[str], empty: Mapping[str, Tensor]
) -> None:
    """Raise BadInput if the files have more layers than config.json: the model would not be the one in the files."""
    used, stored = _count_layers(format.theirs(empty, spec)), _count_layers(tensors)
    for stack in used.keys() & stored.keys():
        if stored[stack] > used[stack]:
            numbers = f"got {used[stack]}, expected {stored[stack]}, the number of layers {stack}* in the files"
            remedy = "correct it, or download both files of the same model"
            raise BadInput(f"{folder / 'config.json'}: invalid number of layers: {numbers}; {remedy}")


def _count_layers(names: Iterable[str]) -> dict[str, int]:
    """The number of layers of each stack.

    >>> _count_layers(["h.0.ln_1.weight", "h.1.ln_1.weight", "h.1.ln_1.bias", "wte.weight"])
    {'h.': 2}
    """
    layers = dict[str, set[str]]()
    for name in names:
        if match := re.match(r"(.*?\.)(\d+)\.", name):
            layers.setdefault(match[1], set()).add(match[2])
    return {stack: len(numbers) for stack, numbers in layers.items()}
