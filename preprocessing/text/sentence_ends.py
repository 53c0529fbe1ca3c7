"""Split text into sentences without a model, with the same result everywhere.

The sentence marks are those of Unicode (UAX 29). Rules per language decide whether a full stop ends a sentence.
"""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate, groupby
from typing import Final

from preprocessing.characters import get_category, pin_characters
from preprocessing.text.abbreviations import ANYWHERE, BEFORE_NUMBERS, COMMON_WORDS, ONLY_IN, ORDINALS, WITHOUT_MARKS
from preprocessing.text.tidy import single_blanks

_LINE_END: Final = re.compile(r"(?<!\n)(?=\n)")
_LAYOUT: Final = ("  ", "\t", "\x0b", "\x0c", "\xa0", "\u3000")  # and spaces around line ends
_LONGEST: Final = 10_000  # maximum characters of a sentence; tables and program code may have no sentence ends

# The classes of marks: full stops, and all characters with Sentence_Break = STerm in Unicode except Burmese commas.
_SOFT: Final = ".!?\u2026\u203c\u203d\u2047-\u2049"  # do not end a sentence before a lower-case letter
_CJK: Final = "\u3002\uff01\uff1f\uff61\ufe12\ufe15\ufe16\ufe56\ufe57"  # end a sentence without a following space
_FULL_WIDTH_STOP: Final = "\uff0e"
_TIBETAN: Final = "\u0f0d\u0f0e"
_HARD: Final = (
    f"{_TIBETAN}\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104b\u1362\u1367\u1368\u166e"
    "\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f"
    "\u1c3b\u1c3c\u1c7e\u1c7f\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\u2e60\u2e61\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877"
    "\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb"
)
_HARD_BEYOND: Final = (
    "\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1"
    "\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c"
    "\U000112a9\U000113d4\U000113d5\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642"
    "\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7"
    "\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016d6e\U00016d6f"
    "\U00016e98\U0001bc9f\U0001da88"
)
_AROUND_BEYOND: Final = "\U00010a56-\U0001da88"  # one range that contains them all: a search for it is faster
_MARK: Final = f"{_SOFT}{_CJK}{_FULL_WIDTH_STOP}{_HARD}"
_CJK_OPENING: Final = "\u2018\u201c\u3008\u300a\u300c\u300e\u3010\u3014\uff08"
_CJK_CLOSING: Final = "\"'\u2019\u201d\u3009\u300b\u300d\u300f\u3011\u3015\uff09)\\]"
_DASH: Final = "\\-\u2013\u2014"
_BULLET: Final = "*\u2022\u2023\u25aa\u25cf\u25e6"
_LABEL: Final = f"(?:[{_BULLET}]|[a-z]\\)|[ivx]{{2,4}}\\)|[0-9]{{1,2}}\\))"  # start of a list item
_OPENING: Final = f"\"'`(\\[\u00ab\u00bb\u2039\u203a\u201a\u201e\u00bf\u00a1{_CJK_OPENING}{_BULLET}{_DASH}"
_CLOSING: Final = f"{_CJK_CLOSING}\u00bb\u203a\u201c\u2018"
_ARMENIAN: Final = "\u0531-\u0556\u0561-\u0587"
_HEBREW_TO_SINHALA: Final = "\u05d0-\u0dff"  # scripts with spaces between words and without capitals
_UNMARKED: Final = {code: script for code, (_, script) in WITHOUT_MARKS.items()}  # sentences end at spaces
_LONE_LATIN: Final = "a-z\u00df-\u00f6\u00f8-\u017e"  # single lower-case letters that abbreviate a word
_LONE_CYRILLIC: Final = "\u0430-\u044e\u0450-\u045f"
_HEADING: Final = "(?P<heading>[{capital}]{{2,30}}(?:[ ][{capital}]{{2,30}}){{1,9}})(?=[ ][{capital}][{small}])"
# maximum length of a heading or a list item: in characters, and as a fraction of the typical length of a line
_SHORT, _OF_TYPICAL = 120, 0.6
_HEAD: Final = 1000  # characters from which a language is guessed
_PART_OF_HEAD: Final = 300  # characters that suffice for most English texts
_FEWEST: Final = 3  # frequent words needed to guess a language
_COMMON: Final = {code: frozenset(words.split()) for code, words in COMMON_WORDS.items()}


