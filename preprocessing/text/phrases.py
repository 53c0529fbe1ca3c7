"""Phrases in a text (names, terms), which are masked as one unit.

They come from a list of phrases or from the source, and their spans are moved when the text changes.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

import ahocorasick
import numpy as np

from preprocessing.characters import pin_characters
from preprocessing.schema import Bools, Ints
from preprocessing.text.pii import Edits
from preprocessing.text.tidy import normalize, remove_whitespace

Spans = Sequence[tuple[int, int]]
"""Ranges [start, stop) of the characters of a text."""

_RUN: Final = re.compile(r"\S+")
_MOST_REMOVED: Final = 20_000  # maximum number of characters that cleaning may remove between two spans
# A letter or digit of a script with spaces between words. This excludes Chinese, Japanese, Thai and similar scripts,
# and Korean, which attaches particles to words.
_SPACED: Final = re.compile(
    "[^\\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


class Gazetteer:
    """A list of phrases that can be found in texts; upper and lower case differ.

    >>> Gazetteer(["New York", "New York City", "York"]).find("New York City is no New Yorker, but York is.")
    [(0, 13), (36, 40)]
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._automaton = ahocorasick.Automaton()
        phrases = list(phrases)
        from preprocessing.text.repair import repair_text  # imports ftfy

        repaired = map(repair_text, phrases)  # because cleaning may have repaired the text
        for phrase in sorted({normalize(phrase).replace("\n", " ") for phrase in (*phrases, *repaired)} - {""}):
            self._automaton.add_word(phrase, len(phrase))
        self._automaton.make_automaton()

    def find(self, text: str) -> list[tuple[int, int]]:
        """The spans of phrases in a normalized text: only whole words, possibly across the end of a line.

        If phrases overlap, the first one is returned; if they begin at the same place, the longest one.
        """
        if not len(self._automaton):
            return []
        hits = ((last + 1 - length, last + 1) for last, length in self._automaton.iter(text.replace("\n", " ")))
        found: list[tuple[int, int]] = []
        for start, stop in sorted(hits, key=lambda span: (span[0], -span[1])):
            if (not found or start >= found[-1][1]) and not (_inside(text, start) or _inside(text, stop)):
                found.append((start, stop))
        return found


def relocate_spans(
    raw: str, spans: Spans, text: str, clean: Callable[[str], str] = normalize
) -> tuple[tuple[int, int], ...]:
    """Find the spans of a raw text in its cleaned form `text`; return them in order, without the removed ones.

    `clean` is the function that made `text` from the raw text. The raw text is cut at the ends of spans, and each part
    is cleaned. If the cleaned parts form `text`, except for white space, their lengths give the new spans. Otherwise
    the words of each span are searched for. If they occur several times, the place nearest to the expected one is
    used. Spans outside of the raw text, or that overlap an earlier span, are left out.

    >>> relocate_spans("A  cat.\\t<b> The cat sat.", [(16, 19)], "A cat. The cat sat.")
    ((11, 14),)
    """
    whole = list[tuple[int, int]]()
    for start, stop in sorted(spans):
        if (whole[-1][1] if whole else 0) <= start < stop <= len(raw):
            whole.append((start, stop))
    located = _locate_by_parts(raw, whole, text, clean)
    return tuple(_search(raw, whole, text, clean) if located is None else located)


def _locate_by_parts(raw: str, spans: Spans, text: str, clean: Callable[[str], str]) -> list[tuple[int, int]] | None:
    """The spans in the cleaned text, from the cleaned parts between their ends; None if the parts are not the text."""
    cuts = [0, *(at for span in spans for at in span), len(raw)]
    parts = [remove_whitespace(clean(raw[start:stop])) for start, stop in pairwise(cuts)]
    if "".join(parts) != remove_whitespace(text):
        return None
    # positions of the characters that are not white space
    place_C = [at for run in _RUN.finditer(text) for at in range(*run.span())]
    ends = list(accumulate(map(len, parts)))
    pairs = zip(ends[0::2], ends[1::2], strict=False)
    return [(place_C[start], place_C[stop - 1] + 1) for start, stop in pairs if start < stop]


