"""Choices (masking): Row -> hits, the tokens that the model predicts: 0 = not chosen, k = part of the k-th chosen unit.

A special token is never chosen, no unit reaches over one, and each row has a budget of tokens that is met exactly (by
Words, as far as whole words allow); where a part differs it says so. Read part.py and tokens.py first, then budget.py,
which all of them share. A masking scheme is one file here and one line in the union below, which is the registry.
"""

from preprocessing.choose.budget import HITS, Rounding
from preprocessing.choose.entities import Entities
from preprocessing.choose.fragment import Fragment
from preprocessing.choose.ngrams import Ngrams, ngram_lengths
from preprocessing.choose.noise_spans import NoiseSpans
from preprocessing.choose.nothing import Nothing
from preprocessing.choose.part import Choice
from preprocessing.choose.partial import Partial
from preprocessing.choose.spans import Spans, span_lengths
from preprocessing.choose.tokens import Tokens
from preprocessing.choose.words import Words

__all__ = [
    "HITS",
    "Choice",
    "Choose",
    "Entities",
    "Fragment",
    "Ngrams",
    "NoiseSpans",
    "Nothing",
    "Partial",
    "Rounding",
    "Spans",
    "Tokens",
    "Words",
    "ngram_lengths",
    "span_lengths",
]

Choose = Nothing | Tokens | Words | Entities | Spans | Ngrams | NoiseSpans | Fragment | Partial


def _has_every_fact(choose: Choose) -> Choice:
    return choose  # a member without a fact is a type error here
