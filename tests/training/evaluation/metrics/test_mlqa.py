"""Scores of answers in seven languages: those of the MLQA script."""

import collections
import re
import string
import unicodedata

import numpy as np
import pytest

from preprocessing.errors import BadInput
from training.evaluation.files import Records
from training.evaluation.metrics import LANGUAGES, mlqa, squad1
from training.evaluation.tasks import ExtractiveQA, TaskItem
from training.evaluation.tasks.extractive_qa import SpanPrediction


@pytest.mark.parametrize(
    ("language", "gold", "predicted", "exact", "f1"),
    [
        ("en", "The “Rome”", "rome", 1, 1),  # curly quotation marks are dropped, which SQuAD's script keeps
        ("en", "the", "a", 1, 0),  # both have no words left
        ("de", "Die Stadt Rom", "der Stadt Rom", 1, 1),
        ("de", "the Rom", "Rom", 0, 2 / 3),  # articles of another language are words
        ("es", "los años", "¿años?", 1, 1),
        ("vi", "những con mèo", "con mèo", 1, 1),
        ("ar", "القاهرة", "قاهرة", 1, 1),
        ("ar", "سالم", "س م", 1, 1),  # the two letters are also removed inside words
        ("hi", "यह नदी।", "नदी", 0, 2 / 3),
        ("zh", "北京大学", "大学北京", 0, 1),  # each character is a word
        ("zh", "1998年GDP", "1998 年 gdp", 1, 1),
    ],
)
def test_answers_are_normalized_by_language(language: str, gold: str, predicted: str, exact: float, f1: float) -> None:
    assert mlqa({"1": [gold]}, {"1": predicted}, {"1": language}) == pytest.approx(
        {"exact": 100 * exact, "f1": 100 * f1}
    )


def test_the_best_gold_counts_and_a_missing_prediction_is_wrong() -> None:
    golds = {"1": ["Rom", "die Stadt Rom"], "2": ["Paris"]}
    assert mlqa(golds, {"1": "Stadt Rom"}, {"1": "de", "2": "de"}) == {"exact": 50.0, "f1": 50.0}
    with pytest.raises(ValueError, match="no question to score"):
        mlqa({}, {}, {})


# The algorithm of mlqa_evaluation_v1.py, step by step.

ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": r"\sال^|ال",  # noqa: RUF001
}
PARTS = [
    *("the", "a", "El", "las", "unos", "Der", "eines", "những", "của", "Cái", "القاهرة", "ال", "سالم", "नदी", "दो।"),
    *(
        "北京",
        "大学",
        "3月",
        "GPT-2",
        "1,000",
        "“x”",
        "¿sí?",
        "«",
        "—",
        "$5",
        "a+b",
        "\u3000",
        "İ",
        "ß",
        "。",
        "the.a",
        "",
    ),
]


def reference_normalize(answer: str, language: str) -> str:
    lower = answer.lower()
    marks = {char for char in lower if unicodedata.category(char)[0] == "P"} | set(string.punctuation)
    text = "".join(char for char in lower if char not in marks)
    text = re.sub(ARTICLES[language], " ", text) if language in ARTICLES else text
    if language != "zh":
        return " ".join(text.split())
    found, others = list[str](), ""
    for char in [*text, "\u4e00"]:
        if "\u4e00" <= char <= "\u9fa5":
            found += [*others.split(), char]
            others = ""
        else:
            others += char
    return " ".join(found[:-1])


def reference_f1(gold: list[str], predicted: list[str]) -> float:
    same = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def test_random_questions_of_all_languages_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1_000):
        actual = [rng.choice([" ", ""]).join(rng.choice(PARTS, rng.integers(0, 7))) for _ in range(3)]
        language = str(rng.choice(LANGUAGES))
        first, second, predicted = (reference_normalize(text, language) for text in actual)
        assert mlqa({"1": actual[:2]}, {"1": actual[2]}, {"1": language}) == pytest.approx(
            {
                "exact": 100 * float(predicted in (first, second)),
                "f1": 100 * max(reference_f1(gold.split(), predicted.split()) for gold in (first, second)),
            }
        )


def test_extractive_qa_scores_each_file_in_its_language() -> None:
    task = ExtractiveQA(languages={"context-de": "de", "context-zh": "zh"})
    records = Records([{"id": "1", "question": "?", "context": "x", "answers": ["die Stadt"], "starts": [0]}])
    (german,) = task.items(Records(records.rows, ["test-context-de-question-de.json:1"]), {})
    assert task.scores([german], [SpanPrediction("der „Stadt“")])["exact"] == 1.0
    assert (
        task.scores([TaskItem("context-zh.json:1", ("?", "x"), ("1", ["大学"], [0]))], [SpanPrediction("学大")])["f1"]
        == 1.0
    )
    assert squad1({"1": ["die Stadt"]}, {"1": "der „Stadt“"})["exact"] == 0.0
    with pytest.raises(
        BadInput, match=r"^test-fr.json:1: no key of `languages` is part of this file name; the keys are context-de, "
    ):
        task.items(Records(records.rows, ["test-fr.json:1"]), {})


def test_invalid_languages_are_refused() -> None:
    with pytest.raises(
        ValueError, match="invalid languages: got 'fr', expected en or es or de or vi or ar or hi or zh"
    ):
        ExtractiveQA(languages={"x": "fr"})
    with pytest.raises(ValueError, match=r"invalid languages: got .* expected {}, unless f1_unit is words"):
        ExtractiveQA(languages={"x": "de"}, squad_version=2)
