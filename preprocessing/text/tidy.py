"""Decode bytes to text, normalize text, and hash it. All functions are pure and give the same result everywhere."""

import re
import unicodedata
from typing import Final, Literal

import xxhash

from preprocessing.characters import pin_characters

Whitespace = Literal["collapse", "keep"]
"""Treatment of white space: "collapse" turns runs into one space and strips lines, "keep" preserves it."""

# Characters that no vocabulary should have: controls, lone surrogates (possible in JSON, but not in UTF-8), soft
# hyphen, zero-width space, byte order mark. `str.isprintable` is False for all of them. Joiners are not removed,
# because scripts and emoji need them.
_UNWANTED: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\ufeff\ud800-\udfff]+")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_FIRST_LINE: Final = re.compile(r"\A(?:[^\S\n]*\n)+")  # blank lines before the first line


# CESU-8 and the modified UTF-8 of Java encode a character above U+FFFF as two surrogates of three bytes each. Modified
# UTF-8 also encodes NUL as C0 80. Neither is UTF-8, and no other text has these bytes by chance.
_HALVES: Final = re.compile(rb"\xed([\xa0-\xaf][\x80-\xbf])\xed([\xb0-\xbf][\x80-\xbf])")
_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_NUL: Final = b"\xc0\x80"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def from_cesu8(data: bytes) -> bytes:
    r"""Convert CESU-8 or modified UTF-8 to UTF-8. Other bytes do not change; a lone surrogate becomes the byte FF.

    >>> from_cesu8(b"\xed\xa0\xbd\xed\xb8\x80") == "\U0001f600".encode(), from_cesu8(b"a\xed\xa0\xbd")
    (True, b'a\xff')
    """
    if b"\xed" not in data and _NUL not in data:
        return data
    whole = _HALVES.sub(lambda match: match[0].decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
                        .decode("utf-16-le").encode(), data)  # fmt: skip
    return _HALF.sub(b"\xff", whole).replace(_NUL, b"\0")


def decode(data: bytes) -> tuple[str, int]:
    """Decode UTF-8 without a byte order mark; return the text and the number of invalid sequences (U+FFFD).

    CESU-8 and the modified UTF-8 of Java are decoded too.

    >>> decode(b"plain"), decode(b"caf\\xe9 noir")[1]
    (('plain', 0), 1)
    """
    try:
        return data.removeprefix(_BYTE_ORDER_MARK).decode(), 0  # "utf-8-sig" takes ten times as long
    except UnicodeDecodeError:
        data = from_cesu8(data)
        text = data.decode("utf-8-sig", errors="replace")
        return text, text.count("\ufffd") - data.count(b"\xef\xbf\xbd")


@pin_characters
def normalize(text: str, whitespace: Whitespace = "collapse") -> str:
    """Normalize a text: NFC, no control characters, single spaces, stripped lines, single blank lines.

    "keep" preserves white space such as indentation, tabs and runs of spaces and lines, as in source code. It only
    makes line ends LF, and removes blank lines before the first line and white space after the last.

    Normalizing a text twice changes nothing.

    >>> normalize("  One\\x00\\tline.\\r\\nSame  paragraph. \\n \\n\\n\\nNext. ")
    'One line.\\nSame paragraph.\\n\\nNext.'
    >>> normalize("\\n  if a:\\r\\n\\tb  = 1\\n\\n\\n", "keep")
    '  if a:\\n\\tb  = 1'
    """
    if _is_tidy_line(text):
        return text
    if whitespace == "keep":
        text = _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).rstrip()
        return unicodedata.normalize("NFC", _FIRST_LINE.sub("", text))
    return _few_lines("\n".join(map(_tidy, text.splitlines())))


def _is_tidy_line(text: str) -> bool:
    """Whether a text is one line of ASCII to which both ways of normalization do nothing."""
    return text.isascii() and text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "


def single_blanks(text: str) -> str:
    """Normalize only the white space of a text, in the same way as `normalize`.

    >>> single_blanks(" a\\t b \\n\\n\\n\\x00c ")
    'a b\\n\\n\\x00c'
    """
    return _few_lines("\n".join(" ".join(line.split()) for line in text.splitlines()))


def _few_lines(text: str) -> str:
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip()


def _tidy(line: str) -> str:
    """Normalize a line. Most lines are normalized already, and the tests are faster than the changes."""
    if not line.isprintable():  # has control characters or white space other than spaces
        line = " ".join(_UNWANTED.sub("", line).split())
    elif "  " in line or line[:1] == " " or line[-1:] == " ":
        line = " ".join(line.split())
    return line if line.isascii() else unicodedata.normalize("NFC", line)


def remove_whitespace(text: str) -> str:
    """The text without its white space.

    >>> remove_whitespace(" a\\n\\tb ")
    'ab'
    """
    return "".join(text.split())


def text_key(text: str) -> bytes:
    """The key of a document: xxh3-128 of its UTF-8 bytes, 16 bytes, big-endian."""
    return xxhash.xxh3_128_digest(text.encode())
