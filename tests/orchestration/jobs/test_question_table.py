"""The table of single questions: which questions, which columns, and what counts as correct."""

from typing import Any

import pytest

from orchestration.jobs.question_table import make_question_table
from training.tasks import TaskItem, TaskPrompt


def items(count: int, *texts: Any) -> list[TaskItem]:
    return [TaskItem(f"a.csv:{number + 2}", texts or (f"text {number}",), number) for number in range(count)]


def test_table_has_predictions_of_both_initializations() -> None:
    answers = {"pretrained": {"test": ["yes", "no"]}, "random": {"test": ["no", "no"]}}
    table = make_question_table({"test": items(2)}, {"test": ["yes", "yes"]}, answers)
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
    table = make_question_table({"test": items(10)}, {"test": ["x"] * 10}, answers, most=4)
    assert table
    assert [row[-1] for row in table.rows] == ["a.csv:2", "a.csv:4", "a.csv:7", "a.csv:9"]
    assert table.describe() == "4 of 10 questions, evenly spaced"


def test_likelihoods_are_shown_beside_the_answer() -> None:
    answers = {"pretrained": {"test": [{"answer": "b", "nats": [-2.34567, -1.0]}, {"left_out": "too long"}]}}
    table = make_question_table({"test": items(2)}, {"test": ["b", "a"]}, answers)
    assert table
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert (rows[0]["predicted"], rows[0]["correct"], rows[0]["nats"]) == ("b", True, "-2.3457 | -1.0")
    assert (rows[1]["left_out"], rows[1]["predicted"], rows[1]["correct"]) == ("too long", None, None)


def test_unknown_answers_are_neither_correct_nor_wrong() -> None:
    table = make_question_table({"test": items(1)}, {"test": [None]}, {"pretrained": {"test": ["x"]}})
    assert table
    assert table.columns == ("question", "predicted", "split", "place")


@pytest.mark.parametrize(
    ("answer", "gold", "is_correct"),
    [
        ("Rome", {"answers": ["the city", "rome"], "starts": [1, 2]}, True),
        ("", {"answers": [], "starts": []}, True),
        ("Paris", ["Rome"], False),
        (["O", "B"], ("O", "B"), True),
        (["Rome", 1.5, ""], {"answers": ["Rome"], "starts": [0]}, True),
    ],
)
def test_answer_is_compared_in_the_form_of_its_task(answer: Any, gold: Any, is_correct: bool) -> None:
    table = make_question_table({"test": items(1)}, {"test": [gold]}, {"pretrained": {"test": [answer]}})
    assert table
    assert dict(zip(table.columns, table.rows[0], strict=True))["correct"] is is_correct


def test_numbers_have_no_column_of_correct_answers() -> None:
    table = make_question_table({"dev": items(1)}, {"dev": [2.5]}, {"pretrained": {"dev": [2.25]}})
    assert table
    assert table.columns == ("question", "expected", "predicted", "split", "place")


def test_long_texts_are_shortened_and_prompts_are_texts() -> None:
    of = {"test": items(1, TaskPrompt((), "Translate: ", "x" * 2_000))}
    table = make_question_table(of, {"test": ["y"]}, {"pretrained": {"test": ["y"]}})
    assert table
    assert table.rows[0][0].startswith("Translate: xxx")
    assert table.rows[0][0].endswith("... (2,011 characters)")


def test_task_without_questions_has_no_table() -> None:
    assert make_question_table({}, {}, {"pretrained": {"test": [3, 4]}}) is None
    assert make_question_table({"test": items(1)}, {"test": ["a"]}, {"pretrained": {}}) is None
