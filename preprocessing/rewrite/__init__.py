"""Rewrites (corruption): Row -> the ids that the model reads, and the labels that it predicts.

Read shift.py and cloze.py first; seq2seq.py is what all rewrites for an encoder and a decoder share. A rewrite is one
file here and one line in the union below, which is the registry.
"""

from preprocessing.rewrite.cloze import Cloze
from preprocessing.rewrite.deshuffle import Deshuffle
from preprocessing.rewrite.fragment import Fragment
from preprocessing.rewrite.gap_sentences import GapSentences
from preprocessing.rewrite.noise import Noise
from preprocessing.rewrite.part import Rewriting
from preprocessing.rewrite.permute import Permute
from preprocessing.rewrite.prefix import Prefix
from preprocessing.rewrite.sentinel import Sentinel
from preprocessing.rewrite.shift import Shift
from preprocessing.rewrite.unified import Unified

__all__ = [
    "Cloze",
    "Deshuffle",
    "Fragment",
    "GapSentences",
    "Noise",
    "Permute",
    "Prefix",
    "Rewrite",
    "Rewriting",
    "Sentinel",
    "Shift",
    "Unified",
]

Rewrite = Cloze | Shift | Sentinel | Prefix | Deshuffle | Noise | Fragment | Permute | Unified | GapSentences


def _has_every_fact(rewrite: Rewrite) -> Rewriting:
    return rewrite  # a member without a fact is a type error here
