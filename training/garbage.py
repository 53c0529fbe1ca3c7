"""Python's garbage collection at chosen moments: by itself, it would delay launches of kernels at any moment."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collect_by_hand() -> Iterator[None]:
    """Inside the block, only `collect_young` collects garbage, and what exists before the block stays."""
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def collect_young() -> None:
    """Collect the garbage of recent objects, in about a millisecond."""
    gc.collect(1)
