"""How certain a score is, and whether two differ: intervals of 95 % and a paired t test over seeds and questions.

Fine-tunings differ by their seeds and by the questions that they are asked, and every seed is asked the same ones: a
crossed design, as readers and cases in radiology. The variance of a mean is estimated by the sum of both one-way
variances, s^2_seeds / S + s^2_questions / Q, as in Clark's min F' (1973, "The language-as-fixed-effect fallacy"). Its
quantiles are those of t with S - 1 and Q - 1 degrees of freedom, weighted by the two parts (Cochran and Cox 1950): with
three seeds Satterthwaite's degrees of freedom reject too often where seeds matter most. Where few questions differ, a t
test is too bold: p is at least that of a sign-flip permutation test over questions, which is exact.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from preprocessing.rng import key
from preprocessing.schema import Floats

LEVEL: Final = 0.05  # below which a difference is called significant
_BLOCKS: Final = 100  # of questions, at most, for a metric that is no mean over questions
_TRIED: Final = 50  # questions by which it is seen whether a metric is one
_FLIPS: Final = 1_999
_SAME: Final = 1e-9  # of a mean: a standard error below is that of rounding
_HALVINGS: Final = 40  # of the range in which p is looked for
_MOST_FLIPPED: Final = 1_000  # questions that differ, above which a t test is as good

Score = Callable[[Sequence[int]], float]
"""The score of some questions, by their numbers."""


@dataclass(frozen=True)
class PairedDifference:
    """A difference of two means over the same seeds and questions: its interval of 95 %, and p of two sides."""

    difference: float
    low: float
    high: float
    p: float
    seeds: int
    questions: int  # or texts that have several; blocks of them for a metric that is no mean

    @property
    def is_significant(self) -> bool:
        return self.p < LEVEL


def unit_values(score: Score, units: Sequence[Sequence[int]]) -> list[float]:
    """What each unit (a question; or the questions of one text) adds to a score: their mean is the score, and their
    variance that of the score times their number.

    Where the score is a mean over questions, that of a unit of one question is its score. For any other metric (F1,
    correlations, BLEU) these are pseudo-values of the jackknife, of at most 100 blocks of units.

    >>> unit_values(lambda numbers: sum([1.0, 0.0, 1.0][n] for n in numbers) / len(numbers), [[0], [1], [2]])
    [1.0, 0.0, 1.0]
    """
    every = [number for unit in units for number in unit]
    if len(units) < 2:
        return [score(every)] if units else []
    whole = score(every)
    if _is_mean(score, every[:: max(1, len(every) // _TRIED)]):
        alone = {number: score([number]) for number in every}
        if math.isclose(whole, sum(alone.values()) / len(every), abs_tol=1e-9):
            return [whole + sum(alone[n] - whole for n in unit) * len(units) / len(every) for unit in units]
    blocks = [[n for unit in units[at::_BLOCKS] for n in unit] for at in range(min(_BLOCKS, len(units)))]
    count = len(blocks)
    left_out = [score([n for at, block in enumerate(blocks) if at != out for n in block]) for out in range(count)]
    return [count * whole - (count - 1) * one for one in left_out]


def _is_mean(score: Score, numbers: Sequence[int]) -> bool:
    """Whether the score of these questions is the mean of the scores of each."""
    try:
        return math.isclose(score(numbers), sum(score([n]) for n in numbers) / len(numbers), abs_tol=1e-9)
    except ValueError:  # a metric that a question alone has not
        return False


def pool_values(parts: Sequence[Sequence[float]]) -> list[float]:
    """The values of units of several splits whose scores are averaged, each split with the same weight.

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
    """The variance of a mean: what comes from seeds, and what from questions."""

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
        """What the mean exceeds, in standard errors and to either side, with probability p."""
        of_seeds = _quantile(self.seeds - 1, p) if self.of_seeds else 0.0
        of_questions = _quantile(self.questions - 1, p) if self.questions > 1 else 0.0
        if not self.variance:
            return of_questions
        return (self.of_seeds * of_seeds + self.of_questions * of_questions) / self.variance

    def p(self, mean: float) -> float:
        """p of two sides of a mean, where it is 0 in truth."""
        if not self.variance:
            return float(mean == 0)
        at, low, high = abs(mean) / self.error, 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.quantile(middle) > at else (low, middle)
        return (low + high) / 2


