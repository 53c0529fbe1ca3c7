"""The facts that each kind of packing states about itself; rows, checks, scales and reports read them here only."""

from typing import ClassVar, Protocol

import numpy as np

from preprocessing.packing.packing_plan import Columns, PackingPlan
from preprocessing.schema import Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides
from preprocessing.tokenization import Frame, Vocab


class PackingPart(Protocol):
    """A part of the union Packing: how the documents of a shard become rows."""

    possible_columns: ClassVar[frozenset[str]]
    """All columns that a part of its kind produces, whatever its keys are."""
    fresh: ClassVar[bool]
    """Whether each epoch has other rows, and not the same rows in another order."""
    ordered: ClassVar[bool]
    """Whether a row goes on where the row before it stopped, as a model with a memory needs it."""
    segments: ClassVar[int]
    """How many segments (token types) its rows tell apart."""
    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def produced_columns(self) -> Columns:
        """Columns of schema.py that its rows have; those of schema.ON_DEMAND and OPTIONAL may come on top."""

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of the special tokens that it puts into rows."""

    @property
    def reuse_len(self) -> int:
        """Tokens at the start of a row that the row before has as well; 0 where rows share none."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that its rows name, in the order of their numbers; empty where they name none."""

    @property
    def label_says(self) -> str:
        """The task of `next_sentence_label` in words ("next sentence prediction"); "" where rows have no such label."""

    @property
    def label_means(self) -> tuple[str, str]:
        """What the values 0 and 1 of `next_sentence_label` say of a row, each a sentence; "" where rows have no such
        label.
        """

    @property
    def required_annotations(self) -> frozenset[str]:
        """What the corpus must have besides text: {"translations"}, or nothing."""

    @property
    def both_ways(self) -> bool:
        """Whether each shard has a second plan, read from its end; it then is a part of `ReversiblePacking`."""

    @property
    def partners(self) -> bool:
        """Whether rows take text from other documents, so that a shard of few documents wants more to choose from."""

    @property
    def least(self) -> int:
        """Tokens that a row must have room for, special ones included."""

    @property
    def frame(self) -> Frame:
        """The special tokens around a text that is a row of its own, and around two."""

    def describe(self) -> str:
        """The rows in one line: "pairs of segments, 50% swapped (SOP)"."""

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Rows of at most length + lookahead tokens, special tokens included. BadInput where the text gives none."""

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = ...) -> Row:
        """The `produced_columns` of the i-th row of a plan, and those of `wanted` that every packing can make."""


class ReversiblePacking(PackingPart, Protocol):
    """A packing that can read a shard from its end as well."""

    def plan(
        self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator, *, backward: bool = ...
    ) -> PackingPlan:
        """As PackingPart.plan; `backward`: of the rows that begin at the end of the shard."""
