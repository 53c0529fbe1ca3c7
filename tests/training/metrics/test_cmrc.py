"""Scores of Chinese answers: what the script of CMRC 2018 gives, by hand."""

import pytest

from training.metrics import cmrc
from training.metrics.cmrc import f1, units
from training.tasks import Item, Span
from training.tasks.span import Answer


@pytest.mark.parametrize(
    ("gold", "predicted", "wanted"),
    [
        ("北京大学", "北京大学", 1.0),
        ("《北京大学》", "北京大学。", 1.0),  # its marks are dropped
        ("北京大学", "北京的大学", 2 * 2 / 9),  # the longest stretch, not the bag of characters
        ("北京大学", "上海", 0.0),
        ("1998年", "1998 年", 1.0),
        ("GPT模型", "gpt", 2 * 1 / 4),
        ("……", "", 0.0),
        ("", "", 0.0),
    ],
)
def test_f1_is_over_the_longest_common_stretch(gold: str, predicted: str, wanted: float) -> None:
    assert f1(gold, predicted) == pytest.approx(wanted)


def test_marks_that_are_no_single_character_in_the_script_stay() -> None:
    """It lists two dots of six as one mark, and compares characters with it."""
    assert units("好…") == ["好", "…"]


def test_the_best_gold_counts_and_a_missing_prediction_is_wrong() -> None:
    found = cmrc({"1": ["北京", "北京大学"], "2": ["上海"]}, {"1": "北京大学"})
    assert found == {"exact": 50.0, "f1": 50.0}
    with pytest.raises(ValueError, match="no question to score"):
        cmrc({}, {})


def test_a_task_of_spans_scores_characters() -> None:
    items = [Item("1", ("?", "北京的大学"), ("1", ["北京大学"], [0]))]
    chars, words = (
        Span(units=unit).scores(items, [Answer("北京的大学", 0.0)])  # type: ignore[arg-type]
        for unit in ("characters", "words")
    )
    assert chars["f1"] == pytest.approx(4 / 9)
    assert words["f1"] == 0.0
    with pytest.raises(ValueError, match="units is 'characters', allowed is words in version 2"):
        Span(version=2, units="characters")
