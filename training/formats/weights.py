"""Our own folders of weights: safetensors and JSON, nothing that is unpickled.

The JSON that makes a folder valid is written last.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.spec import part
from training.checkpoint import is_checkpoint, weights_of
from training.losses import Loss
from training.model import ModelSpec
from training.specs import Trunk

Weights = Mapping[str, Tensor]


def save_weights(state: Weights, spec: ModelSpec, folder: Path) -> None:
    """Write `weights.safetensors`, then `spec.json` with the spec and the sha256 of the weights."""
    content = safetensors.torch.save(dict(state))
    write_atomic(folder / "weights.safetensors", content)
    write_json(folder / "spec.json", {"spec": asdict(spec), "sha256": hashlib.sha256(content).hexdigest()})


def load_spec(folder: Path) -> ModelSpec:
    """The spec in a folder of `save_weights`. BadInput where there is none, or one of another version."""
    stored = read_json(folder / "spec.json")
    try:
        parts = dict(stored["spec"])
        trunk, losses = part(Trunk, parts.pop("trunk")), tuple(part(Loss, loss) for loss in parts.pop("losses"))
        return ModelSpec(trunk=trunk, losses=losses, **parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / 'spec.json'}: not a spec of this version ({error}); export the run again") from None


def load_weights(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Read what `save_weights` wrote, or a checkpoint of any workers.

    BadInput where a file is missing, garbled, or not the one that was written.
    """
    if is_checkpoint(folder):
        weights = weights_of(folder)
        return load_spec(folder), weights
    wanted = str(read_json(folder / "spec.json").get("sha256"))
    content, spec = read_file(folder / "weights.safetensors"), load_spec(folder)
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise BadInput(
            f"{folder / 'weights.safetensors'}: sha256 is {found[:12]}, spec.json says {wanted[:12]}: "
            "damaged or exchanged; export the run again"
        )
    return spec, safetensors.torch.load(content)


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a folder with exported weights") from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); export again") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no JSON object; export again")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
