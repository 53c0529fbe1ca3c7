"""Small in-memory replacements for a shard, a store and a vocabulary."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from preprocessing.manifest import MixtureGroupStats


@dataclass(frozen=True)
class ToyVocab:
    """IDs 0 to 4 are special tokens, the rest ordinary."""

    size: int = 1000
    pad: int | None = 0
    unk: int | None = 1
    cls: int | None = 2
    sep: int | None = 3
    mask: int | None = 4
    special_ids: tuple[int, ...] = (0, 1, 2, 3, 4)
    sentinels: int = 0

    @property
    def sentinel(self) -> int | None:
        return self.size - 1 if self.sentinels else None


@dataclass(frozen=True)
class ToyShard:
    ids_T: np.ndarray
    offset_N1: np.ndarray
    sentence_at_M: np.ndarray
    starts_T: np.ndarray
    path: Path = Path("toy/train-00000-of-00001.arrow")
    units_T: np.ndarray | None = None
    source_names: tuple[str, ...] = ()  # one per document

    @property
    def has_units(self) -> bool:
        return self.units_T is not None

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.source_names))) or ("toy",)

    @property
    def source_N(self) -> np.ndarray:
        names = self.source_names or ("toy",) * (len(self.offset_N1) - 1)
        return np.array([self.sources.index(name) for name in names], np.int8)

    @property
    def word_start_bits(self) -> np.ndarray:
        return np.packbits(self.starts_T, bitorder="little")

    @property
    def sentence_start_bits(self) -> np.ndarray:
        return np.packbits(self.sentence_starts(0, len(self.ids_T)), bitorder="little")

    def word_starts(self, start: int, stop: int) -> np.ndarray:
        return self.starts_T[start:stop]

    def unit_starts(self, start: int, stop: int) -> np.ndarray:
        return self.units_T[start:stop]

    def sentence_starts(self, start: int, stop: int) -> np.ndarray:
        return np.isin(np.arange(start, stop), self.sentence_at_M)


@dataclass(frozen=True)
class ToyStore:
    shards: tuple[ToyShard, ...]
    folder: Path = Path("toy")
    split: str = "train"
    manifest: dict = field(default_factory=dict)
    groups: tuple[MixtureGroupStats, ...] = ()
    is_remote: bool = False


def shard(documents: list[list[int]], word_every: int = 1) -> ToyShard:
    """Make a shard from lists of sentence lengths; token IDs count up from 10, so each ID shows its position."""
    lengths = [length for document in documents for length in document]
    num_tokens = sum(lengths)
    return ToyShard(
        ids_T=np.arange(10, 10 + num_tokens, dtype=np.uint32),
        offset_N1=np.cumsum([0] + [sum(document) for document in documents]),
        sentence_at_M=np.cumsum([0, *lengths])[:-1],
        starts_T=np.arange(num_tokens) % word_every == 0,
    )


def random_shard(num_documents: int, seed: int = 0, most_sentences: int = 30, vocab_size: int = 1000) -> ToyShard:
    """Make documents of 1 to most_sentences sentences of 3 to 60 tokens; words have 1 to 4 tokens."""
    rng = np.random.default_rng(seed)
    documents = [
        rng.integers(3, 60, size=rng.integers(1, most_sentences, endpoint=True)).tolist() for _ in range(num_documents)
    ]
    made = shard(documents)
    starts_T = rng.random(len(made.ids_T)) < 0.7
    starts_T[made.sentence_at_M] = True
    ids_T = rng.integers(5, vocab_size, size=len(made.ids_T)).astype(np.uint16)
    return ToyShard(ids_T, made.offset_N1, made.sentence_at_M, starts_T)


def row(num_tokens: int, specials: list[int], word_starts: list[int] | None = None) -> dict[str, np.ndarray]:
    """Make a sequence of IDs 10, 11, ...; words start at `word_starts`, or at each token if it is None."""
    special_S = np.zeros(num_tokens, dtype=bool)
    special_S[specials] = True
    starts_S = np.ones(num_tokens, dtype=bool)
    if word_starts is not None:
        starts_S[:] = False
        starts_S[word_starts] = True
        starts_S |= special_S
        starts_S[1:] |= special_S[:-1]
    ids_S = np.arange(10, 10 + num_tokens, dtype=np.int32)
    ids_S[special_S] = 3
    return {
        "input_ids": ids_S,
        "token_type_ids": np.zeros(num_tokens, np.int8),
        "special_tokens_mask": special_S,
        "word_starts": starts_S,
    }
