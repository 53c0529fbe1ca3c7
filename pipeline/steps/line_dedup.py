"""Removal of repeated lines, in one document or in several (C4, arXiv:1910.10683, section 2.2).

Of equal lines, the first is kept (edited.py). Repeated documents are removed before this step. Only hashes of lines are
sent between workers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from pipeline.steps.documents import Document
from pipeline.steps.edited import DocumentEdit, find_occurrences
from preprocessing.text import Edits

KIND: Final = "lines"  # first word of the names of its files
REASON: Final = "repeated_line"


def line_hashes(
    part: Path, number: int, row_K: np.ndarray, least: int, mixed: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """(group, occurrences) of the lines of at least `least` characters in the kept rows of a part.

    `mixed` is the index of the mixture group of the part.
    """

    def find(_: int, document: Document) -> tuple[np.ndarray, np.ndarray]:
        lines = [(at, line) for at, line in enumerate(document.text.split("\n")) if len(line) >= least]
        hashes = [xxhash.xxh3_64_intdigest(line.encode()) for _, line in lines]
        return np.array(hashes, np.uint64), np.array([at for at, _ in lines], np.int64)

    return find_occurrences(part, number, row_K, find, mixed)


def without_lines(document: Document, at_K: np.ndarray) -> DocumentEdit:
    """A document without the lines of these numbers."""
    struck, removed, start = set(at_K.tolist()), Edits(), 0
    lines = document.text.split("\n")
    for number, line in enumerate(lines):
        if number in struck:
            removed.append((start, start + len(line), 0))
        start += len(line) + 1
    text = "\n".join(line for number, line in enumerate(lines) if number not in struck)
    return DocumentEdit(text, removed, "\n".join("" if at in struck else line for at, line in enumerate(lines)))