@pin_characters
def sentences(text: str, language: str = "") -> list[str]:
    """Split a normalized text into sentences, each with the white space before it; joined, they are the text.

    If the white space was not collapsed, a run of it counts as one space or line end.

    A sentence ends before white space or after a mark. It always ends at a blank line, and at a line end after a
    heading or a list item. It does not end after an abbreviation, an initial or the number of a list item. Thai, Lao
    and Khmer have no marks, so sentences end at spaces between letters. A sentence of more than 10,000 characters is
    split, before white space if possible. `language` is a code (ISO 639-1); if it is "", the language is guessed from
    frequent words.

    >>> sentences('Dr. Who saw J. R. Smith. "Why?" he said.\\n\\nNo. 5 lives')
    ['Dr. Who saw J. R. Smith.', ' "Why?" he said.', '\\n\\nNo. 5 lives']
    """
    if _has_layout(text):
        return _split_long(_with_layout(text, sentences(single_blanks(text), language)))
    ends = _ends(text, _end(language or guess_language(text)))
    found = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end]
    return found if len(text) <= _LONGEST else _split_long(found)


def lines_as_sentences(text: str) -> list[str]:
    """Split a normalized text into its non-blank lines, each with the line ends before it; joined, they are the text.

    >>> lines_as_sentences("One.\\nTwo? Still two.\\n\\nThree.")
    ['One.', '\\nTwo? Still two.', '\\n\\nThree.']
    """
    lines = [line for line in _LINE_END.split(text) if line]
    return _split_long(_with_layout(text, [line for line in lines if line.strip()]) if _has_layout(text) else lines)


def _has_layout(text: str) -> bool:
    """Whether a text has white space that `single_blanks` changes: tabs, runs of spaces, or leading white space."""
    if "\n" in text and ("\n " in text or " \n" in text or "\n\n\n" in text):
        return True
    for blank in _LAYOUT:  # a loop takes less time than `any`
        if blank in text:
            return True
    return text[:1].isspace()


def _with_layout(text: str, pieces: Iterable[str]) -> list[str]:
    """Split a text at the ends of `pieces`, which equal the text except for white space; its white space is kept."""
    found, start, stop = list[str](), 0, 0
    for piece in pieces:
        for run in piece.split():
            stop = text.index(run, stop) + len(run)
        found.append(text[start:stop])
        start = stop
    if found:
        found[-1] += text[start:]
    return [piece for piece in found if piece] or [text]


def guess_language(text: str) -> str:
    """The code of the language at the start of a text, from its frequent words or its script; "" if uncertain.

    >>> guess_language("Das ist der erste Satz, und er ist nicht lang.")
    'de'
    """
    # shortcuts for English; the last word of a part may be incomplete
    if len(_COMMON["en"].intersection(text[:_PART_OF_HEAD].lower().split()[:-1])) > 2 * _FEWEST:
        return "en"
    words = text[:_HEAD].lower().split()
    if len(_COMMON["en"].intersection(words)) > 2 * _FEWEST:
        return "en"
    found = {code: len(common.intersection(words)) for code, common in _COMMON.items()}
    most = max(found, key=found.__getitem__)
    if found[most] >= _FEWEST:
        return most
    return next((code for code, script in _UNMARKED.items() if len(re.findall(f"[{script}]", text[:_HEAD])) > 9), "")


