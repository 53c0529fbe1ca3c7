"""Broken text is mended, sound text is left alone, and nothing that ftfy would mend is overlooked."""

import random

import ftfy
import pytest
from ftfy.badness import MOJIBAKE_CATEGORIES, is_bad

from preprocessing.text import repaired
from preprocessing.text.repair import _FIXES, is_damaged


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("caf\u00c3\u00a9", "caf\u00e9"),
        ("It\u00e2\u20ac\u2122s", "It\u2019s"),
        (
            "\u0420\u045f\u0421\u0402\u0420\u0451\u0420\u0406\u0420\u00b5\u0421\u201a",
            "\u041f\u0440\u0438\u0432\u0435\u0442",
        ),
        ("AT&amp;T &#8212; &hellip;", "AT&T \u2014 \u2026"),
        ("of\ufb01ce", "office"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x93quoted\x94", "\u201cquoted\u201d"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d alone", "\ufffd alone"),
    ],
)
def test_damage_is_mended(broken: str, whole: str) -> None:
    assert repaired(broken) == whole


@pytest.mark.parametrize(
    "text",
    [
        "\u201cCurly\u201d, \u2018single\u2019",
        "\uff26\uff35\uff2c\uff2c width",
        "AT&T; R&D & more; if (a&&b);",
        "\u4eca\u5929\u201c\u5f88\u597d\u201d\u2026\u2026",
        "\u00ab\u041f\u0440\u0438\u0432\u0435\u0442\u00bb \u2014 \u043e\u043d",
        "na\u00efve caf\u00e9 \u0153uvre",
        "a\tb\x0bc\r\nd\x00",
        "<p>AT&amp;T</p>",
        "",
    ],
)
def test_sound_text_stays_as_it_is(text: str) -> None:
    assert repaired(text) == text


def test_one_bad_line_does_not_touch_the_others() -> None:
    assert repaired("<b>a&amp;b</b>\nc&amp;d\r\n\n caf\u00c3\u00a9 ") == "<b>a&amp;b</b>\nc&d\r\n\n caf\u00e9 "


def test_nothing_that_ftfy_takes_for_mojibake_is_overlooked() -> None:
    draw = random.Random(1)
    odd = [char for chars in MOJIBAKE_CATEGORIES.values() for char in chars.replace("-", "")]
    rare = (
        "\u00c2\u00c3\u00d8\u00d9\u0152\u0153\u00e0\u221a\u2248\u201a\u00c4\u0432\u0402\u0413\u045e\u0412\u0100\u0101"
    )
    common = "aB .1\n\u0430\u0411\u03b1\u4e2d"
    num_bad = 0
    for _ in range(20_000):
        pools = draw.choices([odd, rare, common], [2, 1, 3], k=8)
        text = "".join(draw.choice(pool) for pool in pools)
        if is_bad(text):
            num_bad += 1
            assert is_damaged(text), ascii(text)
    assert num_bad > 1000


@pytest.mark.parametrize(
    "text", ["\u0413\u045e\u0412\u0402\u0412x ", "a \u00c2 b", "\u00c3 x", "\u0153-", "\u0432\u0402"]
)
def test_the_rare_patterns_of_ftfy_are_noticed(text: str) -> None:
    assert is_bad(text)
    assert is_damaged(text)


def test_whatever_comes_in_twice_is_as_good_as_once_and_ftfy_agrees() -> None:
    draw = random.Random(2)
    alphabet = "ab &;<#1xlt\u00c3\u00a9\u00e2\u20ac\u2122\x9d\ud800\udc00\x1b[m\u4e2d\ufb01"
    for _ in range(2_000):
        text = "".join(draw.choices(alphabet, k=12))
        once = repaired(text)
        assert repaired(once) == once, ascii(text)
        assert once == ftfy.fix_text_segment(text, _FIXES), ascii(text)


def test_a_very_long_line_is_mended_in_parts() -> None:
    assert repaired("caf\u00c3\u00a9 " * 50_000) == "caf\u00e9 " * 50_000
