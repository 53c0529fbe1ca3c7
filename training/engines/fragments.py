"""Files of a checkpoint that know no layout: which worker had what of a parameter is said by each file itself.

A worker writes one file of safetensors. Each tensor in it is a *fragment*: elements of one parameter that lie together,
of its float32 weights or of something that the optimiser keeps for each element. Its key says which:

    trunk.tokens.weight|weight|4096         the weights from element 4,096 on, as many as the tensor is long
    trunk.tokens.weight|exp_avg|4096        Adam's first moment of the same elements
    trunk.tokens.weight|row.0               something of the whole parameter, written by one worker
    trunk.scale|buffer                      a buffer of the net

The header of the file has the shapes of the parameters, numbers such as the step of the optimiser, and, under tensor
parallelism, which slice of a parameter the elements are counted in. So any number of workers, with any ZeRO stage,
finds what it needs, and reads no more than that. Nothing is unpickled.
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
ABOUT: Final = "sesame"  # of the header of a file: what is no tensor, as JSON
CHUNK: Final = 1 << 24  # bytes that are hashed and written at a time
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
    """A slice of a tensor, as a tensor-parallel worker has it: along `dimension` the pieces [start, stop), joined.

    Queries, keys and values of 4 features each in one matrix, of which a worker has one head of 2:

    >>> list(TensorSlice(0, ((0, 2), (4, 6), (8, 10))).runs((12, 3), 0, 18))
    [(0, 6), (12, 6), (24, 6)]
    """

    dimension: int
    pieces: tuple[tuple[int, int], ...]

    def runs(self, shape: Shape, start: int, length: int) -> Iterator[tuple[int, int]]:
        """The elements [start, start + length) of the slice, in order: stretches (first, count) of the whole tensor."""
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
    """What one worker writes of a checkpoint: tensors on the CPU by their keys, and the header of its file."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)  # of whole parameters, by name
    numbers: dict[str, Numbers] = field(default_factory=dict)  # of the optimiser, by name of the parameter
    scaler: Numbers = field(default_factory=dict)  # the state of the loss scale, where there is one
    cuts: dict[str, TensorSlice] = field(default_factory=dict)  # by name; a parameter without one is counted as a whole

    def about(self) -> dict[str, Any]:
        cuts = {name: [cut.dimension, cut.pieces] for name, cut in self.cuts.items()}
        return {"shapes": self.shapes, "numbers": self.numbers, "scaler": self.scaler, "cuts": cuts}

    def line(self, file: str) -> str:
        """Of an index: what a file of this name has."""
        lengths = {key: tensor.numel() for key, tensor in self.tensors.items()}
        return json.dumps({"file": file, "lengths": lengths, **self.about()})


@dataclass(frozen=True)
class Seal:
    """What a file must be like."""

    bytes: int
    sha256: str


def fragment(name: str, state: str, start: int) -> str:
    """The key of elements of a parameter, or of what an optimiser keeps for them, from element `start` on."""
    return f"{name}|{state}|{start}"


def whole(name: str, state: str) -> str:
    """The key of what belongs to a whole parameter, and of a buffer."""
    return f"{name}|{state}"


def write(part: CheckpointFragment, file: Path) -> Seal:
    """Write one worker's file and make it durable; it is hashed on its way. Raises OSError."""
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
    """The memory of a tensor on the CPU."""
    flat = tensor.detach().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _opened(file: Path) -> Any:
    """A file of fragments; its tensors are read from a memory map when they are asked for."""
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{file}: no file of a checkpoint ({error}); remove its folder, an older one is taken") from None


