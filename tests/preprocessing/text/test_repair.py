"""Damaged text is repaired, sound text stays, and all damage that ftfy repairs is found."""

import random
import re

import ftfy
import pytest
from ftfy.badness import MOJIBAKE_CATEGORIES, is_bad

from preprocessing.text import repair, repair_text
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
def test_damaged_text_is_repaired(broken: str, whole: str) -> None:
    assert repair_text(broken) == whole


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
def test_sound_text_stays_unchanged(text: str) -> None:
    assert repair_text(text) == text


def test_one_damaged_line_does_not_affect_the_others() -> None:
    assert repair_text("<b>a&amp;b</b>\nc&amp;d\r\n\n caf\u00c3\u00a9 ") == "<b>a&amp;b</b>\nc&d\r\n\n caf\u00e9 "


def test_all_mojibake_of_ftfy_is_found_in_random_text() -> None:
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


def test_all_mojibake_pairs_of_ftfy_are_found() -> None:
    chars = [
        char for char in map(chr, range(0x80, 0x10000)) if re.match(f"[{''.join(MOJIBAKE_CATEGORIES.values())}]", char)
    ]
    ends = [*chars, *"aB .1"]
    for first in ends:
        for second in ends:
            text = f"a{first}{second} "
            assert not is_bad(text) or is_damaged(text), ascii(text)


def test_mojibake_of_more_than_two_characters_is_found() -> None:
    """The text mixes characters of the longer ftfy patterns with any others."""
    draw = random.Random(3)
    odd = [char for chars in MOJIBAKE_CATEGORIES.values() for char in chars.replace("-", "")]
    longer = "\u00d8\u00d9\u2026\u00b7\u00b4\u0412\u0413\u0420\u0421\u0402\u045e"
    longer += "\u00c3\u00c2\u03b2\u20ac\u0392\u039e\u00b0\u00b5\u0152 a"
    for _ in range(30_000):
        text = "".join(draw.choice(longer if draw.random() < 0.7 else odd) for _ in range(5))
        assert not is_bad(text) or is_damaged(text), ascii(text)


SOUND = {
    "hi": "\u0917\u0930\u094d\u092e\u093f\u092f\u094b\u0902 \u092e\u0947\u0902 "
    "\u0932\u094b\u0917 \u0906\u0924\u0947 \u0939\u0948\u0902\u0964 ",
    "ar": "\u0641\u064a \u0627\u0644\u0635\u064a\u0641 \u064a\u0623\u062a\u064a \u0627\u0644\u0646\u0627\u0633\u060c ",
    "he": "\u05d1\u05e7\u05d9\u05e5 \u05d0\u05e0\u05e9\u05d9\u05dd \u05d1\u05d0\u05d9\u05dd. ",
    "th": "\u0e43\u0e19\u0e24\u0e14\u0e39\u0e23\u0e49\u0e2d\u0e19\u0e1c\u0e39\u0e49\u0e04\u0e19 ",
    "ka": "\u10d6\u10d0\u10e4\u10ee\u10e3\u10da\u10e8\u10d8 \u10ee\u10d0\u10da\u10ee\u10d8. ",
    "hy": "\u0531\u0574\u057c\u0561\u0576\u0568 \u0574\u0561\u0580\u0564\u056b\u056f\u0589 ",
    "el": "\u03a4\u03bf \u03ba\u03b1\u03bb\u03bf\u03ba\u03b1\u03af\u03c1\u03b9 \u00ab\u03b5\u03b4\u03ce\u00bb. ",
    "uk": "\u0412\u043b\u0456\u0442\u043a\u0443 \u0439 \u043a\u0443\u043f\u0430\u044e\u0442\u044c\u0441\u044f "
    "\u0457\u0436\u0434\u0436\u0443. ",
    "vi": "M\u00f9a h\u00e8 ng\u01b0\u1eddi \u0111\u1ebfn b\u01a1i \u1edf bi\u1ec3n. ",
    "pl": "P\u00f3\u017aniej wracaj\u0105 \u2014 \u017ad\u017ab\u0142o \u017c\u00f3\u0142\u0107. ",
    "zh": "\u4ed6\u8bf4\uff1a\u201c\u5f88\u597d\u201d\u2026\u2026 ",
    "quotes": "\u201c\u2018a\u2019\u201d \u00ab\u2039b\u203a\u00bb ",
}


@pytest.mark.parametrize("language", SOUND)
def test_sound_text_of_any_script_is_rarely_checked_by_ftfy(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured in characters passed to ftfy's slow pattern: at most 1.4 times the length of the text."""
    seen = [0]

    def counting(text: str) -> bool:
        seen[0] += len(text)
        return is_bad(text)

    monkeypatch.setattr(repair, "is_bad", counting)
    text = SOUND[language] * 300
    assert repair_text(text) == text
    assert seen[0] <= 1.4 * len(text)


def test_text_with_many_marks_is_checked_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the text doubles, the number of checked characters at most about doubles, even with many marks."""
    seen = [0]

    def counting(text: str) -> bool:
        seen[0] += len(text)
        return is_bad(text)

    monkeypatch.setattr(repair, "is_bad", counting)
    looked = list[int]()
    for times in (1_000, 2_000, 4_000):
        seen[0] = 0
        is_damaged("\u201c\u2018\u4e2d" * times)
        looked.append(seen[0])
    assert looked[2] < 2.2 * looked[1] < 4.84 * looked[0]
    assert looked[2] <= 2 * 3 * 4_000


def test_damage_at_a_line_start_is_found_among_many_marks() -> None:
    assert is_damaged("\u201c\u2018\u4e2d" * 100 + ".\n\u00c2 b")


@pytest.mark.parametrize(
    "text", ["\u0413\u045e\u0412\u0402\u0412x ", "a \u00c2 b", "\u00c3 x", "\u0153-", "\u0432\u0402"]
)
def test_rare_ftfy_patterns_are_found(text: str) -> None:
    assert is_bad(text)
    assert is_damaged(text)


def test_repair_is_idempotent_and_equals_ftfy() -> None:
    draw = random.Random(2)
    alphabet = "ab &;<#1xlt\u00c3\u00a9\u00e2\u20ac\u2122\x9d\ud800\udc00\x1b[m\u4e2d\ufb01"
    for _ in range(2_000):
        text = "".join(draw.choices(alphabet, k=12))
        once = repair_text(text)
        assert repair_text(once) == once, ascii(text)
        assert once == ftfy.fix_text_segment(text, _FIXES), ascii(text)


def test_a_very_long_line_is_repaired_in_parts() -> None:
    assert repair_text("caf\u00c3\u00a9 " * 50_000) == "caf\u00e9 " * 50_000
