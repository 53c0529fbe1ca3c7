"""The tables of metrics and tags list exactly the names that the code logs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from orchestration.reports.metric_names import METRICS, TAGS, TRAINING_METRICS, LoggedName, is_documented
from training.losses import Loss

ROOT = Path(__file__).parents[3]
TABLES = ROOT / "orchestration" / "reports" / "metric_names.py"
FILES = [file for floor in ("orchestration", "training") for file in (ROOT / floor).rglob("*.py") if file != TABLES]
COMPOSED = ("eval/<metric>", "system/<metric>", "<split>_<metric>", "train/loss_spike", "train/grad_norm_spike")
LOGGED = re.compile(r"(train|eval|perf|ckpt)/[\w/]+")


def yield_strings(file: Path) -> Iterator[str]:
    """Yield the strings of a file without docstrings; in an f-string, each value becomes x."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (docs | inside):
            yield node.value


def test_each_metric_of_the_code_is_documented() -> None:
    found = {text: file.name for file in FILES for text in yield_strings(file) if LOGGED.fullmatch(text)}
    assert "train/learning_rate" in found
    composed = ("eval/x/x", "train/x_spike")  # f"eval/{task}/{key}": documented in SCORE_METRICS and COMPOSED
    assert not {text: file for text, file in found.items() if not is_documented(text) and text not in composed}


def yield_tags(file: Path) -> Iterator[str]:
    """Yield the tag names of a file: arguments of functions that log tags, and keys of dictionaries of tags."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        values: list[ast.AST] = []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from (each.arg for each in node.keywords if name in ("log_tags", "tag") and each.arg)
            values = [*node.args[2:3]] if name == "Metadata" else []
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values = [node.value] if [getattr(each, "id", "") for each in targets] == ["tags"] else []
        dicts = [each for value in values for each in ast.walk(value) if isinstance(each, ast.Dict)]
        yield from (key.value for each in dicts for key in each.keys if isinstance(key, ast.Constant))


def test_each_tag_of_the_code_is_documented() -> None:
    found = {tag: file.name for file in FILES if file.is_relative_to(TABLES.parents[1]) for tag in yield_tags(file)}
    assert {"restarts", "skip_steps", "outcome", "net", "command", "table"} <= set(found)
    assert not {tag: file for tag, file in found.items() if not is_documented(tag, TAGS)}


@pytest.mark.parametrize("loss", get_args(Loss), ids=lambda loss: loss.__name__)
def test_accuracy_of_each_loss_is_documented(loss: type) -> None:
    assert is_documented(f"train/{loss.accuracy}", TRAINING_METRICS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("one", [*METRICS, *TAGS], ids=lambda one: one.name)
def test_each_documented_name_is_used_by_the_code(one: LoggedName) -> None:
    """Each word of its name is in the code."""
    if one.name in COMPOSED:
        return
    words = [word.strip("_") for word in re.split(r"<\w+>|[/.]", one.name) if word.strip("_")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in FILES)
    assert not [word for word in words if not re.search(rf"(\b|_){re.escape(word)}(\b|_)", code)]
