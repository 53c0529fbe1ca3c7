"""Removal of repeated lines, in one document or in several (C4, arXiv:1910.10683, section 2.2).

Of equal lines, the one in the document with the smallest rank is kept. The rank is the group in a mixture, then a hash
of text and source. The result therefore depends neither on the order of the input nor on its division. Repeated
documents are removed before this step. Only hashes of lines are sent between workers.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

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
from preprocessing.text import Edits

KIND: Final = "lines"  # first word of the names of its files
REASON: Final = "repeated_line"
_GROUPS: Final = 64
_LINE: Final = np.dtype([("hash", "<u8"), ("rank", "<u8"), ("part", "<u4"), ("row", "<u4"), ("line", "<u4")])
_STRUCK: Final = np.dtype([(name, "<u4") for name in ("row", "line", "first_part", "first_row")])


def line_hashes(
    part: Path, number: int, row_K: np.ndarray, least: int, mixed: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """(group, hashes) of the lines of at least `least` characters in the kept rows of a part.

    `mixed` is the index of the mixture group of the part.
    """
    found = [
        (xxhash.xxh3_64_intdigest(line.encode()), rank_of(document, mixed), number, row, at)
        for row, document in select_documents(part, row_K)
        for at, line in enumerate(document.text.split("\n"))
        if len(line) >= least
    ]
    line_L = np.array(found, _LINE)
    yield from by_group(line_L, line_L["hash"] % np.uint64(_GROUPS))


def find_repeated_lines(group: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
    """(part, rows and lines) of all equal lines except the first, each with the document of the first."""
    line_L = np.frombuffer(b"".join(group[1]), _LINE)
    line_L = line_L[np.lexsort([line_L[name] for name in ("line", "row", "part", "rank", "hash")])]
    is_new_L = np.diff(line_L["hash"], prepend=np.uint64(0)) != 0
    is_new_L[:1] = True
    first_L = np.flatnonzero(is_new_L)[np.cumsum(is_new_L) - 1]
    struck_L = np.empty(len(line_L), [*_STRUCK.descr, ("part", "<u4")])
    for name in ("part", "row", "line"):
        struck_L[name] = line_L[name]
    struck_L["first_part"], struck_L["first_row"] = line_L["part"][first_L], line_L["row"][first_L]
    yield from by_part(struck_L[~is_new_L], _STRUCK.names or ())


def strike(part: Path, row_K: np.ndarray, struck: Iterable[bytes], out: Path, clean: Clean, identity: str) -> None:
    """Write the kept rows of a part without the repeated lines in `struck`, unless `out` is already complete."""
    if is_written(out, identity):
        return
    lines: dict[int, dict[int, Place]] = {}
    for row, line, first_part, first_row in np.frombuffer(b"".join(struck), _STRUCK).tolist():
        lines.setdefault(row, {})[line] = (first_part, first_row)

    def edit(row: int, document: Document) -> DocumentEdit:
        removed, at = Edits(), 0
        all_lines = document.text.split("\n")
        for number, line in enumerate(all_lines):
            if number in lines[row]:
                removed.append((at, at + len(line), 0))
            at += len(line) + 1
        text = "\n".join(line for number, line in enumerate(all_lines) if number not in lines[row])
        moved = "\n".join("" if number in lines[row] else line for number, line in enumerate(all_lines))
        return DocumentEdit(text, removed, lines[row][min(lines[row])], moved)

    write_edited(part, row_K, lines, edit, out, clean, identity)
