"""Objectives. An objective turns a sequence and its `hits` into the token IDs that the model reads and its labels.

Read causal_lm.py and mlm.py first. seq2seq.py has the functions that all encoder-decoder objectives use. To add an
objective, add one file here and one member to the union `Objective` below, which is the registry.
"""

from preprocessing.objectives.causal_lm import CausalLM
from preprocessing.objectives.denoising import Denoising
from preprocessing.objectives.deshuffling import Deshuffling
from preprocessing.objectives.gap_sentence_generation import GapSentenceGeneration
from preprocessing.objectives.masked_seq2seq import MaskedSeq2Seq
from preprocessing.objectives.mlm import MaskedLM, ordinal_above
from preprocessing.objectives.part import ObjectivePart
from preprocessing.objectives.permutation_lm import PermutationLM
from preprocessing.objectives.prefix_lm import PrefixLM
from preprocessing.objectives.span_corruption import SpanCorruption
from preprocessing.objectives.unified_lm import UnifiedLM

__all__ = [
    "CausalLM",
    "Denoising",
    "Deshuffling",
    "GapSentenceGeneration",
    "MaskedLM",
    "MaskedSeq2Seq",
    "Objective",
    "ObjectivePart",
    "PermutationLM",
    "PrefixLM",
    "SpanCorruption",
    "UnifiedLM",
    "ordinal_above",
]

Objective = (
    MaskedLM
    | CausalLM
    | SpanCorruption
    | PrefixLM
    | Deshuffling
    | Denoising
    | MaskedSeq2Seq
    | PermutationLM
    | UnifiedLM
    | GapSentenceGeneration
)


def _has_every_fact(objective: Objective) -> ObjectivePart:
    return objective  # type error if a member lacks an attribute of ObjectivePart
