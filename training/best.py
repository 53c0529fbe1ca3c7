"""The best validation loss of a run, for the checkpoint to keep and for early stopping."""

import math
from collections.abc import Mapping

from training.run import Run


def is_tracked(run: Run) -> bool:
    """Whether a run needs its best evaluation."""
    return run.keep_best or run.early_stopping_patience > 0


def update_best(best: Mapping[str, float], step: int, loss: float) -> dict[str, float]:
    """The best evaluation after another one: its `step` and `loss`, and the evaluations since then (`in_vain`).

    Of equal losses the first is the best. A loss that is not finite is never the best.

    >>> update_best(update_best({}, 10, 3.0), 20, 3.5)
    {'step': 10, 'loss': 3.0, 'in_vain': 1}
    """
    if math.isfinite(loss) and loss < best.get("loss", math.inf):
        return {"step": step, "loss": loss, "in_vain": 0}
    return {**best, "in_vain": best.get("in_vain", 0) + 1}


def is_over(run: Run, best: Mapping[str, float]) -> bool:
    """Whether the validation loss has not improved for `early_stopping_patience` evaluations."""
    return 0 < run.early_stopping_patience <= best.get("in_vain", 0)


def describe_best(best: Mapping[str, float]) -> str:
    """The best evaluation in words.

    >>> describe_best({"step": 1000, "loss": 3.0, "in_vain": 1})
    'best validation loss 3.0000 at step 1,000'
    """
    if "step" not in best:
        return "no finite validation loss"
    return f"best validation loss {best['loss']:.4f} at step {best['step']:,.0f}"
