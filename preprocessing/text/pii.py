"""Masking of what points at a person or a machine: e-mail addresses, IPv4 addresses, telephone numbers.

A placeholder is of the kind that it stands for, out of what is reserved for examples: any tokenizer reads it, no markup
enters the text, and masking twice changes nothing.
"""

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from phonenumbers import PhoneNumberMatcher

EMAIL: Final = "name@example.com"  # RFC 2606, section 3
IP: Final = "192.0.2.1"  # RFC 5737, section 3
PHONE: Final = "+1 202 555 0100"  # 555-0100 to 555-0199 are kept for fiction

Edits = list[tuple[int, int, int]]
"""Ranges [start, stop) of a text that are replaced, in order, and how many characters each of them becomes."""


class _Mask(NamedTuple):
    placeholder: str
    hint: re.Pattern[str]  # is in every text that has a match, and fast to look for
    pattern: re.Pattern[str]
    span: Callable[[re.Match[str]], tuple[int, int] | None]  # what the placeholder replaces, of a match


def mask_pii(text: str, kinds: Sequence[str], edits: list[Edits] | None = None) -> tuple[str, int]:
    """The text with placeholders for the kinds ("email", "ip", "phone") that are asked for, and how many.

    `edits` gets what each pass over the text replaces (phrases.py moves spans along).

    email: as people write them, in any script. ip: global addresses only, since private, local and reserved ones point
    at nobody; four numbers behind a word such as "version" are none. phone: international numbers with a +, numbers
    written as in North America, both checked by phonenumbers, and any 7 to 15 digits behind "Tel.:" and such.

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
    return None if is_version or not IPv4Address(match[0]).is_global else match.span()


def _if_in_use(match: re.Match[str]) -> tuple[int, int] | None:
    """The part of the match that is a number which a country gives out; a national one is read as of North America."""
    for number in PhoneNumberMatcher(match[0], "US"):
        return match.start() + number.start, match.start() + number.end
    return None


def _if_enough_digits(match: re.Match[str]) -> tuple[int, int] | None:
    num_digits = sum(map(str.isdigit, match[1]))
    return match.span(1) if 7 <= num_digits <= 15 else None  # ITU-T E.164: up to 15


_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_VERSION: Final = re.compile(r"(?:version|release|build|firmware|section|chapter|\bv\.?)\s?\Z", re.IGNORECASE)
_DIGITS: Final = r"\(?[0-9][0-9 ()./-]{5,18}[0-9](?![\w-])"

_MASKS: Final = {
    "email": (
        _Mask(
            EMAIL,
            re.compile("@"),
            # RFC 5321, 4.5.3.1: 64 characters before the @, and 63 in a label; bounds also keep the search linear
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
            # the look-behind +1 spares the placeholder of the mask before
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
