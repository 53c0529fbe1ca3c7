r"""Detect the encoding of bytes, and convert text to UTF-8. This module opens no file.

Real text is in UTF-8, in a legacy encoding (Windows-1251, GB18030, Shift-JIS, ...), in both within one file, or
damaged. UTF-8 has strict rules, so it can be verified. For other bytes, chardet guesses encodings, and each guess is
verified by decoding the bytes.
"""

import codecs
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from preprocessing.characters import get_category
from preprocessing.text import from_cesu8

MOST_LOOKED_AT: Final = 1 << 16  # bytes of lines that are not UTF-8
_BOMS: Final = {  # the mark of UTF-32 begins with that of UTF-16, so it comes first
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_ASCII: Final = bytes(range(128))
_OF_NO_FILE: Final = ("idna", "punycode", "undefined")  # Python 3.13 decodes any bytes as punycode
_ANY_BYTES: Final = bytes(range(256))
_ESCAPES: Final = re.compile(
    rb"\x1b(?:\$[@B]|\$\([A-Z]|\([BIJ])|~\{[!-w][!-~]"
)  # escape sequences of ISO-2022 and HZ, which are ASCII
_ESCAPED: Final = ("iso2022", "hz")
# fractions of the non-ASCII bytes of a file; in a legacy encoding, at most half of them are valid UTF-8 by chance
_DAMAGED: Final = 0.9  # if at least this fraction is valid UTF-8, the file is damaged UTF-8
_MIXED: Final = 0.1  # if at least this fraction is in lines of valid UTF-8, the file has two encodings

# minimum confidence of chardet to accept a result; correct results for a page of text have at least 0.25
_SURE: Final = 0.2
# minimum confidence to accept a result that is _LEAD times as likely as any encoding that gives another text
_LEAST: Final = 0.1
_LEAD: Final = 1.1
_USUAL: Final = "cp1252"  # preferred if several encodings decode the bytes to the same text
_MOST_STRANGE: Final = 0.001  # largest fraction of implausible characters in text of a verified encoding
# Encoding -> a superset of it. Software often labels text of the superset with the name of the subset.
_SUPERSETS: Final = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "shift_jis_2004": "cp932",
    "euc_kr": "cp949",
    "euc_jis_2004": "euc_jp",
    "iso2022_jp_2": "iso2022_jp",
    "iso2022_jp_2004": "iso2022_jp",
}
_LETTER: Final = "[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u052f]"  # scripts with spaces between words
_INSIDE: Final = re.compile(rf"(?<={_LETTER})[\u00a1-\u00bf\u00d7\u00f7\u2010-\u2fff](?={_LETTER})")
_TWO_SCRIPTS: Final = re.compile(
    "[A-Za-z\u00c0-\u024f][\u0370-\u06ff]|[\u0370-\u06ff][A-Za-z\u00c0-\u024f]"
)  # two scripts in one word
CESU8: Final = "cesu-8"  # Python has no codec for it
LOST: Final = b"\xff"  # replaces undecodable bytes; it is never valid UTF-8, so it becomes U+FFFD and is counted


class Encoding(NamedTuple):
    """The encoding of a file."""

    name: str  # a codec of Python; "" if unknown
    mixed: bool = False  # the file also has lines in UTF-8
    likely: tuple[str, ...] = ()  # candidates if the encoding is unknown

    def __str__(self) -> str:
        if not self.name:
            return f"unknown, perhaps {' or '.join(self.likely)}" if self.likely else "unknown"
        return f"utf-8 and {self.name}" if self.mixed else self.name


UTF8: Final = Encoding("utf-8")


