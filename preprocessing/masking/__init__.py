"""Masking schemes: sequence -> hits, the tokens to predict: 0 = not selected, k = part of the k-th selected unit.

A special token is never selected, and no unit extends across one. Each sequence has a budget of tokens, which is met
exactly (by whole words as far as possible); a scheme that differs says so. Read part.py and token.py first, then
budget.py, which all schemes share. A scheme is one file here and one line in the union below, which is the registry.
"""

from preprocessing.masking.budget import HITS, Rounding
from preprocessing.masking.entity import EntityMasking
from preprocessing.masking.fragment import FragmentMasking
from preprocessing.masking.ngram import NgramMasking, ngram_lengths
from preprocessing.masking.none import NoMasking
from preprocessing.masking.part import MaskingPart
from preprocessing.masking.partial_prediction import PartialPrediction
from preprocessing.masking.random_spans import RandomSpans
from preprocessing.masking.span import SpanMasking, span_lengths
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
    "ngram_lengths",
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
    return masking  # a member without a fact is a type error here
