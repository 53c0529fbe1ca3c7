"""Tensors in safetensors files: one file, or several shards with an index, as in transformers.

    model.safetensors                                        or
    model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, model.safetensors.index.json

Tensors are written one by one and read lazily, so that they are never all in memory.
"""

import hashlib
import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar

from safetensors import SafetensorError, safe_open

from preprocessing.errors import BadInput
from preprocessing.files import is_beside, parse_json, write_atomic
from preprocessing.stand_ins import require_itself

if TYPE_CHECKING:  # this module is imported without torch
    from torch import Tensor

T = TypeVar("T")
SHARD_BYTES: Final = 5_000_000_000  # maximum tensor bytes of a file; a larger tensor has its own file
HEADER_BYTES: Final = 16_000_000  # maximum of a foreign file's header or index; 100 bytes per tensor are usual
TENSORS: Final = 100_000  # maximum number of tensors in foreign files; MT-NLG 530B has about 1,300
DTYPES: Final = {
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float64": "F64",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}


class TensorBytes(NamedTuple):
    """A tensor as a safetensors file has it."""

    dtype: str  # one of the values of DTYPES
    shape: tuple[int, ...]
    content: memoryview  # of bytes


def with_heartbeat(items: Iterable[T], beat: Callable[[], None] | None) -> Iterator[T]:
    """Yield the items; call `beat` before each, to report progress."""
    for item in items:
        if beat:
            beat()
        yield item


def write(
    tensors: Iterable[tuple[str, "Tensor | TensorBytes"]],
    folder: Path,
    stem: str,
    metadata: Mapping[str, str] | None = None,
    *,
    shard_bytes: int = SHARD_BYTES,
) -> dict[Path, str]:
    """Write tensors by name, and remove files of an earlier call; return the files and their sha256, without the
    index.

    Each file is hashed while it is written. Raises OSError.
    """
    pending: dict[str, TensorBytes] = {}
    shards: list[tuple[Path, list[str]]] = []
    digests: list[str] = []
    size = total = 0

    def flush() -> None:
        path = folder / f".{stem}-{len(shards)}.unfinished"
        write_atomic(path, lambda file: digests.append(_write(file, pending, metadata or {})))
        shards.append((path, list(pending)))
        pending.clear()

    for name, tensor in tensors:
        num_bytes = tensor.content.nbytes if isinstance(tensor, TensorBytes) else tensor.nbytes
        if pending and size + num_bytes > shard_bytes:
            flush()
            size = 0
        pending[name] = tensor if isinstance(tensor, TensorBytes) else _bytes_of(tensor)
        size, total = size + num_bytes, total + num_bytes
    flush()
    names = [f"{stem}-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    names = names if len(shards) > 1 else [f"{stem}.safetensors"]
    index = folder / f"{stem}.safetensors.index.json"
    for old in [*folder.glob(f"{stem}.safetensors"), *folder.glob(f"{stem}-?????-of-?????.safetensors"), index]:
        if old.name not in names:
            old.unlink(missing_ok=True)
    for (path, _), file in zip(shards, names, strict=True):
        path.replace(folder / file)
    if len(shards) > 1:
        place = {name: file for (_, shard_names), file in zip(shards, names, strict=True) for name in shard_names}
        write_atomic(index, json.dumps({"metadata": {"total_size": total}, "weight_map": place}, indent=2).encode())
    return {folder / file: digest for file, digest in zip(names, digests, strict=True)}


def _bytes_of(tensor: "Tensor") -> TensorBytes:
    import torch

    flat = tensor.detach().cpu().contiguous().flatten()
    return TensorBytes(DTYPES[str(tensor.dtype)], tuple(tensor.shape), flat.view(torch.uint8).numpy().data)


def _write(file: BinaryIO, tensors: Mapping[str, TensorBytes], metadata: Mapping[str, str]) -> str:
    """Write a safetensors file: the length of the header, the header, the bytes; return its sha256.

    The writer of the safetensors library would need all tensors in memory.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, tensor in tensors.items():
        end = at + tensor.content.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    heads = memoryview(len(content).to_bytes(8, "little")), memoryview(content)
    digest = hashlib.sha256()
    for piece in chain(heads, (tensor.content for tensor in tensors.values())):
        digest.update(piece)
        file.write(piece)
    return digest.hexdigest()


def weight_files(folder: Path, stem: str) -> list[Path]:
    """The files with the tensors, from the index; without an index, one file, which may not exist."""
    index = folder / f"{stem}.safetensors.index.json"
    if not index.is_file() or (folder / f"{stem}.safetensors").is_file():
        return [folder / f"{stem}.safetensors"]
    try:
        require_itself(index)
        if index.stat().st_size > HEADER_BYTES:
            raise ValueError(f"more than {HEADER_BYTES:,} bytes")
        names = sorted(set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if outside := [name for name in names if not is_beside(name)]:
            raise BadInput(
                f"{index}: invalid file {outside[0]!r}, expected a file in the same directory; download the index again"
            )
        return [folder / name for name in names]
    except BadInput:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"{index}: invalid safetensors index ({error}); download it again") from None


def read(folder: Path, stem: str) -> dict[str, "Tensor"]:
    """Return the tensors by name; values are read on first access. Raises BadInput if a file cannot be read."""
    tensors: dict[str, Tensor] = {}
    for file in weight_files(folder, stem):
        try:
            _check_header(file)
            with safe_open(file, framework="pt") as opened:
                names = opened.keys()
                if len(tensors) + len(names) > TENSORS:
                    raise BadInput(
                        f"{file}: too many tensors: got {len(names):,}, expected at most {TENSORS:,} in total; "
                        "give a model directory"
                    )
                tensors |= {name: opened.get_tensor(name) for name in names}
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}; give a directory with exported weights") from None
        except SafetensorError as error:
            raise BadInput(f"{file}: not a safetensors file ({error}); download it again") from None
    return tensors


def read_bytes(folder: Path, stem: str) -> Iterator[tuple[str, TensorBytes]]:
    """Yield the tensors of an export by name, without torch. Raises BadInput if a file cannot be read."""
    for file in weight_files(folder, stem):
        try:
            _check_header(file)
            with file.open("rb") as opened:
                content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
            start = 8 + int.from_bytes(content[:8], "little")
            header = parse_json(bytes(content[8:start]))
            header.pop("__metadata__", None)
            if start + max((one["data_offsets"][1] for one in header.values()), default=0) > len(content):
                raise ValueError("its end is missing")
            for name, one in header.items():
                begin, end = one["data_offsets"]
                yield name, TensorBytes(one["dtype"], tuple(one["shape"]), content[start + begin : start + end])
        except BadInput:
            raise
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}; export the run again") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadInput(f"{file}: not a safetensors file ({error}); export the run again") from None


def _check_header(file: Path) -> None:
    """Raise BadInput, before parsing, if a file is a stand-in such as a Git LFS pointer, or its header is too long."""
    require_itself(file)
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
    if length > HEADER_BYTES:
        raise BadInput(
            f"{file}: not a safetensors file (header of {length:,} bytes, expected at most {HEADER_BYTES:,}); "
            "download it again"
        )
