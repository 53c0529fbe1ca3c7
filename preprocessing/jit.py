"""The decorator of all kernels, which numba compiles. Only kernels import this module.

numba stores machine code beside the source, or in the user's cache directory if it cannot write there. If it can write
to neither, each process compiles again.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numba
from numba.core import entrypoints
from numba.core.errors import NumbaError

_HERE: Final = Path(__file__).parent
_TRAINING: Final = [_HERE / "tokenization" / f"{name}.py" for name in ("kernels", "merges", "word_kernels")]
_SIGNATURES: Final = _HERE / "text" / "signature_kernels.py"
_SOURCES: Final = [Path(__file__), *sorted((_HERE / "compiled").glob("*.py")), *_TRAINING, _SIGNATURES]
_STAMP: Final = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).digest()


def _import_arrays() -> None:
    """Import numba's arrays without scipy.linalg, which takes .4 s. numba imports it there to see if it is installed,
    and again where it is needed.
    """
    from numba.np import linalg

    ensure = linalg.ensure_blas
    linalg.ensure_blas = _require_scipy
    try:
        from numba.np import arraymath

        arraymath.ensure_blas = ensure
    finally:
        linalg.ensure_blas = ensure


def _require_scipy() -> None:
    if find_spec("scipy") is None:
        raise ImportError("scipy is not installed")


with suppress(ImportError, AttributeError):  # another version of numba
    _import_arrays()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, without Python objects and without the global interpreter lock."""
    options = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    try:
        compiled = numba.njit(cache=True, **options)(function)
        _renew_cache(compiled._cache._cache_file)
    except (RuntimeError, AttributeError, OSError, NumbaError):  # no directory to write to, or another version of numba
        compiled = numba.njit(**options)(function)
    return compiled


def _renew_cache(cache_file: Any) -> None:
    """Ignore machine code of other sources: numba compares only the file of a function, not those of its callees."""
    cache_file._source_stamp = _STAMP
    try:
        cache_file._load_index()
    except Exception:  # the index names a class that has been renamed
        cache_file.flush()


@contextmanager
def without_extensions() -> Iterator[None]:
    """Keep numba from importing other packages that extend it; `awkward` takes half a second."""
    before = getattr(entrypoints, "_already_initialized", False)
    entrypoints._already_initialized = True
    try:
        yield
    finally:
        entrypoints._already_initialized = before


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a kernel is in memory or in the cache."""
    compiled: Any = function
    try:
        return bool(compiled.signatures or compiled._cache._cache_file._load_index())
    except (AttributeError, OSError):
        return False
