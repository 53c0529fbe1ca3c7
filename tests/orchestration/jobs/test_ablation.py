"""What is shown of a table while its cells are made side by side."""

from types import SimpleNamespace
from typing import Any

from orchestration.jobs.ablation import _Together


def cell(name: str) -> Any:
    return SimpleNamespace(name=name, job=SimpleNamespace(recipe=SimpleNamespace(num_steps=30)))


def test_the_steps_of_all_cells_are_one_bar_that_says_what_is_done_beside_them() -> None:
    events: list[Any] = []
    first, second = cells = [cell("sop, seed 0"), cell("nsp, seed 0")]
    together = _Together(cells, events.append)
    together.of(first)({"stage": "starting workers", "workers": 1})
    together.show()
    together.of(first)({"stage": "pretrain", "done": 20, "total": 30})
    together.show()
    together.of(first)({"stage": "scores"})
    together.of(second)({"stage": "pretrain", "done": 3, "total": 30})
    together.show()
    for each in cells:
        together.of(each)({"stage": "done", "done": 30})
    together.show()
    common = {"stage": "table", "total": 60, "left_s": 0.0}
    assert events == [
        common | {"done": 0, "ended": "0/2 cells", "now": "starting workers"},
        common | {"done": 20, "ended": "0/2 cells"},
        common | {"done": 23, "ended": "0/2 cells", "now": "scores"},
        common | {"done": 60, "ended": "2/2 cells"},
    ]
