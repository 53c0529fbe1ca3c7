"""Masked language modeling: selected tokens are masked and predicted at their positions (BERT)."""

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.part import Attention
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class MaskedLM:
    """Masked language modeling: selected tokens are replaced and predicted (BERT 3.1).

    A selected token becomes [MASK] with `mask_replace_prob`, a random token with `random_replace_prob`, or stays
    unchanged (80/10/10 in BERT); its label is the original token. With `replace_unit: token` each token has its own
    draw; with `span` all tokens of a selected unit share one, as in SpanBERT. The source of random
    tokens is `random_token_source`:

    * non_special: all tokens that are not special, uniformly, as in fairseq.
    * vocabulary: all IDs, uniformly, as in the reference BERT.
    * corpus: tokens by their frequency in the corpus, as in the reference SpanBERT.
    * row: tokens of the sequence itself.
    """

    kind: Literal["mlm"] = "mlm"
    mask_replace_prob: float = key(default=0.8, doc="Probability that a selected token is replaced by [MASK].")
    random_replace_prob: float = key(
        default=0.1, doc="Probability that a selected token is replaced by a random token."
    )
    replace_unit: Literal["token", "span"] = key(
        default="token", doc="Unit of the replacement draw: each token, or all tokens of a span together."
    )
    random_token_source: Literal["non_special", "vocabulary", "row", "corpus"] = key(
        default="non_special", doc="Source of random tokens; corpus and row follow the frequencies of the text."
    )

    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    specials: ClassVar[tuple[str, ...]] = ("mask",)
    lookahead: ClassVar[int] = 0
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

    def __post_init__(self) -> None:
        for name in ("mask_replace_prob", "random_replace_prob"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"objective.{name}", value, "a probability from 0 to 1")
        require(
            self.mask_replace_prob + self.random_replace_prob <= 1 + 1e-9,
            "objective.mask_replace_prob + random_replace_prob",
            self.mask_replace_prob + self.random_replace_prob,
            "at most 1",
        )

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that the objective reads."""
        return frozenset(
            {"input_ids", "special_tokens_mask", "hits"}
            | ({"stream"} if self.random_token_source == "corpus" else set())
        )

    def describe(self) -> str:
        return f"{self.describe_shares()}, drawn per {self.replace_unit}"

    def describe_shares(self) -> str:
        """Describe the fractions of selected tokens that are masked, random or unchanged."""
        return (
            f"{self.mask_replace_prob:.0%} masked, {self.random_replace_prob:.0%} random, "
            f"{abs(1 - self.mask_replace_prob - self.random_replace_prob):.0%} kept"
        )

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 0.0, 1.0

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that the model reads at most `length` tokens."""
        return length

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return frame

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        hit_S, ids_S = row["hits"], row["input_ids"].copy()
        at_M = np.flatnonzero(hit_S)
        labels_S = np.full(len(ids_S), IGNORE, dtype=np.int32)
        labels_S[at_M] = ids_S[at_M]
        draw_M = (
            rng.random(len(at_M)) if self.replace_unit == "token" else rng.random(hit_S.max(initial=0))[hit_S[at_M] - 1]
        )
        swap_at = at_M[
            (draw_M >= self.mask_replace_prob) & (draw_M < self.mask_replace_prob + self.random_replace_prob)
        ]
        ids_S[at_M[draw_M < self.mask_replace_prob]] = vocab.mask
        ids_S[swap_at] = self._random_ids(len(swap_at), row, vocab, rng)
        made = row | {"input_ids": ids_S, "labels": labels_S}
        made.pop("stream", None)  # input of the objective, not a column of the result
        return made

    def _random_ids(self, count: int, row: Row, vocab: Vocab, rng: np.random.Generator) -> Ints:
        match self.random_token_source:
            case "non_special":
                return ordinary_ids(count, vocab, rng)
            case "vocabulary":
                return rng.integers(vocab.size, size=count)
            case "row":
                ordinary = row["input_ids"][~row["special_tokens_mask"]]
                return ordinary[rng.integers(len(ordinary), size=count)] if count else ordinary[:0]
            case "corpus":
                return row["stream"][rng.integers(len(row["stream"]), size=count)]


def ordinary_ids(count: int, vocab: Vocab, rng: np.random.Generator) -> Ints:
    """Draw IDs uniformly from all IDs that are not special, int64 [count]."""
    ordinal = rng.integers(vocab.size - len(vocab.special_ids), size=count)
    return ordinal + np.searchsorted(ordinal_above(vocab.special_ids), ordinal, side="right")


@lru_cache
def ordinal_above(special_ids: tuple[int, ...]) -> Ints:
    """Return, for each special ID in ascending order, the number of ordinary IDs below it.

    >>> ordinal_above((0, 1, 5)).tolist()
    [0, 0, 3]
    """
    return np.sort(np.array(special_ids, dtype=np.int64)) - np.arange(len(special_ids))
