"""Metrics of the losses: sums over micro-batches, steps and workers, and their means over the targets."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.engines import Engine
from training.losses import Loss
from training.model import Model
from training.score import Score
from training.state import Sums

SumName = tuple[str, str]
"""Kind of a loss, and name of a sum: `loss`, `correct`, or a name from `Score.metrics`."""


class MetricsTally:
    """Adds up, on the device, the sums that become metrics. Only `drain_into` waits for the device and other workers.

    The terms are single-precision numbers of similar size, and their sums are double-precision numbers. As long as
    these sums are exact, their order does not change them. So a resumed run logs the same metrics as an uninterrupted
    run.
    """

    def __init__(self, engine: Engine[Model]) -> None:
        self._engine = engine
        self._sums: dict[SumName, Tensor] = {}
        self._targets: dict[str, int] = {}

    def add(self, sums: Mapping[SumName, Tensor]) -> None:
        """Add the sums of one micro-batch of this worker."""
        self._sums = {name: self._sums[name] + value if self._sums else value for name, value in sums.items()}

    def count(self, targets: Mapping[str, int]) -> None:
        """Add the number of targets of one step, over all workers."""
        self._targets = {kind: self._targets.get(kind, 0) + count for kind, count in targets.items()}

    def drain_into(self, sums: Sums) -> dict[str, dict[str, float]]:
        """Return `sums` plus the sums of all workers in this tally, and empty the tally. All workers must call it."""
        total = {kind: dict(of_kind) for kind, of_kind in sums.items()}
        if self._sums:
            local = (torch.stack(list(self._sums.values())) * self._engine.counts).tolist()
            values = self._engine.reduce_sums(local)
            new_sums = dict(zip(self._sums, values, strict=True))
            new_sums |= {(kind, "targets"): count for kind, count in self._targets.items()}
            for (kind, name), value in new_sums.items():
                of_kind = total.setdefault(kind, {})
                of_kind[name] = of_kind.get(name, 0) + value
        self._sums, self._targets = {}, {}
        return total


def sums_of(losses: Sequence[Loss], scores: Mapping[str, Score]) -> dict[SumName, Tensor]:
    """The sums of one micro-batch: float64 scalars on the device, without a gradient."""
    return {
        (loss.kind, name): value.detach().double() for loss in losses for name, value in scores[loss.kind].sums.items()
    }


def mean_metrics(prefix: str, losses: Sequence[Loss], sums: Sums) -> dict[str, float]:
    """Means over the targets: the weighted loss; loss and accuracy of each kind; the other metrics of its head."""
    metrics = {f"{prefix}/loss": 0.0}
    for loss in losses:
        totals = dict(sums[loss.kind])
        targets = max(1, totals.pop("targets"))
        means = {name: total / targets for name, total in totals.items()}
        mean = means.pop("loss")
        metrics[f"{prefix}/loss"] += loss.weight * mean
        metrics[f"{prefix}/{loss.kind}/loss"] = mean
        metrics[f"{prefix}/{loss.accuracy}"] = means.pop("correct")
        if loss.perplexity:
            metrics[f"{prefix}/perplexity"] = math.exp(min(mean, 700.0))  # exp(710) is too large for a float
        metrics |= {f"{prefix}/{name}": value for name, value in means.items()}
    return metrics
