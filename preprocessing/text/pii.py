"""Mask e-mail addresses, IPv4 addresses and telephone numbers.

A placeholder is an address or number that is reserved for examples. So it needs no special token and no markup, and
masking a text twice changes nothing.
"""

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from preprocessing.characters import pin_characters

EMAIL: Final = "name@example.com"  # RFC 2606, section 3
IP: Final = "192.0.2.1"  # RFC 5737, section 3
PHONE: Final = "+1 202 555 0100"  # 555-0100 to 555-0199 are reserved for fiction

# IANA's special-purpose addresses. `IPv4Address.is_global` differs between patch releases of Python.
_SPECIAL: Final = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/29 192.0.0.170/31 "
    "192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"
)
_NOT_GLOBAL: Final = tuple(map(IPv4Network, _SPECIAL.split()))

Edits = list[tuple[int, int, int]]
"""The replaced ranges [start, stop) of a text in order, each with the length of its replacement."""


class _Mask(NamedTuple):
    placeholder: str
    hint: re.Pattern[str]  # fast to search; every text with a match of `pattern` matches it
    pattern: re.Pattern[str]
    span: Callable[[re.Match[str]], tuple[int, int] | None]  # the range of a match to replace; None to keep it


@pin_characters
def mask_pii(text: str, kinds: Sequence[str], edits: list[Edits] | None = None) -> tuple[str, int]:
    """Replace the given kinds ("email", "ip", "phone") by placeholders; return the text and the number of replacements.

    The replaced ranges of each pass over the text are appended to `edits` (phrases.py moves spans with them).

    email: addresses in any script. ip: only global addresses, because private, local and reserved ones identify nobody;
    four numbers after a word such as "version" are not an address. phone: international numbers with a +, and numbers
    in the format of North America, both verified by phonenumbers; also any 7 to 15 digits after "Tel.:" or similar.

    >>> mask_pii("Write to jo.doe@mail.org, 8.8.8.8, or call (415) 392-7711.", ("email", "ip", "phone"))
    ('Write to name@example.com, 192.0.2.1, or call +1 202 555 0100.', 3)
    """
    count = 0
    for mask in (mask for kind in kinds for mask in _MASKS[kind]):
        if mask.hint.search(text):
            text, replaced = _put(mask, text)
            count += len(replaced)
            if edits is not None and replaced:
                edits.append(replaced)
    return text, count


def _put(mask: _Mask, text: str) -> tuple[str, Edits]:
    parts, done, replaced = list[str](), 0, Edits()
    for match in mask.pattern.finditer(text):
        start, stop = mask.span(match) or (done, done)
        if start < stop and text[start:stop] != mask.placeholder:
            parts += (text[done:start], mask.placeholder)
            done = stop
            replaced.append((start, stop, len(mask.placeholder)))
    return "".join((*parts, text[done:])), replaced


def _if_global(match: re.Match[str]) -> tuple[int, int] | None:
    is_version = _VERSION.search(match.string, max(match.start() - 10, 0), match.start())
    return None if is_version or not _is_global(match[0]) else match.span()


def _is_global(address: str) -> bool:
    return not any(IPv4Address(address) in network for network in _NOT_GLOBAL)


def _if_in_use(match: re.Match[str]) -> tuple[int, int] | None:
    """The range of a number that a country assigns; numbers without a country code are read as North American."""
    from phonenumbers import PhoneNumberMatcher  # 0.05 s, which most processes do not need

    for number in PhoneNumberMatcher(match[0], "US"):
        return match.start() + number.start, match.start() + number.end
    return None


def _if_enough_digits(match: re.Match[str]) -> tuple[int, int] | None:
    num_digits = sum(map(str.isdigit, match[1]))
    return match.span(1) if 7 <= num_digits <= 15 else None  # ITU-T E.164 allows up to 15


_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_VERSION: Final = re.compile(r"(?:version|release|build|firmware|section|chapter|\bv\.?)\s?\Z", re.IGNORECASE)
_DIGITS: Final = r"\(?[0-9][0-9 ()./-]{5,18}[0-9](?![\w-])"

_MASKS: Final = {
    "email": (
        _Mask(
            EMAIL,
            re.compile("@"),
            # RFC 5321, 4.5.3.1: 64 characters before the @ and 63 in a label; these limits also make the search linear
            re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@(?:\w[\w-]{0,62}\.){1,8}[^\W\d_]{2,24}(?![\w@])"),
            re.Match.span,
        ),
    ),
    "ip": (
        _Mask(
            IP,
            re.compile(r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]"),
            re.compile(rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\w)"),
            _if_global,
        ),
    ),
    "phone": (
        _Mask(
            PHONE,
            re.compile(r"\+[1-9]"),
            re.compile(r"(?<![\w+])\+[1-9][0-9 ().\-/]{5,22}[0-9](?![\w-])"),
            _if_in_use,
        ),
        _Mask(
            PHONE,
            # the look-behind for +1 excludes the placeholder of the previous mask
            re.compile(r"[2-9][0-9]{2}[ .)-] ?[2-9][0-9]{2}[ .-][0-9]{4}"),
            re.compile(
                r"(?<![\w.+-])(?<!\+1 )(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])"
                r"[2-9][0-9]{2}[ .-][0-9]{4}(?![\w-])"
            ),
            _if_in_use,
        ),
        _Mask(
            PHONE,
            re.compile(rf"[.:] ?{_DIGITS}"),
            re.compile(rf"(?i:phone|fax|\btel|\bmobile|\bwhatsapp)(?: (?:no|number))?[.:]{{1,2}} ?({_DIGITS})"),
            _if_enough_digits,
        ),
    ),
}
