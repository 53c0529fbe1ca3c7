"""The decorator of all kernels, which numba compiles. Only kernels import this module.

Machine code is stored beside the source, or in the user's cache directory if that cannot be written to. It is read from
both, so another user of a read-only installation has the code that `make setup` compiled. If neither can be written to,
each process compiles again what it does not find.
"""

import gc
import glob
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import numpy as np

from preprocessing.imports import without_collection

with without_collection():
    import numba
    from numba.core import config, entrypoints
    from numba.core.caching import (
        CompileResultCacheImpl,
        FunctionCache,
        IndexDataCacheFile,
        InTreeCacheLocator,
        UserWideCacheLocator,
    )
    from numba.core.dispatcher import Dispatcher
    from numba.core.registry import cpu_target

_IMPORTS: Final = threading.RLock()  # two threads may compile their first kernels at once
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, without Python objects and without the global interpreter lock."""
    compiled = numba.njit(**_OPTIONS)(function)
    compiled._cache = _KernelCache(function)
    compiled._compile_for_args = partial(_compile_for_args, compiled)  # the first call with some types of arguments
    return compiled


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a kernel is in memory, or in a file for this processor."""
    compiled: Any = function
    return bool(compiled.signatures) or compiled._cache.has_code()


def _compile_for_args(compiled: Dispatcher, *args: Any) -> Any:
    with _IMPORTS, _without_other_packages():
        return Dispatcher._compile_for_args(compiled, *args)  # type: ignore[attr-defined]


@contextmanager
def _without_other_packages() -> Iterator[None]:
    """Keep numba from importing packages that no kernel needs, when it is used for the first time in a process.

    Packages that extend numba (`awkward`) take 0.3 s. scipy.linalg, which numba imports to learn whether it exists,
    takes 0.1 s. Other code that needs them still gets them.
    """
    before, collects = getattr(entrypoints, "_already_initialized", False), gc.isenabled()
    entrypoints._already_initialized = True
    gc.disable()
    try:
        _import_arrays()
        yield
    finally:
        entrypoints._already_initialized = before
        if collects:
            gc.enable()


def _import_arrays() -> None:
    """Import numba's functions of arrays, with products of matrices if SciPy is installed."""
    if "numba.np.arraymath" in sys.modules:
        return
    from numba.np import linalg

    require_scipy = linalg.ensure_blas
    linalg.ensure_blas = _require_scipy
    try:
        import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = require_scipy


def _require_scipy() -> None:
    if find_spec("scipy") is None:
        raise ImportError("scipy is not installed")


