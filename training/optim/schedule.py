"""The learning rate of a step: a pure function, so that resuming needs no scheduler state."""

import math

from training.optim.updates import Updates


def rate(optim: Updates, step: int, total: int) -> float:
    """Learning rate of the update that follows `step` finished ones, in a run of `total` updates.

    BERT's own form (`linear`) counts the decay from step 0, and warm-up overrides it; the rate of the very first update
    of a run with warm-up is therefore 0, as in the reference implementation (google-research/bert, optimization.py).

    >>> from training.optim import AdamW
    >>> bert = AdamW(peak=1e-4, warmup=10_000)
    >>> [round(rate(bert, step, 1_000_000), 9) for step in (0, 5_000, 10_000, 500_000, 1_000_000)]
    [0.0, 5e-05, 9.9e-05, 5e-05, 0.0]
    """
    total = optim.horizon or total
    risen = 1.0
    if step < optim.warmup and optim.schedule != "rsqrt":
        risen = step / optim.warmup
        if optim.schedule != "linear_product":
            return optim.peak * risen
    return optim.peak * risen * (optim.floor + (1 - optim.floor) * _left(optim, min(step, total), total))


def _left(optim: Updates, step: int, total: int) -> float:
    """Share of the way from the peak to the floor that is left, 1 at the peak and 0 at the end."""
    since_peak = (step - optim.warmup) / max(1, total - optim.warmup)
    match optim.schedule:
        case "linear" | "linear_product":
            return 1 - step / total
        case "linear_from_peak":  # fairseq's polynomial decay of power 1
            return 1 - since_peak
        case "cosine":  # arXiv:1608.03983 without restarts, as GPT-3 (arXiv:2005.14165, appendix B)
            return 0.5 * (1 + math.cos(math.pi * since_peak))
        case "polynomial":  # fairseq's, of power 3 as in Longformer (arXiv:2004.05150, appendix)
            return (1 - since_peak) ** 3
        case "inverse_sqrt" | "rsqrt":
            return math.sqrt(max(1, optim.warmup) / max(1, optim.warmup, step))
        case "constant":
            return 1.0
