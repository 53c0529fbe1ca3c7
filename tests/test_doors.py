"""Docstrings of packages give a reading order; each file and directory that they name exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("preprocessing", "pipeline", "training", "orchestration")
DOORS = [
    door
    for room in ROOMS
    for door in sorted((ROOT / room).rglob("__init__.py"))
    if ast.get_docstring(ast.parse(door.read_text(encoding="utf-8")))
]


def named_in(door: Path) -> set[str]:
    """The names of files (`x.py`) and directories (`x/`) in the docstring of a package."""
    docstring = ast.get_docstring(ast.parse(door.read_text(encoding="utf-8"))) or ""
    return set(re.findall(r"(?<![\w./])(?:[a-z_0-9]+/)*[a-z_0-9]+(?:\.py\b|/(?!\w))", docstring))


@pytest.mark.parametrize("door", DOORS, ids=lambda door: str(door.parent.relative_to(ROOT)))
def test_a_package_names_files_that_exist(door: Path) -> None:
    places = (door.parent, ROOT)
    assert {name for name in named_in(door) if not any((place / name).exists() for place in places)} == set()


def test_the_search_finds_names() -> None:
    names = set().union(*map(named_in, DOORS))
    assert len(DOORS) > 30
    assert len(names) > 150
    assert {"schema.py", "heads/", "sesame.py"} <= names
