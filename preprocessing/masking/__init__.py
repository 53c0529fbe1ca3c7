"""Masking schemes. A scheme selects the tokens of a sequence that the model predicts.

A scheme returns the column `hits`: 0 if a token is not selected, k if it is part of the k-th selected unit. Special
tokens are never selected, and no unit extends across one. Each sequence has a budget of tokens. The number of selected
tokens equals this budget, or is as close to it as whole words allow. The docstring of a scheme states any exception.

Read part.py and token.py first, then budget.py, which all schemes use. To add a scheme, add one file here and one
member to the union `Masking` below, which is the registry.
"""

from preprocessing.masking.budget import HITS, Rounding
from preprocessing.masking.entity import EntityMasking
from preprocessing.masking.fragment import FragmentMasking
from preprocessing.masking.hits import require_hits
from preprocessing.masking.ngram import NgramMasking, ngram_cdf, ngram_lengths
from preprocessing.masking.none import NoMasking
from preprocessing.masking.part import MaskingPart
from preprocessing.masking.partial_prediction import PartialPrediction
from preprocessing.masking.random_spans import RandomSpans
from preprocessing.masking.span import SpanMasking, span_cdf, span_lengths
from preprocessing.masking.token import TokenMasking
from preprocessing.masking.whole_word import WholeWordMasking

__all__ = [
    "HITS",
    "EntityMasking",
    "FragmentMasking",
    "Masking",
    "MaskingPart",
    "NgramMasking",
    "NoMasking",
    "PartialPrediction",
    "RandomSpans",
    "Rounding",
    "SpanMasking",
    "TokenMasking",
    "WholeWordMasking",
    "ngram_cdf",
    "ngram_lengths",
    "require_hits",
    "span_cdf",
    "span_lengths",
]

Masking = (
    NoMasking
    | TokenMasking
    | WholeWordMasking
    | EntityMasking
    | SpanMasking
    | NgramMasking
    | RandomSpans
    | FragmentMasking
    | PartialPrediction
)


def _has_every_fact(masking: Masking) -> MaskingPart:
    return masking  # type error if a member lacks an attribute of MaskingPart
