"""The names of public classes are unique in the repository."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("preprocessing", "pipeline", "training", "orchestration")


def public_classes() -> dict[str, list[str]]:
    """The files that define each public class."""
    files_of = defaultdict[str, list[str]](list)
    for path in sorted([ROOT / "sesame.py", *(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))]):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files_of[node.name].append(str(path.relative_to(ROOT)))
    return files_of


def test_public_class_names_are_unique() -> None:
    classes = public_classes()
    assert len(classes) > 400  # the classes were found
    assert {name: files for name, files in classes.items() if len(files) > 1} == {}
