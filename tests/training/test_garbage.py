"""Garbage is collected when the loop says so, and the state of the collector is restored."""

import gc
import weakref

import pytest

from training.garbage import collect_by_hand, collect_young


class Node:
    """An object that refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


def test_garbage_lives_until_it_is_collected_by_hand() -> None:
    with collect_by_hand():
        node = Node()
        ended = weakref.ref(node)
        del node
        [[] for _ in range(100_000)]  # allocations, which start collections by themselves
        assert ended() is not None
        collect_young()
        assert ended() is None


def fail_inside() -> None:
    with collect_by_hand():
        assert not gc.isenabled()
        raise KeyError


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_as_before_also_after_an_error(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        gc.enable() if is_enabled else gc.disable()
        with pytest.raises(KeyError):
            fail_inside()
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable() if was_enabled else gc.disable()
