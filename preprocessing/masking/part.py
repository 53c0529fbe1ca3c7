"""The interface of masking schemes. Sampling, checks, scales and reports use these attributes only."""

from typing import ClassVar, Protocol

import numpy as np

from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides


class MaskingPart(Protocol):
    """A member of the union Masking: it selects the tokens of a sequence that the model predicts."""

    produced_columns: ClassVar[frozenset[str]]
    """Columns of schema.py that this scheme produces: `hits`, or none."""
    possible_columns: ClassVar[frozenset[str]]
    """All columns that this kind of scheme can produce, for any values of its keys."""
    scale_overrides: ClassVar[ScaleOverrides]
    """Values of keys that `--scale` sets, by scale."""

    @property
    def kind(self) -> str:
        """Name of this scheme in a recipe."""

    @property
    def kernel_gap(self) -> str:
        """What has no compiled kernel (preprocessing/compiled), e.g. "token with sample_alpha"; "" if all has one."""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that this scheme reads."""

    @property
    def predicted(self) -> float:
        """Mean fraction of the tokens of a sequence that are selected; 1.0 if the scheme selects no tokens."""

    @property
    def span_mean(self) -> float:
        """Mean tokens per span, if all sequences of a length have the same number of spans; otherwise 0.0."""

    @property
    def required_annotations(self) -> frozenset[str]:
        """Annotations that the corpus must have: {"phrases"} (the column `unit_starts`), or none."""

    def most_runs(self, num_tokens: int) -> int:
        """Return the maximum number of runs of selected tokens that a sequence of `num_tokens` tokens can have."""

    def describe(self) -> str:
        """Describe the selected tokens in one line, e.g. "15% of the tokens, in whole words"."""

    def __call__(self, row: Row, rng: np.random.Generator) -> Ints:
        """Return the column `hits`, int32 [S]: 0 at tokens that are not selected, k in the k-th selected unit."""
