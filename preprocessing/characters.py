"""Classes of characters in one version of Unicode, so that a corpus has the same bytes with every version of Python.

Python 3.11 has the tables of Unicode 14.0, 3.12 those of 15.0, 3.13 those of 15.1 and 3.14 those of 16.0. Versions
differ in new characters only: Unicode changes neither the letters, digits, case and composition of an assigned
character nor white space. So a character that is newer than 14.0 is unassigned here: `get_category` returns "Cn", and
`pin_characters` replaces it while a function runs, with a character that no version assigns.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, wraps
from itertools import count
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

UNICODE: Final = "14.0.0"
"""The version of Unicode whose classes of characters all of Sesame uses."""

# Characters of Unicode 15.0 to 16.0, as ranges of code points. First letters, digits and all that normal forms reorder
# or compose: these change what `\w`, `str.lower` and `unicodedata.normalize` do. Then marks, symbols and punctuation,
# which only `unicodedata.category` distinguishes from unassigned characters.
_LATER: Final = (
    "897 1c89-1c8a a7cb-a7cd a7da-a7dc 105c0-105f3 10d40-10d65 10d69-10d6d 10d6f-10d85 10ec2-10ec4 10efd-10eff "
    "1123f-11240 11380-11389 1138b 1138e 11390-113b5 113b7 113c5 113c7-113c8 113ce-113d1 113d3 116d0-116e3 "
    "11bc0-11be0 11bf0-11bf9 11f02 11f04-11f10 11f12-11f33 11f41-11f42 11f50-11f59 1342f 13441-13446 13460-143fa "
    "16100-1611d 16121-16128 1612f-16139 16d40-16d6c 16d70-16d79 18cff 1b132 1b155 1ccf0-1ccf9 1d2c0-1d2d3 "
    "1df25-1df2a 1e030-1e06d 1e08f 1e4d0-1e4f9 1e5d0-1e5fa 2b739 2ebf0-2ee5d 31350-323af"
)
_LATER_SYMBOLS: Final = (
    "cf3 ece 1b4e-1b4f 1b7f 2427-2429 2ffc-2fff 31e4-31e5 31ef 10d6e 10d8e-10d8f 10efc 11241 113b8-113c0 113c2 "
    "113c9-113ca 113cc-113cd 113d2 113d4-113d5 113d7-113d8 113e1-113e2 11b00-11b09 11be1 11f00-11f01 11f03 "
    "11f34-11f3a 11f3e-11f40 11f43-11f4f 11f5a 13439-13440 13447-13455 1611e-16120 16129-1612e 16d6d-16d6f "
    "1cc00-1ccef 1cd00-1ceb3 1e5ff 1f6dc 1f774-1f776 1f77b-1f77f 1f7d9 1f8b2-1f8bb 1f8c0-1f8c1 1fa75-1fa77 "
    "1fa87-1fa89 1fa8f 1faad-1faaf 1fabb-1fabf 1fac6 1face-1facf 1fada-1fadc 1fadf 1fae8-1fae9 1faf7-1faf8 "
    "1fbcb-1fbef"
)
_NARROW: Final = "\u0897\u1c89\u1c8a\ua7cb\ua7cc\ua7cd\ua7da\ua7db\ua7dc"  # those of _LATER below U+10000
_CHANGED: Final = {"\U0001171e": "Mn"}  # the category of an assigned character that 16.0 changed
_FIRST_STAND_IN: Final = 0xB0000  # in planes that no version of Unicode uses
_STAND_IN: Final = re.compile("[\U000b0000-\U000dffff]")


def is_pinned() -> bool:
    """Whether Python's own tables are those of the pinned version, so that nothing needs to be replaced."""
    return unicodedata.unidata_version == UNICODE


def get_category(char: str) -> str:
    r"""The general category of a character in Unicode 14.0.

    >>> get_category("a"), get_category("\u0ece"), get_category("\U0001e030")  # the last two are newer
    ('Ll', 'Cn', 'Cn')
    """
    if is_pinned():
        return unicodedata.category(char)
    return "Cn" if char in _later() else _CHANGED.get(char) or unicodedata.category(char)


def pin_characters(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    r"""Decorate a function of a text: it treats characters that are newer than Unicode 14.0 as unassigned.

    The function receives the text with other characters in their place, as many. In the strings, lists and tuples that
    it returns, the original characters are back. With Python 3.11 this is the function itself.

    >>> pin_characters(str.split)("a \U0001e030 b"), pin_characters(str.isalpha)("\U0001e030")
    (['a', '\U0001e030', 'b'], False)
    """
    if is_pinned():
        return function

    @wraps(function)
    def call_pinned(text: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not _has_later(text):
            return function(text, *args, **kwargs)
        stand_ins = _choose_stand_ins(text)
        originals = {after: before for before, after in stand_ins.items()}
        found = function(_later_pattern().sub(lambda char: stand_ins[char[0]], text), *args, **kwargs)
        return cast(T, _restore(found, originals))

    return call_pinned


def _has_later(text: str) -> bool:
    """Whether a text has a letter, digit or composing mark that is newer than the pinned version.

    Nearly all of them are above U+FFFF, where UTF-16 needs two units. To compare sizes is 14 times as fast as a search.
    """
    if text.isascii():
        return False
    is_wide = len(text.encode("utf-16-le", "surrogatepass")) > 2 * len(text)
    if not is_wide and not any(char in text for char in _NARROW):
        return False
    return _later_pattern().search(text) is not None


def _choose_stand_ins(text: str) -> dict[str, str]:
    """An unassigned character that the text does not contain, for each newer character of the text."""
    known = set(text)
    unused = (char for char in map(chr, count(_FIRST_STAND_IN)) if char not in known)
    return dict(zip(sorted(set(_later_pattern().findall(text))), unused, strict=False))


def _restore(found: Any, originals: dict[str, str]) -> Any:
    if isinstance(found, str):
        return _STAND_IN.sub(lambda char: originals.get(char[0], char[0]), found)
    if isinstance(found, list | tuple):
        return type(found)(_restore(each, originals) for each in found)
    return found


def _codes(ranges: str) -> Iterator[int]:
    """The code points of ranges.

    >>> list(_codes("61-63 7a"))
    [97, 98, 99, 122]
    """
    for each in ranges.split():
        first, _, last = each.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


@cache
def _later() -> frozenset[str]:
    return frozenset(map(chr, _codes(f"{_LATER} {_LATER_SYMBOLS}")))


@cache
def _later_pattern() -> re.Pattern[str]:
    runs = (run.partition("-") for run in _LATER.split())
    return re.compile(f"[{''.join(f'{chr(int(first, 16))}-{chr(int(last or first, 16))}' for first, _, last in runs)}]")
