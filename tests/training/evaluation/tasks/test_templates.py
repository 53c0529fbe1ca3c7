"""Texts with column names in braces."""

import pytest

from preprocessing.errors import BadInput
from training.evaluation.tasks.templates import fill, fill_list, in_two, is_template

ROW = {"a": "x", "n": 3, "many": ["y", "z"]}


def test_a_template_is_filled_in_and_split_after_its_last_column() -> None:
    assert in_two("{a} {{of}} {n}?\n", ROW, "r:1") == ("x {of} 3", "?\n")
    assert in_two("no column", ROW, "r:1") == ("", "no column")
    assert fill("{n}{a}!", ROW, "r:1") == "3x!"


def test_a_single_column_may_contain_a_list() -> None:
    assert fill_list("{many}", ROW, "r:1") == ["y", "z"]
    assert fill_list("{a}", ROW, "r:1") == ["x"]
    with pytest.raises(BadInput, match=r"r:1: invalid many: got \['y', 'z'\], expected text"):
        fill_list("{many}!", ROW, "r:1")


@pytest.mark.parametrize("text", ["{a", "a}", "{a!r}", "{a:>3}"])
def test_an_invalid_template_is_refused(text: str) -> None:
    """A split may replace the template of its task, which is not checked before its files are read."""
    assert not is_template(text)
    with pytest.raises(BadInput, match=r"r:1: .* expected text with columns in braces; write {{ and }} for braces"):
        fill(text, ROW, "r:1")
