"""The score of a task from the trials of a grid: the best hyperparameters on dev, with median and spread over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Any, Final, Literal

from training.evaluation.metrics import PairedDifference

Start = Literal["pretrained", "random"]
STARTS: Final[tuple[Start, ...]] = ("pretrained", "random")
_LOWER: Final = ("perplexity", "bits", "loss")  # parts of the names of metrics where lower is better


@dataclass(frozen=True)
class TrialScore:
    """The scores of one trial, and its hyperparameters without the seed."""

    start: str  # pretrained or random
    how: Mapping[str, Any]  # hyperparameters without the seed; {}: no training
    seed: int
    scores: Mapping[str, Mapping[str, float]]  # by split and metric

    @classmethod
    def of(cls, start: str, how: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]]) -> "TrialScore":
        return cls(start, {key: value for key, value in how.items() if key != "seed"}, how.get("seed", 0), scores)


@dataclass(frozen=True)
class SelectedTrials:
    """The trials with the selected hyperparameters, one per seed."""

    how: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, tuple[float, ...]]]  # split -> metric -> one value per seed, in order


@dataclass(frozen=True)
class TaskScore:
    """The score of a task, for each initialization."""

    task: str
    metric: str  # the metric that compares trials
    split: str  # the split of `values`
    chosen_on: str  # the split that selected hyperparameters; "": none
    starts: Mapping[str, SelectedTrials]
    step: int | None = None  # of the pretraining checkpoint; None: the finished run
    labels: int = 0  # labeled examples of each fine-tuning; 0: all
    chance: float | None = None  # score of a random guess, or of the majority class
    paper: Mapping[str, float] = field(default_factory=dict)  # the paper's results, as quoted in the recipe
    examples: Mapping[str, str] = field(default_factory=dict)  # by initialization: example predictions, one per line
    notes: tuple[str, ...] = ()  # how to read the scores, and which items were left out
    failed: tuple[str, ...] = ()  # trials without a score, with reasons
    intervals: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # by initialization: 95% intervals, if known
    gain: PairedDifference | None = None  # pretrained minus random weights, with its test; None: not tested
    constant: Mapping[str, str] = field(default_factory=dict)  # by initialization: a note on constant predictions

    def values(self, start: str) -> tuple[float, ...]:
        """The scores of all seeds of an initialization; () if it was not evaluated."""
        return self.starts[start].scores[self.split][self.metric] if start in self.starts else ()

    @property
    def margin(self) -> float | None:
        """The gain of pretrained over random weights, as the difference of means over common seeds.

        None if one of them is missing, or a score is infinite.
        """
        if self.gain is not None:
            return self.gain.difference
        pretrained, random = self.values("pretrained"), self.values("random")
        if not pretrained or not random:
            return None
        gain = sign_of_metric(self.metric) * (fmean(pretrained) - fmean(random))
        return gain if math.isfinite(gain) else None

    @property
    def spread(self) -> float:
        """The largest standard deviation over seeds, among the initializations."""
        return max(measure_spread(self.values(start)) for start in self.starts)

    @property
    def wins(self) -> bool | None:
        """Whether pretraining is significantly better (p < 0.05, paired t test); None if not tested."""
        return None if self.gain is None else self.gain.is_significant and self.gain.difference > 0


def sign_of_metric(metric: str) -> int:
    """1 if higher values are better, -1 if lower values are.

    >>> sign_of_metric("accuracy"), sign_of_metric("word_perplexity")
    (1, -1)
    """
    return -1 if any(name in metric for name in _LOWER) else 1


def measure_spread(values: Sequence[float]) -> float:
    """The standard deviation; 0 for a single value."""
    return stdev(values) if len(values) > 1 else 0.0


def select_trials(cells: Sequence[TrialScore], metric: str, chosen_on: str) -> dict[str, SelectedTrials]:
    """Select, for each initialization, the hyperparameters with the best median over seeds; of equal ones, the
    first.

    Only hyperparameters with the largest number of finished seeds are compared: a few seeds that did not diverge are
    not representative.
    """
    selected = {}
    for start in dict.fromkeys(cell.start for cell in cells):
        groups: dict[str, list[TrialScore]] = {}
        for cell in cells:
            if cell.start == start:
                groups.setdefault(repr(sorted(cell.how.items())), []).append(cell)
        most = max(map(len, groups.values()))
        whole = [group for group in groups.values() if len(group) == most]
        best = max(whole, key=lambda group: sign_of_metric(metric) * _median(group, metric, chosen_on))
        selected[start] = SelectedTrials(best[0].how, _by_seed(sorted(best, key=lambda cell: cell.seed)))
    return selected


def _median(group: Sequence[TrialScore], metric: str, split: str) -> float:
    return median(cell.scores[split][metric] for cell in group) if split else 0.0


def _by_seed(cells: Sequence[TrialScore]) -> dict[str, dict[str, tuple[float, ...]]]:
    return {
        split: {metric: tuple(cell.scores[split][metric] for cell in cells) for metric in metrics}
        for split, metrics in cells[0].scores.items()
    }