class _CacheFile(IndexDataCacheFile):
    """The machine code of a kernel in one directory: an index, and a file for each combination of types.

    In numba's own files, two processes that compile at the same time may give each other's code a wrong name.
    """

    def list_keys(self) -> list[Any]:
        """The combinations of types and processors, if the file can be read."""
        with suppress(Exception):  # missing, damaged, or with the name of a class that has been renamed
            return list(self._load_index())
        return []

    def load(self, key: Any) -> Any:
        with suppress(Exception):
            return super().load(key)
        return None

    def save(self, key: Any, data: Any) -> None:
        found = self._load_index() if self.list_keys() else {}
        found[key] = self._data_name_pattern.format(number=0).replace(".0.", f".{self._hash(key)}.")
        self._save_data(found[key], data)
        self._save_index(found)
        self._remove_old(set(found.values()))

    def _remove_old(self, names: set[str]) -> None:
        """Remove the code of earlier sources, whose files the index does not name any more."""
        prefix, _, suffix = self._data_name_pattern.partition("{number:d}")
        for path in Path(self._cache_path).glob(f"{glob.escape(prefix)}*{suffix}"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _hash(self, key: Any) -> str:
        return hashlib.sha256(self._source_stamp + repr(key).encode()).hexdigest()[:16]


class _AnyLocator(InTreeCacheLocator):
    """The directory beside the source, whether or not it can be written to."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "_AnyLocator":
        return cls(py_func, py_file)

    def get_source_stamp(self) -> bytes:
        return b""  # not used: see _KernelCache.files

    def ensure_cache_path(self) -> None:
        """Do nothing; _KernelCache makes directories."""


class _KernelCacheImpl(CompileResultCacheImpl):
    _locator_classes = (_AnyLocator,)


class _KernelCache(FunctionCache):
    """The machine code of a kernel in all directories."""

    _impl_class = _KernelCacheImpl

    @cached_property
    def files(self) -> list[_CacheFile]:
        """Its files, in the order in which they are read and written."""
        source = self._py_func.__code__.co_filename
        folders = [self._cache_path, UserWideCacheLocator(self._py_func, source).get_cache_path()]
        if config.CACHE_DIR:
            folders.insert(0, os.path.join(config.CACHE_DIR, _AnyLocator.get_suitable_cache_subpath(source)))
        stamp = _stamp(self._py_func.__module__)
        return [_CacheFile(folder, self._impl.filename_base, stamp) for folder in folders]

    def has_code(self) -> bool:
        """Whether there is code for this processor."""
        processor = cpu_target.target_context.codegen().magic_tuple()
        return any(key[1] == processor for file in self.files for key in file.list_keys())

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        key = self._index_key(sig, target_context.codegen())
        found = next((data for file in self.files if (data := file.load(key)) is not None), None)
        return None if found is None else self._impl.rebuild(target_context, found)

    def _save_overload(self, sig: Any, data: Any) -> None:
        if not self._impl.check_cachable(data):
            return
        key, reduced = self._index_key(sig, data.codegen), self._impl.reduce(data)
        for file in self.files:
            with suppress(OSError):
                os.makedirs(file._cache_path, exist_ok=True)
                file.save(key, reduced)
                return


@cache
def _stamp(module: str) -> bytes:
    """A hash of everything on which the machine code of the kernels of a module depends, as this process has it.

    That is all functions and constants of its module, and of the modules of kernels and classes that it uses: machine
    code contains the values of constants and the code of other kernels. Source files are not read, because they may
    have changed since they were imported.
    """
    described, left = dict[str, str](), [module]
    while left:
        name = left.pop()
        if name in described or name not in sys.modules:
            continue
        values = {key: value for key, value in vars(sys.modules[name]).items() if not key.startswith("__")}
        described[name] = "\n".join(f"{key}={_describe(values[key])}" for key in sorted(values))
        left += [value.__module__ for value in values.values() if _is_compiled_in(value)]
    content = "\n".join([repr(_OPTIONS), *(f"{name}:{described[name]}" for name in sorted(described))])
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest().encode()


def _describe(value: Any) -> str:
    """The code of a function, the fields of a class, or the value of a constant; "" for other values."""
    if isinstance(value, Dispatcher):
        return _describe(value.py_func)
    if isinstance(value, numba.extending._Intrinsic):
        return _describe(value._defn)
    if isinstance(value, FunctionType):
        return f"{_describe(value.__code__)} {value.__defaults__!r}"
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
        return f"{value.co_code.hex()} {names} {[_describe(one) for one in value.co_consts]}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, tuple | list):
        return str([_describe(one) for one in value])
    if isinstance(value, frozenset):
        return str(sorted(map(_describe, value)))
    if isinstance(value, type):
        return str(getattr(value, "_fields", ""))
    if value is None or isinstance(value, int | float | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}"
    return ""


def _is_compiled_in(value: Any) -> bool:
    """Whether machine code may contain what a name stands for: a kernel, an intrinsic, or a class of this package."""
    own = str(getattr(value, "__module__", "")).split(".")[0] == __name__.split(".")[0]
    return isinstance(value, Dispatcher | numba.extending._Intrinsic) or (
        own and isinstance(value, type) and issubclass(value, tuple)
    )
