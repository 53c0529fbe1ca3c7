"""Removal of repeated lines, in one document or in several (C4, arXiv:1910.10683, section 2.2).

Of equal lines, the one in the document with the smallest rank is kept. The rank is the group in a mixture, then a hash
of text and source. The result therefore depends neither on the order of the input nor on its division. Repeated
documents are removed before this step. Only hashes of lines are sent between workers.
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
_GROUP_BITS: Final = 16  # bits of a rank for the mixture group
_LINE: Final = np.dtype([("hash", "<u8"), ("rank", "<u8"), ("part", "<u4"), ("row", "<u4"), ("line", "<u4")])
_STRUCK: Final = np.dtype([("row", "<u4"), ("line", "<u4")])


def line_hashes(
    part: Path, number: int, row_K: np.ndarray, least: int, mixed: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """(group, hashes) of the lines of at least `least` characters in the kept rows of a part.

    `mixed` is the index of the mixture group of the part.
    """
    found = [
        (xxhash.xxh3_64_intdigest(line.encode()), _rank(document, mixed), number, row, at)
        for row, document in _select_lines(part, row_K)
        for at, line in enumerate(document.text.split("\n"))
        if len(line) >= least
    ]
    line_L = np.array(found, _LINE)
    group_L = line_L["hash"] % np.uint64(_GROUPS)
    for group in np.unique(group_L).tolist():
        yield group, line_L[group_L == group].tobytes()


def _select_lines(part: Path, row_K: np.ndarray) -> Iterator[tuple[int, Document]]:
    wanted = set(row_K.tolist())
    rows = enumerate(document for batch in batches(part) for document in documents(batch))
    return ((row, document) for row, document in rows if row in wanted)


def _rank(document: Document, mixed: int | None) -> int:
    digest = xxhash.xxh3_64_intdigest(document.key + document.source.encode())
    return digest if mixed is None else mixed << (64 - _GROUP_BITS) | digest >> _GROUP_BITS


def find_repeated_lines(group: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
    """(part, rows and lines) of all equal lines except the first."""
    line_L = np.frombuffer(b"".join(group[1]), _LINE)
    line_L = line_L[np.lexsort([line_L[name] for name in ("line", "row", "part", "rank", "hash")])]
    again_L = line_L[1:][np.diff(line_L["hash"]) == 0]
    for part in np.unique(again_L["part"]).tolist():
        of_part_K = again_L[again_L["part"] == part]
        struck_K = np.empty(len(of_part_K), _STRUCK)
        struck_K["row"], struck_K["line"] = of_part_K["row"], of_part_K["line"]
        yield part, struck_K.tobytes()


def strike(part: Path, row_K: np.ndarray, struck: Iterable[bytes], out: Path, clean: Clean, identity: str) -> None:
    """Write the kept rows of a part without the repeated lines in `struck`, unless `out` is already complete.

    A document that becomes too short is dropped. Marked phrases in removed lines are dropped too.
    """
    if read_seal(out, identity=identity) is not None:
        return
    lines: dict[int, set[int]] = {}
    for row, line in np.frombuffer(b"".join(struck), _STRUCK).tolist():
        lines.setdefault(row, set()).add(line)
    lost = [0, 0]  # documents, bytes
    lost_phrases = 0

    def iterate_remaining() -> Iterator[Document]:
        nonlocal lost_phrases
        for row, document in _select_lines(part, row_K):
            if row not in lines:
                yield document
                continue
            all_lines = document.text.split("\n")
            kept = [line for at, line in enumerate(all_lines) if at not in lines[row]]
            text = normalize("\n".join(kept), clean.whitespace)
            is_dropped = rejection_reason(text, clean) != ""
            lost[0] += is_dropped
            lost[1] += len(document.text.encode()) - (0 if is_dropped else len(text.encode()))
            if not is_dropped:
                spans = _shift_spans(document, all_lines, lines[row], text, clean.whitespace)
                lost_phrases += len(document.spans) // 2 - len(spans)
                yield Document(text, document.source, text_key(text), tuple(at for span in spans for at in span))

    write_documents(out, iterate_remaining())
    seal(out, identity=identity, lost=lost, lost_phrases=lost_phrases)


def _shift_spans(
    document: Document, lines: list[str], struck: set[int], text: str, whitespace: Whitespace
) -> tuple[tuple[int, int], ...]:
    """Positions of the phrases of a document after removal of the lines `struck`, without phrases in these lines."""
    if not document.spans:
        return ()
    edits, at = Edits(), 0
    for number, line in enumerate(lines):
        if number in struck:
            edits.append((at, at + len(line), 0))
        at += len(line) + 1
    begins = [start for start, _, _ in edits]
    spans = list(pairwise(document.spans))[::2]
    # the last removed line that begins before the end of a span
    before = [bisect_left(begins, stop) - 1 for _, stop in spans]
    whole = [span for span, last in zip(spans, before, strict=True) if last < 0 or edits[last][1] <= span[0]]
    joined = "\n".join("" if number in struck else line for number, line in enumerate(lines))
    return relocate_spans(joined, move_spans(whole, edits), text, partial(normalize, whitespace=whitespace))