def _ends(text: str, pattern: re.Pattern[str]) -> list[int]:
    """The sentence ends in a text, in order; an end may occur twice."""
    heading = _heading().match(text)
    ends, short = [heading.end()] if heading else [], 0.0
    for match in pattern.finditer(text):
        kind = match.lastgroup
        if kind is None:
            ends.append(match.end())
            continue
        at = match.start() if match[0] in "\n " else match.end()
        if match.end("full") >= 0:  # after a heading or a list item, or at the end of a full line
            short = short or min(_SHORT, _OF_TYPICAL * _typical_line(text))
            if at - text.rfind("\n", 0, at) - 1 > short:
                continue
        ends.append(at)
        if kind == "heading":
            ends.append(match.end("heading"))
    return ends


def _typical_line(text: str) -> int:
    """The typical length of a line: half of all characters are in lines of at most this length."""
    lengths = sorted(map(len, text.split("\n")))
    before = list(accumulate(lengths))
    return lengths[bisect(before, before[-1] // 2)]


def _split_long(pieces: list[str]) -> list[str]:
    """Split the pieces that are longer than a sentence may be."""
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


# The pattern of sentence ends


def _maybe(pattern: str) -> str:
    """An optional possessive match of a pattern, without a possessive group, which has a bug in older Pythons."""
    return f"(?:{pattern}|(?!{pattern}))"


def _not_after(words: Iterable[str], then: str = "") -> str:
    """A pattern that fails after any of the words with a full stop.

    It has one look-behind for each length of words, because a look-behind must have a fixed width.
    """
    by_width = groupby(sorted(set(words), key=lambda word: (len(word), word)), key=len)
    return "".join(rf"(?<!\b(?:{_any_of(same)})\.{then})" for _, same in by_width)


def _any_of(words: Iterable[str]) -> str:
    """A pattern that matches any of these sorted words, grouped by first letter so that `re` tries fewer of them.

    >>> _any_of(["Dr", "Fr", "Ft"])
    'D(?:r)|F(?:r|t)'
    """
    by_letter = groupby(words, key=lambda word: word[0])
    return "|".join(f"{re.escape(one)}(?:{'|'.join(re.escape(word[1:]) for word in same)})" for one, same in by_letter)


@cache
def _letters(category: str) -> str:
    """The capital (Lu) or small (Ll) letters in the Unicode data of Python, as ranges inside a character set.

    Georgian, which does not use capitals in text, and mathematical alphabets are excluded.
    """
    codes = [code for code in range(0x20000) if get_category(chr(code)) == category]
    codes = [code for code in codes if not (0x10D0 <= code <= 0x10FF or 0x1D400 <= code <= 0x1D7FF)]
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


def _of(table: dict[str, str]) -> set[str]:
    return {word for words in table.values() for word in words.split()}


@cache
def _heading() -> re.Pattern[str]:
    return re.compile(_HEADING.format(capital=_letters("Lu"), small=_letters("Ll")))


# The pattern begins with one set of characters, so that `re` skips most of the text. It continues only at the first
# mark of a run and never backtracks, so a million full stops take no more time than prose.
@cache
def _end(language: str) -> re.Pattern[str]:
    """The pattern of sentence ends in normalized text of a language; `_ends` checks matches with a group again."""
    capital, small = _letters("Lu"), _letters("Ll")
    abbreviations = {*ANYWHERE["en"].split()}
    if language != "en":
        foreign = _of(ANYWHERE) - abbreviations | {*ONLY_IN.get(language, "").split()}
        abbreviations |= foreign | {word[0].upper() + word[1:] for word in foreign}
    longest = max(map(len, abbreviations)) + 1
    lone = _LONE_LATIN + _LONE_CYRILLIC if language in ONLY_IN else _LONE_CYRILLIC
    ordinal = r"(?<!\b\d\.)(?<!\b\d\d\.)" if language in ORDINALS.split() else ""
    numbers = _not_after(BEFORE_NUMBERS["en"].split() if language == "en" else _of(BEFORE_NUMBERS), then="(?=[ ][0-9])")
    unmarked = _UNMARKED.get(language)
    # smileys begin with a colon; in English they are ignored, which is faster
    others = (" " if unmarked else "") + ("" if language == "en" else ":")
    heading = _HEADING.format(capital=capital, small=small)
    blank = f"|(?<=[{unmarked}][ ])(?=[{unmarked}])(?P<blank>)" if unmarked else ""
    not_i = capital.replace("A-Z", "A-HJ-Z")
    quote, tibetan = _maybe(r'[ ](?:\u00bb(?=[ \n])|"(?=[ ]"))'), _maybe(rf"[ ][{_TIBETAN}]")
    opened = _maybe(rf"(?:[\u00ab\u00bb]|[{_DASH}]{{1,2}})[ ]")
    dashes = _maybe(rf"[{_DASH}\u00ab]{{1,2}}[ ]")
    return re.compile(
        rf"""
        [{_SOFT}{_CJK}{_FULL_WIDTH_STOP}{_HARD}{_AROUND_BEYOND}\n{others}](?:
            (?<=[{_SOFT}])(?<![{_MARK}][{_MARK}])               # the first of several marks
            (?<![{_ARMENIAN}]\.(?![{_MARK}]))                   #   (in Armenian one full stop is a comma)
            [{_MARK}]*+[{_CLOSING}]*+{quote}
            (?=[ \n](?:                                         #   before white space and
                {opened}[{_OPENING}]*+[^\W_{small}]  # a capital or a digit,
              | {_LABEL}[ ]                                     #   or the label of a list item
              | (?:(?<=\.[ \n])|(?<=\n))[{_DASH}][ ]            #   or a dash, but not in "Why?" - he asked
            ))
            (?:(?<=[^\W\d][^\W\d]\.)|                           #   not after
                (?<!(?<![\w\u00b0])[{not_i}v]\.)                #     an initial (not the unit of a temperature), or v.,
                (?<!(?<![^ \n(.])[{_HEBREW_TO_SINHALA}]\.)
                (?<!(?<![0-9IVX][ ])(?<!\w)[{lone}]\.)          #     a lower-case initial, except after a number,
                (?<!^\d\.)(?<!^\d\d\.)                          #     the number of a list item,
                (?<!\d\.(?=[ ][\u0531-\u0556])){ordinal}        #     an ordinal,
            )
            (?:(?<=\w{{{longest}}}\.)|{_not_after(abbreviations)}{numbers})  # or an abbreviation
          | (?<=[^\x00-\x7f])(?:
                (?<=[{_CJK}{_FULL_WIDTH_STOP}])(?<![{_CJK}][{_CJK}])(?<!\d\uff0e)  # Chinese, Japanese: before a letter
                [{_MARK}]{{0,99}}+[{_CJK_CLOSING}]*+(?=[ \n]|[^\W_]|[{_CJK_OPENING}])
              | (?<=[{_HARD}{_HARD_BEYOND}])(?<![{_HARD}][{_HARD}])  # unambiguous marks
                [{_MARK}{_HARD_BEYOND}]{{0,99}}+{tibetan}[{_CLOSING}]*+(?=[ \n]|[^\W\d_])
            )
          | (?<=:)(?:                                           # a colon:
                -?\)+(?=[ \n][{_OPENING}]*+[^\W\d_{small}])     #   a smiley,
              | [{_CLOSING}]*+                                  #   the full stop of Armenian
                (?=[ \n]{dashes}[{_OPENING}]*+[\u0531-\u0556])
              | (?<=[{_ARMENIAN}]:)(?=[ \n]\d)
            )
          | (?<=\n)(?:                                          # a line end:
                (?=\n)(?P<first>)                               #   the first of two,
              | (?<![{_MARK},;:{_DASH}\n]\n)(?=[{_OPENING}]*+[^\W_{small}])(?P<full>)  # after no mark, see _ends,
              | (?={_LABEL}[ ]|-[ ])(?P<item>)                  #   before a list item
            )
          {blank}
        )(?=[ \n]{{1,2}}+{heading}|)
        """,
        re.MULTILINE | re.VERBOSE,
    )
