"""Gap sentence generation: whole sentences are masked and predicted from the others (PEGASUS, arXiv:1912.08777)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.part import Attention
from preprocessing.objectives.seq2seq import add_end, two_sides
from preprocessing.schema import Floats, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import ENDED, Frame, Vocab


@spec
class GapSentenceGeneration:
    """Gap sentence generation: the decoder predicts masked sentences in order (PEGASUS 3.1).

    A fraction of the sentences of a sequence is masked, with one [MASK] per sentence. At least one sentence is masked,
    and never all of them if there are several.

    `selection: principal` (Ind-Orig in the paper) selects the sentences with the highest ROUGE-1 F1 against all other
    sentences. Each sentence is scored independently, every occurrence of a token counts, and the earlier sentence wins
    ties. The score is computed on tokens instead of words, so it needs no text. `random` and `lead` (the first
    sentences) are other variants of figure 4a.
    """

    kind: Literal["gap_sentence_generation"] = "gap_sentence_generation"
    gap_sentences_ratio: float = key(
        default=0.3, doc="Fraction of sentences to mask per sequence (the gap sentence ratio)."
    )
    selection: Literal["principal", "random", "lead"] = key(
        default="principal",
        doc="Selection of gap sentences: highest ROUGE-1 F1 with the rest, random, or the first ones.",
    )
    # PEGASUS 6.2: the large model keeps some gap sentences, so that it learns to copy.
    keep_ratio: float = key(default=0.0, doc="Fraction of gap sentences that also stay in the source.")

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids", "special_tokens_mask", "sentence_starts"})
    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    specials: ClassVar[tuple[str, ...]] = ("pad", "sep", "mask")
    lookahead: ClassVar[int] = 0
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = True
    two_sided: ClassVar[bool] = True
    attention: ClassVar[Attention] = "model"
    target: ClassVar[str] = "the gap sentences"
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = (
        "a sequence of one sentence is predicted from [MASK] only; use documents of several sentences"
    )
    kernel_gap: ClassVar[str] = "gap_sentence_generation"
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require(
            0 < self.gap_sentences_ratio < 1,
            "objective.gap_sentences_ratio",
            self.gap_sentences_ratio,
            "a fraction between 0 and 1",
        )
        require(
            0 <= self.keep_ratio <= 1,
            "objective.keep_ratio",
            self.keep_ratio,
            "a fraction from 0 to 1",
        )

    def describe(self) -> str:
        which = {"principal": "highest ROUGE-1 F1", "random": "random", "lead": "first ones"}[self.selection]
        kept = f"; {self.keep_ratio:.0%} of them stay in the source" if self.keep_ratio else ""
        return f"{self.gap_sentences_ratio:.0%} of the sentences masked and predicted ({which}){kept}"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 1 - self.gap_sentences_ratio * (1 - self.keep_ratio), self.gap_sentences_ratio

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that no side with its end token exceeds `length`."""
        return length - 1

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return ENDED

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> class Tiny:
        ...     size, pad, sep, mask = 100, 0, 3, 4
        >>> row = {"input_ids": np.array([11, 12, 21, 22, 11, 12, 21]), "special_tokens_mask": np.zeros(7, bool)}
        >>> row["sentence_starts"] = np.array([1, 0, 1, 0, 1, 0, 0], bool)
        >>> made = GapSentenceGeneration(gap_sentences_ratio=0.3)(row, Tiny, key(0, "masking").at(0, 0))
        >>> made["source_input_ids"].tolist(), made["labels"].tolist()
        ([11, 12, 21, 22, 4, 3], [11, 12, 21, 3])
        """
        ordinary_S = ~row["special_tokens_mask"]
        ids_S, begins_S = row["input_ids"][ordinary_S], row["sentence_starts"][ordinary_S]
        sentence_S = np.cumsum(begins_S) - begins_S[:1].sum()  # a sequence may begin inside a sentence
        num_sentences = int(sentence_S[-1]) + 1 if len(ids_S) else 0
        is_gap_N = np.zeros(num_sentences, dtype=bool)
        is_gap_N[self._select(ids_S, sentence_S, num_sentences, rng)] = True
        is_masked_N = is_gap_N & (rng.random(num_sentences) >= self.keep_ratio)
        is_gap_S, is_masked_S = is_gap_N[sentence_S], is_masked_N[sentence_S]
        is_first_S = np.diff(sentence_S, prepend=-1) > 0
        masked_S = ids_S.copy()
        masked_S[is_masked_S] = vocab.mask
        source_U = masked_S[~is_masked_S | is_first_S]
        return two_sides(row, add_end(source_U, vocab.sep), add_end(ids_S[is_gap_S], vocab.sep), vocab.pad)

    def _select(self, ids_S: Ints, sentence_S: Ints, num: int, rng: np.random.Generator) -> Ints:
        """Return the indices of the gap sentences."""
        count = min(max(1, round(self.gap_sentences_ratio * num)), max(1, num - 1))
        match self.selection:
            case "principal":
                return np.argsort(-rouge_1(ids_S, sentence_S, num), kind="stable")[:count]
            case "random":
                return rng.permutation(num)[:count]
            case "lead":
                return np.arange(min(count, num))


def rouge_1(ids_S: Ints, sentence_S: Ints, num: int) -> Floats:
    """Return the ROUGE-1 F1 of each of `num` sentences against all others, float64 [N]; 0 without a common token.

    >>> rouge_1(np.array([7, 8, 7, 9]), np.array([0, 0, 1, 1]), 2).tolist()
    [0.5, 0.5]
    """
    token_S, kinds = np.unique(ids_S, return_inverse=True)
    count_NV = np.zeros((num, len(token_S)), dtype=np.int64)
    np.add.at(count_NV, (sentence_S, kinds), 1)
    other_NV = count_NV.sum(axis=0) - count_NV
    shared_N = np.minimum(count_NV, other_NV).sum(axis=1)
    # F1 = 2 P R / (P + R) = 2 shared / (a + b), as P = shared / a, R = shared / b, and a + b is the number of tokens
    return 2 * shared_N / max(1, len(ids_S))
