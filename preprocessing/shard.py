"""One shard of a corpus, open for reading: a memory-mapped Arrow file, or one that is opened on first use.

shards.py writes shards. shard_cache.py has copies of shards that are in an object store.
"""

import mmap
from collections.abc import Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from preprocessing.errors import BadInput
from preprocessing.manifest import AGAIN
from preprocessing.schema import NO_METADATA, Bools, Ints, Metadata

METADATA: Final = "metadata"  # last column: a struct of strings, only if a source keeps fields


def metadata_type(fields: Sequence[str]) -> pa.DataType:
    """The type of a column of metadata with these fields."""
    return pa.struct([pa.field(name, pa.string()) for name in fields])


class Shard:
    """The documents of one shard: N documents with T tokens and M sentences in total; arrays are read-only views.

    `ids_T` (uint16 or uint32) are the concatenated tokens. `offset_N1` (int64) are the starts of the documents in them,
    followed by T, and `num_tokens_N` (int64) the lengths of the documents. Raises BadInput if the file is missing or
    not a shard. With `content`, the file is already mapped, and `path` only names it.
    """

    def __init__(self, path: Path | str, content: mmap.mmap | None = None) -> None:
        self.path = Path(path)
        try:
            with pa.memory_map(str(self.path)) if content is None else pa.BufferReader(content) as file:
                batch = pa.ipc.open_file(file).get_batch(0)
            tokens, self._source, self._key = (batch.column(name) for name in ("tokens", "source", "key"))
            self._metadata = batch.column(METADATA) if METADATA in batch.schema.names else None
            self._token_T = tokens.values
            self._word_starts, self._sentence_starts = map(self._token_T.field, ("word_start", "sentence_start"))
            self.ids_T: Ints = view_ints(self._token_T.field("id"))
        except (OSError, KeyError, AttributeError, pa.ArrowException) as error:
            reason = str(error).split("\n")[0]
            raise BadInput(f"{self.path}: cannot read it as a shard ({reason}); {AGAIN}") from None
        self.has_units: bool = self._token_T.type.get_field_index("unit_start") >= 0
        self._unit_starts = self._token_T.field("unit_start") if self.has_units else self._word_starts
        self.offset_N1: Ints = view_ints(tokens.offsets).astype(np.int64)
        self.num_tokens_N: Ints = np.diff(self.offset_N1)

    def __len__(self) -> int:
        return len(self.num_tokens_N)

    def __reduce__(self) -> tuple[type["Shard"], tuple[Any, ...]]:
        return Shard, (self.path,)  # another process maps the file again

    @property
    def num_tokens(self) -> int:
        return len(self.ids_T)

    def word_starts(self, start: int, stop: int) -> Bools:
        """Whether a word begins, at each of the flat positions [start, stop)."""
        return unpack_flags(self._word_starts, start, stop)

    def unit_starts(self, start: int, stop: int) -> Bools:
        """Whether a phrase, or a word outside of phrases, begins; the same as word_starts if not `has_units`."""
        return unpack_flags(self._unit_starts, start, stop)

    def sentence_starts(self, start: int, stop: int) -> Bools:
        """Whether a sentence begins, at each of the flat positions [start, stop)."""
        return unpack_flags(self._sentence_starts, start, stop)

    @property
    def word_start_bits(self) -> Ints:
        """The same for all positions, as bits, least significant bit first; uint8."""
        return np.frombuffer(self._word_starts.buffers()[1], np.uint8)

    @property
    def sentence_start_bits(self) -> Ints:
        """The bits of sentence_starts for all positions, uint8."""
        return np.frombuffer(self._sentence_starts.buffers()[1], np.uint8)

    @cached_property
    def sentence_at_M(self) -> Ints:
        """The flat positions at which a sentence begins, int64."""
        return np.flatnonzero(self.sentence_starts(0, self.num_tokens))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The sources of the documents, sorted, each once."""
        return tuple(self._source.dictionary.to_pylist())

    @property
    def source_N(self) -> Ints:
        """The index in `sources` of each document's source, int8 to int32."""
        return view_ints(self._source.indices)

    def source(self, i: int) -> str:
        """The source of document i."""
        return self.sources[self.source_N[i]]

    def key(self, i: int) -> bytes:
        """The key of document i, 16 bytes."""
        return self._key[i].as_py()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the metadata; () if the corpus has none."""
        return () if self._metadata is None else tuple(field.name for field in self._metadata.type)

    def metadata(self, i: int) -> Metadata:
        """The metadata of document i; empty if the corpus has none."""
        return NO_METADATA if self._metadata is None else self._metadata[i].as_py()

    def field(self, name: str) -> list[str | None]:
        """The values of a field of the metadata, one for each document."""
        return [None] * len(self) if self._metadata is None else self._metadata.field(name).to_pylist()

    def find_keys(self, digits: str) -> list[int]:
        """The documents whose keys begin with these hexadecimal digits, at most 32."""
        low, high = (int(digits.ljust(32, filler), 16).to_bytes(16, "big") for filler in ("0", "f"))
        keys = self._key.buffers()[1].to_pybytes()
        return [i for i in range(len(self)) if low <= keys[16 * i : 16 * i + 16] <= high]

    def find_any(self, keys: Set[bytes]) -> list[int]:
        """The documents whose keys are among these."""
        mine = self._key.buffers()[1].to_pybytes()
        return [i for i in range(len(self)) if mine[16 * i : 16 * i + 16] in keys]

    def tokens(self, i: int) -> Ints:
        """The token ids of document i, a view."""
        return self.ids_T[self.offset_N1[i] : self.offset_N1[i + 1]]

    def document(self, i: int) -> dict[str, Any]:
        """All columns of document i: ids, start flags (unit_starts only if `has_units`), source, key and metadata (only
        if the corpus has any)."""
        start, stop = self.offset_N1[i : i + 2].tolist()
        units = {"unit_starts": self.unit_starts(start, stop)} if self.has_units else {}
        return {
            "ids": self.tokens(i),
            "word_starts": self.word_starts(start, stop),
            "sentence_starts": self.sentence_starts(start, stop),
            **units,
            "source": self.source(i),
            "key": self.key(i),
            **({"metadata": self.metadata(i)} if self.fields else {}),
        }


def view_ints(array: pa.Array) -> Ints:
    """A view of an Arrow array of integers without nulls, by DLPack: `to_numpy` imports pandas, which takes 0.3 s."""
    return cast(Ints, np.from_dlpack(array))


def unpack_flags(column: pa.BooleanArray, start: int, stop: int) -> Bools:
    """The flags [start, stop) of a bit column, least significant bit first, as bool."""
    packed = np.frombuffer(column.buffers()[1], np.uint8)[start // 8 : (stop + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[start % 8 :][: stop - start].view(np.bool_)
