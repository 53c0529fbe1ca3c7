"""Which training examples have kernels."""

from importlib.util import find_spec

from preprocessing.sampling import ExampleSpec


def explain_gap(sampling: ExampleSpec) -> str:
    """The reason why numpy makes these examples, or "" if compiled kernels make them.

    >>> from preprocessing.masking import TokenMasking
    >>> from preprocessing.objectives import MaskedLM
    >>> from preprocessing.packing import SegmentPair
    >>> pairs = SegmentPair(negatives="random")
    >>> explain_gap(ExampleSpec(packing=pairs, masking=TokenMasking(sample_alpha=0.5), objective=MaskedLM()))
    'masking token with sample_alpha has no kernel'
    """
    packing, objective = sampling.packing, sampling.objective
    for room, part in (("packing", packing), ("masking", sampling.masking), ("objective", objective)):
        if part.kernel_gap:
            return f"{room} {part.kernel_gap} has no kernel"
    if objective.lookahead and "positions" in packing.produced_columns:
        return f"packing {packing.kind} with objective {objective.kind} has no kernel"
    return "" if find_spec("numba") else "numba is not installed (the extra [fast])"
