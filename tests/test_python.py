"""What older patch releases of the Pythons that we allow get wrong."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
POSSESSIVE_GROUP = re.compile(r"\)[*+?]\+|\(\?>")


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline", "training", "orchestration"])
def test_no_pattern_has_a_possessive_group(folder: str) -> None:
    """`re` matches one that can backtrack wrongly before Python 3.11.5 (python/cpython#106052); sets are fine."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if POSSESSIVE_GROUP.search(line)
    ]
    assert not found, found


@pytest.mark.parametrize("folder", ["preprocessing", "pipeline", "training", "orchestration"])
def test_text_is_read_as_utf_8_in_every_locale(folder: str) -> None:
    """`import sesame` cannot choose the locale of a notebook."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if ".read_text()" in line
    ]
    assert not found, found
