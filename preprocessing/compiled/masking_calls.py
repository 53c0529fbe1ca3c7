"""The call of the kernel of each masking."""

from collections.abc import Callable
from math import ceil

import numpy as np

from preprocessing.compiled import masks, ngrams
from preprocessing.compiled.rows import CompiledRows
from preprocessing.masking import (
    Masking,
    NgramMasking,
    NoMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
    ngram_cdf,
    span_cdf,
)
from preprocessing.schema import Ints

Mask = Callable[[CompiledRows, Ints], Ints]
"""Returns the column `hits` of packed sequences, int32 [T], and advances their generators."""


def make_mask(masking: Masking, length: int) -> Mask:
    """The call for sequences of at most `length` tokens."""
    match masking:
        case NoMasking():
            return lambda rows, states: np.zeros(0, np.int32)
        case TokenMasking(rounding="independent"):
            return lambda rows, states: masks.mask_independently(rows.first_B1, rows.special_T, states, masking.rate)
        case TokenMasking():
            budget = _budget(masking.rate, masking.rounding, masking.max_predictions_per_seq, length)
            return lambda rows, states: masks.mask_tokens(rows.first_B1, rows.special_T, states, budget)
        case WholeWordMasking():
            budget = _budget(masking.rate, masking.rounding, masking.max_predictions_per_seq, length)
            return lambda rows, states: masks.mask_words(
                rows.first_B1, rows.special_T, rows.word_starts_T, states, budget
            )
        case NgramMasking():
            budget = _budget(masking.rate, masking.rounding, masking.max_predictions_per_seq, length)
            cdf, longest, by_token = (
                ngram_cdf(masking.max_ngram, masking.ngram_weights),
                masking.max_ngram,
                masking.ngram_unit == "token",
            )
            return lambda rows, states: ngrams.mask_ngrams(
                rows.first_B1,
                rows.special_T,
                rows.word_starts_T[: 0 if by_token else None],
                states,
                budget,
                longest,
                cdf,
            )
        case SpanMasking():
            budget, cdf = (
                _budget(masking.rate, masking.rounding, 0, length),
                span_cdf(masking.geometric_p, masking.max_span_length),
            )
            return lambda rows, states: ngrams.mask_spans(
                rows.first_B1, rows.special_T, rows.word_starts_T, states, budget, cdf
            )
        case RandomSpans():
            num_selected, num_spans = np.array([masking.counts(n) for n in range(length + 1)], np.int64).T.copy()
            return lambda rows, states: masks.mask_random_spans(rows.first_B1, states, num_selected, num_spans)
        case PartialPrediction():
            cdf, group_size = ngram_cdf(masking.max_ngram, ()), masking.group_size
            return lambda rows, states: masks.mask_partially(
                rows.first_B1, rows.special_T, rows.word_starts_T, states, group_size, cdf
            )
        case _:
            raise ValueError(f"masking {masking.kind} has no kernel")


def _budget(rate: float, rounding: str, most: int, length: int) -> masks.TokenBudget:
    """The rounded numbers of masking/budget.py for 0 ... `length` tokens."""
    shares: dict[str, list[float]] = {
        "nearest": [max(1, round(rate * number)) for number in range(length + 1)],
        "stochastic": [rate * number for number in range(length + 1)],
        "up": [ceil(rate * number - 1e-9) for number in range(length + 1)],
    }
    return masks.TokenBudget(np.array(shares[rounding], np.float64), rounding == "stochastic", rounding == "up", most)
