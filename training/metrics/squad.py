"""SQuAD's metrics: exact match and F1 of answers in words, versions 1.1 (arXiv:1606.05250) and 2.0 (arXiv:1806.03822).

They answer as the official scripts do, in percent, with their exceptions: a missing prediction counts 0 in 1.1 and is
left out in 2.0; answers that are empty once normalised have F1 0 in 1.1 and 1 in 2.0.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)  # of ASCII, deleted, not replaced by a blank

Golds = Mapping[str, Sequence[str]]
"""For each question, by its id, the answers that count as right; none where it has no answer (2.0)."""


def normalize_answer(answer: str) -> str:
    """The answer as it is compared: lower case, no ASCII punctuation, no articles, single blanks.

    >>> normalize_answer("The  U.S., a “non-profit”")
    'us “nonprofit”'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> float:
    """1.0 where both are the same once normalised, else 0.0."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def f1(gold: str, predicted: str) -> float:
    """F1 over the words of both, as a bag; two answers without any word have 0 in common (version 1.1).

    >>> round(f1("The Norman conquest", "norman conquest of England"), 6), f1("the", "a")
    (0.666667, 0.0)
    """
    return overlap(normalize_answer(gold).split(), normalize_answer(predicted).split())


def overlap(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """F1 over two bags of words."""
    common = sum((Counter(gold) & Counter(predicted)).values())
    return 2 * common / (len(gold) + len(predicted)) if common else 0.0


def f1_or_empty(gold: str, predicted: str) -> float:
    """`f1`, but 1.0 where neither has a word: no answer is the right answer there (version 2.0)."""
    if not normalize_answer(gold) or not normalize_answer(predicted):
        return float(normalize_answer(gold) == normalize_answer(predicted))
    return f1(gold, predicted)


def squad1(golds: Golds, predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` in percent over all questions; one without a prediction counts 0 (evaluate-v1.1.py)."""
    if not golds:
        raise ValueError("there is no question to score")
    found = [(golds[id], predictions[id]) for id in golds if id in predictions]
    return {
        "exact": 100 * sum(_best(exact, *each) for each in found) / len(golds),
        "f1": 100 * sum(_best(f1, *each) for each in found) / len(golds),
    }


@dataclass(frozen=True)
class Threshold:
    """Where `no_answer` is above `at`, the answer is the empty one; `score` in percent is what that gives."""

    score: float
    at: float


def squad2(
    golds: Golds,
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """`exact` and `f1` in percent, as evaluate-v2.0.py gives them, also over questions with (`HasAns_...`) and without
    (`NoAns_...`) an answer, and with the best threshold for no answer (`best_...`, `best_..._thresh`).

    `no_answer`: how much speaks for no answer, by question; above `threshold` the prediction counts as no answer,
    whatever it says. Questions without a prediction are left out, as there. The best threshold is found on what it is
    scored on: say so, or find it on one half of the questions.
    """
    asked = {id: _real(answers) for id, answers in golds.items() if id in predictions}
    if not asked:
        raise ValueError("there is no question with a prediction to score")
    exacts = {id: _best(exact, answers, predictions[id]) for id, answers in asked.items()}
    f1s = {id: _best(f1_or_empty, answers, predictions[id]) for id, answers in asked.items()}
    answerable = {id: bool(golds[id]) for id in asked}
    scores = {}
    for name, raw in (("exact", exacts), ("f1", f1s)):
        after = raw if no_answer is None else _above(raw, answerable, no_answer, threshold)
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
    """The threshold that scores most, by the official script's sweep: from "no question has an answer" (0.0), by rising
    `no_answer`, to where one more answer given makes it strictly better."""
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


def _above(
    scores: Mapping[str, float], answerable: Mapping[str, bool], no_answer: Mapping[str, float], threshold: float
) -> dict[str, float]:
    return {id: float(not answerable[id]) if no_answer[id] > threshold else score for id, score in scores.items()}


def _real(answers: Sequence[str]) -> list[str]:
    """The answers that have a word once normalised; the empty one where none has."""
    return [answer for answer in answers if normalize_answer(answer)] or [""]


def _best(metric: Callable[[str, str], float], golds: Sequence[str], predicted: str) -> float:
    return max((metric(gold, predicted) for gold in golds), default=0.0)


def _percent(scores: Mapping[str, float], ids: Sequence[str]) -> float:
    return 100 * sum(scores[id] for id in ids) / len(ids)
