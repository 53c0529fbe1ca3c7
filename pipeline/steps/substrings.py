"""Removal of repeated substrings, in one document or in several (Lee et al. 2021, arXiv:2107.06499, section 4.1).

A window is a run of N tokens: words and punctuation marks, whatever the white space between them. Each window that
occurred before is removed; only the first occurrence stays. As windows overlap, this removes each repeated substring of
N or more tokens. A window that overlaps its own first occurrence stays, or a run of one word would disappear.

"Before" is in the order of documents by rank (edited.py), so the result depends neither on the order of the input nor
on its division. It is that of a suffix array, but no worker needs the whole text:

1. fingerprints: of the n-grams of N / 2 tokens, the smallest hash of each window (winnowing: Schleimer, Wilkerson,
   Aiken 2003, SIGMOD, section 3). Equal windows have equal fingerprints at equal places, one per 13 tokens if N is 50.
2. windows: only around fingerprints that occur again, the hashes of all windows.
3. strike: windows that occur again are removed.

Only hashes are sent between workers, not text.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from pipeline.steps.documents import Document
from pipeline.steps.edited import DocumentEdit, by_group, by_part, by_row, find_occurrences, select_documents
from preprocessing.text import Edits, Tokens, find_tokens, hash_ngrams, is_inside_word

KIND: Final = "substrings"  # first word of the names of its files
REASON: Final = "repeated_substring"
_AT_ONCE: Final = 1 << 15  # n-grams whose windows are compared at once
_PRINT: Final = np.dtype([("hash", "<u8"), ("part", "<u4"), ("row", "<u4"), ("token", "<u4")])
_PLACE: Final = np.dtype([("row", "<u4"), ("token", "<u4")])


def fingerprints(part: Path, number: int, row_K: np.ndarray, least: int) -> Iterator[tuple[int, bytes]]:
    """(group, fingerprints) of the kept rows of a part, for windows of `least` tokens."""

    def describe(row: int, document: Document) -> np.ndarray:
        hash_N = hash_ngrams(find_tokens(document.text).hash_T, least // 2)
        token_K = select_smallest(hash_N, least - least // 2 + 1)
        print_K = np.empty(len(token_K), _PRINT)
        print_K["hash"], print_K["token"], print_K["part"], print_K["row"] = hash_N[token_K], token_K, number, row
        return print_K

    return by_group(describe(row, document) for row, document in select_documents(part, row_K))


def select_smallest(hash_N: np.ndarray, width: int) -> np.ndarray:
    """The positions of the smallest hash in each run of `width` hashes, of equal ones the last; each position once.

    >>> select_smallest(np.array([5, 2, 8, 2, 9, 7], np.uint64), 3).tolist()
    [1, 3]
    """
    found = [np.zeros(0, np.int64)]
    for first in range(0, len(hash_N) - width + 1, _AT_ONCE):
        run_KW = np.lib.stride_tricks.sliding_window_view(hash_N[first : first + _AT_ONCE + width - 1], width)
        found.append(np.unique(first + np.arange(len(run_KW)) + width - 1 - run_KW[:, ::-1].argmin(axis=1)))
    return np.unique(np.concatenate(found))


def find_repeated_prints(group: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
    """(part, rows and tokens) of the fingerprints that occur several times."""
    print_K = np.frombuffer(b"".join(group[1]), _PRINT)
    print_K = print_K[np.argsort(print_K["hash"], kind="stable")]
    is_same_K = np.zeros(len(print_K) + 1, bool)
    is_same_K[1:-1] = print_K["hash"][1:] == print_K["hash"][:-1]
    yield from by_part(print_K[is_same_K[1:] | is_same_K[:-1]], _PLACE.names or ())


def windows(
    part: Path, number: int, row_K: np.ndarray, prints: Iterable[bytes], least: int, mixed: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """(group, occurrences) of the windows of `least` tokens that contain one of these fingerprints.

    `mixed` is the index of the mixture group of the part.
    """
    prints_of = by_row(np.frombuffer(b"".join(prints), _PLACE))

    def find(row: int, document: Document) -> tuple[np.ndarray, np.ndarray]:
        hash_N = hash_ngrams(find_tokens(document.text).hash_T, least)
        print_K = prints_of[row]["token"].astype(np.int64)
        cover_N = np.zeros(len(hash_N) + 1, np.int32)
        np.add.at(cover_N, np.maximum(print_K + least // 2 - least, 0), 1)
        np.add.at(cover_N, np.minimum(print_K + 1, len(hash_N)), -1)
        token_K = np.flatnonzero(np.cumsum(cover_N[:-1]) > 0)
        return hash_N[token_K], token_K

    return find_occurrences(part, number, np.intersect1d(row_K, [*prints_of]), find, mixed)


def without_windows(document: Document, at_K: np.ndarray, least: int) -> DocumentEdit:
    """A document without the windows of `least` tokens that begin at these tokens (ascending)."""
    text, removed = cut_ranges(document.text, merge_windows(find_tokens(document.text), at_K, least))
    return DocumentEdit(text, removed, text)


def merge_windows(tokens: Tokens, start_K: np.ndarray, least: int) -> list[tuple[int, int]]:
    """The union of the windows that begin at these tokens (ascending), as ranges of characters."""
    begins_K = np.diff(start_K, prepend=-1 - least) > least
    begin_R = start_K[begins_K]
    end_R = start_K[np.append(np.flatnonzero(begins_K)[1:] - 1, len(start_K) - 1)] + least - 1
    return list(zip(tokens.start_T[begin_R].tolist(), tokens.stop_T[end_R].tolist(), strict=True))


def cut_ranges(text: str, ranges: Sequence[tuple[int, int]]) -> tuple[str, Edits]:
    """The text without these ranges. A space replaces a range if two words would become one.

    >>> cut_ranges("I am here, you are-there.", [(5, 14)])
    ('I am  are-there.', [(5, 14, 0)])
    >>> cut_ranges("one-two-three", [(3, 8)])
    ('one three', [(3, 8, 1)])
    """
    ends = [0, *(end for one in ranges for end in one), len(text)]
    parts, removed = list[str](), Edits()
    for (start, stop), following in zip(list(pairwise(ends))[::2], [*ranges, None], strict=True):
        parts.append(text[start:stop])
        if following is not None:
            begin, end = following
            before, after = text[max(begin - 1, 0) : begin], text[end : end + 1]
            glue = " " if is_inside_word(before, after) else ""
            parts.append(glue)
            removed.append((*following, len(glue)))
    return "".join(parts), removed
