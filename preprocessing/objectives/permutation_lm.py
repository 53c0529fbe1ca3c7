"""Permutation language modeling: tokens are predicted in a random order (XLNet, arXiv:1906.08237, 2.2 and 2.3)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.part import Attention
from preprocessing.schema import IGNORE, Row
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class PermutationLM:
    """Permutation language modeling: tokens are predicted in a random order (XLNet 2.2).

    Each block of `perm_size` tokens has its own random order, and the selected tokens are predicted. The rule is that
    of the reference (`_local_perm` in data_utils.py). The tokens of a block draw a permutation, one index per token.
    Ordinary tokens that are not predicted have the index -1 instead. In a block, a target i attends to token j iff
    index[j] < index[i]; any other token i attends to j iff index[j] <= index[i]. Tokens attend to all earlier blocks
    and to no later block, and a content state attends to its own token.

    The columns `rank` and `reach` encode this rule: i attends to j iff rank[j] <= reach[i]. Ranks increase from block
    to block. With P = `perm_size`, tokens of block b have these values:

    * Ordinary tokens that are not predicted (index -1): rank = reach = b * (P + 1), the lowest rank of the block. All
      tokens of the block and of later blocks attend to them. In the block, they attend only to each other.
    * Special tokens (separators, [CLS]), which are never predicted: rank = reach = b * (P + 1) + 1 + index. They attend
      to j iff index[j] <= index[i].
    * Targets: rank = b * (P + 1) + 1 + index, and reach = rank - 1. They attend to j iff index[j] < index[i].

    A target's reach does not include itself. This applies to its query; its content state also attends to its own
    token. The reference draws one permutation for all blocks of one half; here each block has its own.
    """

    kind: Literal["permutation_lm"] = "permutation_lm"
    perm_size: int = key(default=256, doc="Tokens per permuted block.")

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids", "special_tokens_mask", "hits"})
    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels", "rank", "reach"})
    specials: ClassVar[tuple[str, ...]] = ()
    lookahead: ClassVar[int] = 0
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "rank", "reach"})
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = False
    two_sided: ClassVar[bool] = False
    attention: ClassVar[Attention] = "queries"
    target: ClassVar[str] = ""
    remark: ClassVar[str] = ""
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"perm_size": 32}, "small": {"perm_size": 64}}

    def __post_init__(self) -> None:
        require(self.perm_size >= 1, "objective.perm_size", self.perm_size, "a positive number of tokens")

    def describe(self) -> str:
        return f"random prediction order within each block of {self.perm_size:,} tokens"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 0.0, 1.0

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that the model reads `length` tokens."""
        return length

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return frame

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> special_S = np.array([False, False, False, False, False, True])
        >>> row = {"input_ids": np.arange(11, 17), "special_tokens_mask": special_S}
        >>> row |= {"hits": np.array([0, 1, 0, 2, 0, 0])}
        >>> made = PermutationLM(perm_size=3)(row, None, key(0, "masking").at(0, 0))
        >>> made["rank"].tolist(), made["reach"].tolist()
        ([0, 1, 0, 5, 4, 7], [0, 0, 0, 4, 4, 7])
        >>> made["labels"].tolist()
        [-100, 12, -100, 14, -100, -100]
        """
        is_target_S = row["hits"] > 0
        place_S = np.arange(len(is_target_S))
        block_S = place_S // self.perm_size
        drawn_S = np.empty_like(place_S)  # a permutation of the positions within each block
        drawn_S[np.argsort(block_S + rng.random(len(place_S)))] = place_S
        is_ordered_S = is_target_S | row["special_tokens_mask"]
        rank_S = block_S + np.where(is_ordered_S, drawn_S + 1, block_S * self.perm_size)
        return row | {
            "labels": np.where(is_target_S, row["input_ids"], IGNORE).astype(np.int32),
            "rank": rank_S.astype(np.int32),
            "reach": (rank_S - is_target_S).astype(np.int32),
        }
