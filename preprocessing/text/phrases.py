"""Phrases in a text (names, terms), to be masked as one: found by a list, carried along, or given by the source."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import ahocorasick
import numpy as np

from preprocessing.schema import Bools, Ints
from preprocessing.text.tidy import normalise

Spans = Sequence[tuple[int, int]]
"""Ranges [start, stop) of the characters of a text."""

_FAR: Final = 20_000  # characters that cleaning may take away between two spans
# A letter or digit of a script that puts spaces between words. Chinese, Japanese, Thai and their kin do not, and Korean
# hangs its particles on a word.
_SPACED: Final = re.compile(
    "[^\\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


class Gazetteer:
    """A list of phrases, ready to be found in texts; an upper-case letter is another letter than its small one.

    >>> Gazetteer(["New York", "New York City", "York"]).find("New York City is no New Yorker, but York is.")
    [(0, 13), (36, 40)]
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._automaton = ahocorasick.Automaton()
        for phrase in sorted({normalise(phrase).replace("\n", " ") for phrase in phrases} - {""}):
            self._automaton.add_word(phrase, len(phrase))
        self._automaton.make_automaton()

    def find(self, text: str) -> list[tuple[int, int]]:
        """Where phrases are in a normalised text, whole words only, also across the end of a line.

        Of those that overlap the one that begins first is taken, of those that begin together the longest.
        """
        if not len(self._automaton):
            return []
        hits = ((last + 1 - length, last + 1) for last, length in self._automaton.iter(text.replace("\n", " ")))
        found: list[tuple[int, int]] = []
        for start, stop in sorted(hits, key=lambda span: (span[0], -span[1])):
            if (not found or start >= found[-1][1]) and not (_inside(text, start) or _inside(text, stop)):
                found.append((start, stop))
        return found


def relocate_spans(raw: str, spans: Spans, text: str) -> tuple[tuple[int, int], ...]:
    """The spans of a raw text found again in its cleaned form `text`, in order; those that are gone are left out.

    Of several places with the same words the nearest to where the span before lets expect it is taken. A span that is
    no range of characters of the raw text is left out as well.

    >>> relocate_spans("A  cat.\\t<b> The cat sat.", [(16, 19)], "A cat. The cat sat.")
    ((11, 14),)
    """
    found: list[tuple[int, int]] = []
    read, expected, behind = 0, 0, 0  # how far the raw text is read, where that is in the other, end of the last span
    for start, stop in sorted(spans):
        if not read <= start < stop <= len(raw):
            continue
        expected += len(normalise(raw[read:start]))
        read = start
        phrase = normalise(raw[start:stop])
        before = text.rfind(phrase, max(behind, expected - _FAR), expected + len(phrase))
        after = text.find(phrase, max(behind, expected), expected + _FAR)
        places = [place for place in (before, after) if place >= 0]
        if phrase and places:
            place = min(places, key=lambda place: abs(place - expected))
            read, expected = stop, place + len(phrase)
            behind = expected
            found.append((place, behind))
    return tuple(found)


def phrase_starts(begin_S: Ints, word_starts_S: Bools, spans: Spans) -> Bools:
    """Starts of units, for tokens that begin at the characters `begin_S`: phrases, and the words outside of them.

    A token belongs to the phrase in which it begins; behind a phrase a new unit begins.

    >>> phrase_starts(np.array([0, 4, 8, 13]), np.array([True, True, True, True]), [(4, 12)]).tolist()
    [True, True, False, True]
    """
    starts_S = word_starts_S.copy()
    for start, stop in spans:
        first, last = np.searchsorted(begin_S, (start, stop))
        if first < last:
            starts_S[first : last + 1] = True  # the first token, and the one behind the last if there is one
            starts_S[first + 1 : last] = False
    return starts_S


def _inside(text: str, at: int) -> bool:
    """Whether a word reaches over this place, in a script where that can be seen."""
    return bool(0 < at < len(text) and _SPACED.match(text[at - 1]) and _SPACED.match(text[at]))