@dataclass(frozen=True)
class _Place:
    """Where a stretch of a parameter is: elements [start, stop) of the whole one, from `offset` of a tensor on."""

    start: int
    stop: int
    file: Path
    key: str
    offset: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor of a file."""

    file: Path
    key: str
    start: int  # of its elements in the parameter, or in its slice
    length: int
    cut: TensorSlice | None


class Fragments:
    """What the files of a checkpoint have. They are read no further than what is asked for: first `own`, where a worker
    has written one in the same layout, then the others in their order.

    Where there is an `index` (`CheckpointFragment.line` of each file) it is read in place of headers, and a file is
    opened only for its tensors.
    """

    def __init__(self, files: Sequence[Path], own: Path | None = None, index: Path | None = None) -> None:
        self.files, self._own, self._index = list(files), own, index
        self.shapes: dict[str, Shape] = {}
        self.scaler: Numbers = {}
        self._numbers: dict[str, Numbers] = {}
        self._entries: dict[str, dict[str, list[_Entry]]] = {}  # by parameter, then by state
        self._places: dict[tuple[str, str], list[_Place]] = {}
        self._unread = self._reading()
        self._open = lru_cache(maxsize=OPEN_FILES)(_opened)

    def names(self) -> list[str]:
        """All parameters."""
        self._read_all()
        return [name for name, states in self._entries.items() if WEIGHT in states]

    def buffers(self) -> list[str]:
        """The buffers of the net."""
        self._read_all()
        return [name for name, states in self._entries.items() if BUFFER in states]

    def buffer(self, name: str) -> Tensor:
        """One of them."""
        return self.of_whole(name, BUFFER)

    def states(self, name: str) -> set[str]:
        """What is kept for the elements of a parameter beside its weights, or for all of it."""
        self.has(name, WEIGHT)
        return self._entries.get(name, {}).keys() - {WEIGHT, BUFFER}

    def numbers(self, name: str) -> Numbers:
        """The optimiser's numbers of a parameter."""
        while name not in self._numbers and self._read_next():
            pass
        return self._numbers.get(name, {})

    def has(self, name: str, state: str) -> bool:
        """Whether any worker had something of this."""
        while not (found := state in self._entries.get(name, {})) and self._read_next():
            pass
        return found

    def of_whole(self, name: str, state: str) -> Tensor:
        """What belongs to a whole parameter; BadInput where no file has it."""
        if not self.has(name, state):
            raise BadInput(f"{self.folder}: has no {state} of {name}; take an older checkpoint")
        entry = self._entries[name][state][0]
        return self._open(entry.file).get_tensor(entry.key)

    def fill(self, name: str, state: str, out: Tensor, start: int = 0, cut: TensorSlice | None = None) -> None:
        """Copy the elements from `start` on of a parameter, or of its slice, to `out` [N]; BadInput where some lack."""
        if not out.numel():
            return
        if not self.has(name, state):
            raise BadInput(f"{self.folder}: has no {state} of {name}; take an older checkpoint")
        runs = cut.runs(self.shapes[name], start, out.numel()) if cut else [(start, out.numel())]
        at = 0
        for first, count in runs:
            while not self._copied(name, state, first, out[at : at + count]):
                if not self._read_next():
                    raise BadInput(f"{self.folder}: lacks elements of {state} of {name}; take an older checkpoint")
            at += count

    def full(self, name: str, state: str = WEIGHT) -> Tensor:
        """All elements of a parameter, in its shape."""
        shape = self.shape(name)
        out = torch.empty(math.prod(shape))
        self.fill(name, state, out)
        return out.view(shape)

    def shape(self, name: str) -> Shape:
        """Of a whole parameter; BadInput where no file has it."""
        if not self.has(name, WEIGHT):
            raise BadInput(f"{self.folder}: has no {name}, which this run wants; is it of another recipe?")
        return self.shapes[name]

    @property
    def folder(self) -> Path:
        return self.files[0].parent

    def _copied(self, name: str, state: str, first: int, out: Tensor) -> bool:
        """Copy the elements of the whole parameter from `first` on; False where the files read so far lack some."""
        places = self._sorted(name, state)
        pieces, at, wanted = [], 0, out.numel()
        index = bisect_right(places, first, key=lambda place: place.start) - 1
        while at < wanted:
            index = next((i for i in range(max(index, 0), len(places)) if places[i].stop > first + at), len(places))
            if index == len(places) or places[index].start > first + at:
                return False
            place = places[index]
            count = min(wanted - at, place.stop - first - at)
            pieces.append((place, place.offset + first + at - place.start, at, count))
            at += count
        for place, begin, at, count in pieces:  # nothing is read before all is known to be there
            out[at : at + count] = self._open(place.file).get_slice(place.key)[begin : begin + count]
        return True

    def _sorted(self, name: str, state: str) -> list[_Place]:
        """Where the elements are, by their place in the whole parameter; what several files have is in the first."""
        if (name, state) not in self._places:
            places = dict[tuple[int, int], _Place]()
            for entry in self._entries[name][state]:
                cut, start, offset = entry.cut, entry.start, 0
                runs = cut.runs(self.shapes[name], start, entry.length) if cut else [(start, entry.length)]
                for first, count in runs:
                    stretch = first, first + count
                    places.setdefault(stretch, _Place(*stretch, entry.file, entry.key, offset))
                    offset += count
            self._places[name, state] = sorted(places.values(), key=lambda place: place.start)
        return self._places[name, state]

    def _read_all(self) -> None:
        while self._read_next():
            pass

    def _read_next(self) -> bool:
        """Read what one more file has; False where there is none."""
        return next(self._unread, False)

    def _reading(self) -> Iterator[bool]:
        """Reads what one more file has at each step."""
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
        """Take in what a file has: what it says of itself, and the lengths of its tensors."""
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
            self._places.pop((name, state), None)


def memory_in(file: Path) -> dict[str, Tensor]:
    """What the rows of the worker that wrote this file go on from; empty where its net has no memory."""
    opened = _opened(file)
    prefix = f"{MEMORY}|"
    return {key.removeprefix(prefix): opened.get_tensor(key) for key in opened.keys() if key.startswith(prefix)}  # noqa: SIM118
