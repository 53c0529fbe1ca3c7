"""Heuristics of C4, Gopher and FineWeb that separate prose from other web text, as their papers describe them.

C4: Raffel et al., arXiv:1910.10683, section 2.2 (final version), with the constants of its code in TensorFlow Datasets.
Gopher: Rae et al., arXiv:2112.11446, appendix A.1.1 and table A1.

FineWeb: fineweb.py.

A rule is a pure function that returns the reason to drop a text, or "". Both sets of rules assume spaces between words
and use English word lists, so use them with `languages: [en]`. Sesame does not contain the list of bad words of C4.
The list is offensive, has another owner, and drops text of minorities (arXiv:2104.08758, section 5). Words are
separated by white space and include punctuation.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from preprocessing.characters import pin_characters
from preprocessing.text.fineweb import fineweb_quality
from preprocessing.text.sentence_ends import sentences

Rule = Callable[[str], tuple[str, str]]  # text -> (text after the rule, reason to drop it or "")


@pin_characters
def apply_rules(text: str, rules: Sequence[str]) -> tuple[str, str]:
    """Apply the rules of these names, e.g. "c4" (RULES), in the given order; return the text and a reason.

    The reason is "" if no rule drops the text; otherwise it is that of the first rule that drops it.

    >>> apply_rules("Too short.", ["gopher_quality"])
    ('Too short.', 'gopher_word_count')
    """
    for name in rules:
        text, reason = RULES[name](text)
        if reason:
            return text, reason
    return text, ""


# --- C4 ---------------------------------------------------------------------------------------------------------------

# C4's code has no curly quotation mark; the paper does not list the marks
_END_MARKS: Final = (".", "!", "?", '"', "\u201d")
_LONGEST_WORD: Final = 1000
_FEWEST_WORDS: Final = 5  # per line, as in the paper and its code; datatrove uses 3
_FEWEST_SENTENCES: Final = 3  # per page, as in the paper and its code; datatrove uses 5
_CITATION: Final = re.compile(r"\[(?:[0-9]*|edit|citation needed)\]")
_NOTICES: Final = (
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)


def c4(text: str) -> tuple[str, str]:
    """Keep the lines of prose, without citation marks such as [3] and without blank lines; then check the whole page.

    As in the paper, "{" or lorem ipsum anywhere drops the page. The code of C4 does not check lines that it has already
    dropped.
    """
    if "{" in text:
        return text, "c4_curly_bracket"
    lower = text.lower()
    if "lorem ipsum" in lower:
        return text, "c4_lorem_ipsum"
    notices = tuple(notice for notice in _NOTICES if notice in lower)
    lines = [line for line in map(c4_line, text.split("\n")) if line and not _has(notices, line)]
    text = "\n".join(lines)
    if len(lines) < _FEWEST_SENTENCES and sum(len(sentences(line)) for line in lines) < _FEWEST_SENTENCES:
        return text, "c4_few_sentences"
    return text, ""


def c4_line(line: str) -> str:
    """The line without citation marks; "" if it has no end mark, an ellipsis, too few words or a very long word."""
    if "[" in line:
        line = " ".join(_CITATION.sub("", line).split())  # one space replaces a mark and the spaces around it
    line = line.strip()
    if not line.endswith(_END_MARKS) or line.endswith("..."):
        return ""
    words = line.split()
    if len(words) < _FEWEST_WORDS:
        return ""
    if len(line) > _LONGEST_WORD and max(map(len, words)) > _LONGEST_WORD:
        return ""
    return line


def _has(notices: tuple[str, ...], line: str) -> bool:
    if not notices:  # the usual case, which avoids a lower-case copy of each line
        return False
    lower = line.lower()
    return any(notice in lower for notice in notices)


# --- Gopher: quality --------------------------------------------------------------------------------------------------

_STOP_WORDS: Final = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_BULLETS: Final = ("\u2022", "\u2023", "\u25cf", "-", "*")  # the paper does not list the bullets
_ELLIPSES: Final = ("...", "\u2026")


class _Page(NamedTuple):
    text: str
    words: list[str]  # at least one
    lines: list[str]  # without blank lines; at least one


def word_count(page: _Page) -> str:
    """50 to 100,000 words."""
    return "" if 50 <= len(page.words) <= 100_000 else "gopher_word_count"


def mean_word_length(page: _Page) -> str:
    """3 to 10 characters per word on average."""
    mean = sum(map(len, page.words)) / len(page.words)
    return "" if 3 <= mean <= 10 else "gopher_mean_word_length"


def symbols(page: _Page) -> str:
    """At most one hash sign and at most one ellipsis per ten words."""
    if page.text.count("#") > 0.1 * len(page.words):
        return "gopher_hash_signs"
    return "gopher_ellipses" if sum(map(page.text.count, _ELLIPSES)) > 0.1 * len(page.words) else ""


def bullets(page: _Page) -> str:
    """At most 90 % of the lines begin with a bullet."""
    num_bullets = sum(line.lstrip().startswith(_BULLETS) for line in page.lines)
    return "gopher_bullet_lines" if num_bullets > 0.9 * len(page.lines) else ""


def ellipses(page: _Page) -> str:
    """At most 30 % of the lines end with an ellipsis."""
    num_ellipses = sum(line.rstrip().endswith(_ELLIPSES) for line in page.lines)
    return "gopher_ellipsis_lines" if num_ellipses > 0.3 * len(page.lines) else ""


def letters(page: _Page) -> str:
    """At least 80 % of the words have a letter."""
    num_without = sum(not (word[0].isalpha() or any(map(str.isalpha, word))) for word in page.words)
    return "gopher_words_without_letters" if num_without > 0.2 * len(page.words) else ""


def stop_words(page: _Page) -> str:
    """At least two of eight English stop words, in upper or lower case."""
    found = _STOP_WORDS.intersection(page.words)
    if len(found) < 2:
        found = _STOP_WORDS.intersection(map(str.lower, page.words))
    return "" if len(found) >= 2 else "gopher_stop_words"


_QUALITY: Final = (word_count, mean_word_length, symbols, bullets, ellipses, letters, stop_words)


def gopher_quality(text: str) -> tuple[str, str]:
    """The unchanged text, and the reason of the first quality rule of Gopher that drops it."""
    words = text.split()
    if not words:
        return text, "gopher_word_count"
    page = _Page(text, words, [line for line in text.split("\n") if line.strip()])
    return text, next((reason for rule in _QUALITY if (reason := rule(page))), "")


# --- Gopher: repetition -----------------------------------------------------------------------------------------------

_MOST_DUPLICATE: Final = 0.3  # fraction of the lines, and of the paragraphs
_MOST_DUPLICATE_CHARACTERS: Final = 0.2  # fraction of the characters in lines, and in paragraphs
_MOST_IN_TOP: Final = {2: 0.20, 3: 0.18, 4: 0.16}  # n -> fraction of the characters in the most frequent n-gram
_MOST_IN_DUPLICATES: Final = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}  # n -> fraction of the characters


def gopher_repetition(text: str) -> tuple[str, str]:
    """The unchanged text, and the reason of the first repetition rule of Gopher that drops it.

    The first occurrence of a line, paragraph or n-gram is not a duplicate. Blank lines do not count; they separate
    paragraphs. n-grams consist of words, and their characters are counted without white space.
    """
    reason = duplicate_pieces(text, "\n", "line") or duplicate_pieces(text, "\n\n", "paragraph")
    return text, reason or repeated_ngrams(text)


def duplicate_pieces(text: str, separator: str, name: str) -> str:
    """At most 30 % of the lines or paragraphs, and 20 % of their characters, repeat an earlier one of the text."""
    pieces = [stripped for piece in text.split(separator) if (stripped := piece.strip())]
    if len(unique := set(pieces)) == len(pieces):
        return ""
    if len(pieces) - len(unique) > _MOST_DUPLICATE * len(pieces):
        return f"gopher_duplicate_{name}s"
    num_chars = sum(map(len, pieces))
    num_duplicate = num_chars - sum(map(len, unique))
    return f"gopher_duplicate_{name}_characters" if num_duplicate > _MOST_DUPLICATE_CHARACTERS * num_chars else ""


def repeated_ngrams(text: str) -> str:
    """At most 20, 18, 16 % of the characters in the top 2-, 3-, 4-gram; at most 15 to 10 % in duplicate 5- to 10-grams.

    The top n-gram is the most frequent one that occurs at least twice, or the longest of several with the same count.
    Each of its overlapping occurrences counts. Characters in overlapping duplicates count once, as in the paper.
    """
    words = text.split()
    nth_of = defaultdict[str, int]()
    nth_of.default_factory = nth_of.__len__  # a new word gets the next number
    id_W = np.fromiter(map(nth_of.__getitem__, words), np.int64, len(words))
    chars_W = np.fromiter(map(len, nth_of), np.int64, len(nth_of))[id_W]
    chars_before_W1 = np.zeros(len(words) + 1, np.int64)
    chars_W.cumsum(out=chars_before_W1[1:])
    total = chars_before_W1[-1]
    for ngram, groups in _find_repeats(id_W):
        if ngram in _MOST_IN_TOP:
            most = groups.count_G.max()
            first_G = groups.first_G[groups.count_G == most]
            longest = (chars_before_W1[first_G + ngram] - chars_before_W1[first_G]).max()
            if most * longest > _MOST_IN_TOP[ngram] * total:
                return f"gopher_top_{ngram}gram"
        else:
            edge_W1 = np.zeros(len(words) + 1, np.int64)
            edge_W1[groups.later_L] += 1
            edge_W1[groups.later_L + ngram] -= 1
            if chars_W[np.cumsum(edge_W1)[:-1] > 0].sum() > _MOST_IN_DUPLICATES[ngram] * total:
                return f"gopher_duplicate_{ngram}grams"
    return ""


class _Groups(NamedTuple):
    """The n-grams that occur at least twice."""

    count_G: npt.NDArray[np.int64]
    first_G: npt.NDArray[np.int64]  # position of the first word of its first occurrence
    later_L: npt.NDArray[np.int64]  # positions of all other occurrences


def _find_repeats(id_W: npt.NDArray[np.int64]) -> Iterator[tuple[int, _Groups]]:
    """Yield the repeated n-grams for n = 2 to 10, until there are none.

    A repeated n-gram is a repeated (n-1)-gram with one more word. So each step sorts only the repeated (n-1)-grams, and
    compares n-grams exactly, as pairs of numbers, without a hash.
    """
    num_ids = int(id_W.max(initial=0)) + 1
    group_P, at_P = id_W, np.arange(len(id_W))
    for ngram in range(2, 11):
        fits_P = at_P <= len(id_W) - ngram
        at_P = at_P[fits_P]
        key_P = group_P[fits_P] * num_ids + id_W[at_P + (ngram - 1)]
        order_P = key_P.argsort()
        at_P, key_P = at_P[order_P], key_P[order_P]
        is_new_P1 = np.ones(len(key_P) + 1, bool)
        is_new_P1[1:-1] = key_P[1:] != key_P[:-1]
        start_G1 = np.flatnonzero(is_new_P1)
        count_G = start_G1[1:] - start_G1[:-1]
        is_repeated_P = (count_G > 1).repeat(count_G)
        at_P, group_P = at_P[is_repeated_P], is_new_P1[:-1].cumsum()[is_repeated_P]
        if not len(at_P):
            return
        count_G = count_G[count_G > 1]
        first_G = np.minimum.reduceat(at_P, count_G.cumsum() - count_G)
        yield ngram, _Groups(count_G, first_G, at_P[at_P != first_G.repeat(count_G)])


RULES: Final[dict[str, Rule]] = {
    "c4": c4,
    "fineweb_quality": fineweb_quality,
    "gopher_quality": gopher_quality,
    "gopher_repetition": gopher_repetition,
}
REASONS: Final[dict[str, tuple[str, ...]]] = {
    "c4": ("c4_",),
    "fineweb_quality": ("fineweb_",),
    "gopher_quality": ("gopher_",),
    "gopher_repetition": ("gopher_duplicate_", "gopher_top_"),
}
"""The beginnings of the reasons of each rule. The longest one that fits a reason names its rule."""
