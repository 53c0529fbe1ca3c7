"""Each task of the union has every fact."""

import pytest

from tests import facts
from training.evaluation.tasks import TASKS, TaskPart, Tasks

PARTS = facts.parts_of(Tasks)
every_task = pytest.mark.parametrize("task", PARTS, ids=repr)


def test_every_task_of_the_union_is_tested_and_has_its_own_description() -> None:
    facts.assert_covers(PARTS, Tasks)
    facts.assert_described(PARTS)
    assert [part.kind for part in PARTS] == list(TASKS)


@every_task
def test_every_task_has_every_fact(task: Tasks) -> None:
    facts.assert_every_fact(task, TaskPart)


@every_task
def test_a_scale_sets_only_keys_of_the_task(task: Tasks) -> None:
    facts.assert_shrinks_its_keys(task)
