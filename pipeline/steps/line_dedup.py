"""Removal of lines that repeat, in the same document or in another (C4, arXiv:1910.10683, section 2.2).

Repeated documents are removed before. Of equal lines the one in the document with the smallest rank stays: its group
of a mixture, then a hash of its text and source. What is kept depends neither on the order of the input nor on its
cuts. Only hashes of lines travel between workers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from pipeline.spec import Clean
from pipeline.steps.clean import rejection_reason
from pipeline.steps.documents import Document, batches, documents, write_documents
from pipeline.steps.output_folder import read_seal, seal
from preprocessing.text import Edits, Whitespace, move_spans, normalize, relocate_spans, text_key

REASON: Final = "repeated_line"
_GROUPS: Final = 64
_GROUP_BITS: Final = 16  # of a rank, in a mixture
_LINE: Final = np.dtype([("hash", "<u8"), ("rank", "<u8"), ("part", "<u4"), ("row", "<u4"), ("line", "<u4")])
_STRUCK: Final = np.dtype([("row", "<u4"), ("line", "<u4")])


def line_hashes(
    part: Path, number: int, row_K: np.ndarray, least: int, mixed: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """(group, hashes) of the lines of at least `least` characters in the rows of a part that are kept.

    `mixed`: the number of the group of a mixture that the part belongs to.
    """
    found = [
        (xxhash.xxh3_64_intdigest(line.encode()), _rank(document, mixed), number, row, at)
        for row, document in _kept(part, row_K)
        for at, line in enumerate(document.text.split("\n"))
        if len(line) >= least
    ]
    line_L = np.array(found, _LINE)
    group_L = line_L["hash"] % np.uint64(_GROUPS)
    for group in np.unique(group_L).tolist():
        yield group, line_L[group_L == group].tobytes()


def _kept(part: Path, row_K: np.ndarray) -> Iterator[tuple[int, Document]]:
    wanted = set(row_K.tolist())
    rows = enumerate(document for batch in batches(part) for document in documents(batch))
    return ((row, document) for row, document in rows if row in wanted)


def _rank(document: Document, mixed: int | None) -> int:
    digest = xxhash.xxh3_64_intdigest(document.key + document.source.encode())
    return digest if mixed is None else mixed << (64 - _GROUP_BITS) | digest >> _GROUP_BITS


def find_repeated_lines(group: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
    """(part, rows and lines) of all but the first of equal lines."""
    line_L = np.frombuffer(b"".join(group[1]), _LINE)
    line_L = line_L[np.lexsort([line_L[name] for name in ("line", "row", "part", "rank", "hash")])]
    again_L = line_L[1:][np.diff(line_L["hash"]) == 0]
    for part in np.unique(again_L["part"]).tolist():
        mine_K = again_L[again_L["part"] == part]
        struck_K = np.empty(len(mine_K), _STRUCK)
        struck_K["row"], struck_K["line"] = mine_K["row"], mine_K["line"]
        yield part, struck_K.tobytes()


def strike(part: Path, row_K: np.ndarray, struck: Iterable[bytes], out: Path, clean: Clean, identity: str) -> None:
    """Write the kept rows of a part without the lines that are struck, unless they are there and whole.

    A document of which too little is left is dropped; of the phrases that its source marked, those in lines that go.
    """
    if read_seal(out, identity=identity) is not None:
        return
    lines: dict[int, set[int]] = {}
    for row, line in np.frombuffer(b"".join(struck), _STRUCK).tolist():
        lines.setdefault(row, set()).add(line)
    lost = [0, 0]  # documents, bytes
    phrases = 0  # that go with their lines

    def left() -> Iterator[Document]:
        nonlocal phrases
        for row, document in _kept(part, row_K):
            if row not in lines:
                yield document
                continue
            all_lines = document.text.split("\n")
            kept = [line for at, line in enumerate(all_lines) if at not in lines[row]]
            text = normalize("\n".join(kept), clean.whitespace)
            goes = rejection_reason(text, clean) != ""
            lost[0] += goes
            lost[1] += len(document.text.encode()) - (0 if goes else len(text.encode()))
            if not goes:
                spans = _left_spans(document, all_lines, lines[row], text, clean.whitespace)
                phrases += len(document.spans) // 2 - len(spans)
                yield Document(text, document.source, text_key(text), tuple(at for span in spans for at in span))

    write_documents(out, left())
    seal(out, identity=identity, lost=lost, lost_phrases=phrases)


def _left_spans(
    document: Document, lines: list[str], struck: set[int], text: str, whitespace: Whitespace
) -> tuple[tuple[int, int], ...]:
    """Where the phrases of a document are without its struck lines; those that touch one are gone."""
    if not document.spans:
        return ()
    edits, at = Edits(), 0
    for number, line in enumerate(lines):
        if number in struck:
            edits.append((at, at + len(line), 0))
        at += len(line) + 1
    begins = [start for start, _, _ in edits]
    spans = list(pairwise(document.spans))[::2]
    before = [bisect_left(begins, stop) - 1 for _, stop in spans]  # the last struck line that begins before a span ends
    whole = [span for span, last in zip(spans, before, strict=True) if last < 0 or edits[last][1] <= span[0]]
    joined = "\n".join("" if number in struck else line for number, line in enumerate(lines))
    return relocate_spans(joined, move_spans(whole, edits), text, partial(normalize, whitespace=whitespace))
