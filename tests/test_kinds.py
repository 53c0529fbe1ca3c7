"""Generic code asks losses for their facts and never for their kind, so that a loss of one's own is used everywhere."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from training.losses import Loss

ROOT = Path(__file__).parents[1]
LOSSES: tuple[type, ...] = get_args(Loss)
WORDS = {"replaced", "pair_label"}  # names of heads that are also English words
NAMES = {name for loss in LOSSES for name in (loss.__name__, loss.kind, loss.head_name)} - WORDS  # type: ignore[attr-defined]
# Their subject is a certain loss: losses themselves, tables of tensor names, translations of foreign names, ablations
# of papers, and fine-tuning targets with the heads of pretraining.
ALLOWED = (
    "training/losses/",
    "training/formats/",
    "training/finetuning/targets_text.py",
    "orchestration/config/glossary.py",
    "orchestration/reports/ablations/",
)


def kinds_in(source: str) -> Iterator[str]:
    """The names of losses in code, outside of comments and docstrings."""
    tree = ast.parse(source)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
        if isinstance(node, ast.Constant) and id(node) not in docs:
            name = node.value
        if isinstance(name, str) and name in NAMES:
            yield f"{name} in line {getattr(node, 'lineno', '?')}"


def files() -> list[str]:
    found = (
        path
        for floor in ("training", "orchestration", "pipeline", "preprocessing")
        for path in (ROOT / floor).rglob("*.py")
    )
    names = (path.relative_to(ROOT).as_posix() for path in [*found, ROOT / "sesame.py"])
    return sorted(name for name in names if not name.startswith(ALLOWED))


def test_no_generic_module_asks_for_the_kind_of_a_loss() -> None:
    found = {name: list(kinds_in((ROOT / name).read_text(encoding="utf-8"))) for name in files()}
    assert {name: kinds for name, kinds in found.items() if kinds} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('x = loss.kind == "next_token"', ["next_token in line 1"]),
        ("isinstance(loss, MaskedTokens)", ["MaskedTokens in line 1"]),
        ("from training.losses import NextToken", ["NextToken in line 1"]),
        ('"""next_token"""\nx = "give one with next_token"  # "next_token"', []),
    ],
)
def test_a_kind_in_code_is_found(source: str, names: list[str]) -> None:
    assert list(kinds_in(source)) == names
