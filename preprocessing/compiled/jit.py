"""The decorator of all kernels, and two operations that numba lacks: a 128-bit product and reads by address.

numba stores machine code beside the source, or in the user's cache directory if it cannot write there. If it can write
to neither, each process compiles again.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core import entrypoints, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES: Final = sorted(Path(__file__).parent.glob("*.py"))
_STAMP: Final = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).digest()


def kernel(function: Function) -> Function:
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


@intrinsic
def multiply_high(context: Any, first: Any, second: Any) -> Any:
    """The upper 64 bits of the product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = arguments[0].type
        wide = type(word)(2 * word.width)
        one, other = (builder.zext(argument, wide) for argument in arguments)
        product = builder.mul(one, other)
        return builder.trunc(builder.lshr(product, wide(word.width)), word)

    return types.uint64(types.uint64, types.uint64), generate


def _load(result: Any) -> Any:
    @intrinsic
    def load(context: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], context.get_value_type(result).as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return result(types.uint64, types.int64), generate

    return load


load_u1, load_u2, load_u4, load_u8 = (_load(one) for one in (types.uint8, types.uint16, types.uint32, types.uint64))


@kernel
def load_integer(address: int, index: int, width: int) -> int:
    """Element `index` of an array of unsigned integers of `width` bytes at `address`, as int64."""
    if width == 2:
        return numba.int64(load_u2(address, index))
    if width == 4:
        return numba.int64(load_u4(address, index))
    if width == 1:
        return numba.int64(load_u1(address, index))
    return numba.int64(load_u8(address, index))


@kernel
def load_bit(address: int, index: int) -> bool:
    """Element `index` of a bit array at `address`, least significant bit first."""
    return (load_u1(address, index >> 3) >> (index & 7)) & 1 != 0


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
