"""bytes -> str -> tidy str, and the name of a text. Pure functions, the same answer everywhere."""

import re
import unicodedata
from typing import Final, Literal

import xxhash

Whitespace = Literal["collapse", "keep"]
"""What becomes of white space: runs of it are one blank and lines begin without, or all of it stays."""

# No vocabulary should spend a piece on these: controls, lone surrogates (JSON can hold them, UTF-8 cannot), soft
# hyphen, zero-width space, byte order mark. Joiners stay: scripts and emoji need them. Python calls none of these
# printable.
_UNWANTED: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\ufeff\ud800-\udfff]+")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_FIRST_LINE: Final = re.compile(r"\A(?:[^\S\n]*\n)+")  # and the blank ones before it


# A character beyond U+FFFF as two halves, each in three bytes: CESU-8, and the modified UTF-8 of Java, where a NUL is
# C0 80. Neither is UTF-8, and no other text has these bytes by chance.
_HALVES: Final = re.compile(rb"\xed([\xa0-\xaf][\x80-\xbf])\xed([\xb0-\xbf][\x80-\xbf])")
_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_NUL: Final = b"\xc0\x80"


def from_cesu8(data: bytes) -> bytes:
    r"""UTF-8 of bytes in CESU-8 or modified UTF-8; other bytes stay, and a half without the other one is one byte FF.

    >>> from_cesu8(b"\xed\xa0\xbd\xed\xb8\x80") == "\U0001f600".encode(), from_cesu8(b"a\xed\xa0\xbd")
    (True, b'a\xff')
    """
    if b"\xed" not in data and _NUL not in data:
        return data
    whole = _HALVES.sub(lambda match: match[0].decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
                        .decode("utf-16-le").encode(), data)  # fmt: skip
    return _HALF.sub(b"\xff", whole).replace(_NUL, b"\0")


def decode(data: bytes) -> tuple[str, int]:
    """UTF-8 text of `data` without a byte order mark, and how many invalid sequences became U+FFFD.

    What is CESU-8 or the modified UTF-8 of Java becomes what it stands for.

    >>> decode(b"plain"), decode(b"caf\\xe9 noir")[1]
    (('plain', 0), 1)
    """
    try:
        return data.decode("utf-8-sig"), 0
    except UnicodeDecodeError:
        data = from_cesu8(data)
        text = data.decode("utf-8-sig", errors="replace")
        return text, text.count("\ufffd") - data.count(b"\xef\xbf\xbd")


def normalize(text: str, whitespace: Whitespace = "collapse") -> str:
    """NFC, no control characters, single spaces, nothing at the ends of lines, paragraphs one blank line apart.

    "keep" leaves white space as it is: indentation, tabs, runs of blanks and of lines, as in source code. Line ends are
    LF, and there are no blank lines before the first line and no white space behind the last.

    Applying it twice changes nothing.

    >>> normalize("  One\\x00\\tline.\\r\\nSame  paragraph. \\n \\n\\n\\nNext. ")
    'One line.\\nSame paragraph.\\n\\nNext.'
    >>> normalize("\\n  if a:\\r\\n\\tb  = 1\\n\\n\\n", "keep")
    '  if a:\\n\\tb  = 1'
    """
    if whitespace == "keep":
        text = _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).rstrip()
        return unicodedata.normalize("NFC", _FIRST_LINE.sub("", text))
    return _few_lines("\n".join(map(_tidy, text.splitlines())))


def single_blanks(text: str) -> str:
    """The text with its white space as `normalise` leaves it, and nothing else changed.

    >>> single_blanks(" a\\t b \\n\\n\\n\\x00c ")
    'a b\\n\\n\\x00c'
    """
    return _few_lines("\n".join(" ".join(line.split()) for line in text.splitlines()))


def _few_lines(text: str) -> str:
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip()


def _tidy(line: str) -> str:
    """A line as `normalise` makes it; most lines are that already, and each test here is faster than the repair."""
    if not line.isprintable():  # it has controls, or white space other than the space
        line = " ".join(_UNWANTED.sub("", line).split())
    elif "  " in line or line[:1] == " " or line[-1:] == " ":
        line = " ".join(line.split())
    return line if line.isascii() else unicodedata.normalize("NFC", line)


def remove_whitespace(text: str) -> str:
    """A text without white space.

    >>> remove_whitespace(" a\\n\\tb ")
    'ab'
    """
    return "".join(text.split())


def text_key(text: str) -> bytes:
    """The name of a document: xxh3-128 of its UTF-8 bytes, 16 bytes, big-endian."""
    return xxhash.xxh3_128_digest(text.encode())
