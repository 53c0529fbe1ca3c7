"""str -> str: repair, tidy, split into sentences. Pure functions, no model, the same answer everywhere."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import xxhash

# No vocabulary should spend a piece on these: controls, lone surrogates (JSON can hold them, UTF-8 cannot), soft
# hyphen, zero-width space, byte order mark. Joiners stay: scripts and emoji need them. Python calls none of these
# printable.
_UNWANTED: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\ufeff\ud800-\udfff]+")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_LINE_END: Final = re.compile(r"(?<!\n)(?=\n)")
_LONGEST: Final = 10_000  # characters of a sentence; tables and program code can go on for ever

_ABBREVIATIONS: Final = """
    Adm Brig Bros Capt Cmdr Co Col Corp DR Dr Eq Eqs Esq Fig Figs Fr Ft Gen Gov Hon Inc Jr Lt Ltd MR MRS Maj Messrs Mlle
    Mme Mr Mrs Ms Mt Mts Prof Rep Rev ST Sec Sen Sgt Sr St Ste Vol Vols al approx ca cf e.g eg eq eqs esp fig figs i.e
    resp sec viz vol vols vs
"""
_BEFORE_NUMBERS: Final = "Apr Art Aug Ch Dec Feb Jan Jul Jun Mar No Nos Nov Oct Sep Sept art c ch no nos p par pp ver"


def _not_after(words: str, then: str = "") -> str:
    """A pattern that fails after any of the words with its full stop; a look-behind has one width, so one for each."""
    by_width = groupby(sorted(words.split(), key=len), key=len)
    return "".join(rf"(?<!\b(?:{'|'.join(map(re.escape, same))})\.{then})" for _, same in by_width)


_CJK: Final = "\u3002\uff01\uff1f\uff61"
_MARK: Final = f".!?\u2026{_CJK}"
_OPENING: Final = "\"'\u2018\u201c\u300a\u300c\u300e\u3010\uff08(\\["
_CLOSING: Final = "\"'\u2019\u201d\u300b\u300d\u300f\u3011\uff09)\\]"
_LOWER: Final = "a-z\u00df-\u00f6\u00f8-\u00ff\u03b1-\u03c9\u0430-\u044f"  # Latin, Greek, Cyrillic

# Where a sentence of normalised text ends. The pattern begins with one set of characters, by which `re` skips most of
# the text, looks on only at the first mark of a run and never steps back: a million full stops cost no more than prose.
_END: Final = re.compile(
    rf"""
    [{_MARK}\n](?:
        (?<=\n)(?=\n)                                           # a blank line, or
      | (?<!\n)(?<![{_MARK}][{_MARK}])(?:                       # the first of some marks:
            [{_MARK}]*+[{_CLOSING}]*+
            (?=[ \n][{_OPENING}]*+[^\W_{_LOWER}])               #   before white space and a capital or a digit,
            (?<!(?<![\w\u00b0])[A-HJ-Zv]\.)                     #   not after an initial (a temperature is none) or v.
            (?<!^\d\.)(?<!^\d\d\.)                               #   or the number of a list item
            {_not_after(_ABBREVIATIONS)}{_not_after(_BEFORE_NUMBERS, then="(?=[ ][0-9])")}
          | (?<=[{_CJK}])[{_MARK}]*+[{_CLOSING}]*+(?=[^\W_])    #   or Chinese and Japanese, before a letter
        )
    )""",
    re.MULTILINE | re.VERBOSE,
)


def decode(data: bytes) -> tuple[str, int]:
    """UTF-8 text of `data` without a byte order mark, and how many invalid sequences became U+FFFD.

    >>> decode(b"plain"), decode(b"caf\\xe9 noir")[1]
    (('plain', 0), 1)
    """
    try:
        return data.decode("utf-8-sig"), 0
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", errors="replace")
        return text, text.count("\ufffd") - data.count(b"\xef\xbf\xbd")


def normalise(text: str) -> str:
    """NFC, no control characters, single spaces, nothing at the ends of lines, paragraphs one blank line apart.

    Applying it twice changes nothing.

    >>> normalise("  One\\x00\\tline.\\r\\nSame  paragraph. \\n \\n\\n\\nNext. ")
    'One line.\\nSame paragraph.\\n\\nNext.'
    """
    text = "\n".join(map(_tidy, text.splitlines()))
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip()


def _tidy(line: str) -> str:
    """A line as `normalise` wants it; most lines are that already, and each test here is faster than the repair."""
    if not line.isprintable():  # it has controls, or white space other than the space
        line = " ".join(_UNWANTED.sub("", line).split())
    elif "  " in line or line[:1] == " " or line[-1:] == " ":
        line = " ".join(line.split())
    return line if line.isascii() else unicodedata.normalize("NFC", line)


def sentences(text: str) -> list[str]:
    """The sentences of a normalised text, each with the white space before it: joined they are the text again.

    Cuts lie before white space, or between a CJK mark and a letter, which is where GPT-2's pattern cuts too: byte BPE
    of the sentences is byte BPE of the text. Blank lines always cut; abbreviations, initials and list numbers do not.
    What runs on for more than 10,000 characters is cut before the last white space that there is, else anywhere.

    >>> sentences('Dr. Who saw J. R. Smith. "Why?" he said.\\n\\nNo. 5 lives')
    ['Dr. Who saw J. R. Smith.', ' "Why?" he said.', '\\n\\nNo. 5 lives']
    """
    ends = [match.start() if match[0] == "\n" else match.end() for match in _END.finditer(text)]
    return _bounded([text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end])


def lines_as_sentences(text: str) -> list[str]:
    """The lines of a normalised text that have text, each with the line ends before it: joined they are the text again.

    >>> lines_as_sentences("One.\\nTwo? Still two.\\n\\nThree.")
    ['One.', '\\nTwo? Still two.', '\\n\\nThree.']
    """
    return _bounded([line for line in _LINE_END.split(text) if line])


def _bounded(pieces: list[str]) -> list[str]:
    """The pieces, with those that are too long cut up."""
    if max(map(len, pieces), default=0) <= _LONGEST:
        return pieces
    return [part for piece in pieces for part in _parts(piece)]


def _parts(piece: str) -> Iterator[str]:
    start = 0
    while len(piece) - start > _LONGEST:
        reach = start + _LONGEST
        blank = max(piece.rfind(mark, start + 1, reach + 1) for mark in " \n")
        end = blank if blank > start else reach
        yield piece[start:end]
        start = end
    yield piece[start:]


def text_key(text: str) -> bytes:
    """The name of a document: xxh3-128 of its UTF-8 bytes, 16 bytes, big-endian."""
    return xxhash.xxh3_128_digest(text.encode())
