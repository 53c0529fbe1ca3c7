"""Our own folders of weights: safetensors and JSON, nothing that is unpickled.

The JSON that makes a folder valid is written last.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.spec import part
from training.checkpoint import is_checkpoint, weights_of
from training.formats import sharded
from training.formats.sharded import beating
from training.losses import Loss
from training.model import ModelSpec
from training.specs import Trunk

Weights = Mapping[str, Tensor]


STEM = "weights"  # of the files


def save_weights(
    state: Weights | Iterable[tuple[str, Tensor]],
    spec: ModelSpec,
    folder: Path,
    *,
    shard_bytes: int = sharded.SHARD_BYTES,
    beat: Callable[[], None] | None = None,
) -> None:
    """Write `weights.safetensors`, or several of them with an index, then `spec.json` with the spec and their sha256.

    The weights are taken one by one. `beat` is called before each file is hashed.
    """
    tensors = state.items() if isinstance(state, Mapping) else state
    written = sharded.write(tensors, folder, STEM, shard_bytes=shard_bytes)
    write_json(folder / "spec.json", {"spec": asdict(spec), "sha256": _digest(written, beat)})


def _digest(files: Iterable[Path], beat: Callable[[], None] | None = None) -> str:
    """The sha256 of a file; of several, of theirs."""
    found = []
    for file in beating(files, beat):
        try:
            with file.open("rb") as opened:
                found.append(hashlib.file_digest(opened, "sha256").hexdigest())
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}; give a folder with exported weights") from None
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def load_spec(folder: Path) -> ModelSpec:
    """The spec in a folder of `save_weights`. BadInput where there is none, or one of another version."""
    stored = read_json(folder / "spec.json")
    try:
        parts = dict(stored["spec"])
        trunk, losses = part(Trunk, parts.pop("trunk")), tuple(part(Loss, loss) for loss in parts.pop("losses"))
        return ModelSpec(trunk=trunk, losses=losses, **parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / 'spec.json'}: not a spec of this version ({error}); export the run again") from None


def load_weights(folder: Path, *, beat: Callable[[], None] | None = None) -> tuple[ModelSpec, dict[str, Tensor]]:
    """What `save_weights` wrote, or a checkpoint of any workers; tensors stay in their files until they are looked at.

    BadInput where a file is missing, garbled, or not the one that was written. `beat` is called before each is hashed.
    """
    if is_checkpoint(folder):
        weights = weights_of(folder)
        return load_spec(folder), weights
    wanted = str(read_json(folder / "spec.json").get("sha256"))
    files, spec = sharded.files(folder, STEM), load_spec(folder)
    found = _digest(files, beat)
    if found != wanted:
        raise BadInput(
            f"{files[0]}: sha256 is {found[:12]}, spec.json says {wanted[:12]}: "
            "damaged or exchanged; export the run again"
        )
    return spec, sharded.read(folder, STEM)


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
