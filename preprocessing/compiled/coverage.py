"""Which training examples have kernels."""

from importlib.util import find_spec
from typing import Final

from preprocessing.masking import (
    Masking,
    NgramMasking,
    NoMasking,
    PartialPrediction,
    RandomSpans,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from preprocessing.objectives import CausalLM, Denoising, MaskedLM, Objective, PermutationLM, SpanCorruption
from preprocessing.packing import BestFit, Contiguous, Packing, SegmentPair, Stream, StreamPair
from preprocessing.sampling import ExampleSpec

_MAX_POISSON: Final = 10  # numpy draws numbers of this mean and above in another way


def explain_gap(sampling: ExampleSpec) -> str:
    """The reason why numpy makes these examples, or "" if compiled kernels make them.

    >>> from preprocessing.masking import EntityMasking
    >>> pairs = SegmentPair(negatives="random")
    >>> explain_gap(ExampleSpec(packing=pairs, masking=TokenMasking(sample_alpha=0.5), objective=MaskedLM()))
    'masking token with sample_alpha has no kernel'
    """
    packing, masking, objective = sampling.packing, sampling.masking, sampling.objective
    for room, gap in (
        ("packing", _explain_packing(packing, objective)),
        ("masking", _explain_masking(masking)),
        ("objective", _explain_objective(objective)),
    ):
        if gap:
            return f"{room} {gap} has no kernel"
    return "" if find_spec("numba") else "numba is not installed (the extra [fast])"


def _explain_packing(packing: Packing, objective: Objective) -> str:
    match packing:
        case StreamPair() if isinstance(objective, CausalLM):
            return f"{packing.kind} with objective {objective.kind}"
        case Contiguous() | BestFit() | SegmentPair() | Stream() | StreamPair():
            return ""
        case _:
            return packing.kind


def _explain_masking(masking: Masking) -> str:
    match masking:
        case TokenMasking() if masking.sample_alpha:
            return f"{masking.kind} with sample_alpha"
        case TokenMasking() if masking.mask_special_tokens:
            return f"{masking.kind} with mask_special_tokens"
        case SpanMasking() if masking.phrase_prob:
            return f"{masking.kind} with phrase_prob"
        case NoMasking() | TokenMasking() | WholeWordMasking() | NgramMasking() | SpanMasking():
            return ""
        case RandomSpans() | PartialPrediction():
            return ""
        case _:
            return masking.kind


def _explain_objective(objective: Objective) -> str:
    match objective:
        case SpanCorruption() if objective.random_replace_prob:
            return f"{objective.kind} with random_replace_prob"
        case Denoising() if objective.poisson_lambda >= _MAX_POISSON:
            return f"{objective.kind} with poisson_lambda of {_MAX_POISSON} or more"
        case CausalLM() | MaskedLM() | PermutationLM() | SpanCorruption() | Denoising():
            return ""
        case _:
            return objective.kind
