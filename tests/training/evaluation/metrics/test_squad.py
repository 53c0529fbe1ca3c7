"""Exact match and F1 of answers, compared with the official scripts, reimplemented here."""

import collections
import re
import string

import numpy as np
import pytest

from training.evaluation.metrics import squad1, squad2
from training.evaluation.metrics.squad import exact, f1, f1_or_empty

# The algorithms of evaluate-v1.1.py and evaluate-v2.0.py, step by step.


def reference_normalize(answer: str) -> str:
    kept = "".join(char for char in answer.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def reference_f1(gold: str, predicted: str, *, version: int) -> float:
    golds, words = reference_normalize(gold).split(), reference_normalize(predicted).split()
    if version == 2 and not (golds and words):
        return float(golds == words)
    same = sum((collections.Counter(golds) & collections.Counter(words)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(words), same / len(golds)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("gold", "predicted", "em", "overlap"),
    [
        ("1000", "1,000", 1, 1),
        ("US", "U.S.", 1, 1),
        ("non profit", "non-profit", 0, 0),
        ("Rome", "“Rome”", 0, 0),  # curly quotation marks are kept
        ("norman conquest of England", "The Norman conquest", 0, 2 / 3),
        ("a b b", "a a b", 0, 2 / 3),
        ("a", "the", 1, 0),  # both are empty after normalization
    ],
)
def test_answers_are_compared_like_in_the_scripts(gold: str, predicted: str, em: float, overlap: float) -> None:
    assert exact(gold, predicted) == em
    assert f1(gold, predicted) == pytest.approx(overlap)


def test_two_empty_answers_are_equal_only_in_version_2() -> None:
    assert (f1("the", "a"), f1_or_empty("the", "a"), f1_or_empty("", "cat")) == (0.0, 1.0, 0.0)


WORDS = ["the", "a", "cat", "Cat", "sat.", "on", "mat", "mat,", "—", "don't", "U.S.", "10", ""]


def answers(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, rng.integers(0, 6)))


@pytest.mark.parametrize("version", [1, 2])
def test_random_answers_equal_the_reference(version: int) -> None:
    rng = np.random.default_rng(version)
    metric = {1: f1, 2: f1_or_empty}[version]
    for _ in range(1_000):
        gold, predicted = answers(rng), answers(rng)
        assert metric(gold, predicted) == pytest.approx(reference_f1(gold, predicted, version=version))
        assert exact(gold, predicted) == (reference_normalize(gold) == reference_normalize(predicted))


def test_a_missing_prediction_counts_0_in_version_1_and_is_left_out_in_version_2() -> None:
    golds = {"a": ["Rome"], "b": ["Paris", "the city of Paris"]}
    assert squad1(golds, {"b": "city of Paris"}) == {"exact": 50.0, "f1": 50.0}
    assert squad2(golds, {"b": "city of Paris"}) == {"exact": 100, "f1": 100, "HasAns_exact": 100, "HasAns_f1": 100}


def test_above_the_threshold_every_prediction_is_no_answer() -> None:
    golds: dict[str, list[str]] = {"yes": ["Rome"], "no": []}
    predictions, no_answer = {"yes": "Rome", "no": "Paris"}, {"yes": 0.1, "no": 0.9}
    assert squad2(golds, predictions)["exact"] == 50
    scores = squad2(golds, predictions, no_answer, threshold=0.5)
    assert (scores["exact"], scores["HasAns_exact"], scores["NoAns_f1"]) == (100, 100, 100)
    assert squad2(golds, predictions, no_answer, threshold=0.9)["exact"] == 50  # strictly above


def best_by_trying(
    golds: dict[str, list[str]], predictions: dict[str, str], no_answer: dict[str, float]
) -> tuple[float, float]:
    """The best threshold, found by trying all of them."""
    thresholds = sorted({0.0, *no_answer.values()})

    def score(at: float) -> float:
        right = [
            max((f1_or_empty(gold, predictions[id]) for gold in golds[id]), default=float(not predictions[id]))
            if no_answer[id] <= at and at > 0
            else float(not golds[id])
            for id in golds
        ]
        return 100 * sum(right) / len(right)

    best = max(score(at) for at in thresholds)
    return best, next(at for at in thresholds if score(at) == pytest.approx(best))


def official(
    golds: dict[str, list[str]], predictions: dict[str, str], no_answer: dict[str, float], threshold: float
) -> dict[str, float]:
    """The output of evaluate-v2.0.py, computed question by question."""
    found: dict[str, float] = {}
    for name, metric in (
        ("exact", lambda gold, message: float(reference_normalize(gold) == reference_normalize(message))),
        ("f1", reference_f1_version_2),
    ):
        raw = {}
        for id, message in predictions.items():
            raw[id] = max(
                metric(gold, message) for gold in [gold for gold in golds[id] if reference_normalize(gold)] or [""]
            )
        after = {id: float(not golds[id]) if no_answer[id] > threshold else raw[id] for id in raw}
        for prefix, of in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
            if counted := [after[id] for id in after if bool(golds[id]) in of]:
                found[f"{prefix}{name}"] = 100 * sum(counted) / len(counted)
        so_far = best = float(sum(not answers for answers in golds.values()))
        at = 0.0
        for id in sorted(no_answer, key=lambda id: no_answer[id]):
            so_far += raw[id] if golds[id] else -1 if predictions[id] else 0
            if so_far > best:
                best, at = so_far, no_answer[id]
        found |= {f"best_{name}": 100 * best / len(raw), f"best_{name}_thresh": at}
    return found


def reference_f1_version_2(gold: str, predicted: str) -> float:
    return reference_f1(gold, predicted, version=2)


def test_random_sets_of_questions_have_the_scores_of_the_official_script() -> None:
    """No-answer scores are positive and negative, and some are equal. Gold answers may be empty after normalization."""
    rng = np.random.default_rng(3)
    for _ in range(1_000):
        ids = [str(number) for number in range(rng.integers(1, 8))]
        golds = {id: [] if rng.random() < 0.4 else [answers(rng), answers(rng)][: rng.integers(1, 3)] for id in ids}
        predictions = {id: rng.choice([answers(rng), *golds[id], ""]) for id in ids}
        no_answer = {id: float(rng.integers(-4, 5)) / 2 for id in ids}
        threshold = float(rng.integers(-4, 5)) / 2
        assert squad2(golds, predictions, no_answer, threshold) == pytest.approx(
            official(golds, predictions, no_answer, threshold)
        )


def test_the_best_threshold_equals_the_one_found_by_trying_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1_000):
        ids = [str(number) for number in range(rng.integers(1, 12))]
        golds = {id: [] if rng.random() < 0.5 else [rng.choice(["cat", "mat", "dog"])] for id in ids}
        predictions = {id: rng.choice(["cat", "mat", "dog mat", ""]) for id in ids}
        no_answer = {
            id: float(value) for id, value in zip(ids, rng.permutation(len(ids)) / len(ids) + 0.01, strict=True)
        }
        scores = squad2(golds, predictions, no_answer)
        best, at = best_by_trying(golds, predictions, no_answer)
        assert scores["best_f1"] == pytest.approx(best)
        assert scores["best_f1_thresh"] == pytest.approx(at)


def test_scoring_without_questions_is_refused() -> None:
    with pytest.raises(ValueError, match="no question"):
        squad1({}, {})
    with pytest.raises(ValueError, match="no question"):
        squad2({"a": ["x"]}, {})
