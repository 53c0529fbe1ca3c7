"""What a loss is to the loop: a sum and a count."""

from typing import NamedTuple

from torch import Tensor


class Score(NamedTuple):
    """What a head makes of a batch; a tuple, since DeepSpeed's ZeRO-3 hooks find tensors in tuples and dicts only."""

    loss: Tensor  # float32 []: cross-entropy in nats, summed over the targets
    count: int  # type: ignore[assignment]  # number of targets; hides tuple.count
    correct: Tensor  # int64 []: targets that got the highest score
    metrics: dict[str, Tensor] = {}  # noqa: RUF012  # never written to; further sums [], each over the targets, by name

    @property
    def sums(self) -> dict[str, Tensor]:
        """All sums by name: `loss`, `correct` and those of `metrics`. The loop divides each by the count."""
        return {"loss": self.loss, "correct": self.correct, **self.metrics}
