"""SQuAD's metrics: exact match and F1 of answers in words, versions 1.1 (arXiv:1606.05250) and 2.0 (arXiv:1806.03822).

Scores are in percent and equal those of the official scripts, including special cases. A missing prediction counts as 0
in 1.1, and is left out in 2.0. Two answers that are empty after normalization have F1 0 in 1.1 and 1 in 2.0.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)  # ASCII only; deleted, not replaced by a blank

Golds = Mapping[str, Sequence[str]]
"""Maps question IDs to gold answers; empty for an unanswerable question (2.0)."""


def normalize_answer(answer: str) -> str:
    """Normalize an answer for comparison: lower case, no ASCII punctuation, no articles, single blanks.

    >>> normalize_answer("The  U.S., a “non-profit”")
    'us “nonprofit”'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> float:
    """1.0 if both are equal after normalization, else 0.0."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def f1(gold: str, predicted: str) -> float:
    """F1 over bags of words; 0 for two answers without words (version 1.1).

    >>> round(f1("The Norman conquest", "norman conquest of England"), 6), f1("the", "a")
    (0.666667, 0.0)
    """
    return overlap(normalize_answer(gold).split(), normalize_answer(predicted).split())


def overlap(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """F1 over two bags of words."""
    common = sum((Counter(gold) & Counter(predicted)).values())
    return 2 * common / (len(gold) + len(predicted)) if common else 0.0


def f1_or_empty(gold: str, predicted: str) -> float:
    """Like `f1`, but 1.0 if both have no words: then no answer is the correct answer (version 2.0)."""
    if not normalize_answer(gold) or not normalize_answer(predicted):
        return float(normalize_answer(gold) == normalize_answer(predicted))
    return f1(gold, predicted)


def squad1(golds: Golds, predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` in percent over all questions; a missing prediction counts as 0 (evaluate-v1.1.py)."""
    if not golds:
        raise ValueError("no question to score; give at least one")
    found = [(golds[id], predictions[id]) for id in golds if id in predictions]
    return {
        "exact": 100 * sum(_best(exact, *each) for each in found) / len(golds),
        "f1": 100 * sum(_best(f1, *each) for each in found) / len(golds),
    }


@dataclass(frozen=True)
class Threshold:
    """A threshold for no answer: the answer is empty if `no_answer` is above `at`; `score` is the result in percent."""

    score: float
    at: float


def squad2(
    golds: Golds,
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """`exact` and `f1` in percent, as in evaluate-v2.0.py.

    There are also scores over questions with (`HasAns_...`) and without (`NoAns_...`) an answer, and with the best
    no-answer threshold (`best_...`, `best_..._thresh`). `no_answer` has the no-answer score of each question; above
    `threshold`, the prediction counts as no answer. Questions without a prediction are left out. The best threshold
    is fitted to the scored questions themselves: say so in reports, or fit it on one half of the questions.
    """
    golds_by_id = {id: _non_empty(answers) for id, answers in golds.items() if id in predictions}
    if not golds_by_id:
        raise ValueError("no question has a prediction; give at least one")
    exacts = {id: _best(exact, answers, predictions[id]) for id, answers in golds_by_id.items()}
    f1s = {id: _best(f1_or_empty, answers, predictions[id]) for id, answers in golds_by_id.items()}
    answerable = {id: bool(golds[id]) for id in golds_by_id}
    scores = {}
    for name, raw in (("exact", exacts), ("f1", f1s)):
        after = raw if no_answer is None else _with_threshold(raw, answerable, no_answer, threshold)
        scores[name] = _percent(after, list(after))
        for side, has in (("HasAns", True), ("NoAns", False)):
            if ids := [id for id in after if answerable[id] is has]:
                scores[f"{side}_{name}"] = _percent(after, ids)
        if no_answer is not None:
            best = best_threshold(raw, answerable, predictions, no_answer)
            scores |= {f"best_{name}": best.score, f"best_{name}_thresh": best.at}
    return scores


def best_threshold(
    scores: Mapping[str, float],
    answerable: Mapping[str, bool],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
) -> Threshold:
    """The best threshold, by the sweep of the official script.

    The sweep starts with no answers at all (threshold 0.0), and adds answers by increasing `no_answer`. It keeps a
    threshold if the score becomes strictly better.
    """
    score = best = float(sum(not has for has in answerable.values()))
    at = 0.0
    for id in sorted(no_answer, key=lambda id: no_answer[id]):
        if id not in scores:
            continue
        if answerable[id]:
            score += scores[id]
        elif predictions[id]:
            score -= 1
        if score > best:
            best, at = score, no_answer[id]
    return Threshold(100 * best / len(scores), at)


def _with_threshold(
    scores: Mapping[str, float], answerable: Mapping[str, bool], no_answer: Mapping[str, float], threshold: float
) -> dict[str, float]:
    return {id: float(not answerable[id]) if no_answer[id] > threshold else score for id, score in scores.items()}


def _non_empty(answers: Sequence[str]) -> list[str]:
    """The answers that have words after normalization, or one empty answer if there are none."""
    return [answer for answer in answers if normalize_answer(answer)] or [""]


def _best(metric: Callable[[str, str], float], golds: Sequence[str], predicted: str) -> float:
    return max((metric(gold, predicted) for gold in golds), default=0.0)


def _percent(scores: Mapping[str, float], ids: Sequence[str]) -> float:
    return 100 * sum(scores[id] for id in ids) / len(ids)
