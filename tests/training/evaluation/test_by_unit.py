"""Per-question values of a score, constant predictions, and the score of the majority answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from training.evaluation.by_unit import by_unit, constant, of_constant, units_of
from training.evaluation.likelihood import LogP
from training.evaluation.likelihoods import _constant_choice
from training.evaluation.scoring import with_majority
from training.evaluation.tasks import (
    Classification,
    ExtractiveQA,
    Generation,
    LoglikelihoodChoice,
    MultipleChoice,
    Ranking,
    Regression,
    TaskItem,
    TextToText,
    TokenClassification,
    classification,
    regression,
)
from training.evaluation.tasks.extractive_qa import SpanPrediction
from training.evaluation.tasks.loglikelihood_choice import LikelihoodChoice, LikelihoodOptions

MRPC = Classification(text="a", text_pair="b", label="l", labels=("0", "1"), metrics=("f1", "accuracy"))
COLA = Classification(text="a", label="l", labels=("0", "1"), metrics=("matthews", "accuracy"))
STSB = Regression(text="a", text_pair="b", label="l", min_value=0, max_value=5)
NER = TokenClassification(words="w", tags="t", labels=("O", "B-PER", "I-PER"))
POS = TokenClassification(words="w", tags="t", labels=("NN", "VB"), metrics=("accuracy",))
RACE = MultipleChoice(context="c", choices=("a", "b"), label="l", labels=("A", "B"))
WNLI = Ranking(text="a", text_pair="b", label="l", labels=("0", "1"))
SQUAD = ExtractiveQA()
SQUAD2 = ExtractiveQA(squad_version=2)


def items(golds: Sequence[Any], *texts: Any) -> list[TaskItem]:
    return [TaskItem(f"f:{n}", texts or (f"text {n}", f"pair {n}"), gold) for n, gold in enumerate(golds)]


MOST = [1] * 7 + [0] * 3
ANSWERS = [("q", ["Rome"], [0])] * 4 + [("q", ["Paris"], [0])] * 2
NONE = [("q", [], [])] * 4 + [("q", ["Paris"], [0])] * 2


@pytest.mark.parametrize(
    ("task", "given", "majority"),
    [
        (MRPC, items(MOST), 14 / 17),  # F1 of the positive label: 81.2 for MRPC
        (MRPC, items([0] * 7 + [1] * 3), 0.0),
        (COLA, items(MOST), 0.0),
        (STSB, items([0.0, 1.0, 5.0, 2.5, 3.0]), 0.0),
        (NER, items([["O", "O", "B-PER"]] * 5, ["a", "b", "c"]), 0.0),
        (POS, items([["NN", "NN", "VB"]] * 5, ["a", "b", "c"]), 2 / 3),
        (RACE, items(MOST, "c", "q", ("x", "y")), 0.7),
        (WNLI, items([0] * 6 + [1] * 4), 0.6),
        (SQUAD, items(ANSWERS), 4 / 6),
        (SQUAD2, items(NONE), 4 / 6),
        (TextToText(task=MRPC), items(MOST), 14 / 17),
    ],
)
def test_the_majority_answer_is_scored_by_the_same_metric(task: Any, given: list[TaskItem], majority: float) -> None:
    """MRPC's F1 used to have no majority baseline, although one constant answer has 81.2 and the paper 88.9."""
    guess = task.majority(given)
    scores = with_majority(task, given, guess)
    assert scores["majority"] == scores[task.metrics[0]] == pytest.approx(majority)
    actual = constant(guess)
    assert actual
    (note,) = of_constant("dev", actual, len(guess), task.metrics[0], scores)
    assert f"constant prediction: all {len(guess)} are {actual}" in note
    assert f"gold answer for all gives {task.metrics[0]} {majority:.4g}" in note


def test_without_gold_answers_there_is_no_majority() -> None:
    for task in (MRPC, STSB, NER, RACE, WNLI, SQUAD):
        assert task.majority(items([None, None])) == []
    assert Generation(prompt="{a}", answer="{b}").majority(items(["x", "x"])) == []


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["1"] * 8, "'1'"),
        (["1"] * 7 + ["0"], ""),
        (["1"] * 4, ""),  # four equal answers may be chance
        ([2.50001, 2.49999, 2.5, 2.5, 2.5], "2.5"),
        ([["O"], ["O", "O"], ["O"], ["O"], ["O"]], "'O'"),  # no entity at all
        ([["O"], ["O", "B-PER"], ["O"], ["O"], ["O"]], ""),
        ([SpanPrediction("", 0.1 * n, f"best {n}") for n in range(5)], "''"),
        ([""] * 5, "''"),
        ([], ""),
    ],
)
def test_a_constant_answer_is_detected_for_every_kind(answers: list[Any], message: str) -> None:
    assert constant(answers) == message


