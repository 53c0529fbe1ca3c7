"""The interface of packings. Sampling, checks, scales and reports use these attributes only."""

from typing import ClassVar, Protocol

import numpy as np

from preprocessing.packing.packing_plan import Columns, PackingPlan
from preprocessing.schema import Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides
from preprocessing.tokenization import Frame, Vocab


class PackingPart(Protocol):
    """A member of the union Packing: it turns the documents of a shard into sequences."""

    possible_columns: ClassVar[frozenset[str]]
    """All columns that this kind of packing can produce, for any values of its keys."""
    fresh: ClassVar[bool]
    """Whether each epoch has new sequences; otherwise only their order changes."""
    ordered: ClassVar[bool]
    """Whether each sequence continues the previous one, as a model with memory requires."""
    segments: ClassVar[int]
    """Number of token types in its sequences."""
    counts_alone: ClassVar[bool]
    """Whether it counts the sequences of an epoch without planning them; requires `CountingPacking`."""
    joins_shards: ClassVar[bool]
    """Whether small shards share a plan, so that their sequences hold documents of several shards (pool.py)."""
    scale_overrides: ClassVar[ScaleOverrides]
    """Values of keys that `--scale` sets, by scale."""

    @property
    def kind(self) -> str:
        """Name of this packing in a recipe."""

    @property
    def kernel_gap(self) -> str:
        """What has no compiled kernel (preprocessing/compiled), e.g. "token with sample_alpha"; "" if all has one."""

    @property
    def produced_columns(self) -> Columns:
        """Columns of schema.py in its sequences; columns of schema.ON_DEMAND and OPTIONAL may be added."""

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of the special tokens that it inserts into sequences."""

    @property
    def reuse_len(self) -> int:
        """Number of tokens at the start of a sequence that the previous sequence contains too."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages of its sequences, in the order of their numbers; empty if sequences have no language."""

    @property
    def label_says(self) -> str:
        """Task of the column `next_sentence_label`, e.g. "next sentence prediction"; "" without this column."""

    @property
    def label_means(self) -> tuple[str, str]:
        """Meanings of the values 0 and 1 of `next_sentence_label`, one sentence each; "" without this column."""

    @property
    def required_annotations(self) -> frozenset[str]:
        """Annotations that the corpus must have: {"translations"}, or none."""

    @property
    def both_ways(self) -> bool:
        """Whether each shard has a second plan that reads it from its end; requires `ReversiblePacking`."""

    @property
    def partners(self) -> bool:
        """Whether sequences combine several documents; a shard with few documents then needs a pool (pool.py)."""

    @property
    def least(self) -> int:
        """Minimum sequence length, special tokens included."""

    @property
    def frame(self) -> Frame:
        """Special tokens of a sequence with one text, and of a sequence with two."""

    def describe(self) -> str:
        """Describe the sequences in one line, e.g. "pairs of segments, 50% swapped (SOP)"."""

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan sequences of at most length + lookahead tokens, special tokens included.

        Raises BadInput if the text does not suit this packing.
        """

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = ...) -> Row:
        """Return the `produced_columns` of the i-th sequence of a plan, and the columns in `wanted`."""


class ReversiblePacking(PackingPart, Protocol):
    """A packing that can also read a shard from its end."""

    def plan(
        self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator, *, backward: bool = ...
    ) -> PackingPlan:
        """Plan sequences as PackingPart.plan does; `backward`: from the end of the shard."""


class CountingPacking(PackingPart, Protocol):
    """A packing with a kernel that counts the sequences of a plan in less time than planning them."""

    def count(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> int:
        """Return the number of sequences of `PackingPart.plan` with the same arguments; needs numba."""
