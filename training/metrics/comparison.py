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
from training.metrics.significance import LEVEL, Score, student_quantile

DRAWS: Final = 2_000  # bootstrap samples, for a metric that is a mean over questions
RECOMPUTED_DRAWS: Final = 1_000  # bootstrap samples, for a metric that is recomputed on each
SLOW_METRICS: Final = frozenset(("bleu", "chrf"))  # recomputing them on 1,000 samples would take minutes
_BLOCKS: Final = 100  # blocks of questions for the jackknife of a slow metric
_CHUNK: Final = 1 << 22  # numbers in a temporary array
_HALVINGS: Final = 50

Test = Literal["McNemar", "bootstrap", "jackknife", "t over seeds"]


@dataclass(frozen=True)
class ModelScores:
    """The score of one trial of a model, as a function of the questions (their indices)."""

    score: Score
    value_Q: Floats | None = None  # the value of each question, if the score is their mean
    is_log: bool = False  # whether the values are logarithms, and their mean is the logarithm of the score

    @classmethod
    def of(cls, score: Score, count: int) -> "ModelScores":
        """Find out whether the score of `count` questions, or its logarithm, is a mean of values of questions."""
        if (value_Q := values_of_questions(score, count)) is not None:
            return cls(score, value_Q)
        value_Q = values_of_questions(lambda numbers: math.log(score(numbers)), count)
        return cls(score, value_Q, is_log=value_Q is not None)

    @property
    def has_values(self) -> bool:
        return self.value_Q is not None


def values_of_questions(score: Score, count: int) -> Floats | None:
    """The value of each question, if their mean is the score; otherwise None.

    >>> values_of_questions(lambda numbers: sum([1.0, 0.0, 1.0][n] for n in numbers) / len(numbers), 3).tolist()
    [1.0, 0.0, 1.0]
    >>> values_of_questions(lambda numbers: float(len(numbers)), 3) is None
    True
    """
    parts = [range(count), range(0, count, 2), range(count // 2, count)] if count > 1 else [range(count)]
    probe = range(0, count, max(1, count // 8))
    try:
        if not _is_close(score(list(probe)), fmean(score([n]) for n in probe)):
            return None
        value_Q = np.array([score([n]) for n in range(count)], np.float64)
        is_mean = all(_is_close(score(list(part)), float(value_Q[list(part)].mean())) for part in parts)
    except (ValueError, ZeroDivisionError, LookupError, OverflowError):  # undefined for one question
        return None
    return value_Q if is_mean else None


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
    `is_slow`: use the jackknife over blocks of questions if the metric is no mean. Equal arguments give equal results.

    Raises ValueError if there are no questions.
    """
    every = [number for unit in units for number in unit]
    if not every:
        raise ValueError("got no questions, expected at least one")
    scores = [[fmean(trial.score(every) for trial in model) for model in group] for group in (first, second)]
    means = fmean(scores[0]), fmean(scores[1])
    difference = means[1] - means[0]
    levels = _seed_levels(first, second, scores, every)
    is_mean = all(trial.has_values for group in (first, second) for model in group for trial in model)
    rng = key(seed, "task").at(3, 0)
    test: Test = "bootstrap"
    if is_slow and not is_mean:
        test = "jackknife"
        error = _jackknife_error(lambda numbers: _difference(first, second, numbers), units)
        sample_D = None
    else:
        sample_D = (_resample if is_mean else _recompute)(first, second, units, rng)
        error = float(np.std(sample_D, ddof=1))
    seeds = [(variance(each) / len(each), len(each) - 1) for each, _ in levels if len(each) > 1]
    covers = _describe_coverage([level for level in levels if len(level[0]) > 1])
    counts = _count_flips(first, second)
    if seeds:
        parts = [*seeds, (error**2, max(1, len(units) - 1))]
        half, p = _combine(parts, difference)
        low, high, test = difference - half, difference + half, "t over seeds"
    elif sample_D is None:
        half, p = _combine([(error**2, max(1, min(_BLOCKS, len(units)) - 1))], difference)
        low, high = difference - half, difference + half
    else:
        low, high = (float(end) for end in np.percentile(sample_D, [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)]))
        p = _bootstrap_p(sample_D)
        if counts and len(units) == len(every):
            p, test = mcnemar(counts[1], counts[0]), "McNemar"
    wins, losses = counts or (0, 0)
    return ScoreDifference(
        *means, difference, low, high, p, test, len(every), len(units), covers, wins=wins, losses=losses
    )


def _seed_levels(
    first: Sequence[Sequence[ModelScores]],
    second: Sequence[Sequence[ModelScores]],
    scores: Sequence[Sequence[float]],
    every: Sequence[int],
) -> list[tuple[Sequence[float], str]]:
    """The values whose variance over seeds the interval covers, and the kind of these seeds.

    They are the scores of each group over its pretraining seeds, or of a single model over its fine-tuning seeds. Two
    single models with equally many fine-tuning seeds are paired: a seed has the same examples in the same order.
    """
    trials = [[trial.score(every) for trial in group[0]] for group in (first, second)]
    if len(first) == len(second) == 1 and len(trials[0]) == len(trials[1]):
        return [([after - before for before, after in zip(*trials, strict=True)], "fine-tuning seeds")]
    return [
        (of_models, "pretraining seeds") if len(of_models) > 1 else (of_trials, "fine-tuning seeds")
        for of_models, of_trials in zip(scores, trials, strict=True)
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
    """The difference of the scores of each bootstrap sample of units, from the values of questions."""
    count_U = np.array([len(unit) for unit in units], np.float64)
    groups = [[[(trial, _sums(trial, units)) for trial in model] for model in group] for group in (first, second)]
    samples, at_once = [], max(1, _CHUNK // len(units))
    for start in range(0, DRAWS, at_once):
        draw_DU = rng.integers(len(units), size=(min(at_once, DRAWS - start), len(units)))
        count_D = count_U[draw_DU].sum(1)
        means = []
        for group in groups:
            models = [
                np.mean([_apply_link(trial, sum_U[draw_DU].sum(1) / count_D) for trial, sum_U in model], axis=0)
                for model in group
            ]
            means.append(np.mean(models, axis=0))
        samples.append(means[1] - means[0])
    return np.concatenate(samples)


def _sums(trial: ModelScores, units: Sequence[Sequence[int]]) -> Floats:
    """The sum of the values of each unit."""
    assert trial.value_Q is not None
    return np.array([trial.value_Q[list(unit)].sum() for unit in units])


def _apply_link(trial: ModelScores, mean_D: Floats) -> Floats:
    """The scores whose values have these means."""
    return np.exp(mean_D) if trial.is_log else mean_D


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
    if (
        first[0][0].is_log
        or one_Q is None
        or other_Q is None
        or not (np.isin(one_Q, (0, 1)).all() and np.isin(other_Q, (0, 1)).all())
    ):
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
