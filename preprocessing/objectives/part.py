"""The facts that each kind of objective states about itself; rows, checks, scales and reports read them here only."""

from typing import ClassVar, Literal, Protocol

import numpy as np

from preprocessing.masking import Masking
from preprocessing.schema import Row
from preprocessing.spec import ScaleOverrides
from preprocessing.tokenization import Frame, Vocab

Attention = Literal["model", "rows", "queries"]


class ObjectivePart(Protocol):
    """A part of the union Objective: what the model reads in place of a row, and what it predicts."""

    possible_columns: ClassVar[frozenset[str]]
    """All columns that a part of its kind produces, whatever its keys are."""
    lookahead: ClassVar[int]
    """Tokens behind a row that it reads as well: 1 where each token predicts the next."""
    segments: ClassVar[int]
    """How many segments (token types) its rows tell apart where it renumbers them; else 1."""
    reads_segments: ClassVar[int]
    """How many segments a row must have for it; 1 where it reads none."""
    selects: ClassVar[bool]
    """Whether it picks by itself what is predicted, so that masking `none` goes with it."""
    two_sided: ClassVar[bool]
    """Whether it makes a source that an encoder reads, besides the row of the decoder."""
    attention: ClassVar[Attention]
    """What decides the attention mask: the model; the columns rank and reach of a row, each token being visible to
    itself (rows); or these columns, where a predicted token is not visible to itself (queries)."""
    remark: ClassVar[str]
    """What a person who trains on its rows should know, in a line; "" where nothing is unexpected."""
    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe."""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a row that it reads."""

    @property
    def produced_columns(self) -> frozenset[str]:
        """Columns of schema.py that it makes, or makes anew."""

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of the special tokens that it puts into rows."""

    @property
    def target(self) -> str:
        """What a decoder predicts from a source, in words ("the whole text"); "" where there is no source."""

    @property
    def perm_size(self) -> int:
        """Tokens of a block within which it works; 0 where it has no blocks."""

    def describe(self) -> str:
        """What is read and what is predicted, in one line: "each token predicts the next"."""

    def shares(self, masking: Masking) -> tuple[float, float]:
        """Tokens that an encoder and a decoder read for each token of a row's length; (0.0, 1.0) without a source."""

    def raw_length(self, length: int, masking: Masking) -> int:
        """Tokens of a row of which no side that the model reads is longer than `length`."""

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        """Sentinels that a row of so many tokens can need at the most; 0 where it has none."""

    def frame(self, frame: Frame) -> Frame:
        """The special tokens around a text that is read, of rows that had this frame before."""

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """The row as the model reads it, with the column `labels`."""
