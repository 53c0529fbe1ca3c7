"""Imports that take less time: of parts at their first use, and without garbage collection."""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)


@cache
def has_compiler() -> bool:
    """Whether numba is installed and can be imported. If it cannot, a warning says why, once in a process."""
    if find_spec("numba") is None:
        return False
    try:
        import_module("preprocessing.jit")
    except Exception as error:  # e.g. of a numpy that this version of numba does not support
        log.warning("numba is not used (%s: %s); all results are the same, slower", type(error).__name__, error)
        return False
    return True


def import_on_use(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A `__getattr__` for a package that imports some of its modules when one of their `names` is used.

    `names` are listed by module. Raises AttributeError for other names.
    """
    module_of = {name: module for module, its_names in names.items() for name in its_names}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return find


def import_all(package: ModuleType) -> None:
    """Import all modules of a package whose names are imported on use."""
    for name in package.__all__:
        getattr(package, name)


@contextmanager
def without_collection() -> Iterator[None]:
    """Inside the block, which imports modules, there is no garbage collection.

    The objects of the modules stay, and later collections do not search them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
