"""Operations that numba lacks: a 128-bit product, and reads by address."""

from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic

from preprocessing.jit import kernel


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