def wide(start: bytes) -> str:
    """The codec of a file with this beginning if it is UTF-16 or UTF-32, with or without a byte order mark; else "".

    >>> wide("A text".encode("utf-16")), wide(b"A text"), wide(("No mark, but words. " * 9).encode("utf-32-be"))
    ('utf-16-le', '', 'utf-32-be')
    """
    if mark := next((mark for mark in _BOMS if start.startswith(mark)), b""):
        return _BOMS[mark]
    if b"\0" not in start:
        return ""
    start = start[: len(start) // 4 * 4]
    name = _guess(start)[0][0] if start else ""
    return name if name in _BOMS.values() and _is_proven(start, name) else ""


def is_cesu8(line: bytes) -> bool:
    """Whether bytes are CESU-8 or modified UTF-8: UTF-8, except that some characters are encoded as surrogates."""
    return (b"\xed" in line or b"\xc0\x80" in line) and not is_utf8(line) and is_utf8(from_cesu8(line))


def of_lines(sample: bytes) -> Encoding:
    """The encoding of a file, detected from some of its whole lines.

    >>> str(of_lines("Der Fluss ist schön, und über die alte Brücke fährt ein Zug nach München.".encode("cp1252")))
    'cp1252'
    """
    if sample.isascii() and not _has_escapes(sample):
        return UTF8
    if b"\xed" in sample or b"\xc0\x80" in sample:
        sample = b"\n".join(from_cesu8(line) if is_cesu8(line) else line for line in sample.split(b"\n"))
    lines = [line for line in sample.split(b"\n") if not line.isascii() or _has_escapes(line)]
    odd = odd_lines(sample) or (lines if sample.isascii() else [])  # HZ is all ASCII and is never mixed
    if not odd:
        return UTF8
    if all(map(bytes.isascii, odd)):
        found = _of_odd(b"\n".join(odd)[:MOST_LOOKED_AT], mixed=len(odd) < len(lines))
        return found if found.name.startswith(_ESCAPED) else UTF8
    size = sum(map(_beyond_ascii, lines))
    if size and sum(map(_in_utf8, lines)) >= _DAMAGED * size:
        return UTF8
    mixed = size - sum(map(_beyond_ascii, odd)) >= max(1, _MIXED * size)
    return _of_odd(b"\n".join(odd)[:MOST_LOOKED_AT], mixed)


def of_content(content: bytes) -> Encoding:
    r"""The encoding of a file, detected from all of its lines.

    >>> str(of_content("Der Fluss ist schön, und über die alte Brücke fährt ein Zug.\n".encode("cp1252")))
    'cp1252'
    """
    if name := wide(content[:MOST_LOOKED_AT]):
        return Encoding(name)
    found = of_lines(lines_to_look_at([content]))
    if found == UTF8 and (odd := odd_lines(content)):  # lines beyond the limit
        late = of_lines(b"\n".join(odd)[: 4 * MOST_LOOKED_AT])
        found = late if late == UTF8 else late._replace(mixed=True)
    return found


def _of_odd(lines: bytes, mixed: bool) -> Encoding:
    """The encoding of lines that are not UTF-8.

    It is the most likely one, if it is clearly ahead of all encodings that decode the lines to a different text.
    """
    if len(lines) == MOST_LOOKED_AT:
        lines = lines[: lines.rfind(b"\n") + 1] or lines
    guesses = [guess for guess in _guess(lines) if guess[0] and not guess[0].startswith(("utf-16", "utf-32"))]
    proven = [(name, confidence) for name, confidence in guesses if _is_proven(lines, name)]
    if proven and proven[0][1] >= _LEAST:
        name, confidence = proven[0]
        text = lines.decode(name, errors="replace")
        same = [other for other, _ in proven if lines.decode(other, errors="replace") == text]
        rivals = (sure for other, sure in proven if other not in same and _is_proven(lines, other, 0))
        if confidence >= min(_SURE, _LEAD * max(rivals, default=0)):
            return Encoding(_USUAL if _USUAL in same else name, mixed)
    return Encoding("", mixed, tuple(dict.fromkeys(name for name, _ in guesses))[:3])


def _guess(data: bytes) -> list[tuple[str, float]]:
    """Candidate codecs, the most likely first, each with chardet's confidence; ("", 0) if there are none."""
    import chardet  # imported here because the import takes 60 ms, and UTF-8 needs no guess

    found = chardet.detect_all(data, max_bytes=MOST_LOOKED_AT)
    return [(codec(str(each["encoding"] or "")), float(each["confidence"] or 0)) for each in found] or [("", 0.0)]


def codec(name: str) -> str:
    """Python's codec for the name of an encoding, or its usual superset; "" if Python has no such text encoding.

    >>> codec("Latin-1"), codec("GBK"), codec("x-unheard-of"), codec("rot13"), codec("idna")
    ('cp1252', 'gb18030', '', '', '')
    """
    try:
        found = codecs.lookup(name)
        if not found._is_text_encoding or found.name in _OF_NO_FILE:
            return ""
        _ANY_BYTES.decode(found.name, errors="replace")  # raises for codecs that do not decode all bytes
    except (LookupError, ValueError):
        return ""
    return _SUPERSETS.get(found.name, found.name)


def read_declared_codec(name: str, content: bytes) -> str:
    """The codec that a page or its server declares.

    Returns "" if there is no such codec, or if it is UTF-16 or UTF-32 and the bytes are not.

    >>> [read_declared_codec(name, b"<p>") for name in ("ISO-8859-2", "utf-16", "undefined")]
    ['iso8859-2', '', '']
    """
    found = codec(name)
    return "" if found.startswith(("utf-16", "utf-32")) and not wide(content[:MOST_LOOKED_AT]) else found


def is_utf8(line: bytes) -> bool:
    """Whether bytes are valid UTF-8 with a complete last character."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_escapes(data: bytes) -> bool:
    return (b"\x1b" in data or b"~{" in data) and _ESCAPES.search(data) is not None


def is_odd(line: bytes) -> bool:
    """Whether a line is not UTF-8 text: it cannot be decoded, or contains an escape sequence of ISO-2022."""
    return b"\x1b" in line and _has_escapes(line) if line.isascii() else not is_utf8(line)


def odd_lines(block: bytes) -> list[bytes]:
    """The lines of a block that are not UTF-8 text."""
    if is_utf8(block) and b"\x1b" not in block:
        return []
    return [line for line in block.split(b"\n") if is_odd(line)]


def _beyond_ascii(line: bytes) -> int:
    return len(line.translate(None, _ASCII))


def _in_utf8(line: bytes) -> int:
    """The number of bytes in a line that belong to valid non-ASCII characters of UTF-8."""
    return _beyond_ascii(line.decode(errors="ignore").encode())


def _is_proven(data: bytes, name: str, most: float = _MOST_STRANGE) -> bool:
    """Whether bytes decode to plausible text.

    Plausible text has almost no undecodable or unassigned characters, and almost no symbols inside words.
    """
    text = data.decode(name, errors="replace")
    return _strange(text) <= most * len(text) + (most > 0)


def _strange(text: str) -> int:
    """The number of implausible characters: unassigned characters, symbols inside words, words of two scripts."""
    found = sum(text.count(char) for char in set(text) if _is_strange(char))
    inside = sum(_is_sign(match[0]) for match in _INSIDE.finditer(text))
    return found + inside + len(_TWO_SCRIPTS.findall(text))


@lru_cache(maxsize=4096)
def _is_strange(char: str) -> bool:
    if char in "\t\n\r\f\v\x1b\x85":
        return False
    return char == "\ufffd" or "\u2500" <= char <= "\u259f" or get_category(char) in ("Cc", "Co", "Cn", "Cs")


def _is_sign(char: str) -> bool:
    """Whether a character is a symbol that does not occur inside words; apostrophes, hyphens and vowel signs do."""
    return get_category(char) in ("Sm", "Sc", "So", "No", "Ps", "Pe", "Pi", "Po") and char not in "\u00b7\u2018\u2026"


def to_utf8(line: bytes, encoding: Encoding) -> bytes:
    r"""Convert a line of a file in this encoding to UTF-8; each undecodable sequence becomes the byte 0xFF.

    >>> to_utf8("naïve".encode("cp1252"), Encoding("cp1252")).decode(), to_utf8(b"a\x81", Encoding("cp1252"))
    ('naïve', b'a\xff')
    """
    if is_cesu8(line):
        return from_cesu8(line)
    if encoding.name in ("", "utf-8") or (encoding.mixed and not is_odd(line)):
        return line
    text = line.decode(encoding.name, errors="replace")
    return LOST.join(part.encode(errors="replace") for part in text.split("\ufffd"))


def whole_lines(block: bytes, first: bool) -> bytes:
    """A block of a file without the incomplete lines at its ends; the whole block if it has no line end."""
    start = 0 if first else block.find(b"\n") + 1
    return block[start : block.rfind(b"\n") + 1] or block


def lines_to_look_at(blocks: Iterable[bytes]) -> bytes:
    """The lines that help to detect the encoding, non-ASCII or with escape sequences, up to a limit of bytes."""
    found, size = list[bytes](), 0
    for block in blocks:
        if block.isascii() and not _has_escapes(block):
            continue
        for line in block.split(b"\n"):
            if not line.isascii() or _has_escapes(line):
                found.append(line)
                size += len(line)
                if size >= 4 * MOST_LOOKED_AT:
                    return b"\n".join(found)
    return b"\n".join(found)
