"""Cells of a grid -> the score of a task: the best hyper-parameters on dev, their median and spread over the seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Any, Final, Literal

from training.metrics import PairedDifference

Start = Literal["pretrained", "random"]
STARTS: Final[tuple[Start, ...]] = ("pretrained", "random")
_LOWER: Final = ("perplexity", "bits", "loss")  # in the names of metrics of which less is better


@dataclass(frozen=True)
class TrialScore:
    """What became of one cell: the hyper-parameters that it shares with other seeds, and its scores."""

    start: str  # pretrained or random
    how: Mapping[str, Any]  # hyper-parameters but the seed; {}: nothing was trained
    seed: int
    scores: Mapping[str, Mapping[str, float]]  # by split and metric

    @classmethod
    def of(cls, start: str, how: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]]) -> "TrialScore":
        return cls(start, {key: value for key, value in how.items() if key != "seed"}, how.get("seed", 0), scores)


@dataclass(frozen=True)
class SelectedTrials:
    """The cells of the hyper-parameters that were chosen, one a seed."""

    how: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, tuple[float, ...]]]  # split -> metric -> value of each seed, in their order


@dataclass(frozen=True)
class TaskScore:
    """The score of a task, from each start."""

    task: str
    metric: str  # what cells are compared by
    split: str  # what `values` are of
    chosen_on: str  # the split whose scores decided; "": there was nothing to choose
    starts: Mapping[str, SelectedTrials]
    step: int | None = None  # of the pretraining; None: the finished run
    labels: int = 0  # labelled rows of each fine-tuning, where a number was asked for; 0: all that there are
    chance: float | None = None  # what a guess gets, or the majority
    paper: Mapping[str, float] = field(default_factory=dict)  # figures that the recipe quotes, as printed there
    examples: Mapping[str, str] = field(default_factory=dict)  # by start: what the net says, a line each
    notes: tuple[str, ...] = ()  # what the scores mean, and what of the items could not be used
    failed: tuple[str, ...] = ()  # cells without a score, and why
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by start, of 95 %; where known
    gain: PairedDifference | None = None  # of pretraining over random weights: its test; None: not tested
    constant: Mapping[str, str] = field(
        default_factory=dict
    )  # by start, what is said of seeds with one constant answer

    def values(self, start: str) -> tuple[float, ...]:
        """The scores of the seeds of a start; () where it was not asked for."""
        return self.starts[start].scores[self.split][self.metric] if start in self.starts else ()

    @property
    def margin(self) -> float | None:
        """How much better the pretrained weights are than random ones, between the means over the seeds that both
        have; None without both, and where a score is infinite."""
        if self.gain is not None:
            return self.gain.difference
        pretrained, random = self.values("pretrained"), self.values("random")
        if not pretrained or not random:
            return None
        found = sign_of_metric(self.metric) * (fmean(pretrained) - fmean(random))
        return found if math.isfinite(found) else None

    @property
    def spread(self) -> float:
        """The largest standard deviation over the seeds of a start."""
        return max(spread_of(self.values(start)) for start in self.starts)

    @property
    def wins(self) -> bool | None:
        """Whether pretraining is significantly better (p < 0.05, paired t test); None where that is not tested."""
        return None if self.gain is None else self.gain.is_significant and self.gain.difference > 0


def sign_of_metric(metric: str) -> int:
    """1 where more is better, -1 where less is.

    >>> sign_of_metric("accuracy"), sign_of_metric("word_perplexity")
    (1, -1)
    """
    return -1 if any(name in metric for name in _LOWER) else 1


def spread_of(values: Sequence[float]) -> float:
    """Their standard deviation, 0 of one."""
    return stdev(values) if len(values) > 1 else 0.0


def select_trials(cells: Sequence[TrialScore], metric: str, chosen_on: str) -> dict[str, SelectedTrials]:
    """By start, the hyper-parameters with the best median over the seeds, of equal ones those that came first.

    Only those of which most seeds have a score are compared: the one seed that did not diverge says too little.
    """
    found = {}
    for start in dict.fromkeys(cell.start for cell in cells):
        groups: dict[str, list[TrialScore]] = {}
        for cell in cells:
            if cell.start == start:
                groups.setdefault(repr(sorted(cell.how.items())), []).append(cell)
        most = max(map(len, groups.values()))
        whole = [group for group in groups.values() if len(group) == most]
        best = max(whole, key=lambda group: sign_of_metric(metric) * _median(group, metric, chosen_on))
        found[start] = SelectedTrials(best[0].how, _by_seed(sorted(best, key=lambda cell: cell.seed)))
    return found


def _median(group: Sequence[TrialScore], metric: str, split: str) -> float:
    return median(cell.scores[split][metric] for cell in group) if split else 0.0


def _by_seed(cells: Sequence[TrialScore]) -> dict[str, dict[str, tuple[float, ...]]]:
    return {
        split: {metric: tuple(cell.scores[split][metric] for cell in cells) for metric in metrics}
        for split, metrics in cells[0].scores.items()
    }
