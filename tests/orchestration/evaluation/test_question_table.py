"""The table of single questions: which questions, which columns, and what counts as correct."""

from typing import Any

import pytest

from orchestration.evaluation.question_table import make_question_table
from orchestration.evaluation.score_records import _is_correct
from training.evaluation.tasks import ExtractiveQA, LoglikelihoodChoice, TaskItem, TaskPrompt, TokenClassification
from training.evaluation.tasks.loglikelihood_choice import LikelihoodOptions

WORD = LoglikelihoodChoice(choices=("{word}",), metrics=("last_word",))
WORD_ITEM = TaskItem("a", (LikelihoodOptions(("the",), (" cat",), ("cat",)),), 0)
SQUAD = ExtractiveQA()
NER = TokenClassification(labels=("O", "B-LOC"))


def is_gold(item: TaskItem, answer: Any) -> bool | None:
    """Whether the answer is "yes" or "b"."""
    return (
        None
        if isinstance(answer, float) or "left_out" in answer
        else (answer if isinstance(answer, str) else answer["answer"]) in ("yes", "b")
    )


def items(count: int, *texts: Any) -> list[TaskItem]:
    return [TaskItem(f"a.csv:{number + 2}", texts or (f"text {number}",), number) for number in range(count)]


def test_table_has_predictions_of_both_initializations() -> None:
    answers = {"pretrained": {"test": ["yes", "no"]}, "random": {"test": ["no", "no"]}}
    table = make_question_table({"test": items(2)}, {"test": ["yes", "yes"]}, answers, is_gold)
    assert table
    assert table.columns == (
        "question", "expected", "predicted", "correct", "random predicted", "random correct", "split", "place",
    )  # fmt: skip
    assert table.rows == [
        ["text 0", "yes", "yes", True, "no", False, "test", "a.csv:2"],
        ["text 1", "yes", "no", False, "no", False, "test", "a.csv:3"],
    ]
    assert table.describe() == "2 questions"


def test_long_task_has_evenly_spaced_questions_and_says_how_many() -> None:
    answers = {"pretrained": {"test": ["x"] * 10}}
    table = make_question_table({"test": items(10)}, {"test": ["x"] * 10}, answers, is_gold, most=4)
    assert table
    assert [row[-1] for row in table.rows] == ["a.csv:2", "a.csv:4", "a.csv:7", "a.csv:9"]
    assert table.describe() == "4 of 10 questions, evenly spaced"


def test_likelihoods_are_shown_beside_the_answer() -> None:
    answers = {"pretrained": {"test": [{"answer": "b", "nats": [-2.34567, -1.0]}, {"left_out": "too long"}]}}
    table = make_question_table({"test": items(2)}, {"test": ["b", "a"]}, answers, is_gold)
    assert table
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert (rows[0]["predicted"], rows[0]["correct"], rows[0]["nats"]) == ("b", True, "-2.3457 | -1.0")
    assert (rows[1]["left_out"], rows[1]["predicted"], rows[1]["correct"]) == ("too long", None, None)


def test_unknown_answers_are_neither_correct_nor_wrong() -> None:
    table = make_question_table({"test": items(1)}, {"test": [None]}, {"pretrained": {"test": ["x"]}}, is_gold)
    assert table
    assert table.columns == ("question", "predicted", "split", "place")


@pytest.mark.parametrize(
    ("kind", "item", "prediction", "correct"),
    [
        (WORD, WORD_ITEM, {"answer": "cat", "nats": [-1.0], "greedy": False}, False),
        (WORD, WORD_ITEM, {"answer": "cat", "nats": [-1.0], "greedy": True}, True),
        (
            SQUAD,
            TaskItem("a", ("where?", "in Rome"), ("1", ("Rome", "the city"), (3, 3))),
            ["the Rome.", None, ""],
            True,
        ),
        (SQUAD, TaskItem("a", ("where?", "in Rome"), ("1", ("Rome",), (3,))), ["Paris", None, ""], False),
        (NER, TaskItem("a", (("in", "Rome"),), ("O", "B-LOC")), ["O", "B-LOC"], True),
        (NER, TaskItem("a", (("in", "Rome"),), ("O", "B-LOC")), ["O", "O"], False),
    ],
)
def test_a_prediction_is_judged_as_its_task_does(kind: Any, item: TaskItem, prediction: Any, correct: bool) -> None:
    """A single choice (LAMBADA) is right only if all of its tokens are greedy, although it is always the answer."""
    assert _is_correct(kind, item, prediction) is correct


def test_numbers_have_no_column_of_correct_answers() -> None:
    table = make_question_table({"dev": items(1)}, {"dev": [2.5]}, {"pretrained": {"dev": [2.25]}}, is_gold)
    assert table
    assert table.columns == ("question", "expected", "predicted", "split", "place")


def test_long_texts_are_shortened_and_prompts_are_texts() -> None:
    of = {"test": items(1, TaskPrompt((), "Translate: ", "x" * 2_000))}
    table = make_question_table(of, {"test": ["y"]}, {"pretrained": {"test": ["y"]}}, is_gold)
    assert table
    assert table.rows[0][0].startswith("Translate: xxx")
    assert table.rows[0][0].endswith("... (2,011 characters)")


def test_task_without_questions_has_no_table() -> None:
    assert make_question_table({}, {}, {"pretrained": {"test": [3, 4]}}, is_gold) is None
    assert make_question_table({"test": items(1)}, {"test": ["a"]}, {"pretrained": {}}, is_gold) is None
