"""Masked language modeling under four attention masks, one per sequence (UniLM, arXiv:1905.03197)."""

from typing import ClassVar, Final, Literal, get_args

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.mlm import MaskedLM
from preprocessing.objectives.part import Attention
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab

Mode = Literal["bidirectional", "seq2seq", "left_to_right", "right_to_left"]
_SEGMENTS: Final[dict[Mode, tuple[int, int]]] = {  # token types of both segments, as in the released code
    "bidirectional": (0, 1),
    "left_to_right": (2, 2),
    "right_to_left": (3, 3),
    "seq2seq": (4, 5),
}


@spec
class UnifiedLM:
    """Masked language modeling of a pair under four attention masks (UniLM 2.3).

    Each mode has its own fraction of the sequences:

    * Bidirectional: each token attends to all tokens.
    * Left to right: each token attends to itself and the tokens before it.
    * Right to left: each token attends to itself and the tokens after it.
    * Sequence to sequence: tokens of the first segment attend to this segment. A token of the second segment attends to
      the first segment, to itself and to the tokens before it. The end token of the second segment may be masked too,
      with the probability of an ordinary token, so that the model learns to stop.

    Each mode has its own token types, six in all. The label of a pair is predicted only in the bidirectional mode.

    A pair whose second segment does not follow the first (label 1) always has the bidirectional mode. In another mode,
    its second segment would be predicted from an unrelated text. `negative_prob` of the packing should be half of
    `bidirectional_prob`. Then half of the bidirectional sequences are negative pairs, and the fractions of all modes
    are those of the keys.
    """

    kind: Literal["unified_lm"] = "unified_lm"
    bidirectional_prob: float = key(
        default=1 / 3, doc="Fraction of sequences in which each token attends to all tokens."
    )
    seq2seq_prob: float = key(
        default=1 / 3, doc="Fraction of sequences whose second segment is predicted from the first."
    )
    left_to_right_prob: float = key(default=1 / 6, doc="Fraction of sequences that are read from left to right.")
    right_to_left_prob: float = key(default=1 / 6, doc="Fraction of sequences that are read from right to left.")
    mask_replace_prob: float = key(default=0.8, doc="Probability that a selected token is replaced by [MASK].")
    random_replace_prob: float = key(
        default=0.1, doc="Probability that a selected token is replaced by a random token."
    )

    required_columns: ClassVar[frozenset[str]] = frozenset(
        {"input_ids", "token_type_ids", "special_tokens_mask", "hits"}
    )
    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels", "rank", "reach"})
    specials: ClassVar[tuple[str, ...]] = ("mask",)
    lookahead: ClassVar[int] = 0
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "rank", "reach"})
    segments: ClassVar[int] = 6
    reads_segments: ClassVar[int] = 2
    selects: ClassVar[bool] = False
    two_sided: ClassVar[bool] = False
    attention: ClassVar[Attention] = "rows"
    target: ClassVar[str] = ""
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    kernel_gap: ClassVar[str] = "unified_lm"
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        MaskedLM(
            mask_replace_prob=self.mask_replace_prob, random_replace_prob=self.random_replace_prob
        )  # checks the values
        shares = [getattr(self, f"{mode}_prob") for mode in get_args(Mode)]
        require(min(shares) >= 0, "objective", shares, "no negative fraction")
        require(
            abs(sum(shares) - 1) < 1e-6,
            "objective.bidirectional_prob + seq2seq_prob + left_to_right_prob + right_to_left_prob",
            sum(shares),
            "1",
        )

    def describe(self) -> str:
        shares = MaskedLM(
            mask_replace_prob=self.mask_replace_prob, random_replace_prob=self.random_replace_prob
        ).describe_shares()
        return (
            f"{self.bidirectional_prob:.0%} bidirectional, {self.seq2seq_prob:.0%} sequence-to-sequence, "
            f"{self.left_to_right_prob:.0%} left-to-right, "
            f"{self.right_to_left_prob:.0%} right-to-left; {shares}"
        )

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
        >>> class Tiny:
        ...     size, mask, special_ids = 100, 4, (0, 1, 2, 3, 4)
        >>> special_S = np.array([True, False, True, False, True])
        >>> row = {"input_ids": np.array([2, 11, 3, 12, 3]), "hits": np.array([0, 0, 0, 1, 0])}
        >>> row |= {"special_tokens_mask": special_S, "token_type_ids": np.array([0, 0, 0, 1, 1])}
        >>> forward = UnifiedLM(bidirectional_prob=0, seq2seq_prob=1, left_to_right_prob=0, right_to_left_prob=0)
        >>> made = forward(row, Tiny, key(0, "masking").at(0, 0))
        >>> made["rank"].tolist(), made["reach"].tolist(), made["token_type_ids"].tolist()
        ([0, 0, 0, 3, 4], [0, 0, 0, 3, 4], [4, 4, 4, 5, 5])
        """
        mode = self._mode(rng.random(), row.get("next_sentence_label"))
        if mode == "seq2seq":
            row = row | {"hits": _with_end(row, rng)}
        rank_S = _rank(mode, row["token_type_ids"])
        segment_S = np.array(_SEGMENTS[mode], dtype=np.int8)[row["token_type_ids"]]
        masks: Row = {"rank": rank_S, "reach": rank_S, "token_type_ids": segment_S}
        if "next_sentence_label" in row and mode != "bidirectional":
            masks["next_sentence_label"] = np.array(IGNORE, dtype=np.int8)
        return (
            MaskedLM(mask_replace_prob=self.mask_replace_prob, random_replace_prob=self.random_replace_prob)(
                row, vocab, rng
            )
            | masks
        )

    def _mode(self, draw: float, label: Ints | None) -> Mode:
        """Return the mode for a uniform `draw` from 0 to 1.

        Sequences with label 1 are always bidirectional. The other sequences of a labeled packing use half of
        `bidirectional_prob`.
        """
        if label == 1:
            return "bidirectional"
        offset = 0.0 if label is None else self.bidirectional_prob / 2
        draw = offset + draw * (1 - offset)
        for mode in get_args(Mode):
            draw -= getattr(self, f"{mode}_prob")
            if draw < 0:
                return mode
        return "bidirectional"  # rounding: the probabilities may sum to slightly less than 1


def _rank(mode: Mode, segment_S: Ints) -> Ints:
    """Return the rank of each token, which is also its reach: tokens attend to the same and lower ranks."""
    place_S = np.arange(len(segment_S), dtype=np.int32)
    match mode:
        case "bidirectional":
            return np.zeros_like(place_S)
        case "left_to_right":
            return place_S
        case "right_to_left":
            return place_S[::-1].copy()
        case "seq2seq":
            return np.where(segment_S, place_S, 0).astype(np.int32)


def _with_end(row: Row, rng: np.random.Generator) -> Ints:
    """Add the end token of the second segment to `hits`, with the probability of an ordinary token."""
    hit_S, ends = row["hits"], bool(row["special_tokens_mask"][-1] and row["token_type_ids"][-1])
    rate = int(np.count_nonzero(hit_S)) / max(1, int(np.count_nonzero(~row["special_tokens_mask"])))
    if not ends or rng.random() >= rate:
        return hit_S
    hit_S = hit_S.copy()
    hit_S[-1] = hit_S.max() + 1
    return hit_S
