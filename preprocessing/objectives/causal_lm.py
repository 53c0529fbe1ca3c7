"""Causal language modeling (GPT)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.part import Attention
from preprocessing.schema import Row
from preprocessing.spec import ScaleOverrides, spec
from preprocessing.tokenization import ENDED, PLAIN, Frame, Vocab


@spec
class CausalLM:
    """Causal language modeling: each token predicts the next one (GPT).

    A sequence of n + 1 tokens has n targets.
    """

    kind: Literal["causal_lm"] = "causal_lm"

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    specials: ClassVar[tuple[str, ...]] = ()
    lookahead: ClassVar[int] = 1
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = False
    two_sided: ClassVar[bool] = False
    attention: ClassVar[Attention] = "model"
    target: ClassVar[str] = ""
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def describe(self) -> str:
        return "each token predicts the next one"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 0.0, 1.0

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that the model reads `length` tokens."""
        return length + self.lookahead

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return PLAIN if frame == ENDED else frame  # the end token is predicted; it precedes the next text

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        shortened = {name: column[:-1] if np.ndim(column) else column for name, column in row.items()}
        return shortened | {"labels": row["input_ids"][1:]}
