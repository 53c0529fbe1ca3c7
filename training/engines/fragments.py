"""Checkpoint files that are independent of the parallel layout.

Each worker writes one safetensors file. Each tensor in it is a *fragment*: contiguous elements of one parameter, either
of its float32 weights or of an optimizer state. The key of the tensor identifies the elements:

    trunk.tokens.weight|weight|4096         weights from element 4,096 up to the length of the tensor
    trunk.tokens.weight|exp_avg|4096        Adam's first moment of the same elements
    trunk.tokens.weight|row.0               a state of the whole parameter, written by one worker
    trunk.scale|buffer                      a buffer of the model

The header of the file contains the shapes of the parameters and numbers such as the optimizer's step. Under tensor
parallelism, it also contains the slice of each parameter, and elements are numbered within the slice. Any number of
workers, with any ZeRO stage, can therefore find and read exactly the elements that they need. Nothing is unpickled.
"""

import hashlib
import json
import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import parse_json

Shape = tuple[int, ...]
Numbers = Mapping[str, float]
WEIGHT, BUFFER, MEMORY = "weight", "buffer", "memory"
ABOUT: Final = "sesame"  # key in the header of a file for JSON with all data that are not tensors
CHUNK: Final = 1 << 24  # number of bytes that are hashed and written at a time
OPEN_FILES: Final = 64
DTYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class TensorSlice:
    """A tensor-parallel worker's slice of a tensor: the concatenated ranges [start, stop) along `dimension`.

    For example, a matrix contains queries, keys and values with 4 features each, and a worker has one head of size 2:

    >>> list(TensorSlice(0, ((0, 2), (4, 6), (8, 10))).runs((12, 3), 0, 18))
    [(0, 6), (12, 6), (24, 6)]
    """

    dimension: int
    pieces: tuple[tuple[int, int], ...]

    def runs(self, shape: Shape, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Convert the elements [start, start + length) of the slice to ranges (first, count) of the whole tensor."""
        inner = math.prod(shape[self.dimension + 1 :])
        row, done = shape[self.dimension] * inner, 0
        for outer in range(math.prod(shape[: self.dimension])):
            for first, stop in self.pieces:
                count = (stop - first) * inner
                skipped, ended = max(0, start - done), min(count, start + length - done)
                if skipped < ended:
                    yield outer * row + first * inner + skipped, ended - skipped
                done += count


@dataclass(frozen=True)
class CheckpointFragment:
    """One worker's part of a checkpoint: tensors on the CPU by their keys, and the header of its file."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)  # shapes of whole parameters, by name
    numbers: dict[str, Numbers] = field(default_factory=dict)  # numbers of the optimizer, by name of the parameter
    scaler: Numbers = field(default_factory=dict)  # state of the loss scaler, if any
    cuts: dict[str, TensorSlice] = field(default_factory=dict)  # slices by name of the parameter; missing if whole

    def about(self) -> dict[str, Any]:
        cuts = {name: [cut.dimension, cut.pieces] for name, cut in self.cuts.items()}
        return {"shapes": self.shapes, "numbers": self.numbers, "scaler": self.scaler, "cuts": cuts}

    def line(self, file: str) -> str:
        """The line of an index that lists the contents of a file with this name."""
        lengths = {key: tensor.numel() for key, tensor in self.tensors.items()}
        return json.dumps({"file": file, "lengths": lengths, **self.about()})


@dataclass(frozen=True)
class Seal:
    """Size and hash for checking a file."""

    bytes: int
    sha256: str


def fragment(name: str, state: str, start: int) -> str:
    """Key of weights or of an optimizer state of a parameter, from element `start`."""
    return f"{name}|{state}|{start}"


def whole(name: str, state: str) -> str:
    """Key of a state of a whole parameter, or of a buffer."""
    return f"{name}|{state}"


def write(part: CheckpointFragment, file: Path) -> Seal:
    """Write one worker's file with fsync, and return its size and hash. Raises OSError."""
    header: dict[str, Any] = {"__metadata__": {ABOUT: json.dumps(part.about())}}
    end = 0
    for key, tensor in part.tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[key] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest, size = hashlib.sha256(), 0
    with open(file, "wb") as opened:
        heads = (memoryview(len(text).to_bytes(8, "little")), memoryview(text))
        for view in chain(heads, map(_bytes, part.tensors.values())):
            for first in range(0, len(view), CHUNK):
                digest.update(view[first : first + CHUNK])
                size += opened.write(view[first : first + CHUNK])
        opened.flush()
        os.fsync(opened.fileno())
    return Seal(size, digest.hexdigest())


def _bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor on the CPU, without a copy if it is contiguous."""
    flat = tensor.detach().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _open_file(file: Path) -> Any:
    """Open a file of fragments. Its tensors are read from a memory map at their first use."""
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BadInput(
            f"{file}: invalid checkpoint file ({error}); remove its directory to use an older checkpoint"
        ) from None


@dataclass(frozen=True)
class _ElementRange:
    """Location of the elements [start, stop) of a whole parameter: they start at `offset` in the tensor `key`."""

    start: int
    stop: int
    file: Path
    key: str
    offset: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor in a file."""

    file: Path
    key: str
    start: int  # index of its first element in the parameter, or in the slice of the parameter
    length: int
    cut: TensorSlice | None


class Fragments:
    """The contents of the files of a checkpoint, which are read only as far as necessary.

    `own` is the file of this worker in the same layout, if any; it is read first, then the others in their order. An
    `index` (with `CheckpointFragment.line` of each file) replaces reading the headers: then a file is opened only for
    its tensors.
    """

    def __init__(self, files: Sequence[Path], own: Path | None = None, index: Path | None = None) -> None:
        self.files, self._own, self._index = list(files), own, index
        self.shapes: dict[str, Shape] = {}
        self.scaler: Numbers = {}
        self._numbers: dict[str, Numbers] = {}
        self._entries: dict[str, dict[str, list[_Entry]]] = {}  # by parameter, then by state
        self._ranges: dict[tuple[str, str], list[_ElementRange]] = {}
        self._unread = self._iterate_files()
        self._open = lru_cache(maxsize=OPEN_FILES)(_open_file)

    def names(self) -> list[str]:
        """The names of all parameters."""
        self._read_all()
        return [name for name, states in self._entries.items() if WEIGHT in states]

    def buffers(self) -> list[str]:
        """The names of all buffers of the model."""
        self._read_all()
        return [name for name, states in self._entries.items() if BUFFER in states]

    def buffer(self, name: str) -> Tensor:
        """Read a buffer."""
        return self.of_whole(name, BUFFER)

    def states(self, name: str) -> set[str]:
        """The names of the optimizer states of a parameter."""
        self.has(name, WEIGHT)
        return self._entries.get(name, {}).keys() - {WEIGHT, BUFFER}

    def numbers(self, name: str) -> Numbers:
        """The optimizer's numbers of a parameter, such as its step."""
        while name not in self._numbers and self._read_next():
            pass
        return self._numbers.get(name, {})

    def has(self, name: str, state: str) -> bool:
        """Whether any file contains elements of a state of a parameter."""
        while not (exists := state in self._entries.get(name, {})) and self._read_next():
            pass
        return exists

    def of_whole(self, name: str, state: str) -> Tensor:
        """Read a state of a whole parameter. Raises BadInput if no file contains it."""
        if not self.has(name, state):
            raise BadInput(f"{self.folder}: incomplete checkpoint without {state} of {name}; use an older checkpoint")
        entry = self._entries[name][state][0]
        return self._open(entry.file).get_tensor(entry.key)

    def fill(self, name: str, state: str, out: Tensor, start: int = 0, cut: TensorSlice | None = None) -> None:
        """Copy N elements of a parameter or of its slice `cut`, from element `start`, to `out` [N].

        Raises BadInput if some elements are missing.
        """
        if not out.numel():
            return
        if not self.has(name, state):
            raise BadInput(f"{self.folder}: incomplete checkpoint without {state} of {name}; use an older checkpoint")
        runs = cut.runs(self.shapes[name], start, out.numel()) if cut else [(start, out.numel())]
        at = 0
        for first, count in runs:
            while not self._copy_elements(name, state, first, out[at : at + count]):
                if not self._read_next():
                    raise BadInput(
                        f"{self.folder}: incomplete checkpoint with missing elements of {state} of {name}; "
                        "use an older checkpoint"
                    )
            at += count

    def full(self, name: str, state: str = WEIGHT) -> Tensor:
        """Read all elements of a parameter, in its shape."""
        shape = self.shape(name)
        out = torch.empty(math.prod(shape))
        self.fill(name, state, out)
        return out.view(shape)

    def shape(self, name: str) -> Shape:
        """The shape of a whole parameter. Raises BadInput if no file contains it."""
        if not self.has(name, WEIGHT):
            raise BadInput(
                f"{self.folder}: invalid checkpoint without {name}, a parameter of this model; use a checkpoint of the "
                "same recipe"
            )
        return self.shapes[name]

    @property
    def folder(self) -> Path:
        return self.files[0].parent

    def _copy_elements(self, name: str, state: str, first: int, out: Tensor) -> bool:
        """Copy elements of a whole parameter, from element `first`; return False if they are not in the known files."""
        ranges = self._sort_ranges(name, state)
        copies, at, total = [], 0, out.numel()
        index = bisect_right(ranges, first, key=lambda each: each.start) - 1
        while at < total:
            index = next((i for i in range(max(index, 0), len(ranges)) if ranges[i].stop > first + at), len(ranges))
            if index == len(ranges) or ranges[index].start > first + at:
                return False
            source = ranges[index]
            count = min(total - at, source.stop - first - at)
            copies.append((source, source.offset + first + at - source.start, at, count))
            at += count
        for source, begin, at, count in copies:  # reading starts when the locations of all elements are known
            out[at : at + count] = self._open(source.file).get_slice(source.key)[begin : begin + count]
        return True

    def _sort_ranges(self, name: str, state: str) -> list[_ElementRange]:
        """Locations of the elements of a parameter, in order; if several files contain a range, the first is used."""
        if (name, state) not in self._ranges:
            ranges = dict[tuple[int, int], _ElementRange]()
            for entry in self._entries[name][state]:
                cut, start, offset = entry.cut, entry.start, 0
                runs = cut.runs(self.shapes[name], start, entry.length) if cut else [(start, entry.length)]
                for first, count in runs:
                    limits = first, first + count
                    ranges.setdefault(limits, _ElementRange(*limits, entry.file, entry.key, offset))
                    offset += count
            self._ranges[name, state] = sorted(ranges.values(), key=lambda each: each.start)
        return self._ranges[name, state]

    def _read_all(self) -> None:
        while self._read_next():
            pass

    def _read_next(self) -> bool:
        """Read the list of tensors of one more file; return False if there is none."""
        return next(self._unread, False)

    def _iterate_files(self) -> Iterator[bool]:
        """Read the list of tensors of one more file in each iteration."""
        if self._own:
            self._read_header(self._own)
            yield True
        if self._index:
            files = {file.name: file for file in self.files}
            with open(self._index, "rb") as lines:
                for line in lines:
                    about = parse_json(line)
                    if (file := files[about["file"]]) != self._own:
                        self._add(file, about, about["lengths"])
                        yield True
            return
        for file in self.files:
            if file != self._own:
                self._read_header(file)
                yield True

    def _read_header(self, file: Path) -> None:
        opened = self._open(file)
        lengths = {key: math.prod(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118
        self._add(file, parse_json((opened.metadata() or {}).get(ABOUT, "{}")), lengths)

    def _add(self, file: Path, about: Mapping[str, Any], lengths: Mapping[str, int]) -> None:
        """Add the contents of a file, from its header and from the lengths of its tensors."""
        cuts = {
            name: TensorSlice(dimension, tuple(map(tuple, pieces)))
            for name, (dimension, pieces) in about["cuts"].items()
        }
        self.shapes |= {name: tuple(shape) for name, shape in about["shapes"].items()}
        self._numbers |= about["numbers"]
        self.scaler = self.scaler or about["scaler"]
        for key, length in lengths.items():
            name, state, *start = key.split("|")
            entry = _Entry(file, key, int(start[0]) if start else 0, length, cuts.get(name))
            self._entries.setdefault(name, {}).setdefault(state, []).append(entry)
            self._ranges.pop((name, state), None)


def memory_in(file: Path) -> dict[str, Tensor]:
    """The model's memory of the worker that wrote this file; empty if the model has no memory."""
    opened = _open_file(file)
    prefix = f"{MEMORY}|"
    return {key.removeprefix(prefix): opened.get_tensor(key) for key in opened.keys() if key.startswith(prefix)}  # noqa: SIM118
