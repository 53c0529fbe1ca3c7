"""Removal of transcriber's notes and italics marks from a book. For tables of contents, see book_contents.py.

Plain-text books follow conventions, but no strict rules
(https://www.pgdp.net/wiki/DP_Official_Documentation:Proofreading). Each function removes only what it recognizes with
certainty.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

_NOTE: Final = (
    r"(?:(?:the )?transcriber(?:['\u2019]?s['\u2019]?)?[ \t]+(?:end[- ]?)?notes?|errata noted by (?:the )?transcriber"
    r"|anmerkung(?:en)? (?:zur transkription|des transkribierers)|notes? (?:sur la|de(?: la)?) transcription"
    r"|notes? du transcripteur|notas? del transcriptor|notas? de (?:la )?transcripci\u00f3n|notas? do transcritor"
    r"|not[ae] del trascrittore|opmerkingen van de (?:bewerker|transcribent))"
)
_BRACKETED: Final = re.compile(
    rf"(?<![ \t])[ \t]*+\[\s*(?:\w{{1,15}}:\s*)?(?:{_NOTE}\b|transcriber\b|TN:|note project gutenberg"
    r"|project gutenberg note)",
    re.IGNORECASE,
)
_HEADED: Final = re.compile(rf"^[ \t|*_=~]*{_NOTE}[ \t*_=~]*(?:[:.|\u2014]|--|$).*\n?", re.IGNORECASE | re.MULTILINE)
_NAME_ALONE: Final = re.compile(rf"[ \t*_=~]*{_NOTE}[ \t*_=~:.]*\n?", re.IGNORECASE)
# each note contains one of these
_NOTE_WORDS: Final = ("transcri", "trascri", "transkri", "bewerker", "project gutenberg", "tn:")
_PARAGRAPH_START: Final = re.compile(r"(?:\A|\n[ \t]*\n|\n[ \t]*[+|*=~-][-+*=~ \t]{3,}\n)\Z")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t]*\n|\Z")
_BLANKS: Final = re.compile(r"\s*")
_PART_END: Final = re.compile(  # two blank lines, a horizontal rule, or a chapter heading
    r"\n(?:[ \t]*\n){2,}|\n[ \t]*(?:[-=*_~][ \t]*){5,}\n"
    r"|\n(?=[ \t]*(?:CHAPTER|BOOK|PART|ACT|SCENE) +(?:[IVXLC]+|\d+)\b)"
)
_BOX: Final = re.compile(r"(?:[ \t]*[|+].*\n)+")
_CHAPTER: Final = re.compile(r"^[ \t]*(?:CHAPTER|BOOK|PART|ACT|SCENE) +(?:[IVXLC]+|\d+)\.?[ \t]*$", re.MULTILINE)
_FRONT: Final = 20_000  # characters at the start of a file in which front matter may stand
_LONGEST: Final = 3000  # characters of a note before the book or in brackets
_LONGEST_TAIL: Final = 20_000  # characters of a list of corrections after the book

_ITALICS: Final = re.compile(
    r"(?<![^\W\d])_(?![\s_])((?:[^_\n]|\n(?![ \t]*\n))+)(?:(?<!\s)_(?!\w)|_(?=[!?.,;]))"
    r"|(?<![^\W\d])_([^\W\d_][^\s_]{0,30})_(?=[^\W\d_])"  # `_news_paper`
    r"|(?<=[^\W\d_])_([^\W\d_][^\s_]{0,30})_(?!\w)"  # `sure_ly_`
)


def without_italics(text: str) -> str:
    r"""Remove the `_` around words in italics. Blanks to fill in (`____`) and names (`a_b`) stay.

    >>> without_italics("_What_ is 2_s._ 6_d._, _my\ndear_ Mr. ____ a_b_c, _news_paper, sure_ly_?")
    'What is 2s. 6d., my\ndear Mr. ____ a_b_c, newspaper, surely?'
    """
    return _ITALICS.sub(lambda match: match[1] or match[2] or match[3], text) if "_" in text else text


def without_notes(text: str) -> str:
    r"""Remove transcriber's notes: in brackets, in a paragraph or box, and from a note after the book to the end.

    >>> without_notes("One [Transcriber's note: of?] two.\n\n[Illustration]\n\nTranscriber's Note: No change.\n\n\nI\n")
    'One two.\n\n[Illustration]\n\n\n\nI\n'
    """
    lower = text.lower()
    if not any(word in lower for word in _NOTE_WORDS):
        return text
    text = _cut(text, _find_bracketed_notes(text))
    return _cut(text, _find_headed_notes(text))


def _cut(text: str, ranges: Iterable[tuple[int, int]]) -> str:
    """Remove ranges from a text. They are in order and may overlap."""
    kept, at = [], 0
    for start, stop in ranges:
        if start >= at:
            kept.append(text[at:start])
        at = max(at, stop)
    return "".join([*kept, text[at:]])


def _find_bracketed_notes(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of notes in brackets, up to the matching closing bracket."""
    for match in _BRACKETED.finditer(text):
        depth = 0
        for bracket in re.finditer(r"[\[\]]", text[match.start() : match.start() + _LONGEST]):
            depth += 1 if bracket[0] == "[" else -1
            if not depth:
                yield match.start(), match.start() + bracket.end()
                break


def _find_headed_notes(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of notes that begin with a title such as "Transcriber's note" at the start of a paragraph."""
    for match in _HEADED.finditer(text):
        before = _PARAGRAPH_START.search(text[max(0, match.start() - 200) : match.start()])
        if not before:
            continue
        if match[0].lstrip().startswith("|"):
            box = _BOX.match(text, match.start())
            yield match.start() - len(before[0].lstrip()), box.end() if box else match.end()
        elif _is_behind(text, match):
            yield match.start(), len(text)
        else:
            yield match.start(), _end(text, match)


def _is_behind(text: str, note: re.Match[str]) -> bool:
    """Whether a note follows the book: it is near the end, set apart, and no chapter follows it."""
    near = note.start() > max(0.8 * len(text), len(text) - _LONGEST_TAIL)
    return (
        near and text.endswith(("\n\n\n", "-\n\n", "*\n\n"), 0, note.start()) and not _CHAPTER.search(text, note.end())
    )


def _end(text: str, note: re.Match[str]) -> int:
    """End of a note: before the book, the end of its section; elsewhere, the end of its paragraph."""
    body = note.end() - 1
    if _NAME_ALONE.fullmatch(note[0]) and (blanks := _BLANKS.match(text, note.end())):
        body = blanks.end()
        if _CHAPTER.match(text, body):
            return note.end()
    part = _PART_END.search(text, body, note.start() + _LONGEST) if note.start() < _FRONT else None
    if part:
        return part.end() if part[0].strip() else part.start() + 1
    paragraph = _PARAGRAPH_END.search(text, body, note.start() + _LONGEST)
    return paragraph.start() + 1 if paragraph and paragraph[0] else note.end()
