# ruff: noqa: RUF001
"""Removal of the table of contents of a book.

A table of contents is a heading and at least three entries. An entry begins with a number or "Chapter", or ends with a
page number, or occurs elsewhere in the book, as a heading. The table ends before the first heading of the text, which
is a line that repeats an entry.
"""

import re
from collections import Counter
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

_HEADING: Final = re.compile(
    r"^[ \t]*[*_=]{0,2}(?:(?:the |table of )?contents(?:(?:,| of| to)? (?:the )?vol(?:ume|\.).{0,30})?"
    r"|table des (?:matières|chapitres)|inhalt(?:s-?verzeichnis|s-?übersicht)?|inhoud(?:sopgave)?|[íi]ndice|contenido"
    r"|conteúdo|sisäll(?:ys|ysluettelo)|sisältö|innehåll|indhold|innhold|tartalom|enhavo|spis (?:treści|rzeczy)|obsah"
    r"|содержание|оглавление|περιεχομενα)[.:]?[*_=]{0,2}[ \t]*\n(?=\s*(?-i:[^\sa-z]))",
    re.IGNORECASE | re.MULTILINE,
)
_PART: Final = (
    r"book|part|volume|vol\.|canto|act|scene|letter|section|epoch|phase|livre|partie|tome|buch|teil|band|libro|parte"
    r"|deel|osa|boek"
)
_CHAPTER: Final = r"chapter|chap\.|chapitre|kapitel|cap[ií]tulo|capitolo|hoofdstuk|luku|rozdział|глава"
_ORDINAL: Final = (
    r"first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve|last|premi(?:er|ère)|deuxième|erste[rs]?|zweite[rs]?|dritte[rs]?"
)
_NUMERAL: Final = r"[IVXLC]+|[ivxlc]+(?=[.)])|\d{1,3}"
_NUMBERED: Final = re.compile(
    rf"(?:(?P<part>(?i:{_PART}))[ .]+(?i:the )?(?P<of_part>(?i:{_ORDINAL})|{_NUMERAL})\b"
    rf"|(?i:{_CHAPTER})[ .]+(?i:the )?(?P<of_chapter>(?i:{_ORDINAL})|{_NUMERAL})\b"
    rf"|(?P<alone>{_NUMERAL})(?:[.:)—-]|(?=\s+[^a-z\s'\"‘“])|$))[.:)—,;\s-]*"
)
_PAGE: Final = re.compile(r"(?:\s{2,}|[ .…]{3,}|\t)(?:\d{1,4}|[ivxlc]{1,7})\.?$|,? [IVXLC]+-[IVXLC]+$")
_HEADER: Final = re.compile(r"(?:chap(?:ter|\.)?s?|page|pag\.?|bladz\.?|seite|facing|\s)+$", re.IGNORECASE)
_LONGEST: Final = 60_000  # characters
_FRONT_SHARE: Final = 0.2  # headings are searched for in the first 20 % of the book, and in the last 15 %
_TRIES: Final = 8  # headings tried at each end of the book
_LONGEST_ENTRY: Final = 100  # characters of an entry
_LONG: Final = 40  # characters; a line at least this long may continue on the next one
_FEWEST_ENTRIES: Final = 3  # entries
_MOST_HEADINGS: Final = 2  # entries at the end of a table that may be headings of the text
_MOST_OTHERS: Final = 3  # maximum number of consecutive lines that do not look like entries


class _Book(NamedTuple):
    text: str
    lines: Counter[str]  # number of occurrences of each short line, as normalized by `_key`


def without_contents(text: str) -> str:
    r"""Remove tables of contents at the start and the end of a book. Anything uncertain is kept.

    >>> text = "BOOK\n\nCONTENTS\n\nI. One   1\nII. Two   9\nIII. Three   20\n\n\n\nI. One\n\nIt was.\n"
    >>> without_contents(text)
    'BOOK\n\n\n\n\nI. One\n\nIt was.\n'
    """
    kept, at = [], 0
    for start, stop in _pages(text):
        kept.append(text[at:start])
        at = stop
    return "".join([*kept, text[at:]])


