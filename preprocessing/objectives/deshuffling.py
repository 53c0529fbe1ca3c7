"""Deshuffling (T5, arXiv:1910.10683, table 3)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.part import Attention
from preprocessing.objectives.seq2seq import add_end, two_sides
from preprocessing.schema import Row
from preprocessing.spec import ScaleOverrides, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class Deshuffling:
    """Deshuffling: the encoder reads the tokens in random order (T5 3.3.1).

    The decoder predicts the original sequence, after arXiv:1904.09408.
    """

    kind: Literal["deshuffling"] = "deshuffling"

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
    target: ClassVar[str] = "the whole text"
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    kernel_gap: ClassVar[str] = "deshuffling"
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def describe(self) -> str:
        return "source: the tokens in random order; targets: the text"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 1.0, 1.0

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that each side with its end token has `length`."""
        return length - 1

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return frame.add_end()

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> class Tiny:
        ...     size, pad, sep = 100, 0, 3
        >>> made = Deshuffling()({"input_ids": np.array([11, 12, 13, 14])}, Tiny, key(0, "masking").at(0, 0))
        >>> made["source_input_ids"].tolist(), made["labels"].tolist()
        ([11, 14, 13, 12, 3], [11, 12, 13, 14, 3])
        """
        source_U = add_end(rng.permutation(row["input_ids"]), vocab.sep)
        return two_sides(row, source_U, add_end(row["input_ids"], vocab.sep), vocab.pad)