def move_spans(spans: Spans, edits: Edits) -> tuple[tuple[int, int], ...]:
    """Move the spans of a text in which ranges were replaced; a span that overlaps a range covers its replacement.

    >>> move_spans([(0, 2), (4, 9), (12, 14)], [(3, 6, 10)])
    ((0, 2), (3, 16), (19, 21))
    """
    begins, moved = [start for start, _, _ in edits], list[tuple[int, int]]()
    grown = [0, *accumulate(size - (stop - start) for start, stop, size in edits)]
    for start, stop in spans:
        # number of edits that begin before the span, and before its end
        first, last = bisect_right(begins, start), bisect_left(begins, stop)
        begin, end = start + grown[first], stop + grown[last]
        if first and start < edits[first - 1][1]:
            begin = begins[first - 1] + grown[first - 1]
        if last and stop < edits[last - 1][1]:
            end = begins[last - 1] + grown[last - 1] + edits[last - 1][2]
        begin = max(begin, moved[-1][1] if moved else 0)
        if begin < end:
            moved.append((begin, end))
    return tuple(moved)


def _search(raw: str, spans: Spans, text: str, clean: Callable[[str], str]) -> list[tuple[int, int]]:
    """The spans in the cleaned text, found by searching for the words of each span."""
    found: list[tuple[int, int]] = []
    read, expected, behind = 0, 0, 0  # position in the raw text, position in the cleaned text, end of the last span
    for start, stop in spans:
        expected += len(clean(raw[read:start]))
        read = start
        places = [
            (place, len(phrase))
            for phrase in dict.fromkeys((clean(raw[start:stop]), normalize(raw[start:stop]), raw[start:stop]))
            for place in _places(text, phrase, behind, expected)
        ]
        if places:
            place, size = min(places, key=lambda found: (abs(found[0] - expected), -found[1]))
            read, expected = stop, place + size
            behind = expected
            found.append((place, behind))
    return found


def _places(text: str, phrase: str, behind: int, expected: int) -> Iterator[int]:
    """The nearest place of a phrase before the expected place, and the nearest one after it."""
    if phrase:
        before = text.rfind(phrase, max(behind, expected - _MOST_REMOVED), expected + len(phrase))
        after = text.find(phrase, max(behind, expected), expected + _MOST_REMOVED)
        yield from (place for place in (before, after) if place >= 0)


def phrase_starts(begin_S: Ints, word_starts_S: Bools, spans: Spans) -> Bools:
    """Unit starts of the tokens that begin at the characters `begin_S`; units are phrases and words outside of them.

    A token belongs to the phrase in which it begins; a new unit begins after a phrase.

    >>> phrase_starts(np.array([0, 4, 8, 13]), np.array([True, True, True, True]), [(4, 12)]).tolist()
    [True, True, False, True]
    """
    starts_S = word_starts_S.copy()
    for start, stop in spans:
        first, last = np.searchsorted(begin_S, (start, stop))
        if first < last:
            starts_S[first : last + 1] = True  # the first token of the phrase, and the first token after it
            starts_S[first + 1 : last] = False
    return starts_S


def num_without_token(begin_S: Ints, spans: Spans) -> int:
    """The number of phrases in which no token begins, so that they are not units.

    >>> num_without_token(np.array([0, 4, 8, 13]), [(4, 8), (5, 7)])
    1
    """
    return sum(int(np.searchsorted(begin_S, start) == np.searchsorted(begin_S, stop)) for start, stop in spans)


@pin_characters
def _is_spaced(char: str) -> bool:
    return _SPACED.match(char) is not None


def _inside(text: str, at: int) -> bool:
    """Whether this place is inside a word of a script with spaces between words."""
    return bool(0 < at < len(text) and _is_spaced(text[at - 1]) and _is_spaced(text[at]))
