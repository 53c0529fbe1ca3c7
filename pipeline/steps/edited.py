"""Removal of text that occurs before, by steps line_dedup and substrings: what they have in common.

Hashes of lines or windows are sent between workers, and all except the first of equal ones are found. The first is in
the document with the smallest rank: the group in a mixture, then a hash of text, source and metadata. So the result
depends neither on the order of the input nor on its division. Then the kept documents of a part are written again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xxhash

from pipeline.spec import Clean
from pipeline.steps.clean import rejection_reason
from pipeline.steps.dedup import occurs_again
from pipeline.steps.documents import Document, batches, documents, fields_of, write_documents
from pipeline.steps.output_folder import read_seal, seal
from preprocessing.text import Edits, move_spans, normalize, relocate_spans, text_key

_GROUPS: Final = 64  # of hashes; one is processed at a time
_AT_ONCE: Final = 1 << 18  # records that are sent at once
_GROUP_BITS: Final = 16  # bits of a rank for the mixture group
# at: number of the line, or of the first token of the window
OCCURRENCE: Final = np.dtype([("hash", "<u8"), ("rank", "<u8"), ("part", "<u4"), ("row", "<u4"), ("at", "<u4")])
STRUCK: Final = np.dtype([(name, "<u4") for name in ("row", "at", "first_part", "first_row")])


class DocumentEdit(NamedTuple):
    """A document without some ranges of its text, before its white space is normalized."""

    text: str
    removed: Edits  # the removed ranges of the original text, in order, each with the length of its replacement
    moved_text: str  # the original text with `removed` applied: equal to `text` except for white space


def select_documents(part: Path, row_K: np.ndarray) -> Iterator[tuple[int, Document]]:
    """(row, document) of these rows of a part, in order."""
    wanted = set(row_K.tolist())
    rows = enumerate(document for batch in batches(part) for document in documents(batch))
    return ((row, document) for row, document in rows if row in wanted)


def rank_of(document: Document, mixed: int | None) -> int:
    """A number of 64 bits: the occurrence in the document of the smallest rank stays.

    It is the mixture group, if any, then a hash of text, source and metadata. So it does not depend on the input order.
    """
    about = document.key + document.source.encode()
    if document.metadata:
        about += repr(sorted(document.metadata.items())).encode()
    digest = xxhash.xxh3_64_intdigest(about)
    return digest if mixed is None else mixed << (64 - _GROUP_BITS) | digest >> _GROUP_BITS


def find_occurrences(
    part: Path,
    number: int,
    row_K: np.ndarray,
    find: Callable[[int, Document], tuple[np.ndarray, np.ndarray]],
    mixed: int | None = None,
) -> Iterator[tuple[int, bytes]]:
    """(group, occurrences) of the hashes that `find` returns for the kept rows of a part, with the places of them.

    `mixed` is the index of the mixture group of the part.
    """

    def describe(row: int, document: Document) -> np.ndarray:
        hash_K, at_K = find(row, document)
        found_K = np.empty(len(hash_K), OCCURRENCE)
        found_K["hash"], found_K["at"] = hash_K, at_K
        found_K["part"], found_K["row"], found_K["rank"] = number, row, rank_of(document, mixed)
        return found_K

    yield from by_group(describe(row, document) for row, document in select_documents(part, row_K))


def find_repeats(group: tuple[int, Iterable[bytes]], apart: int = 0) -> Iterator[tuple[int, bytes]]:
    """(part, places) of all equal occurrences except the first, each with the document of the first.

    In this document, those that begin less than `apart` after the first are left out: they overlap it.
    """
    found_K = np.frombuffer(b"".join(group[1]), OCCURRENCE)
    found_K = found_K[occurs_again(found_K["hash"])]
    found_K = found_K[np.lexsort([found_K[name] for name in ("at", "row", "part", "rank", "hash")])]
    is_new_K = np.ones(len(found_K), bool)
    is_new_K[1:] = found_K["hash"][1:] != found_K["hash"][:-1]
    first_K = found_K[np.flatnonzero(is_new_K)[np.cumsum(is_new_K) - 1]]
    is_here_K = (found_K["part"] == first_K["part"]) & (found_K["row"] == first_K["row"])
    distance_K = found_K["at"].astype(np.int64) - first_K["at"]
    struck_K = np.empty(len(found_K), [*STRUCK.descr, ("part", "<u4")])
    for name in ("part", "row", "at"):
        struck_K[name] = found_K[name]
    struck_K["first_part"], struck_K["first_row"] = first_K["part"], first_K["row"]
    yield from by_part(struck_K[~is_new_K & ~(is_here_K & (distance_K < apart))], STRUCK.names or ())


def strike(
    part: Path,
    row_K: np.ndarray,
    struck: Iterable[bytes],
    edit: Callable[[Document, np.ndarray], DocumentEdit],
    out: Path,
    clean: Clean,
) -> None:
    """Write the kept rows of a part without what is `struck`, unless `out` is already complete.

    `edit` makes the text of a document without the places `at` (ascending). A document that becomes too short is
    dropped. Marked phrases in removed ranges are dropped too. The seal has the numbers of dropped documents and removed
    bytes, of edited documents and removed ranges, and of lost phrases, and for each dropped document its row and the
    document with the first occurrence of its first removed range.
    """
    if read_seal(out, identity=out.name) is not None:
        return
    struck_of = by_row(np.frombuffer(b"".join(struck), STRUCK))
    lost, edited, repeats = [0, 0], [0, 0], list[tuple[int, int, int]]()
    lost_phrases = 0

    def iterate_remaining() -> Iterator[Document]:
        nonlocal lost_phrases
        for row, document in select_documents(part, row_K):
            if row not in struck_of:
                yield document
                continue
            struck_K = np.sort(struck_of[row], order="at")
            found = edit(document, struck_K["at"].astype(np.int64))
            text = normalize(found.text, clean.whitespace)
            is_dropped = rejection_reason(text, clean) != ""
            lost[0] += is_dropped
            lost[1] += len(document.text.encode()) - (0 if is_dropped else len(text.encode()))
            if is_dropped:
                repeats.append((row, int(struck_K["first_part"][0]), int(struck_K["first_row"][0])))
                continue
            edited[0] += 1
            edited[1] += len(found.removed)
            spans = _shift_spans(document, found, text, clean)
            lost_phrases += len(document.spans) // 2 - len(spans)
            positions = tuple(at for span in spans for at in span)
            yield Document(text, document.source, text_key(text), positions, document.metadata)

    write_documents(out, iterate_remaining(), fields_of(part))
    seal(out, identity=out.name, lost=lost, edited=edited, repeats=repeats, lost_phrases=lost_phrases)


def _shift_spans(document: Document, found: DocumentEdit, text: str, clean: Clean) -> tuple[tuple[int, int], ...]:
    """Positions of the phrases of a document in the edited text, without those that overlap a removed range."""
    if not document.spans:
        return ()
    begins = [start for start, _, _ in found.removed]
    spans = list(pairwise(document.spans))[::2]
    # the last removed range that begins before the end of a span
    before = [bisect_left(begins, stop) - 1 for _, stop in spans]
    whole = [span for span, last in zip(spans, before, strict=True) if last < 0 or found.removed[last][1] <= span[0]]
    moved = move_spans(whole, found.removed)
    return relocate_spans(found.moved_text, moved, text, partial(normalize, whitespace=clean.whitespace))


def by_group(found: Iterable[np.ndarray]) -> Iterator[tuple[int, bytes]]:
    """(group of hashes, records) of arrays of records, many of them at a time."""
    waiting, size = list[np.ndarray](), 0
    for record_K in found:
        waiting.append(record_K)
        size += len(record_K)
        if size >= _AT_ONCE:
            yield from _divide(np.concatenate(waiting))
            waiting, size = [], 0
    if size:
        yield from _divide(np.concatenate(waiting))


def _divide(record_K: np.ndarray) -> Iterator[tuple[int, bytes]]:
    group_K = record_K["hash"] % np.uint64(_GROUPS)
    for group in np.unique(group_K).tolist():
        yield group, record_K[group_K == group].tobytes()


def by_part(record_K: np.ndarray, names: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """(part, records) for each part; the records have only the fields `names`."""
    chosen = list(names)
    kind = np.dtype([(name, record_K.dtype[name]) for name in chosen])
    for part in np.unique(record_K["part"]).tolist():
        of_part_K = record_K[record_K["part"] == part]
        chosen_K = np.empty(len(of_part_K), kind)
        for name in chosen:
            chosen_K[name] = of_part_K[name]
        yield part, chosen_K.tobytes()


def by_row(record_K: np.ndarray) -> dict[int, np.ndarray]:
    """The records of each row."""
    record_K = record_K[np.argsort(record_K["row"], kind="stable")]
    row_R, first_R = np.unique(record_K["row"], return_index=True)
    return dict(zip(row_R.tolist(), np.split(record_K, first_R)[1:], strict=True))
