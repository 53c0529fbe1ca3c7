"""Groups of questions that are not independent, because they share a text or a subset."""

from collections.abc import Hashable, Sequence
from typing import Final

from training.evaluation.tasks.labeled_task import TaskItem

SUBSETS: Final = "macro_accuracy"  # a mean over subsets, so each subset is one unit


def group_dependent(items: Sequence[TaskItem], metric: str) -> list[list[int]]:
    """The indices of the questions with a gold answer, in groups of dependent questions.

    Questions of a subset are a group for a mean over subsets. Otherwise, questions that share their longest text (a
    passage, a premise) are a group.
    """
    groups: dict[Hashable, list[int]] = {}
    for number, item in enumerate(items):
        if item.gold is not None:
            groups.setdefault(_find_shared_key(item, metric), []).append(number)
    return list(groups.values())


def _find_shared_key(item: TaskItem, metric: str) -> Hashable:
    """The key that dependent questions share: the subset, the longest text, or the place of the item."""
    if metric == SUBSETS:
        return getattr(item.texts[0], "subset", "")
    texts = [text for text in item.texts if isinstance(text, str)]
    return max(texts, key=len) if texts and len(item.texts) > 1 else item.place
