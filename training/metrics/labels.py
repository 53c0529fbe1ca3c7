"""Metrics for one label or one number per example: those of GLUE (arXiv:1804.07461, 3), NLI and similarity.

Labels are int arrays [N], and numbers are float arrays [N]. All metrics are fractions, or correlations from -1 to 1,
not percentages.
"""

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
    from sklearn.metrics import f1_score

    _same_length(gold_N, predicted_N)
    return float(f1_score(gold_N, predicted_N, pos_label=POSITIVE, average="binary", zero_division=0))


def macro_f1(gold_N: Ints, predicted_N: Ints) -> float:
    """Mean F1 over the classes in gold or predictions; a negative prediction is wrong, and not a class.

    >>> round(macro_f1(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])), 10)
    0.3888888889
    """
    from sklearn.metrics import f1_score

    _same_length(gold_N, predicted_N)
    classes = [number for number in np.union1d(gold_N, predicted_N).tolist() if number >= 0]
    return float(f1_score(gold_N, predicted_N, labels=classes, average="macro", zero_division=0))


def matthews(gold_N: Ints, predicted_N: Ints) -> float:
    """Matthews correlation (CoLA), also for more than two classes (AX); 0 if gold or predictions are constant.

    >>> round(matthews(np.array([1, 1, 1, 0, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 1, 0, 1])), 10)
    0.4666666667
    """
    from sklearn.metrics import matthews_corrcoef

    _same_length(gold_N, predicted_N)
    if explain_undefined(gold_N, predicted_N):
        return 0.0
    return float(matthews_corrcoef(gold_N, predicted_N))


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
