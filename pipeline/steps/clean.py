"""Records -> cleaned documents. Each split becomes a file of documents, a seal with its ledger, and its rejects."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import xxhash

from pipeline.own_filter import OwnFilter, read_own_filter
from pipeline.readers import CUT_OFF, EXPECTED, SKIPPED, TORN, InputSplit, Record, list_kept_fields, piece_records
from pipeline.spec import Clean, Corpus, UrlLists, digest_of_list
from pipeline.steps.documents import Document, write_documents
from pipeline.steps.output_folder import REJECTS, read_seal, sample_file, seal
from preprocessing.dropped import SHOWN_CHARS, DroppedDocument, DroppedSample, write_dropped
from preprocessing.errors import BadInput, SesameError
from preprocessing.files import write_atomic, xxh3_file
from preprocessing.manifest import Ledger
from preprocessing.text import (
    Edits,
    Spans,
    UrlBlocklist,
    apply_rules,
    count_shared_ngrams,
    language,
    mask_pii,
    move_spans,
    normalize,
    relocate_spans,
    repair_text,
    text_key,
)

CLEANER_VERSION: Final = 6  # increase this if the same records yield other documents
_INDENTS: Final = ("\n  ", "\n\t")  # starts of indented lines, after a line end
BAD_ENCODING: Final = "bad_encoding"
_MOST_SHOWN: Final = 1000  # rejects of each reason that are written to a file; all are counted
_MOST_REASONS: Final = 300  # a filter of the user could return another one for each document
_MASKED_CHARS: Final = 4000  # characters of a dropped text in which personal data is masked before it is shortened
_LONGEST_PII: Final = 700  # characters of the longest address or number that `mask_pii` replaces
_LISTS: Final = {  # key of clean.urls -> argument of UrlBlocklist
    "domains": "domains",
    "urls": "urls",
    "banned_words": "words",
    "soft_banned_words": "soft_words",
    "banned_subwords": "subwords",
}
_NO_DAMAGE: Final = ("too_long", "timeout")  # rejects that are not damage of the input


@dataclass(frozen=True)
class Cleaner:
    """The settings that determine which document a record becomes."""

    clean: Clean
    with_spans: bool = False  # whether to keep the phrases that a source marks
    known_ngrams: str = ""  # file of n-grams that no document may contain; "" means none
    ngram: int = 13
    own_filters: Mapping[str, OwnFilter] = field(default_factory=dict)  # by path; their code goes to the workers
    url_digests: tuple[str, ...] = ()  # of the files of clean.urls: a process that has read others reads them again

    @classmethod
    def of_corpus(cls, corpus: Corpus, known_ngrams: str = "") -> Self:
        """The settings of a corpus. Raises BadInput if one of its own filters is invalid."""
        own = {path: read_own_filter(path) for path in corpus.clean.own_filters}
        digests = tuple(map(digest_of_list, corpus.clean.urls.files.values()))
        return cls(corpus.clean, corpus.phrases == "given", known_ngrams, corpus.decontaminate.ngram_size, own, digests)

    def document(self, record: Record) -> tuple[Document | None, str, int]:
        """The cleaned document or None, the reason if it is dropped, and the number of masked e-mail addresses etc."""
        clean = self.clean
        lists = _blocklist(clean.urls, self.url_digests) if record.url and clean.urls.files else None
        if lists and (reason := lists.find_reason(record.url)):
            return None, reason, 0
        if len(record.text) > clean.max_chars:  # checked first, because the next steps copy the text
            return None, "too_long", 0
        if record.text.count("\ufffd") > clean.max_replacement_char_ratio * len(record.text):
            return None, BAD_ENCODING, 0
        tidied = self.tidy_text(record.text)
        edits = list[Edits]()
        text, masked = mask_pii(tidied, clean.mask_pii, edits) if clean.mask_pii else (tidied, 0)
        if reason := rejection_reason(text, clean):
            return None, reason, masked
        masked_text = text
        text, reason = self._filter(text)
        reason = reason or rejection_reason(text, clean) or self._other_language(text) or self._find_contamination(text)
        if reason:
            return None, reason, masked
        spans: Spans = ()
        if self.with_spans and record.spans:
            spans = relocate_spans(record.text, record.spans, tidied, self.tidy_text)
            for replaced in edits:
                spans = move_spans(spans, replaced)
            if text is not masked_text and text != masked_text:
                spans = relocate_spans(masked_text, spans, text)
        positions = tuple(at for span in spans for at in span)
        return Document(text, record.source, text_key(text), positions, record.metadata), "", masked

    def beginning(self, text: str) -> str:
        """The first characters of a dropped text for people to read: repaired, and masked like a kept text.

        More is masked than is returned, because an address at the end of the masked part may be cut.
        """
        most = _MASKED_CHARS
        tidied = self.tidy_text(text[: 4 * most])
        if not self.clean.mask_pii:
            return tidied[:SHOWN_CHARS]
        masked, _ = mask_pii(tidied[:most], self.clean.mask_pii)
        is_whole = len(text) <= 4 * most and len(tidied) <= most
        return (masked if is_whole else masked[:-_LONGEST_PII])[:SHOWN_CHARS]

    def tidy_text(self, text: str) -> str:
        """The repaired and normalized text that all later steps read."""
        return normalize(repair_text(text) if self.clean.fix_text else text, self.clean.whitespace)

    def _filter(self, text: str) -> tuple[str, str]:
        """The text after the filters, and the reason of the first one that drops it."""
        if not self.own_filters:
            return apply_rules(text, self.clean.filters)
        for name in self.clean.filters:
            own = self.own_filters.get(name)
            text, reason = (text, own.find_reason(text)) if own else apply_rules(text, [name])
            if reason:
                return text, reason
        return text, ""

    def _other_language(self, text: str) -> str:
        wanted, least = self.clean.languages, self.clean.min_language_score
        if not wanted and not least:
            return ""
        code, probability = language(text)
        if wanted and code not in wanted:
            return "language"
        return "language_score" if probability < least else ""

    def _find_contamination(self, text: str) -> str:
        if not self.known_ngrams:
            return ""
        return "contaminated" if count_shared_ngrams(text, _ngrams(self.known_ngrams), self.ngram) else ""


class Damage(NamedTuple):
    """Damage of a file range. `share` is the unreadable fraction of its bytes, or 1 if the range is truncated."""

    piece: int  # index of the range in the split
    share: float
    why: str  # the first reason
    is_torn: bool  # whether the range ends early
    is_whole: bool  # whether it contains no readable document


@dataclass
class CleaningTally:
    """Statistics of cleaning a split. The ledger accounts for every byte; the first rejects of each reason are kept."""

    ledger: Ledger = field(default_factory=Ledger)
    repaired: list[int] = field(default_factory=lambda: [0, 0])  # repaired documents, replaced UTF-8 sequences
    masked: int = 0
    lines: list[int] = field(default_factory=lambda: [0, 0])  # lines of kept documents before cleaning: all, indented
    # phrases that sources mark in kept documents: all, remaining
    phrases: list[int] = field(default_factory=lambda: [0, 0])
    rejected: Counter[str] = field(default_factory=Counter)
    # encodings other than UTF-8, with the files that have them
    encodings: dict[str, set[str]] = field(default_factory=dict)
    shown: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)  # damaged bytes in the current range, by reason
    num_lost: int = 0  # damaged records in the current range
    dropped: DroppedSample = field(default_factory=DroppedSample)
    # kept documents that the ledger does not have yet: number, bytes of input, bytes of text
    kept: list[int] = field(default_factory=lambda: [0, 0, 0])
    changes: Counter[str] = field(default_factory=Counter)  # bytes that cleaning removed from them or added

    def of_piece(self, number: int, found: Iterable[Record]) -> Iterator[Record]:
        """The records of a file range. After the last record, damage of the range is added to `damaged`."""
        self.lost, self.num_lost, size, num = Counter(), 0, 0, 0
        for record in found:
            size, num = size + record.size, num + (record.fault not in EXPECTED)
            yield record
        if self.lost:
            torn = next((why for why in self.lost if why in TORN), "")
            first = CUT_OFF if CUT_OFF in self.lost else next(iter(self.lost))
            is_whole = num == self.num_lost
            share = 1.0 if torn or is_whole else round(self.lost.total() / max(1, size), 6)
            self.damaged.append(Damage(number, share, torn or first, torn != "", is_whole))

    @property
    def num_reasons(self) -> int:
        """Number of reasons in the ledger, including those of kept documents."""
        return len(self.ledger.dropped.keys() | self.changes.keys())

    def keep(self, record: Record, document: Document) -> None:
        """Count a kept document; `count_kept` adds the sums to the ledger, because that takes longer."""
        text = document.text
        size = len(text) if text.isascii() else len(text.encode())
        self.kept[0] += 1
        self.kept[1] += record.size
        self.kept[2] += size
        self.changes["trimmed" if size <= record.size else "added"] += record.size - size
        if record.repaired:
            self.repaired[0] += 1
            self.repaired[1] += record.repaired
        self.lines[0] += 1
        if "\n" in record.text:
            self.lines[0] += record.text.count("\n")
            self.lines[1] += sum(map(record.text.count, _INDENTS))

    def count_kept(self) -> None:
        """Add the kept documents to the ledger."""
        documents, seen, kept = self.kept
        self.ledger.see(documents, bytes=seen)
        self.ledger.keep(documents, bytes=kept)
        for reason, size in self.changes.items():
            self.ledger.drop(reason, 0, bytes=size)
        self.kept, self.changes = [0, 0, 0], Counter()

    def reject(self, record: Record, reason: str, snippet: bytes) -> None:
        """Count a record that could not be read or caused an error."""
        self.ledger.drop(reason, bytes=record.size)
        self.rejected[reason] += 1
        if reason not in _NO_DAMAGE:
            self.lost[reason] += record.size
            self.num_lost += 1
        if self.rejected[reason] <= _MOST_SHOWN:
            escaped = snippet[:200].decode("ascii", "backslashreplace")
            where = {"source": record.source, "start": record.start, "bytes": record.size}
            self.shown.append({**where, "reason": reason, "snippet": escaped})


def clean_split(split: InputSplit, part: Path, cleaner: Cleaner) -> None:
    """Write the cleaned documents of a split to `part`, unless `part` is already complete."""
    sample = sample_file(part)
    if (before := read_seal(part)) is not None and before.get("dropped") == _hash_of(sample):
        return
    tally = CleaningTally()
    pieces = (
        tally.of_piece(number, piece_records(split.source, piece, cleaner.clean.max_chars))
        for number, piece in enumerate(split.pieces)
    )
    fields = list_kept_fields(split.source)
    write_documents(part, clean_records(chain.from_iterable(pieces), cleaner, tally), fields)
    sample.unlink(missing_ok=True)
    if tally.dropped:
        write_dropped(sample, tally.dropped, fields)
    if tally.shown:
        lines = "".join(json.dumps(reject) + "\n" for reject in tally.shown)
        write_atomic(part.parent / REJECTS / f"{part.stem}.jsonl", lines.encode())
    facts: dict[str, Any] = {"repaired": tally.repaired, "masked": tally.masked, "rejected": dict(tally.rejected)}
    facts["damaged"] = tally.damaged
    facts["dropped"] = _hash_of(sample)
    if cleaner.with_spans:
        facts["phrases"] = tally.phrases
    facts["lines"] = tally.lines
    facts["encodings"] = {name: sorted(files) for name, files in sorted(tally.encodings.items())}
    seal(part, ledger=tally.ledger.to_dict(), **facts)


def _hash_of(path: Path) -> str:
    """xxh3-128 of a file; "" if there is none."""
    return xxh3_file(path) if path.is_file() else ""


def clean_records(records: Iterable[Record], cleaner: Cleaner, tally: CleaningTally) -> Iterator[Document]:
    """The kept documents.

    Bytes that cleaning removes from a kept document (tags, blanks, control characters) are recorded as dropped with the
    reason "trimmed". If a repair makes a document longer, the added bytes are recorded with the reason "added", as a
    negative number.
    """
    try:
        yield from _clean_records(records, cleaner, tally)
    finally:
        tally.count_kept()


def _clean_records(records: Iterable[Record], cleaner: Cleaner, tally: CleaningTally) -> Iterator[Document]:
    ledger = tally.ledger
    for record in records:
        if record.fault in EXPECTED:
            documents = int(record.fault in SKIPPED)
            ledger.see(documents, bytes=record.size)
            ledger.drop(record.fault, documents, bytes=record.size)
            continue
        if record.encoding:
            tally.encodings.setdefault(record.encoding, set()).add(record.source)
        if record.fault:
            ledger.see(bytes=record.size)
            tally.reject(record, record.fault, record.snippet)
            continue
        try:
            document, reason, masked = cleaner.document(record)
        except SesameError:
            raise
        except (ValueError, RecursionError) as error:  # a library error for one text does not stop the job
            ledger.see(bytes=record.size)
            tally.reject(record, f"broke_{type(error).__name__}", record.text[:200].encode(errors="replace"))
            continue
        if document is None:
            ledger.see(bytes=record.size)
            if reason == BAD_ENCODING:
                tally.reject(record, reason, _around_lost(record.text))
                continue
            if tally.num_reasons >= _MOST_REASONS and reason not in ledger.dropped:
                raise BadInput(
                    f"clean.filters: invalid reasons: got {_MOST_REASONS} and {reason!r}, expected a few; return fewer "
                    "different reasons from your filter"
                )
            ledger.drop(reason, bytes=record.size)
            _sample(record, reason, cleaner, tally)
            continue
        tally.keep(record, document)
        tally.masked += masked
        if cleaner.with_spans:
            tally.phrases[0] += len(record.spans)
            tally.phrases[1] += len(document.spans) // 2
        yield document


def _sample(record: Record, reason: str, cleaner: Cleaner, tally: CleaningTally) -> None:
    """Add a dropped record to the sample, if it belongs there."""
    key = xxhash.xxh3_128_hexdigest(record.text.encode("utf-8", "surrogatepass"))

    def make() -> DroppedDocument:
        try:
            text = cleaner.beginning(record.text)
        except (ValueError, RecursionError):  # a library error; the text may have personal data
            text = ""
        chars = len(record.text)
        return DroppedDocument(reason, key, record.source, chars, text, metadata=record.metadata)

    tally.dropped.add(reason, key, record.source, record.metadata, make)


def _around_lost(text: str) -> bytes:
    """The text around the first replacement character of a document."""
    at = text.find("\ufffd")
    return text[max(0, at - 50) : at + 50].encode(errors="replace")


def rejection_reason(text: str, clean: Clean) -> str:
    """The reason why a cleaned text is rejected for its length; "" if it is not."""
    if not text:
        return "empty"
    if len(text) < clean.min_chars:
        return "too_short"
    return "too_long" if len(text) > clean.max_chars else ""


@lru_cache(maxsize=1)
def _blocklist(lists: UrlLists, digests: tuple[str, ...]) -> UrlBlocklist:
    """The lists of URLs, which a process reads once for the same digests.

    A worker on another machine needs the files at the same paths.
    """
    files = lists.files
    with ExitStack() as opened:
        lines = {
            key: opened.enter_context(open(files[name], encoding="utf-8-sig", errors="replace"))
            if name in files
            else ()
            for name, key in _LISTS.items()
        }
        return UrlBlocklist.of_lines(**lines, soft_word_threshold=lists.soft_word_threshold)


@lru_cache(maxsize=1)
def _ngrams(file: str) -> np.ndarray:
    """The n-gram hashes in a file, uint64, memory-mapped."""
    return np.load(file, mmap_mode="r", allow_pickle=False)
