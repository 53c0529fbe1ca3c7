"""str -> sentences. No model, the same answer everywhere."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

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