def interval(value_SQ: Floats, score: float, *, is_share: bool = True) -> tuple[float, float] | None:
    """Where a score lies at 95 %, over seeds (rows) and questions; over questions alone where there is one seed.

    A share of questions has Wilson's interval (1927) for as many questions as would vary as much: it stays between 0
    and 1, and is not empty where all answers are right. None of one question.

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


def paired_difference(one_SQ: Floats, other_SQ: Floats, difference: float | None = None) -> PairedDifference | None:
    """The test of no difference between two starts, on the same questions (columns) and with the same seeds (rows):
    a row of one belongs to the row of the other. With one seed it is over questions alone. None of one question, and
    where a value is not finite: every comparison with a NaN is false, which would make p 0.0005.

    `difference`: that of the scores, where these are not the means of the values. The interval has 0 in it where p is
    not below 5 %, and only there.
    """
    difference_SQ = np.asarray(one_SQ, np.float64) - np.asarray(other_SQ, np.float64)
    if np.shape(difference_SQ)[1] < 2 or not (math.isfinite(difference or 0.0) and np.isfinite(difference_SQ).all()):
        return None
    spread, mean = _Spread.of(difference_SQ), float(difference_SQ.mean()) if difference is None else difference
    by_t = spread.p(mean)
    p = max(by_t, _flipped(difference_SQ.mean(0)))
    half = spread.quantile() * spread.error
    if by_t < p < 1:  # an interval as wide as the t test would have it for this p
        at = spread.quantile(p)
        half = max(half, abs(mean) * spread.quantile() / at if at else abs(mean))
    return PairedDifference(mean, mean - half, mean + half, p, spread.seeds, spread.questions)


def over_seeds(value_S: Sequence[float], of_questions: float = 0.0, questions: int = 0) -> PairedDifference | None:
    """The test of a mean of 0 over seeds, for what has no values by question (Student 1908); None of one seed.

    `of_questions`: the variance of the mean that comes from so many questions, where that is known otherwise.
    """
    value_S1 = np.asarray(value_S, np.float64)[:, None]
    if len(value_S1) < 2 or not np.isfinite(value_S1).all():
        return None
    spread = replace(_Spread.of(value_S1), of_questions=of_questions, questions=questions)
    mean = float(value_S1.mean())
    half, p = spread.quantile() * spread.error, spread.p(mean)
    if spread.error <= _SAME * abs(mean):  # seeds that are all the same, as of few questions: a t test has no error
        p = max(p, 2.0 ** (1 - spread.seeds))  # that of flipped signs
    return PairedDifference(mean, mean - half, mean + half, p, spread.seeds, questions)


def _flipped(difference_Q: Floats) -> float:
    """p of a sign-flip permutation test; 0 where so many questions differ that a t test needs no such help."""
    different_N = difference_Q[difference_Q != 0]
    if len(different_N) > _MOST_FLIPPED:
        return 0.0
    sum_F = _signs()[:, : len(different_N)] @ different_N.astype(np.float32)
    reached = np.abs(sum_F) >= abs(float(different_N.sum())) * (1 - 1e-5)
    return (1 + int(reached.sum())) / (1 + _FLIPS)


@cache
def _signs() -> Any:
    """Signs [flips, questions], the same each time."""
    drawn = key(0, "task").at(2, 0).integers(0, 2, size=(_FLIPS, _MOST_FLIPPED), dtype=np.int8)
    return (2 * drawn - 1).astype(np.float32)


def _quantile(df: int, p: float) -> float:
    from scipy.special import stdtrit

    return -float(stdtrit(df, p / 2))
