"""Where the columns of a plan lie in the file of a shard, so that they can be read without the rest of it."""

import mmap
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

_HEAD: Final = 1 << 16  # bytes that are read first, at both ends of a file
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE of Linux: no memory is set aside for pages that are never written


class RangeReader(Protocol):
    """Reads the bytes [start, stop) of a file."""

    def __call__(self, start: int, stop: int) -> bytes: ...


class ArrowLayout(NamedTuple):
    """The ranges of bytes of the columns that a packing plan reads, and the flags that the shard has."""

    offsets: tuple[int, int]  # int32: the start of each document, and the end
    sentences: tuple[int, int]  # bits of sentence starts, least significant bit first
    has_units: bool


def locate_columns(size: int, read: RangeReader) -> ArrowLayout:
    """The layout of a shard of `size` bytes, of which only the metadata at both ends is read.

    The metadata is put into empty memory as large as the file. Arrow opens it without reading a column, and the
    addresses of its buffers are positions in the file. Raises ValueError if the file is not a shard.
    """
    head = min(size, _HEAD)
    while True:
        try:
            return _locate(size, head, read)
        except (KeyError, AttributeError, pa.ArrowException, OSError) as error:
            if head == size:
                raise ValueError(str(error).split("\n")[0]) from None
        head = min(size, 8 * head)  # the list of sources is long


def _locate(size: int, head: int, read: RangeReader) -> ArrowLayout:
    start, end = read(0, head), read(max(head, size - head), size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    memory[: len(start)], memory[size - len(end) :] = start, end
    content = pa.py_buffer(memory)
    tokens = pa.ipc.open_file(pa.BufferReader(content)).get_batch(0).column("tokens")
    flags = tokens.values
    buffers = (tokens.buffers()[1], flags.field("sentence_start").buffers()[1])
    offsets, sentences = (buffer.address - content.address for buffer in buffers)
    layout = ArrowLayout(
        (offsets, offsets + 4 * (len(tokens) + 1)),
        (sentences, sentences + -(-len(flags) // 8)),
        has_units=flags.type.get_field_index("unit_start") >= 0,
    )
    if not all(0 <= start < stop <= size for start, stop in layout[:2]):
        raise KeyError("a column is outside of the file")
    return layout
