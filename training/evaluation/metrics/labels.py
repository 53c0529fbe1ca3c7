"""Metrics for one label or one number per example: those of GLUE (arXiv:1804.07461, 3), NLI and similarity.

Labels are int arrays [N], and numbers are float arrays [N]. All metrics are fractions, or correlations from -1 to 1,
not percentages. F1 and Matthews' correlation equal those of scikit-learn, to which the tests compare them. They do not
call it, because its import takes more than a second in each process of an evaluation.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from preprocessing.schema import Floats, Ints

POSITIVE: Final = 1  # the positive class of binary F1


def accuracy(gold_N: Ints, predicted_N: Ints) -> float:
    """Fraction of examples with the correct label.

    >>> accuracy(np.array([1, 0, 1]), np.array([1, 1, 1]))
    0.6666666666666666
    """
    _same_length(gold_N, predicted_N)
    return float(np.mean(np.asarray(gold_N) == np.asarray(predicted_N)))


def f1(gold_N: Ints, predicted_N: Ints) -> float:
    """F1 of class 1 of two (MRPC, QQP); 0 if neither gold nor predictions have this class.

    >>> f1(np.array([1, 1, 1, 0, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 1, 0, 1]))
    0.8
    """
    _same_length(gold_N, predicted_N)
    return _f1_of_class(POSITIVE, np.asarray(gold_N), np.asarray(predicted_N))


def macro_f1(gold_N: Ints, predicted_N: Ints) -> float:
    """Mean F1 over the classes in gold or predictions; a negative prediction is wrong, and not a class.

    >>> round(macro_f1(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])), 10)
    0.3888888889
    """
    _same_length(gold_N, predicted_N)
    gold_N, predicted_N = np.asarray(gold_N), np.asarray(predicted_N)
    classes = [number for number in np.union1d(gold_N, predicted_N).tolist() if number >= 0]
    return float(np.mean([_f1_of_class(number, gold_N, predicted_N) for number in classes]))


def _f1_of_class(number: int, gold_N: Ints, predicted_N: Ints) -> float:
    """F1 of one class: the harmonic mean of precision and recall; 0 if neither array has it."""
    is_gold_N, is_predicted_N = gold_N == number, predicted_N == number
    both, either = (
        np.count_nonzero(is_gold_N & is_predicted_N),
        np.count_nonzero(is_gold_N) + np.count_nonzero(is_predicted_N),
    )
    return float(2 * both / either) if either else 0.0


def matthews(gold_N: Ints, predicted_N: Ints) -> float:
    """Matthews correlation (CoLA), also for more than two classes (AX); 0 if gold or predictions are constant.

    >>> round(matthews(np.array([1, 1, 1, 0, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 1, 0, 1])), 10)
    0.4666666667
    """
    _same_length(gold_N, predicted_N)
    if explain_undefined(gold_N, predicted_N):
        return 0.0
    gold_N, predicted_N = np.asarray(gold_N), np.asarray(predicted_N)
    classes_K = np.union1d(gold_N, predicted_N)
    gold_K, predicted_K = ((labels_N[:, None] == classes_K).sum(0) for labels_N in (gold_N, predicted_N))
    n, correct = len(gold_N), np.count_nonzero(gold_N == predicted_N)
    covariance = n * correct - gold_K @ predicted_K
    of_gold, of_predicted = (float(n**2 - count_K @ count_K) for count_K in (gold_K, predicted_K))  # n**4 exceeds int64
    return float(covariance / math.sqrt(of_gold * of_predicted))


def pearson(gold_N: Floats, predicted_N: Floats) -> float:
    """Pearson's r; 0 if gold or predictions are constant, since r is then undefined.

    >>> round(pearson(np.array([0, 1.5, 2.5, 5, 3.8, 2.5]), np.array([0.2, 1, 3, 4.9, 3.9, 2])), 10)
    0.974475211
    """
    from scipy.stats import pearsonr

    return _correlation(pearsonr, gold_N, predicted_N)


def spearman(gold_N: Floats, predicted_N: Floats) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 if gold or predictions are constant.

    >>> round(spearman(np.array([0, 1.5, 2.5, 5, 3.8, 2.5]), np.array([0.2, 1, 3, 4.9, 3.9, 2])), 10)
    0.9856107606
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, gold_N, predicted_N)


def explain_undefined(gold_N: np.ndarray, predicted_N: np.ndarray) -> str:
    """The reason why a correlation is undefined and counts as 0; "" if it is defined.

    >>> explain_undefined(np.array([0, 1]), np.array([1, 1]))
    'all 2 predictions are the same'
    """
    if len(gold_N) < 2:
        return "there is only one question"
    named = {"gold answers": gold_N, "predictions": predicted_N}
    constant = next((name for name, value_N in named.items() if np.ptp(value_N) == 0), "")
    return f"all {len(gold_N):,} {constant} are the same" if constant else ""


def _correlation(function: Callable[..., Any], gold_N: Floats, predicted_N: Floats) -> float:
    _same_length(gold_N, predicted_N)
    gold_N, predicted_N = np.asarray(gold_N, np.float64), np.asarray(predicted_N, np.float64)
    if explain_undefined(gold_N, predicted_N):
        return 0.0
    return float(function(gold_N, predicted_N).statistic)


def _same_length(gold_N: np.ndarray, predicted_N: np.ndarray) -> None:
    if len(gold_N) != len(predicted_N) or not len(gold_N):
        raise ValueError(
            f"got {len(gold_N)} labels and {len(predicted_N)} predictions, expected equal numbers, at least 1"
        )
