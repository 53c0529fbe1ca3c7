"""Writes the kept documents of a part again, without repeated lines or substrings: steps line_dedup and substrings."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xxhash

from pipeline.spec import Clean
from pipeline.steps.clean import rejection_reason
from pipeline.steps.documents import Document, batches, documents, fields_of, write_documents
from pipeline.steps.output_folder import read_seal, seal
from preprocessing.text import Edits, move_spans, normalize, relocate_spans, text_key

_GROUP_BITS: Final = 16  # bits of a rank for the mixture group

Place = tuple[int, int]
"""The part and the row of a document."""


class DocumentEdit(NamedTuple):
    """A document without some ranges of its text, before its white space is normalized."""

    text: str
    removed: Edits  # the removed ranges of the original text, in order, each with the length of its replacement
    first: Place  # the document with the first occurrence of the first removed range
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


def write_edited(
    part: Path,
    row_K: np.ndarray,
    places: Mapping[int, object],
    edit: Callable[[int, Document], DocumentEdit],
    out: Path,
    clean: Clean,
    identity: str,
) -> None:
    """Write the kept rows of a part, with `edit` applied to the rows in `places`.

    A document that becomes too short is dropped. Marked phrases in removed ranges are dropped too. The seal has the
    numbers of dropped documents and removed bytes, of edited documents and removed ranges, and of lost phrases, and for
    each dropped document its row and the document with the first occurrence of its first removed range.
    """
    lost, edited, repeats = [0, 0], [0, 0], list[tuple[int, int, int]]()
    lost_phrases = 0

    def iterate_remaining() -> Iterator[Document]:
        nonlocal lost_phrases
        for row, document in select_documents(part, row_K):
            if row not in places:
                yield document
                continue
            found = edit(row, document)
            text = normalize(found.text, clean.whitespace)
            is_dropped = rejection_reason(text, clean) != ""
            lost[0] += is_dropped
            lost[1] += len(document.text.encode()) - (0 if is_dropped else len(text.encode()))
            if is_dropped:
                repeats.append((row, *found.first))
                continue
            edited[0] += 1
            edited[1] += len(found.removed)
            spans = _shift_spans(document, found, text, clean)
            lost_phrases += len(document.spans) // 2 - len(spans)
            positions = tuple(at for span in spans for at in span)
            yield Document(text, document.source, text_key(text), positions, document.metadata)

    write_documents(out, iterate_remaining(), fields_of(part))
    seal(out, identity=identity, lost=lost, edited=edited, repeats=repeats, lost_phrases=lost_phrases)


def is_written(out: Path, identity: str) -> bool:
    """Whether an edited part is complete."""
    return read_seal(out, identity=identity) is not None


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


def by_group(record_K: np.ndarray, group_K: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """(group, records) for each group of hashes."""
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
