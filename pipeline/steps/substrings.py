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

from pipeline.spec import Clean
from pipeline.steps.documents import Document
from pipeline.steps.edited import (
    DocumentEdit,
    Place,
    by_group,
    by_part,
    is_written,
    rank_of,
    select_documents,
    write_edited,
)
from preprocessing.text import Edits, Tokens, find_tokens, hash_ngrams, is_inside_word

KIND: Final = "substrings"  # first word of the names of its files
REASON: Final = "repeated_substring"
_GROUPS: Final = 64
_AT_ONCE: Final = 1 << 15  # n-grams whose windows are compared at once
_PRINT: Final = np.dtype([("hash", "<u8"), ("part", "<u4"), ("row", "<u4"), ("token", "<u4")])
_WINDOW: Final = np.dtype([*_PRINT.descr, ("rank", "<u8")])
_PLACE: Final = np.dtype([("row", "<u4"), ("token", "<u4")])
_STRUCK: Final = np.dtype([*_PLACE.descr, ("first_part", "<u4"), ("first_row", "<u4")])


def fingerprints(part: Path, number: int, row_K: np.ndarray, least: int) -> Iterator[tuple[int, bytes]]:
    """(group, fingerprints) of the kept rows of a part, for windows of `least` tokens."""
    found = [np.empty(0, _PRINT)]
    for row, document in select_documents(part, row_K):
        hash_N = hash_ngrams(find_tokens(document.text).hash_T, least // 2)
        token_K = select_smallest(hash_N, least - least // 2 + 1)
        print_K = np.empty(len(token_K), _PRINT)
        print_K["hash"], print_K["token"], print_K["part"], print_K["row"] = hash_N[token_K], token_K, number, row
        found.append(print_K)
    print_K = np.concatenate(found)
    yield from by_group(print_K, print_K["hash"] % np.uint64(_GROUPS))


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
    """(group, hashes) of the windows of `least` tokens that contain one of these fingerprints.

    `mixed` is the index of the mixture group of the part.
    """
    tokens_of = _by_row(np.frombuffer(b"".join(prints), _PLACE))
    found = [np.empty(0, _WINDOW)]
    for row, document in select_documents(part, np.intersect1d(row_K, [*tokens_of])):
        hash_N = hash_ngrams(find_tokens(document.text).hash_T, least)
        cover_N = np.zeros(len(hash_N) + 1, np.int32)
        np.add.at(cover_N, np.maximum(tokens_of[row]["token"].astype(np.int64) + least // 2 - least, 0), 1)
        np.add.at(cover_N, np.minimum(tokens_of[row]["token"].astype(np.int64) + 1, len(hash_N)), -1)
        token_K = np.flatnonzero(np.cumsum(cover_N[:-1]) > 0)
        window_K = np.empty(len(token_K), _WINDOW)
        window_K["hash"], window_K["token"] = hash_N[token_K], token_K
        window_K["part"], window_K["row"], window_K["rank"] = number, row, rank_of(document, mixed)
        found.append(window_K)
    window_K = np.concatenate(found)
    yield from by_group(window_K, window_K["hash"] % np.uint64(_GROUPS))


def find_repeated_windows(group: tuple[int, Iterable[bytes]], least: int) -> Iterator[tuple[int, bytes]]:
    """(part, rows and tokens) of all equal windows except the first, each with the document of the first.

    A window that overlaps its first occurrence is left out.
    """
    window_K = np.frombuffer(b"".join(group[1]), _WINDOW)
    window_K = window_K[np.lexsort([window_K[name] for name in ("token", "row", "part", "rank", "hash")])]
    is_new_K = np.ones(len(window_K), bool)
    is_new_K[1:] = window_K["hash"][1:] != window_K["hash"][:-1]
    first_K = window_K[np.flatnonzero(is_new_K)[np.cumsum(is_new_K) - 1]]
    is_here_K = (window_K["part"] == first_K["part"]) & (window_K["row"] == first_K["row"])
    distance_K = window_K["token"].astype(np.int64) - first_K["token"]
    struck_K = np.empty(len(window_K), [*_STRUCK.descr, ("part", "<u4")])
    for name in ("part", "row", "token"):
        struck_K[name] = window_K[name]
    struck_K["first_part"], struck_K["first_row"] = first_K["part"], first_K["row"]
    yield from by_part(struck_K[~is_new_K & ~(is_here_K & (distance_K < least))], _STRUCK.names or ())


def strike(
    part: Path, row_K: np.ndarray, struck: Iterable[bytes], out: Path, clean: Clean, least: int, identity: str
) -> None:
    """Write the kept rows of a part without the repeated windows in `struck`, unless `out` is already complete."""
    if is_written(out, identity):
        return
    windows_of = _by_row(np.frombuffer(b"".join(struck), _STRUCK))

    def edit(row: int, document: Document) -> DocumentEdit:
        struck_K = np.sort(windows_of[row], order="token")
        first: Place = (int(struck_K["first_part"][0]), int(struck_K["first_row"][0]))
        ranges = merge_windows(find_tokens(document.text), struck_K["token"], least)
        text, removed = cut_ranges(document.text, ranges)
        return DocumentEdit(text, removed, first, text)

    write_edited(part, row_K, windows_of, edit, out, clean, identity)


def merge_windows(tokens: Tokens, token_K: np.ndarray, least: int) -> list[tuple[int, int]]:
    """The union of the windows that begin at these tokens (ascending), as ranges of characters."""
    start_K = token_K.astype(np.int64)
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


def _by_row(record_K: np.ndarray) -> dict[int, np.ndarray]:
    """The records of each row."""
    record_K = record_K[np.argsort(record_K["row"], kind="stable")]
    row_R, first_R = np.unique(record_K["row"], return_index=True)
    return dict(zip(row_R.tolist(), np.split(record_K, first_R)[1:], strict=True))
