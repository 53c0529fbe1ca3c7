"""Scores of Chinese answers: those of the CMRC 2018 script, reimplemented here."""

import numpy as np
import pytest

from training.evaluation.metrics import cmrc
from training.evaluation.metrics.cmrc import f1, units
from training.evaluation.tasks import ExtractiveQA, TaskItem
from training.evaluation.tasks.extractive_qa import SpanPrediction


@pytest.mark.parametrize(
    ("gold", "predicted", "wanted"),
    [
        ("北京大学", "北京大学", 1.0),
        ("《北京大学》", "北京大学。", 1.0),  # the script drops its marks
        ("北京大学", "北京的大学", 2 * 2 / 9),  # the longest common substring, not the common characters
        ("北京大学", "上海", 0.0),
        ("1998年", "1998 年", 1.0),
        ("GPT模型", "gpt", 2 * 1 / 4),
        ("3D电影", "3d", 2 * 1 / 4),  # a word of digits and letters is one unit
        ("……", "", 0.0),
        ("", "", 0.0),
    ],
)
def test_f1_uses_the_longest_common_substring(gold: str, predicted: str, wanted: float) -> None:
    assert f1(gold, predicted) == pytest.approx(wanted)


def test_marks_of_several_characters_in_the_script_are_kept() -> None:
    """The script lists the two-character ellipsis "……" as one mark, but compares single characters with it."""
    assert units("好…") == ["好", "…"]


def test_the_best_gold_counts_and_a_missing_prediction_is_wrong() -> None:
    found = cmrc({"1": ["北京", "北京大学"], "2": ["上海"]}, {"1": "北京大学"})
    assert found == {"exact": 50.0, "f1": 50.0}
    with pytest.raises(ValueError, match="no question to score"):
        cmrc({}, {})


# The algorithm of cmrc2018_evaluate.py, step by step.

MARKS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")  # noqa: RUF001


def reference_units(answer: str) -> list[str]:
    cut = pytest.importorskip("nltk.tokenize").NLTKWordTokenizer().tokenize
    found, others = list[str](), ""
    for char in [*answer.lower().strip(), "\0"]:
        if char in MARKS:
            continue
        if char == "\0" or "\u4e00" <= char <= "\u9fa5":
            found += cut(others)
            others = ""
        if "\u4e00" <= char <= "\u9fa5":
            found.append(char)
        elif char != "\0":
            others += char
    return found


def reference_f1(gold: str, predicted: str) -> float:
    one, other = reference_units(gold), reference_units(predicted)
    stretches = [one[at : at + n] for n in range(len(one), 0, -1) for at in range(len(one) - n + 1)]
    inside = (len(each) for each in stretches if any(other[at : at + len(each)] == each for at in range(len(other))))
    if not (longest := next(inside, 0)):
        return 0.0
    precision, recall = longest / len(other), longest / len(one)
    return 2 * precision * recall / (precision + recall)


def test_random_answers_have_the_f1_of_the_script() -> None:
    rng = np.random.default_rng(0)
    parts = [*"北京大学的年，《aB- ", " ", "GPT", "1998", "2", "1,000", "3.5"]  # noqa: RUF001
    actual = ["".join(rng.choice(parts, rng.integers(0, 9))) for _ in range(3_000)]
    for first, second, predicted in zip(actual[::3], actual[1::3], actual[2::3], strict=True):
        bare = [
            "".join(char for char in text.lower().strip() if char not in MARKS) for text in (first, second, predicted)
        ]
        assert cmrc({"1": [first, second]}, {"1": predicted}) == pytest.approx(
            {
                "exact": 100 * float(bare[2] in bare[:2]),
                "f1": 100 * max(reference_f1(first, predicted), reference_f1(second, predicted)),
            }
        )


MIXED = [*"北大a1B.,'\"?!;:%&@#$()[]{}<>«»„‐‒–—―…‧·．％℃ -_*` ", "\u2018", "\u2019", "n't", "'s", "cannot", "gonna"]  # noqa: RUF001


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("約翰\u2027史密斯", ["約", "翰", "\u2027", "史", "密", "斯"]),
        (
            "J\u2027K\u2027羅琳",
            ["j\u2027k\u2027", "羅", "琳"],
        ),  # marks that nltk does not know stay attached to letters
        ("占100\uff05", ["占", "100\uff05"]),
        ("5%", ["5", "%"]),
        ("Queen's", ["queen", "'s"]),
        ("I can't", ["i", "ca", "n't"]),
        ('"Red"', ["``", "red", "''"]),
        ("U.S.A.", ["u.s.a", "."]),
        (".6公里", [".6", "公", "里"]),
    ],
)
def test_words_of_other_scripts_equal_those_of_nltk(answer: str, wanted: list[str]) -> None:
    """F1 on DRCD differed from the script's for answers with such marks."""
    assert units(answer) == reference_units(answer) == wanted


def test_random_marks_are_split_as_by_nltk() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3_000):
        answer = "".join(rng.choice(MIXED, rng.integers(0, 14)))
        assert units(answer) == reference_units(answer), answer


def test_extractive_qa_with_f1_unit_characters_scores_characters() -> None:
    items = [TaskItem("1", ("?", "北京的大学"), ("1", ["北京大学"], [0]))]
    chars, words = (
        ExtractiveQA(f1_unit=unit).scores(items, [SpanPrediction("北京的大学", 0.0)])  # type: ignore[arg-type]
        for unit in ("characters", "words")
    )
    assert chars["f1"] == pytest.approx(4 / 9)
    assert words["f1"] == 0.0
    with pytest.raises(ValueError, match="invalid f1_unit: got 'characters', expected words with squad_version 2"):
        ExtractiveQA(squad_version=2, f1_unit="characters")
