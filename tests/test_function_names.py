"""Names of functions: a function does something, so no name begins with a participle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    ROOT / "sesame.py",
    *(
        file
        for package in ("preprocessing", "pipeline", "training", "orchestration")
        for file in sorted((ROOT / package).rglob("*.py"))
    ),
]
REGULAR = re.compile(r"_*(?!(?:deepspeed|embed|feed|need|seed|shed|speed)(?:_|$))[a-z]+ed(_|$)")
IRREGULAR = re.compile(
    r"_*(began|begun|broken|built|chosen|drawn|found|given|gone|held|hidden|kept|known|left|lost|made|meant|said"
    r"|seen|sent|shown|taken|told|written)(_|$)"
)
# "repeated_ngrams" is the name of a rule in the ledger of a corpus, and functions of rules have the names of the rules.
EXCEPTIONS = {"repeated_ngrams"}


def names(tree: ast.AST) -> Iterator[str]:
    """The names of all functions and methods, without properties, which are values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "property" not in decorators:
                yield node.name


def begins_with_participle(name: str) -> bool:
    return bool(REGULAR.match(name) or IRREGULAR.match(name)) and name not in EXCEPTIONS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_joined", True),
        ("stored_run", True),
        ("kept", True),
        ("embed", False),
        ("embedded", True),
        ("need", False),
        ("load_run", False),
    ],
)
def test_participles_are_recognized(name: str, expected: bool) -> None:
    assert begins_with_participle(name) is expected


def test_no_function_begins_with_a_participle() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in FILES
        for name in names(ast.parse(file.read_text(encoding="utf-8")))
        if begins_with_participle(name)
    ]
    assert not found, "use a verb: " + ", ".join(found)
