"""The interface of objectives. Sampling, checks, scales and reports use these attributes only."""

from typing import ClassVar, Literal, Protocol

import numpy as np

from preprocessing.masking import Masking
from preprocessing.schema import Row
from preprocessing.spec import ScaleOverrides
from preprocessing.tokenization import Frame, Vocab

Attention = Literal["model", "rows", "queries"]


class ObjectivePart(Protocol):
    """A member of the union Objective: it defines what the model reads and what it predicts."""

    possible_columns: ClassVar[frozenset[str]]
    """All columns that this kind of objective can produce, for any values of its keys."""
    lookahead: ClassVar[int]
    """Number of extra tokens read after a sequence: 1 if each token predicts the next one."""
    segments: ClassVar[int]
    """Number of token types if the objective renumbers them; otherwise 1."""
    reads_segments: ClassVar[int]
    """Number of token types that the packing must provide; 1 if the objective does not read token types."""
    selects: ClassVar[bool]
    """Whether the objective selects its own targets; it then needs masking `none`."""
    two_sided: ClassVar[bool]
    """Whether the objective produces a source for an encoder, in addition to the decoder sequence."""
    attention: ClassVar[Attention]
    """Source of the attention mask. `model`: the model's own mask. `rows`: the columns rank and reach, and each token
    attends to itself. `queries`: the columns rank and reach, and a predicted token does not attend to itself."""
    remark: ClassVar[str]
    """A remark for the user in one line, if a property of the sequences may be unexpected; otherwise ""."""
    scale_overrides: ClassVar[ScaleOverrides]
    """Values of keys that `--scale` sets, by scale."""

    @property
    def kind(self) -> str:
        """Name of this objective in a recipe."""

    @property
    def kernel_gap(self) -> str:
        """What has no compiled kernel (preprocessing/compiled), e.g. "token with sample_alpha"; "" if all has one."""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that this objective reads."""

    @property
    def produced_columns(self) -> frozenset[str]:
        """Columns of schema.py that this objective adds or replaces."""

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of the special tokens that this objective inserts into sequences."""

    @property
    def target(self) -> str:
        """Description of the decoder's targets, e.g. "the whole text"; "" without a source."""

    @property
    def perm_size(self) -> int:
        """Number of tokens per permuted block; 0 without blocks."""

    def describe(self) -> str:
        """Describe the inputs and targets in one line, e.g. "each token predicts the next one"."""

    def shares(self, masking: Masking) -> tuple[float, float]:
        """Return the tokens that the encoder and the decoder read, as fractions of the sequence length.

        Without a source: (0.0, 1.0).
        """

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that neither side exceeds `length` tokens."""

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        """Return the maximum number of sentinel tokens that a sequence of `num_tokens` tokens can need."""

    def frame(self, frame: Frame) -> Frame:
        """Return the frame of the texts that the model reads; `frame` is that of the packing."""

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the sequence that the model reads, with the column `labels`."""
