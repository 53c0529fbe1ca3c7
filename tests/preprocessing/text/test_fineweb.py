"""The filter of FineWeb: recorded decisions of datatrove about documents near the thresholds, and the limits."""

import random
import re
from pathlib import Path
from typing import Final

import pytest

from preprocessing.text import apply_rules

WORDS: Final = re.split(
    " ",
    "the of and a to in is it was for on with as at by an be this that from or which home news contact about search "
    "menu don't U.S. well-known 3.5 Mr. it's",
)
LONG_WORDS: Final = re.split(
    " ", "internationalization responsibilities counter-revolutionary characteristics telecommunications"
)
ENDS: Final = ["", "", "", ".", "!", "?", ":", ",", '."', "...", "\u3002"]
REASONS: Final = {
    ".": "",
    "e": "fineweb_line_ends",
    "s": "fineweb_short_lines",
    "d": "fineweb_duplicate_lines",
    "r": "fineweb_line_ratio",
}
# Of FineWebQualityFilter(char_duplicates_ratio=0.1), datatrove 0.10.1: benchmarks/peers/datatrove_filters.py.
DECISIONS: Final = "".join(Path(__file__).with_name("fineweb_decisions.txt").read_text(encoding="utf-8").split())


def make_document(number: int) -> str:
    """A document of the given number; its lines and words are near the thresholds of the filter."""
    rng = random.Random(number)
    longest = rng.choice((2, 3, 4, 5, 8, 14))
    mark_prob = rng.choice((0.05, 0.12, 0.3, 0.9))
    repeat_prob = rng.choice((0, 0, 0.05, 0.12))
    vocabulary = rng.choice((WORDS, WORDS, LONG_WORDS, WORDS + LONG_WORDS))
    lines: list[str] = []
    for _ in range(rng.randint(1, 60)):
        words = [rng.choice(vocabulary) for _ in range(rng.randint(1, longest))]
        mark = rng.choice(ENDS[3:]) if rng.random() < mark_prob else ""
        line = ", ".join(words) + mark if rng.random() < 0.1 else " ".join(words) + mark
        lines.append(rng.choice(lines) if lines and rng.random() < repeat_prob else line)
        if rng.random() < 0.1:
            lines.append("")
    return "\n".join(lines)


def _reason(text: str) -> str:
    after, reason = apply_rules(text, ["fineweb_quality"])
    assert after == text
    return reason


def test_the_decisions_equal_those_of_datatrove() -> None:
    assert len(DECISIONS) == 1500
    assert set(DECISIONS) == set(REASONS)
    assert [_reason(make_document(number)) for number in range(1500)] == [REASONS[mark] for mark in DECISIONS]


LONG_LINE = "A line of more than thirty characters in all"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "fineweb_line_ends"),
        (" \n\n", "fineweb_line_ends"),
        ("\n".join(f"{LONG_LINE} {n}" for n in range(8)) + f"\n{LONG_LINE}.", "fineweb_line_ends"),  # 1 of 9: 0.11
        ("\n".join(f"{LONG_LINE} {n}" for n in range(7)) + f"\n{LONG_LINE}.", ""),  # 1 of 8: 0.125
        ("\n".join([f"Short {n}." for n in range(7)] + [f"{LONG_LINE} {n}." for n in range(3)]), "fineweb_short_lines"),
        ("\n".join([f"Short {n}." for n in range(2)] + [f"{LONG_LINE} {n}." for n in range(1)]), ""),  # 0.667
        ("\n".join([f"{LONG_LINE}."] * 2 + [f"{LONG_LINE} {n}." for n in range(7)]), "fineweb_duplicate_lines"),
        ("\n".join([f"{LONG_LINE}."] * 2 + [f"{LONG_LINE} {n}." for n in range(10)]), ""),
        ("\n\n".join(f"{'internationalization' * 2} {n}." for n in range(4)), "fineweb_line_ratio"),
    ],
)
def test_each_rule_at_its_limit(text: str, reason: str) -> None:
    assert _reason(text) == reason
