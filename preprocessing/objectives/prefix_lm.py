"""Prefix language modeling with an encoder and a decoder (T5, arXiv:1910.10683, table 3)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.part import Attention
from preprocessing.objectives.seq2seq import add_end, two_sides
from preprocessing.schema import Row
from preprocessing.spec import ScaleOverrides, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class PrefixLM:
    """Prefix language modeling: the decoder predicts the second part of the text (T5 3.3.1).

    The sequence is cut in two at a uniformly drawn position, and the encoder reads the first part.
    """

    kind: Literal["prefix_lm"] = "prefix_lm"

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    specials: ClassVar[tuple[str, ...]] = ("pad", "sep")
    lookahead: ClassVar[int] = 0
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = True
    two_sided: ClassVar[bool] = True
    attention: ClassVar[Attention] = "model"
    target: ClassVar[str] = "the rest of the text"
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    kernel_gap: ClassVar[str] = "prefix_lm"
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def describe(self) -> str:
        return "source: the beginning of the text; targets: the rest"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 0.5, 0.5

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that no side with its end token exceeds `length`."""
        return length

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return frame.add_end()

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> class Tiny:
        ...     size, pad, sep = 100, 0, 3
        >>> made = PrefixLM()({"input_ids": np.array([11, 12, 13, 14])}, Tiny, key(0, "masking").at(0, 0))
        >>> made["source_input_ids"].tolist(), made["input_ids"].tolist(), made["labels"].tolist()
        ([11, 3], [0, 12, 13, 14], [12, 13, 14, 3])
        """
        source_U, target_S = np.split(row["input_ids"], [rng.integers(1, max(2, len(row["input_ids"])))])
        return two_sides(row, add_end(source_U, vocab.sep), add_end(target_S, vocab.sep), vocab.pad)
