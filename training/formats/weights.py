"""Our own folders of weights: safetensors and JSON, nothing that is unpickled.

The JSON that makes a folder valid is written last.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import parse_json, write_atomic
from preprocessing.renames import with_new_names
from preprocessing.spec import part
from preprocessing.stand_ins import require_itself
from training.checkpoint import is_checkpoint, weights_of
from training.formats import sharded
from training.formats.sharded import with_heartbeat
from training.losses import Loss
from training.model import ModelSpec
from training.specs import Architecture
from training.workers import ALONE, Workers

Weights = Mapping[str, Tensor]


STEM = "weights"  # of the files
SHA256_BYTES: Final = 32
JSON_BYTES: Final = 16_000_000  # of a file of others


def save_weights(
    state: Weights | Iterable[tuple[str, Tensor]],
    spec: ModelSpec,
    folder: Path,
    *,
    shard_bytes: int = sharded.SHARD_BYTES,
    beat: Callable[[], None] | None = None,
) -> None:
    """Write `weights.safetensors`, or several of them with an index, then `spec.json` with the spec and their sha256.

    The weights are taken one by one, and hashed while they are written. `beat` is called before each of them.
    """
    tensors = state.items() if isinstance(state, Mapping) else state
    written = sharded.write(with_heartbeat(tensors, beat), folder, STEM, shard_bytes=shard_bytes)
    write_json(folder / "spec.json", {"spec": asdict(spec), "sha256": _digest(list(written.values()))})


def _digest(digests: Sequence[str]) -> str:
    """The sha256 of a file; of several, of theirs."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _digests(files: Sequence[Path], workers: Workers, beat: Callable[[], None] | None) -> list[str]:
    """The sha256 of each file, of which each worker hashes its share; all workers call it, and get all."""
    found = [0.0] * SHA256_BYTES * len(files)
    lacks = [0.0] * len(files)
    for number in with_heartbeat(range(workers.rank, len(files), workers.world), beat):
        try:
            with files[number].open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").digest()
            found[number * SHA256_BYTES : (number + 1) * SHA256_BYTES] = digest
        except OSError as error:
            lacks[number] = error.errno or errno.EIO
    sums = [int(value) for value in workers.reduce_sums([*found, *lacks])]
    content, numbers = bytes(sums[: len(found)]), sums[len(found) :]
    for file, number in zip(files, numbers, strict=True):
        if number:
            raise BadInput(f"{file}: {os.strerror(number)}; give a folder with exported weights")
    return [content[at : at + SHA256_BYTES].hex() for at in range(0, len(content), SHA256_BYTES)]


def load_spec(folder: Path) -> ModelSpec:
    """The spec in a folder of `save_weights`. BadInput where there is none, or one of another version."""
    stored = read_json(folder / "spec.json")
    try:
        parts = dict(stored["spec"])
        if "trunk" in parts:  # of version 0.1
            parts["model"] = with_new_names(parts.pop("trunk"), "trunk")
            parts["losses"] = [with_new_names(loss, "objective.losses") for loss in parts["losses"]]
        trunk, losses = part(Architecture, parts.pop("model")), tuple(part(Loss, loss) for loss in parts.pop("losses"))
        return ModelSpec(model=trunk, losses=losses, **parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / 'spec.json'}: not a spec of this version ({error}); export the run again") from None


def load_weights(
    folder: Path, workers: Workers = ALONE, *, beat: Callable[[], None] | None = None
) -> tuple[ModelSpec, Weights]:
    """What `save_weights` wrote, or a checkpoint of any workers; tensors stay in their files until they are looked at.

    Of several `workers`, all of which call it, each hashes its share of the files. BadInput where a file is missing,
    garbled, or not the one that was written. `beat` is called before each is hashed.
    """
    if is_checkpoint(folder):
        weights = weights_of(folder, workers)
        return load_spec(folder), weights
    wanted = str(read_json(folder / "spec.json").get("sha256"))
    files, spec = sharded.files(folder, STEM), load_spec(folder)
    for file in files:
        require_itself(file)
    found = _digest(_digests(files, workers, beat))
    if found != wanted:
        raise BadInput(
            f"{files[0]}: sha256 is {found[:12]}, spec.json says {wanted[:12]}: "
            "damaged or exchanged; export the run again"
        )
    return spec, sharded.read(folder, STEM)


def read_file(path: Path) -> bytes:
    try:
        if (size := path.stat().st_size) > JSON_BYTES:
            raise BadInput(f"{path}: has {size:,} bytes, allowed are {JSON_BYTES:,}; fetch it again")
        require_itself(path)
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a folder with exported weights") from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_file(path))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); export again") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no JSON object; export again")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
