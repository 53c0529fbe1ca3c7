"""Paired comparison of two models, or of two groups of models that differ in the seed, on the same questions.

Read `compare_scores` first. Questions are paired: each bootstrap sample has the same questions for both models. The
interval of two single models is a percentile interval over samples of questions (Efron and Tibshirani 1993, 13.3; for
metrics of language: Koehn 2004). If all questions have 0 or 1, p is that of McNemar's exact test (McNemar 1947).
With several seeds, the variances of seeds and of questions are added, and the quantile is that of t (`significance`,
decisions 141 and 142). The multi-bootstrap (Sellam et al. 2022, arXiv:2106.16163) estimates the same quantity, but its
samples of two or three seeds are too similar, so that its intervals are too short.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final, Literal

import numpy as np

from preprocessing.rng import key
from preprocessing.schema import Floats, Ints
from training.evaluation.metrics.significance import LEVEL, Score, student_quantile

DRAWS: Final = 2_000  # bootstrap samples, for a metric that is a mean over questions
RECOMPUTED_DRAWS: Final = 1_000  # bootstrap samples, for a metric that is recomputed on each
MOST_RECOMPUTED: Final = 1_000  # questions; a metric of more is not recomputed on each sample, because it takes minutes
SLOW_METRICS: Final = frozenset(("bleu", "chrf"))  # they are never recomputed on each sample
_BLOCKS: Final = 100  # blocks of questions for the jackknife
_PROBED: Final = 8  # units whose questions show at once that a metric is no mean
_CHUNK: Final = 1 << 22  # numbers in a temporary array
_HALVINGS: Final = 50

Test = Literal["McNemar", "bootstrap", "jackknife", "t over seeds"]


@dataclass(frozen=True)
class UnitMeans:
    """A score that is a mean over units, or the exponential of one: sum(sum_U) / sum(weight_U)."""

    sum_U: Floats
    weight_U: Floats
    is_log: bool = False
    value_Q: Floats | None = (
        None  # the value of each question in the order of the units, if it is a mean over questions
    )

    @classmethod
    def of(cls, score: Score, units: Sequence[Sequence[int]]) -> "UnitMeans | None":
        """Find out whether a score, or its logarithm, is a mean over questions or over units; None if it is not."""
        size_U = np.array([len(unit) for unit in units], np.float64)
        questions = [[number] for unit in units for number in unit]
        for is_log in (False, True):
            link = _take_log(score) if is_log else score
            if (value_Q := find_values(link, questions, _select_probe(units))) is not None:
                ends = np.cumsum(size_U).astype(int)[:-1]
                return cls(np.array([part.sum() for part in np.split(value_Q, ends)]), size_U, is_log, value_Q)
            used = [unit for unit in units if unit]
            if len(used) < len(questions) and (value_U := find_values(link, used, used[:_PROBED])) is not None:
                sum_U = np.zeros(len(units))
                sum_U[size_U > 0] = value_U
                return cls(sum_U, (size_U > 0).astype(np.float64), is_log)
        return None

    def resample(self, draw_DU: Ints) -> Floats:
        """The score of each sample of units [D]; NaN if its weight is 0."""
        weight_D = self.weight_U[draw_DU].sum(1) if np.ptp(self.weight_U) else self.weight_U.sum()
        with np.errstate(invalid="ignore"):
            mean_D = self.sum_U[draw_DU].sum(1) / weight_D
        return np.exp(mean_D) if self.is_log else mean_D


@dataclass(frozen=True)
class ModelScores:
    """The score of one trial of a model, as a function of the questions (their indices)."""

    score: Score
    means: tuple[UnitMeans, ...] = ()  # means over units whose mean is the score; () if it has to be recomputed

    @classmethod
    def of(cls, score: Score, units: Sequence[Sequence[int]]) -> "ModelScores":
        """The scores of a trial. `units` are the groups of questions that are sampled together."""
        means = UnitMeans.of(score, units)
        return cls(score, (means,) if means else ())

    @classmethod
    def of_splits(cls, score: Score, units: Sequence[Sequence[int]], split_Q: Sequence[str]) -> "ModelScores":
        """The mean of the scores of several splits; `split_Q` is the split of each question."""
        splits = list(dict.fromkeys(split_Q))

        def average(numbers: Sequence[int]) -> float:
            parts = [[n for n in numbers if split_Q[n] == split] for split in splits]
            return fmean(score(part) for part in parts if part)

        if len(splits) < 2:
            return cls.of(score, units)
        found = [UnitMeans.of(score, [[n for n in unit if split_Q[n] == split] for unit in units]) for split in splits]
        means = tuple(each for each in found if each)
        return cls(average, means if len(means) == len(splits) else ())

    def resample(self, draw_DU: Ints) -> Floats:
        """The score of each sample of units [D], from its means. A split without a unit in the sample is left out."""
        return np.nanmean([means.resample(draw_DU) for means in self.means], axis=0)

    @property
    def value_Q(self) -> Floats | None:
        """The value of each question in the order of the units, if the score is their mean."""
        return self.means[0].value_Q if len(self.means) == 1 and not self.means[0].is_log else None


def find_values(score: Score, units: Sequence[Sequence[int]], probe: Sequence[Sequence[int]]) -> Floats | None:
    """The value of each unit, if their mean is the score; otherwise None. `probe`: units to try first, to save time.

    >>> units = [[0], [1], [2]]
    >>> find_values(lambda numbers: sum([1.0, 0.0, 1.0][n] for n in numbers) / len(numbers), units, units).tolist()
    [1.0, 0.0, 1.0]
    >>> find_values(lambda numbers: float(len(numbers)), units, units) is None
    True
    """
    count = len(units)
    parts = [slice(None), slice(None, None, 2), slice(count // 2, None)] if count > 1 else [slice(None)]
    try:
        if not _is_close(score(_join(probe)), fmean(score(unit) for unit in probe)):
            return None
        value_U = np.array([score(unit) for unit in units], np.float64)
        is_mean = all(_is_close(score(_join(units[part])), float(value_U[part].mean())) for part in parts)
    except (ValueError, ZeroDivisionError, LookupError, OverflowError):  # undefined for one unit
        return None
    return value_U if is_mean else None


def _select_probe(units: Sequence[Sequence[int]]) -> list[list[int]]:
    """Questions of a few units, one of each even unit and two of each odd one: a mean over units is no mean over them.

    >>> _select_probe([[0, 1], [2, 3], [4, 5]])
    [[0], [2], [3], [4]]
    """
    used = [unit for unit in units if unit]
    chosen = used[:: max(1, len(used) // _PROBED)]
    return [[number] for at, unit in enumerate(chosen) for number in unit[: 1 + at % 2]]


def _join(units: Sequence[Sequence[int]]) -> list[int]:
    return [number for unit in units for number in unit]


def _take_log(score: Score) -> Score:
    return lambda numbers: math.log(score(numbers))


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


@dataclass(frozen=True)
class ScoreDifference:
    """The difference of two scores, second minus first, with its 95 % interval and two-sided p."""

    first: float  # mean over the seeds
    second: float
    difference: float
    low: float
    high: float
    p: float
    test: Test
    questions: int
    units: int  # groups of dependent questions, e.g. those of one text; equal to `questions` if all are independent
    covers: str  # the sources of variation that the interval covers, e.g. "questions"
    wins: int = 0  # questions that only the second model answers better, if both models have one trial
    losses: int = 0  # questions that only the first model answers better

    @property
    def is_significant(self) -> bool:
        return self.p < LEVEL


def mcnemar(first_only: int, second_only: int) -> float:
    """The two-sided p of McNemar's exact test, from the numbers of questions that only one model answers correctly.

    It is the p of a sign test: under the hypothesis, each of these questions is a fair coin.

    >>> mcnemar(0, 0), mcnemar(5, 5), round(mcnemar(1, 9), 6)
    (1.0, 1.0, 0.021484)
    """
    from scipy.special import bdtr

    total = first_only + second_only
    return min(1.0, 2 * float(bdtr(min(first_only, second_only), total, 0.5))) if total else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values, adjusted for their number (Holm 1979): the chance of any false positive is at most the level.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = largest
    return adjusted


def compare_scores(
    first: Sequence[Sequence[ModelScores]],
    second: Sequence[Sequence[ModelScores]],
    units: Sequence[Sequence[int]],
    *,
    seed: int = 0,
    is_slow: bool = False,
) -> ScoreDifference:
    """Compare two groups of models on the same questions.

    `first` and `second` have one entry for each pretraining seed, with one ModelScores for each fine-tuning seed. The
    score of a model is the mean over its fine-tuning seeds. `units` are groups of questions that are sampled together.
    A metric that is no mean is recomputed on each bootstrap sample, or has a jackknife over blocks of questions if it
    `is_slow`, if there are many questions, or if there are several seeds. Equal arguments give equal results.

    Raises ValueError if there are no questions, or if the scores are means over other units.
    """
    every = _join(units)
    if not every:
        raise ValueError("got no questions, expected at least one")
    sizes = {len(each.sum_U) for group in (first, second) for model in group for one in model for each in one.means}
    if sizes - {len(units)}:
        raise ValueError(f"the scores are means over {sizes} units, expected {len(units)}")
    scores = [[[trial.score(every) for trial in model] for model in group] for group in (first, second)]
    means = fmean(map(fmean, scores[0])), fmean(map(fmean, scores[1]))
    difference = means[1] - means[0]
    levels = _seed_levels(*scores)
    is_mean = all(trial.means for group in (first, second) for model in group for trial in model)
    has_seeds = any(len(each) > 1 for each, _ in levels)
    rng, df = key(seed, "task").at(3, 0), max(1, len(units) - 1)
    test: Test = "bootstrap"
    sample_D = None
    if not is_mean and (is_slow or has_seeds or len(every) > MOST_RECOMPUTED):
        test, df = "jackknife", max(1, min(_BLOCKS, len(units)) - 1)
        error = _jackknife_error(lambda numbers: _difference(first, second, numbers), units)
    else:
        sample_D = (_resample if is_mean else _recompute)(first, second, units, rng)
        error = float(np.std(sample_D, ddof=1))
    counts = _count_flips(first, second)
    if has_seeds or sample_D is None:
        seeds = [(variance(each) / len(each), len(each) - 1) for each, _ in levels if len(each) > 1]
        half, p = _combine([*seeds, (error**2, df)], difference)
        low, high, test = difference - half, difference + half, "t over seeds" if has_seeds else test
    else:
        low, high = (float(end) for end in np.percentile(sample_D, [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)]))
        p = _bootstrap_p(sample_D)
        if counts and len(units) == len(every):
            p, test = mcnemar(counts[1], counts[0]), "McNemar"
    covers = _describe_coverage([level for level in levels if len(level[0]) > 1])
    wins, losses = counts or (0, 0)
    return ScoreDifference(
        *means, difference, low, high, p, test, len(every), len(units), covers, wins=wins, losses=losses
    )


def _seed_levels(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]
) -> list[tuple[Sequence[float], str]]:
    """The values whose variance over seeds the interval covers, and the kind of these seeds, from the score of each
    trial of each model of two groups.

    They are the scores of each group over its pretraining seeds, or of a single model over its fine-tuning seeds. Two
    single models with equally many fine-tuning seeds are paired: a seed has the same examples in the same order.
    """
    if len(first) == len(second) == 1 and len(first[0]) == len(second[0]):
        return [([after - before for before, after in zip(first[0], second[0], strict=True)], "fine-tuning seeds")]
    name = "pretraining seeds" if len(first) > 1 and len(second) > 1 else "pretraining seeds of one model"
    return [
        (list(map(fmean, group)), name) if len(group) > 1 else (group[0], "fine-tuning seeds")
        for group in (first, second)
    ]


def _describe_coverage(levels: Sequence[tuple[Sequence[float], str]]) -> str:
    return " and ".join(dict.fromkeys(["questions", *(name for _, name in levels)]))


def _difference(
    first: Sequence[Sequence[ModelScores]], second: Sequence[Sequence[ModelScores]], numbers: Sequence[int]
) -> float:
    means = [fmean(fmean(trial.score(numbers) for trial in model) for model in group) for group in (first, second)]
    return means[1] - means[0]


def _resample(
    first: Sequence[Sequence[ModelScores]],
    second: Sequence[Sequence[ModelScores]],
    units: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> Floats:
    """The difference of the scores of each bootstrap sample of units, from their means."""
    samples, at_once = [], max(1, _CHUNK // len(units))
    for start in range(0, DRAWS, at_once):
        draw_DU = rng.integers(len(units), size=(min(at_once, DRAWS - start), len(units)))
        means = [
            np.mean([np.mean([trial.resample(draw_DU) for trial in model], axis=0) for model in group], axis=0)
            for group in (first, second)
        ]
        samples.append(means[1] - means[0])
    return np.concatenate(samples)


def _recompute(
    first: Sequence[Sequence[ModelScores]],
    second: Sequence[Sequence[ModelScores]],
    units: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> Floats:
    """The difference of the scores of each bootstrap sample of units."""
    samples: Ints = rng.integers(len(units), size=(RECOMPUTED_DRAWS, len(units)))
    return np.array(
        [_difference(first, second, [n for at in draw for n in units[at]]) for draw in samples.tolist()], np.float64
    )


def _jackknife_error(score: Callable[[Sequence[int]], float], units: Sequence[Sequence[int]]) -> float:
    """The standard error of a score: a jackknife over at most 100 blocks of units (Efron and Tibshirani 1993, 11)."""
    blocks = [[n for unit in units[at::_BLOCKS] for n in unit] for at in range(min(_BLOCKS, len(units)))]
    if len(blocks) < 2:
        return 0.0
    left_out = [score([n for at, block in enumerate(blocks) if at != out for n in block]) for out in range(len(blocks))]
    return math.sqrt((len(blocks) - 1) * float(np.var(left_out)))


def _count_flips(
    first: Sequence[Sequence[ModelScores]], second: Sequence[Sequence[ModelScores]]
) -> tuple[int, int] | None:
    """The numbers of questions that only the second and only the first of two single trials answers correctly.

    None if there are several trials, or if a question has another value than 0 or 1.
    """
    if not len(first) == len(second) == len(first[0]) == len(second[0]) == 1:
        return None
    one_Q, other_Q = first[0][0].value_Q, second[0][0].value_Q
    if one_Q is None or other_Q is None or not (np.isin(one_Q, (0, 1)).all() and np.isin(other_Q, (0, 1)).all()):
        return None
    return int((other_Q > one_Q).sum()), int((one_Q > other_Q).sum())


def _bootstrap_p(sample_D: Floats) -> float:
    """Two-sided p: twice the fraction of samples beyond 0 (Efron and Tibshirani 1993, 15.4, by inverting the interval).

    It is at least 2 / (draws + 1), because the samples say nothing about smaller numbers.
    """
    below, above = int((sample_D <= 0).sum()), int((sample_D >= 0).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (1 + len(sample_D)))


def _combine(parts: Sequence[tuple[float, int]], difference: float) -> tuple[float, float]:
    """Half the width of the 95 % interval, and p, from variances and their degrees of freedom.

    The quantile is the mean of the quantiles of the parts, weighted by their variances (Cochran and Cox 1950).
    """
    total = sum(part for part, _ in parts)
    if total <= 0:
        return 0.0, float(difference == 0)

    def quantile(p: float) -> float:
        return sum(part * student_quantile(df, p) for part, df in parts) / total

    at, low, high = abs(difference) / math.sqrt(total), 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if quantile(middle) > at else (low, middle)
    return quantile(LEVEL) * math.sqrt(total), (low + high) / 2
