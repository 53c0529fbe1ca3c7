"""The reported results of a paper for a task, with their splits if the recipe names them."""

from collections.abc import Mapping
from typing import Any

from training.evaluation.tasks import TaskFile


def paper_figures(task: TaskFile, expected: Mapping[str, Any]) -> dict[str, float]:
    """The results of the task that the recipe quotes, by name with the split if it is known, as printed in the paper.

    >>> from orchestration.config import load, load_task
    >>> paper_figures(load_task("rte"), load("bert_base").reported_results)
    {'glue.rte (test)': 66.4}
    """
    results: dict[str, float] = {}
    for figure in task.reported_keys:
        value: Any = expected
        for key in figure.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            split = split_of(figure, expected)
            results[f"{figure} ({split})" if split else figure] = float(value)
    return results


def split_of(figure: str, expected: Mapping[str, Any]) -> str:
    """The split of a reported result: dev, test, or "" if the recipe names none.

    >>> split_of("squad2.f1", {"split": "dev"}), split_of("race.accuracy", {"split": {"race": "test"}})
    ('dev', 'test')
    >>> split_of("lambada.accuracy", {"split": {"race": "test"}}), split_of("lambada.accuracy", {})
    ('', '')
    """
    splits = expected.get("split", "")
    return str(splits.get(figure.partition(".")[0], "") if isinstance(splits, Mapping) else splits)
