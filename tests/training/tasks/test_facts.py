"""Each task of the union has every fact."""

import pytest

from tests import facts
from training.tasks import TASKS, TaskPart, Tasks

PARTS = facts.parts_of(Tasks)
every_task = pytest.mark.parametrize("task", PARTS, ids=repr)


def test_every_task_of_the_union_is_looked_at_and_described_in_words_of_its_own() -> None:
    facts.assert_covers(PARTS, Tasks)
    facts.assert_described(PARTS)
    assert [part.kind for part in PARTS] == list(TASKS)


@every_task
def test_every_task_has_every_fact(task: Tasks) -> None:
    facts.assert_every_fact(task, TaskPart)


@every_task
def test_a_scale_puts_values_into_keys_that_the_task_has(task: Tasks) -> None:
    facts.assert_shrinks_its_keys(task)
