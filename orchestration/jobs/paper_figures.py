"""The figures of a paper that stand beside a score, and the split that each is of, as far as its recipe says."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from training.tasks import TaskFile

_ALL_ELSE: Final = r"else|theothers|(table\d+)?"  # before the split of the figures that no other words are of


def paper_figures(task: TaskFile, expected: Mapping[str, Any]) -> dict[str, float]:
    """The figures of the task that the recipe quotes, as printed, by their name with their split where that is known.

    >>> from orchestration.config import load, load_task
    >>> paper_figures(load_task("rte"), load("bert_base").expected)
    {'glue.rte (test)': 66.4}
    """
    found: dict[str, float] = {}
    for figure in task.figures:
        value: Any = expected
        for key in figure.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            split = split_of(figure, expected)
            found[f"{figure} ({split})" if split else figure] = float(value)
    return found


def split_of(figure: str, expected: Mapping[str, Any]) -> str:
    """The split that a figure is of, as `of` or else `source` of a recipe says in words: dev, test; "": neither does.

    >>> of = {"of": "this training, then fine-tuned on each task; GLUE and SQuAD dev (one net), RACE test"}
    >>> split_of("squad2.f1", of), split_of("race.accuracy", of), split_of("xnli.accuracy", of)
    ('dev', 'test', '')
    >>> of = {"of": "this training; test, but SQuAD dev"}
    >>> split_of("squad.f1", of), split_of("glue.average", of), split_of("lambada.accuracy", {"of": "zero-shot"})
    ('dev', 'test', '')
    """
    task, _, metric = figure.partition(".")
    names = {task, task.rstrip("0123456789"), metric.partition("_")[0] if task == "glue" else task}
    names |= {"summaries"} if metric.startswith("rouge") else set()
    for text in (str(expected.get(key, "")) for key in ("of", "source")):
        clauses = list(_clauses(text))
        for words, split in clauses:
            if any(_plain(name) in words for name in names if len(name) > 2):
                return split
        for words, split in clauses:
            if re.fullmatch(_ALL_ELSE, words):
                return split
    return ""


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    """What stands before each split that a text names, without blanks, marks and asides, and the split."""
    for part in re.sub(r"\((?!.*?\b(dev|test)\b).*?\)", "", text).split(";"):
        for words, split in re.findall(r"(.*?)\b(dev|test)\b", part):
            yield re.sub(r"^but", "", _plain(words)), split


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
