"""Avoid features that have bugs in older patch releases of the supported Python versions."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
POSSESSIVE_GROUP = re.compile(r"\)[*+?]\+|\(\?>")


def lines(folder: str, pattern: re.Pattern[str]) -> list[str]:
    """The lines of Sesame's sources that match a pattern, with their files."""
    return [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if pattern.search(line)
    ]


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline", "training", "orchestration"])
def test_no_pattern_has_a_possessive_group(folder: str) -> None:
    """Before Python 3.11.5, `re` matches such groups wrongly if they can backtrack (python/cpython#106052).

    Possessive character sets are not affected.
    """
    assert lines(folder, POSSESSIVE_GROUP) == []


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline", "training", "orchestration"])
def test_text_is_read_as_utf_8_in_every_locale(folder: str) -> None:
    """`import sesame` cannot choose the locale of a notebook."""
    assert lines(folder, re.compile(r"\.read_text\(\)")) == []