def _pages(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of the tables of contents, in order."""
    book, at = None, 0
    headings = [heading for heading in _HEADING.finditer(text) if not _FRONT_SHARE < heading.start() / len(text) < 0.85]
    for heading in (*headings[:_TRIES], *headings[_TRIES:][-_TRIES:]):
        if heading.start() < at:
            continue
        in_front = heading.start() < 0.5 * len(text)
        book = book or _Book(text, Counter(map(_key, _short_lines(text))))
        at = _stop(book, heading.start(), heading.end(), in_front)
        if at:
            yield heading.start(), at


def _stop(book: _Book, heading: int, start_of_entries: int, in_front: bool) -> int:
    """Position of the end of the entries under a heading; 0 if there is no table."""
    titles = frozenset(map(_key, _short_lines(book.text[:heading]))) if in_front else frozenset[str]()
    seen, stops, paged, at = set[str](), list[int](), 0, start_of_entries
    others, non_entries, blank, before = 0, 0, 0, ""
    for line in book.text[start_of_entries : start_of_entries + _LONGEST].splitlines(keepends=True):
        at, plain = at + len(line), line.strip()
        if not plain:
            blank, before = blank + 1, ""
            continue
        continues = _indent(line) > _indent(before) > -1  # the line continues the previous entry
        titles_above = seen | titles if len(stops) >= _FEWEST_ENTRIES else seen
        if stops and (blank > 2 or (not continues and _is_heading(plain, titles_above))):
            break
        if len(plain) > _LONGEST_ENTRY or non_entries == _MOST_OTHERS:
            # the text has begun: the last entries may be its headings
            stops = stops[:paged] if paged else stops[:-_MOST_HEADINGS]
            break
        if continues and stops and stops[-1] == at - len(line):
            stops[-1] = at
        elif _is_entry(plain, book.lines):
            stops, others, non_entries = [*stops, at], others + non_entries, 0
            paged = len(stops) if _PAGE.search(plain) else paged
        elif len(before.strip()) < _LONG and not _HEADER.match(plain):
            non_entries += 1
        seen.update(_names(plain))
        before, blank = line, 0
    else:
        if at < len(book.text):
            return 0
    return stops[-1] if len(stops) >= _FEWEST_ENTRIES and len(stops) >= others else 0


def _indent(line: str) -> int:
    """Number of blanks at the start of a line; -1 for an empty string."""
    return len(line) - len(line.lstrip(" \t")) if line else -1


def _is_entry(line: str, lines: Counter[str]) -> bool:
    """Whether a line looks like an entry: it has a number, or the same line occurs elsewhere in the book."""
    if _PAGE.search(line) or _NUMBERED.match(line):
        return True
    return line[-1] not in ",;" and len(_key(line)) > 2 and lines[_key(line)] > 1


def _is_heading(line: str, titles_above: Set[str]) -> bool:
    """Whether a line repeats an entry or the title of the book. If so, the text of the book begins here."""
    if _PAGE.search(line) or _HEADER.match(line):
        return False
    match = _NUMBERED.match(line)
    if match and match.end() == len(line):  # a number alone
        return _number(match) in titles_above
    return _key(line) in titles_above


def _names(line: str) -> Iterator[str]:
    """Parts of an entry that a heading may repeat: the whole line, its number, its title."""
    yield _key(line)
    if match := _NUMBERED.match(line):
        yield _number(match)
        if match.end() < len(line):
            yield _key(line[match.end() :])


def _number(match: re.Match[str]) -> str:
    """The number of a chapter or part, prefixed with # so that it differs from any title.

    >>> [_number(_NUMBERED.match(line)) for line in ("CHAPTER IV.", "IV. A Walk", "Part II")]
    ['#iv', '#iv', '#part ii']
    """
    part = match["part"]
    number = match["of_part"] or match["of_chapter"] or match["alone"]
    return f"#{part} {number}".casefold() if part else f"#{number}".casefold()


def _short_lines(text: str) -> Iterator[str]:
    """The lines that are short enough to be headings."""
    return (line for line in text.splitlines() if len(line) <= _LONGEST_ENTRY)


def _key(line: str) -> str:
    """A normalized line for comparisons: letters and digits in lower case, without the page number."""
    return "".join(filter(str.isalnum, _PAGE.sub("", line.strip()))).casefold()
