"""Weight directories in our own format: safetensors and JSON; no file is unpickled.

The JSON file that makes a directory valid is written last.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.stand_ins import require_itself
from training.checkpoint import is_checkpoint, weights_of
from training.formats import sharded
from training.formats.sharded import with_heartbeat
from training.formats.spec_file import load_spec, read_json, write_json
from training.model_spec import ModelSpec
from training.workers import ALONE, Workers

Weights = Mapping[str, Tensor]


STEM = "weights"  # first part of the file names
SHA256_BYTES: Final = 32


def save_weights(
    state: Weights | Iterable[tuple[str, Tensor]],
    spec: ModelSpec,
    folder: Path,
    *,
    shard_bytes: int = sharded.SHARD_BYTES,
    beat: Callable[[], None] | None = None,
) -> None:
    """Write `weights.safetensors`, or shards with an index, then `spec.json` with the spec and the sha256.

    Weights are processed one by one, and hashed while they are written. `beat` is called before each.
    """
    tensors = state.items() if isinstance(state, Mapping) else state
    written = sharded.write(with_heartbeat(tensors, beat), folder, STEM, shard_bytes=shard_bytes)
    write_json(folder / "spec.json", {"spec": asdict(spec), "sha256": _digest(list(written.values()))})


def _digest(digests: Sequence[str]) -> str:
    """The sha256 of one file; for several files, the sha256 of their digests."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _digests(files: Sequence[Path], workers: Workers, beat: Callable[[], None] | None) -> list[str]:
    """The sha256 of each file. Each worker hashes some of the files; all workers must call this, and get all
    digests."""
    digest_bytes = [0.0] * SHA256_BYTES * len(files)
    error_numbers = [0.0] * len(files)
    for number in with_heartbeat(range(workers.rank, len(files), workers.world), beat):
        try:
            with files[number].open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").digest()
            digest_bytes[number * SHA256_BYTES : (number + 1) * SHA256_BYTES] = digest
        except OSError as error:
            error_numbers[number] = error.errno or errno.EIO
    sums = [int(value) for value in workers.reduce_sums([*digest_bytes, *error_numbers])]
    content, numbers = bytes(sums[: len(digest_bytes)]), sums[len(digest_bytes) :]
    for file, number in zip(files, numbers, strict=True):
        if number:
            raise BadInput(f"{file}: {os.strerror(number)}; give a directory with exported weights")
    return [content[at : at + SHA256_BYTES].hex() for at in range(0, len(content), SHA256_BYTES)]


def load_weights(
    folder: Path, workers: Workers = ALONE, *, beat: Callable[[], None] | None = None
) -> tuple[ModelSpec, Weights]:
    """Load a directory written by `save_weights`, or a checkpoint of any number of workers; tensors are read lazily.

    All `workers` must call this function; each hashes some of the files. `beat` is called before each file is
    hashed. Raises BadInput if a file is missing, damaged, or not the original one.
    """
    if is_checkpoint(folder):
        weights = weights_of(folder, workers)
        return load_spec(folder), weights
    expected = str(read_json(folder / "spec.json").get("sha256"))
    files, spec = sharded.weight_files(folder, STEM), load_spec(folder)
    for file in files:
        require_itself(file)
    digest = _digest(_digests(files, workers, beat))
    if digest != expected:
        raise BadInput(
            f"{files[0]}: invalid sha256: got {digest[:12]}, expected {expected[:12]} from spec.json; "
            "the file is damaged or replaced: export the run again"
        )
    return spec, sharded.read(folder, STEM)