def test_a_choice_is_constant_only_if_all_questions_have_the_same_choices() -> None:
    """The correct choice of BLiMP is always the first one, but its text differs in each question."""
    yes = [{"answer": "yes", "nats": [0, 0]}] * 6
    boolq, blimp = (
        [TaskItem(str(n), (LikelihoodOptions(("", ""), ("a", "b"), options),), 0) for n, options in enumerate(each)]
        for each in ([("yes", "no")] * 6, [(f"good {n}", f"bad {n}") for n in range(6)])
    )
    assert _constant_choice(boolq, yes) == "'yes'"
    assert _constant_choice(blimp, [{"answer": f"good {n}"} for n in range(6)]) == ""
    assert _constant_choice(boolq, [*yes[1:], {"answer": "no"}]) == ""


def test_a_unit_is_a_labeled_question_or_a_text_shared_by_several() -> None:
    alone = [TaskItem(str(n), (f"text {n}",), gold) for n, gold in enumerate([1, 0, None, 1])]
    assert by_unit(COLA.scores, "accuracy", alone, ["1", "1", "1", "0"]) == [1.0, 0.0, 0.0]
    passages = [TaskItem(str(n), (f"a long passage {n // 2}", "q", ("x", "y")), n % 2) for n in range(8)]
    values = by_unit(RACE.scores, "accuracy", passages, ["A", "B", "A", "A", "B", "A", "A", "B"])
    assert values == [1.0, 0.5, 0.0, 1.0]


def test_the_units_of_a_macro_average_are_the_subsets() -> None:
    task = LoglikelihoodChoice(choices=("{good}", "{bad}"), subset="{part}", metrics=("macro_accuracy",))
    asked = [
        TaskItem(str(n), (LikelihoodOptions(("", ""), ("a", "b"), ("a", "b"), f"part {n // 3}"),), 0) for n in range(9)
    ]

    answers = [
        LikelihoodChoice(tuple(LogP(nats, 1, True) for nats in ((-1.0, -2.0) if n < 5 else (-2.0, -1.0))))
        for n in range(9)
    ]
    values = by_unit(task.scores, "macro_accuracy", asked, answers)
    assert np.mean(values) == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert len(values) == 3


@pytest.mark.parametrize("count", [2, 300])
def test_values_of_a_perplexity_are_those_of_its_logarithm(count: int) -> None:
    nats = [0.5 + n % 7 for n in range(count)]

    def scores(items: Sequence[TaskItem], answers: Sequence[Any]) -> dict[str, float]:
        return {"perplexity": float(np.exp(np.mean(answers)))}

    values = by_unit(scores, "perplexity", [TaskItem(str(n), (), 0) for n in range(count)], nats)
    assert values == pytest.approx(nats)


@pytest.mark.parametrize(
    ("task", "other"),
    [
        (Classification(text="a", label="l", labels=("0", "1"), metrics=("accuracy", "f1")), classification),
        (
            TextToText(task=Classification(text="a", label="l", labels=("0", "1"), metrics=("accuracy", "f1"))),
            classification,
        ),
        (Regression(text="a", label="l", min_value=0, max_value=1, metrics=("pearson", "spearman")), regression),
    ],
)
def test_values_compute_only_the_first_metric(task: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """QQP's accuracy with F1 beside it took 3.6 ms per question, two and a half minutes after each trial."""

    def never(*given: Any) -> float:
        raise AssertionError(task.metrics)

    monkeypatch.setattr(other, "METRICS", {**other.METRICS, task.metrics[1]: never})
    given = items([0, 1, 1, 0, 1, 0])
    actual: list[Any] = [0.1, 0.9, 0.3, 0.2, 0.8, 0.1] if other is regression else ["0", "1", "0", "0", "1", "0"]
    assert len(units_of(task, given, actual)) == 6
