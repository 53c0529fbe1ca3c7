"""The result of a head: a sum and a count."""

from typing import Final, NamedTuple

from torch import Tensor

UNCOUNTED: Final = -1
"""The number of targets of a score whose head does not run again for each batch, as in a CUDA graph."""


class Score(NamedTuple):
    """Sums of a head over the targets of a batch.

    It is a tuple, because the hooks of DeepSpeed's ZeRO-3 find tensors in tuples and dicts only.
    """

    loss: Tensor  # float32 []: the minimized loss in nats, summed over the targets
    # number of targets; a tensor on the device if the host does not know it; hides tuple.count
    count: int | Tensor  # type: ignore[assignment]
    correct: Tensor  # int64 []: targets that got the highest score
    metrics: dict[str, Tensor] = {}  # noqa: RUF012  # never modified; further scalar sums over the targets, by name
    z_loss: Tensor | None = None  # float32 []: the z-loss in `loss`, if it has one

    @property
    def sums(self) -> dict[str, Tensor]:
        """All sums by name: `loss`, `correct` and `metrics`. The loop divides each by the number of targets.

        The z-loss is a separate sum, so that losses and perplexities of runs with and without it are comparable.
        """
        sums = {"loss": self.loss, "correct": self.correct, **self.metrics}
        return sums if self.z_loss is None else sums | {"loss": self.loss - self.z_loss, "z_loss": self.z_loss}
