"""Metrics of labels and numbers, compared with their definitions."""

import math

import numpy as np
import pytest

from training.evaluation.metrics import accuracy, explain_undefined, f1, macro_f1, matthews, pearson, spearman

Y, P = np.array([1, 1, 1, 0, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 1, 0, 1])
G, H = np.array([0, 1.5, 2.5, 5, 3.8, 2.5]), np.array([0.2, 1, 3, 4.9, 3.9, 2])


def test_known_values() -> None:
    assert accuracy(Y, P) == 0.75
    assert f1(Y, P) == pytest.approx(0.8)
    assert matthews(Y, P) == pytest.approx(0.4666666667)
    assert macro_f1(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])) == pytest.approx(0.3888888889)
    assert pearson(G, H) == pytest.approx(0.9744752110)
    assert spearman(G, H) == pytest.approx(0.9856107606)  # with a tie


def test_random_binary_labels_equal_the_formulas() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        gold, predicted = rng.integers(0, 2, (2, int(rng.integers(1, 30))))
        tp, fp = int((gold & predicted).sum()), int((predicted & ~gold & 1).sum())
        fn, tn = int((gold & ~predicted & 1).sum()), int((~gold & ~predicted & 1).sum())
        assert accuracy(gold, predicted) == pytest.approx((tp + tn) / len(gold))
        assert f1(gold, predicted) == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0)
        below = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        assert matthews(gold, predicted) == pytest.approx((tp * tn - fp * fn) / below if below else 0)


def test_random_labels_of_several_classes_equal_the_formulas() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        gold, predicted = rng.integers(0, 4, (2, int(rng.integers(1, 30))))
        predicted = np.where(rng.random(len(gold)) < 0.1, -1, predicted)  # some predictions are not a class
        classes = sorted({*gold.tolist(), *predicted.tolist()} - {-1})
        both = [int(((gold == k) & (predicted == k)).sum()) for k in classes]
        each = [int((gold == k).sum() + (predicted == k).sum()) for k in classes]
        assert macro_f1(gold, predicted) == pytest.approx(
            np.mean([2 * tp / k for tp, k in zip(both, each, strict=True)])
        )
        assert matthews(gold, predicted) == pytest.approx(reference_matthews(gold, predicted), abs=1e-9)


def test_random_labels_equal_scikit_learn() -> None:
    from sklearn.metrics import f1_score, matthews_corrcoef  # slow to import

    rng = np.random.default_rng(3)
    for trial in range(100):
        gold, predicted = rng.integers(0, 2 + trial % 4, (2, int(rng.integers(2, 40))))
        if trial % 4 == 0:
            assert f1(gold, predicted) == f1_score(gold, predicted, zero_division=0)
        if trial % 3 == 0:
            predicted = np.where(rng.random(len(gold)) < 0.1, -1, predicted)
        classes = [one for one in np.union1d(gold, predicted) if one >= 0]
        assert macro_f1(gold, predicted) == f1_score(gold, predicted, labels=classes, average="macro", zero_division=0)
        if not explain_undefined(gold, predicted):
            assert matthews(gold, predicted) == matthews_corrcoef(gold, predicted)


def test_matthews_of_many_examples() -> None:
    gold = np.arange(400_000) % 2
    predicted = np.where(np.arange(len(gold)) // 2 % 10 == 0, 1 - gold, gold)  # one in ten is wrong
    assert matthews(gold, predicted) == pytest.approx(0.8)


def reference_matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Gorodkin 2004: the covariance of the two class indicator tables, divided by their deviations; 0 if a table is
    constant."""
    classes = np.union1d(gold, predicted)
    both = [(values[:, None] == classes).astype(float) for values in (gold, predicted)]
    x, y = (table - table.mean(0) for table in both)
    below = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / below if below else 0.0


def test_rank_correlations_of_random_rows_equal_the_definition() -> None:
    rng = np.random.default_rng(1)

    def ranks(values: np.ndarray) -> np.ndarray:
        return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])

    for _ in range(1_000):
        gold, predicted = rng.integers(0, 6, (2, int(rng.integers(3, 20)))).astype(float)
        if np.ptp(gold) and np.ptp(predicted):
            assert pearson(gold, predicted) == pytest.approx(np.corrcoef(gold, predicted)[0, 1])
            assert spearman(gold, predicted) == pytest.approx(np.corrcoef(ranks(gold), ranks(predicted))[0, 1])


def test_a_constant_prediction_scores_0_with_a_reason() -> None:
    assert pearson(G, np.ones(6)) == 0.0
    assert spearman(np.ones(6), H) == 0.0
    assert matthews(Y, np.ones(8, int)) == 0.0
    assert explain_undefined(G, np.ones(6)) == "all 6 predictions are the same"
    assert explain_undefined(np.ones(6), H) == "all 6 gold answers are the same"
    assert explain_undefined(G[:1], H[:1]) == "there is only one question"
    assert explain_undefined(G, H) == ""


@pytest.mark.parametrize("metric", [accuracy, f1, macro_f1, matthews, pearson, spearman])
def test_different_numbers_of_labels_and_predictions_are_refused(metric: object) -> None:
    for gold, predicted in (([], []), ([1], [1, 0])):
        with pytest.raises(ValueError, match="expected equal numbers"):
            metric(np.array(gold), np.array(predicted))  # type: ignore[operator]
