"""Pictures: what their bars and lines stand for."""

from orchestration import figures


def test_the_bar_of_a_task_ends_at_the_median_of_its_seeds_as_its_table_does() -> None:
    (axes,) = figures.comparison("rte", {"pretrained": (0.1, 0.7, 0.8), "random": (0.5,)}).axes
    assert [bar.get_height() for bar in axes.patches] == [0.7, 0.5]
