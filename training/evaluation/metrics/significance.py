"""Uncertainty of scores: 95% intervals, and a paired t test of differences over seeds and questions.

Fine-tuning results vary with seeds and questions, and every seed has the same questions. This is a crossed design, as
with readers and cases in radiology. The variance of a mean is estimated by the sum of both one-way variances, s^2_seeds
/ S + s^2_questions / Q. Clark's min F' does the same (1973, "The language-as-fixed-effect fallacy"). Quantiles are
those of t with S - 1 and Q - 1 degrees of freedom, weighted by the two parts (Cochran and Cox 1950). With three seeds,
Satterthwaite's degrees of freedom reject too often if seeds contribute most of the variance. If few questions differ, a
t test rejects too often; then p is at least the p of a sign-flip permutation test over questions, which is exact.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from preprocessing.rng import key
from preprocessing.schema import Floats

LEVEL: Final = 0.05  # significance level
_BLOCKS: Final = 100  # maximum number of blocks of questions, for a metric that is not a mean over questions
_SAMPLED: Final = 50  # questions used to test whether a metric is a mean
_FLIPS: Final = 1_999
_SAME: Final = 1e-9  # relative to the mean: a smaller standard error is rounding error
_HALVINGS: Final = 40  # bisection steps to find p
_MOST_FLIPPED: Final = 1_000  # with more differing questions, a t test is accurate

Score = Callable[[Sequence[int]], float]
"""Maps indices of questions to their score."""


@dataclass(frozen=True)
class PairedDifference:
    """A difference of two means over the same seeds and questions, with its 95% interval and two-sided p."""

    difference: float
    low: float
    high: float
    p: float
    seeds: int
    questions: int  # number of units: questions, texts with several questions, or blocks of them (`unit_values`)

    @property
    def is_significant(self) -> bool:
        return self.p < LEVEL


def unit_values(score: Score, units: Sequence[Sequence[int]]) -> list[float]:
    """The value of each unit (a question, or the questions of one text) in a score.

    The mean of the values is the score. Their variance, divided by their number, is the variance of the score. If the
    score is a mean over questions, a unit of one question has the score of this question as its value. For other
    metrics (F1, correlations, BLEU), the units form at most 100 blocks, and values are the jackknife's pseudo-values of
    the blocks.

    >>> unit_values(lambda numbers: sum([1.0, 0.0, 1.0][n] for n in numbers) / len(numbers), [[0], [1], [2]])
    [1.0, 0.0, 1.0]
    """
    every = [number for unit in units for number in unit]
    if len(units) < 2:
        return [score(every)] if units else []
    whole = score(every)
    if _is_mean(score, every[:: max(1, len(every) // _SAMPLED)]):
        alone = {number: score([number]) for number in every}
        if math.isclose(whole, sum(alone.values()) / len(every), abs_tol=1e-9):
            return [whole + sum(alone[n] - whole for n in unit) * len(units) / len(every) for unit in units]
    blocks = [[n for unit in units[at::_BLOCKS] for n in unit] for at in range(min(_BLOCKS, len(units)))]
    count = len(blocks)
    left_out = [score([n for at, block in enumerate(blocks) if at != out for n in block]) for out in range(count)]
    return [count * whole - (count - 1) * one for one in left_out]


def _is_mean(score: Score, numbers: Sequence[int]) -> bool:
    """Whether the score of these questions is the mean of their single scores."""
    try:
        return math.isclose(score(numbers), sum(score([n]) for n in numbers) / len(numbers), abs_tol=1e-9)
    except ValueError:  # the metric is undefined for a single question
        return False


def pool_values(parts: Sequence[Sequence[float]]) -> list[float]:
    """Pool the unit values of several splits whose scores are averaged with equal weights.

    >>> pool_values([[1.0, 0.0], [1.0]])
    [1.125, 0.375, 0.75]
    """
    if not all(parts):
        return []
    count, mean = sum(map(len, parts)), sum(sum(part) / len(part) for part in parts) / len(parts)
    shares = [(part, sum(part) / len(part), count / (len(part) * len(parts))) for part in parts]
    return [mean + share * (value - middle) for part, middle, share in shares for value in part]


@dataclass(frozen=True)
class _Spread:
    """The variance of a mean, split into parts from seeds and from questions."""

    of_seeds: float
    of_questions: float
    seeds: int
    questions: int

    @classmethod
    def of(cls, value_SQ: Floats) -> "_Spread":
        seeds, count = np.shape(value_SQ)
        of_questions = float(np.var(np.mean(value_SQ, 0), ddof=1)) / count if count > 1 else 0.0
        of_seeds = float(np.var(np.mean(value_SQ, 1), ddof=1)) / seeds if seeds > 1 else 0.0
        return cls(of_seeds, of_questions, seeds, count)

    @property
    def variance(self) -> float:
        return self.of_seeds + self.of_questions

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.variance)

    def quantile(self, p: float = LEVEL) -> float:
        """The quantile: with probability p, the error of the mean is larger than this number of standard errors."""
        of_seeds = student_quantile(self.seeds - 1, p) if self.of_seeds else 0.0
        of_questions = student_quantile(self.questions - 1, p) if self.questions > 1 else 0.0
        if not self.variance:
            return of_questions
        return (self.of_seeds * of_seeds + self.of_questions * of_questions) / self.variance

    def p(self, mean: float) -> float:
        """The two-sided p of a mean under the hypothesis that the true mean is 0."""
        if not self.variance:
            return float(mean == 0)
        at, low, high = abs(mean) / self.error, 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.quantile(middle) > at else (low, middle)
        return (low + high) / 2


def interval(value_SQ: Floats, score: float, *, is_share: bool = True) -> tuple[float, float] | None:
    """The 95% interval of a score over seeds (rows) and questions (columns); with one seed, over questions only.

    For a fraction of questions, this is Wilson's interval (1927). Its number of questions is chosen so that the
    binomial variance equals the estimated one. Wilson's interval stays between 0 and 1, and is not empty if all answers
    are correct. Returns None for one question.

    >>> [round(end, 3) for end in interval(np.array([[1.0] * 5 + [0.0] * 5]), 0.5) or ()]
    [0.199, 0.801]
    """
    if np.shape(value_SQ)[1] < 2:
        return None
    spread = _Spread.of(value_SQ)
    if is_share and np.min(value_SQ) >= 0 and np.max(value_SQ) <= 1:
        effective = score * (1 - score) / spread.variance if spread.variance else float(spread.questions)
        z = spread.quantile() ** 2 / max(effective, 1e-9)
        middle, half = score + z / 2, math.sqrt(max(0.0, z * score * (1 - score) + z * z / 4))
        return max(0.0, (middle - half) / (1 + z)), min(1.0, (middle + half) / (1 + z))
    half = spread.quantile() * spread.error
    return score - half, score + half


def compare_paired(one_SQ: Floats, other_SQ: Floats, difference: float | None = None) -> PairedDifference | None:
    """Test the difference of two initializations; both arrays have the same seeds (rows) and questions (columns).

    With one seed, the test is over questions only. Returns None for one question, and for values that are not
    finite: comparisons with NaN are false, which would give p = 0.0005.

    `difference` is the difference of the scores, if these are not the means of the values. The interval contains 0
    exactly if p is not below 5%.
    """
    difference_SQ = np.asarray(one_SQ, np.float64) - np.asarray(other_SQ, np.float64)
    if np.shape(difference_SQ)[1] < 2 or not (math.isfinite(difference or 0.0) and np.isfinite(difference_SQ).all()):
        return None
    spread, mean = _Spread.of(difference_SQ), float(difference_SQ.mean()) if difference is None else difference
    by_t = spread.p(mean)
    p = max(by_t, _sign_flip_p(difference_SQ.mean(0)))
    half = spread.quantile() * spread.error
    if by_t < p < 1:  # the width for which the t test would give this p
        at = spread.quantile(p)
        half = max(half, abs(mean) * spread.quantile() / at if at else abs(mean))
    return PairedDifference(mean, mean - half, mean + half, p, spread.seeds, spread.questions)


def over_seeds(value_S: Sequence[float], of_questions: float = 0.0, questions: int = 0) -> PairedDifference | None:
    """Test whether a mean over seeds is 0, if there are no values per question (Student 1908); None for one seed.

    `of_questions` is the part of the variance that comes from the `questions` questions, if it is known.
    """
    value_S1 = np.asarray(value_S, np.float64)[:, None]
    if len(value_S1) < 2 or not np.isfinite(value_S1).all():
        return None
    spread = replace(_Spread.of(value_S1), of_questions=of_questions, questions=questions)
    mean = float(value_S1.mean())
    half, p = spread.quantile() * spread.error, spread.p(mean)
    if spread.error <= _SAME * abs(
        mean
    ):  # all seeds have the same value, as happens with few questions: the t test has no error estimate
        p = max(p, 2.0 ** (1 - spread.seeds))  # p of a sign-flip test
    return PairedDifference(mean, mean - half, mean + half, p, spread.seeds, questions)


def _sign_flip_p(difference_Q: Floats) -> float:
    """The p of a sign-flip permutation test; 0 if enough questions differ for the t test to be accurate."""
    different_N = difference_Q[difference_Q != 0]
    if len(different_N) > _MOST_FLIPPED:
        return 0.0
    sum_F = _signs()[:, : len(different_N)] @ different_N.astype(np.float32)
    reached = np.abs(sum_F) >= abs(float(different_N.sum())) * (1 - 1e-5)
    return (1 + int(reached.sum())) / (1 + _FLIPS)


@cache
def _signs() -> Any:
    """Random signs [flips, questions], always the same."""
    drawn = key(0, "task").at(2, 0).integers(0, 2, size=(_FLIPS, _MOST_FLIPPED), dtype=np.int8)
    return (2 * drawn - 1).astype(np.float32)


def student_quantile(df: int, p: float) -> float:
    from scipy.special import stdtrit

    return -float(stdtrit(df, p / 2))
