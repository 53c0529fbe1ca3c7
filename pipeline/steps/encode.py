"""Planned documents -> shards of token IDs, each with a seal that contains its ledger."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from pipeline.runners import Report
from pipeline.steps.documents import Document
from pipeline.steps.output_folder import read_seal, seal
from pipeline.steps.plan import PlannedShard, TextDirectory
from preprocessing.dropped import (
    DROPPED,
    SHOWN_CHARS,
    DroppedDocument,
    DroppedSample,
    from_plain,
    plain_dropped,
    read_dropped,
    write_dropped,
)
from preprocessing.errors import BadInput
from preprocessing.manifest import Ledger
from preprocessing.shards import write_flat_shard
from preprocessing.stand_ins import require_itself
from preprocessing.text import Gazetteer, describe_implausible, describe_unmarked, lines_as_sentences, sentences
from preprocessing.tokenization import NUM_STRINGS, EncodedBatch, Vocab, describe_stripped_marks

log = logging.getLogger(__name__)

ENCODER_VERSION: Final = 4  # increase this if the same text yields other shards: finished shards are then rewritten
NO_TOKENS: Final = "no_tokens"
_AT_ONCE: Final = 1 << 18  # characters of text; the tokenizer library needs about fifty times as much memory
_WORTH_A_TRIAL: Final = 8 << 20  # bytes of text; a trial takes as long as `tokenizers` for 3 MB
_MOST_UNKNOWN: Final = 0.2  # fraction of tokens; it is well below 1 % for a tokenizer of the right language


@dataclass(frozen=True)
class BoundarySettings:
    """How to find sentences, words and phrases in the text. The fields are keys of a Corpus."""

    sentence_boundaries: Literal["found", "lines"] = "found"
    word_segmentation: Literal["pieces", "jieba"] = "pieces"
    phrases: str = ""  # "given", or a file of phrases
    phrases_hash: str = ""  # hash of the phrases
    language: str = ""  # language of all documents, if known: determines the sentence boundaries

    def encode(self, documents: Iterable[Document], vocab: Vocab) -> Iterator[tuple[list[Document], EncodedBatch]]:
        """The documents with their encodings, in batches of a quarter of a MB of text."""
        batch, size = list[Document](), 0
        for document in documents:
            batch.append(document)
            size += len(document.text)
            if size >= _AT_ONCE:
                yield batch, self._encode_batch(batch, vocab)
                batch, size = [], 0
        if batch:
            yield batch, self._encode_batch(batch, vocab)

    def _encode_batch(self, batch: list[Document], vocab: Vocab) -> EncodedBatch:
        texts = [self.cut(document.text) for document in batch]
        spans = [self._spans(document) for document in batch] if self.phrases else None
        return vocab.encode_batch(texts, words=self.word_segmentation, spans=spans)

    def cut(self, text: str) -> list[str]:
        """The sentences of a text."""
        return lines_as_sentences(text) if self.sentence_boundaries == "lines" else sentences(text, self.language)

    def _spans(self, document: Document) -> list[tuple[int, int]]:
        if self.phrases == "given":
            return list(pairwise(document.spans))[::2]
        return _gazetteer(self.phrases, self.phrases_hash).find(document.text)


def encode_shard(
    shard: PlannedShard, text_folder: str, out: str, marks: BoundarySettings, encoder: str = "", **identity: str
) -> None:
    """Write a shard, unless a complete one has this identity (hashes of text, tokenizer and settings, version).

    `encoder` is the result of `try_encoder`. It changes no byte.
    """
    part = Path(out) / shard.name
    if read_seal(part, **identity) is not None:
        return
    vocab = _vocab(out, identity["vocab"], encoder)
    texts = TextDirectory.load(text_folder)
    ledger, dropped = Ledger(), DroppedSample()
    kept, encoded = list[Document](), list[EncodedBatch]()
    bytes_N = texts.plan_N["bytes"][shard.start : shard.stop].astype(np.int64)
    # the type in the shard; halves the memory for small vocabularies
    narrow = np.uint16 if vocab.size <= 1 << 16 else np.uint32
    for documents, batch in marks.encode(texts.documents(shard.start, shard.stop), vocab):
        encoded.append(batch._replace(ids_T=batch.ids_T.astype(narrow)))
        kept += (_without_text(document) for document in documents)
        dropped.update(_as_dropped(documents[index]) for index in np.flatnonzero(np.diff(batch.stop_D1) == 0).tolist())
    num_tokens_N = np.concatenate([np.diff(batch.stop_D1) for batch in encoded])
    has_tokens_N = num_tokens_N > 0
    ledger.see(len(kept), bytes=int(bytes_N.sum()), tokens=int(num_tokens_N.sum()))
    ledger.keep(int(has_tokens_N.sum()), bytes=int(bytes_N[has_tokens_N].sum()), tokens=int(num_tokens_N.sum()))
    if not has_tokens_N.all():
        ledger.drop(NO_TOKENS, int((~has_tokens_N).sum()), bytes=int(bytes_N[~has_tokens_N].sum()))
        kept = [kept[index] for index in np.flatnonzero(has_tokens_N).tolist()]
    if not kept:
        raise BadInput(
            f"{text_folder}: the tokenizer yields no token for any text of {shard.name}; use another tokenizer"
        )
    ids_T = np.concatenate([batch.ids_T for batch in encoded])
    flags = {
        "word_start": np.concatenate([batch.word_starts_T for batch in encoded]),
        "sentence_start": np.concatenate([batch.sentence_starts_T for batch in encoded]),
    }
    if units := [batch.unit_starts_T for batch in encoded if batch.unit_starts_T is not None]:
        flags["unit_start"] = np.concatenate(units)
    num_lost = sum(batch.num_lost for batch in encoded)
    del encoded
    info = write_flat_shard(
        part,
        ids_T,
        num_tokens_N[has_tokens_N],
        flags,
        [document.source for document in kept],
        [document.key for document in kept],
        vocab_size=vocab.size,
        metadata=[document.metadata for document in kept],
        fields=texts.fields,
    )
    statistics = {
        "sentences": int(flags["sentence_start"].sum()),
        "words": int(flags["word_start"].sum()),
        "unknown": int((ids_T == vocab.unk).sum()) if vocab.unk is not None else 0,
    }
    if marks.phrases:
        statistics["phrases_without_token"] = num_lost
    sample = {"dropped": [plain_dropped(each) for each in dropped]} if dropped else {}
    seal(part, info=asdict(info), ledger=ledger.to_dict(), statistics=statistics, **sample, **identity)


def _without_text(document: Document) -> Document:
    """A document without its text, which is not needed once it is encoded."""
    return Document("", document.source, document.key, (), document.metadata)


def _as_dropped(document: Document) -> DroppedDocument:
    text, key = document.text, document.key.hex()
    return DroppedDocument(NO_TOKENS, key, document.source, len(text), text[:SHOWN_CHARS], metadata=document.metadata)


@lru_cache(maxsize=1)
def _vocab(folder: str, wanted: str, encoder: str) -> Vocab:
    """The vocabulary of a corpus, loaded once per process."""
    return Vocab.load(Path(folder) / "vocab", wanted).use_encoder(encoder)


@lru_cache(maxsize=1)
def _gazetteer(file: str, wanted: str) -> Gazetteer:
    """The automaton for the phrases of a file, built once per process and content."""
    return Gazetteer(phrases_of(file))


def phrases_of(file: str) -> list[str]:
    """The phrases of a file, one per line. Raises BadInput if it cannot be read or is empty."""
    require_itself(file)
    try:
        found = [line for line in map(str.strip, Path(file).read_text(encoding="utf-8").split("\n")) if line]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"invalid phrases: cannot read {file!r} ({error}); set 'given' or a UTF-8 file with one phrase per line"
        ) from None
    if not found:
        raise BadInput(f"invalid phrases: {file} is empty; set a file with one phrase per line")
    return found


def write_sample(texts: TextDirectory, out: Path, seals: Iterable[dict[str, Any]]) -> None:
    """Write the sample of the dropped documents of a corpus: that of its text, and documents without a token.

    A file that has it already stays. An older version of Sesame made no sample of its text; then there is none for the
    corpus either.
    """
    try:
        sample = DroppedSample()
        sample.update(read_dropped(texts.folder / DROPPED))
    except OSError:
        (out / DROPPED).unlink(missing_ok=True)
        return
    for facts in seals:
        sample.update(from_plain(row) for row in facts.get("dropped", ()))
    with suppress(OSError):  # none, or damaged
        if read_dropped(out / DROPPED) == [*sample]:
            return
    write_dropped(out / DROPPED, sample, texts.fields)


def check_fit(vocab: Vocab, texts: TextDirectory) -> None:
    """Raise BadInput if too many tokens of a text sample are unknown, e.g. in another language or script."""
    encoded = vocab.encode_documents([[document.text] for document in texts.sample])
    ids_T = np.concatenate([each.ids for each in encoded])
    if not len(ids_T):
        raise BadInput(f"{texts.folder}: the tokenizer yields no token for this text; use another tokenizer")
    unknown = float((ids_T == vocab.unk).mean()) if vocab.unk is not None else 0.0
    if unknown > _MOST_UNKNOWN:
        raise BadInput(
            f"{texts.folder}: the tokenizer does not fit the text: {unknown:.0%} of the tokens are unknown (at most "
            f"{_MOST_UNKNOWN:.0%} is allowed); train one on this text or choose one of its language"
        )


def try_encoder(
    vocab: Vocab, texts: TextDirectory, marks: BoundarySettings, size: int, report: Report | None = None
) -> str:
    """The name of a fast encoder that returns the IDs of `tokenizers` for a sample of this text; "" if there is none.

    For `size` bytes of text, a few MB or less, or for boundaries that need offsets, the trial would not pay.
    """
    if size < _WORTH_A_TRIAL or marks.word_segmentation != "pieces" or marks.phrases or not vocab.encoder_to_try:
        return ""
    stage = f"trying the encoder {vocab.encoder_to_try}"
    if report:
        report({"stage": stage})
    sample = [document.text for document in texts.sample]
    trial = vocab.try_encoder(sample)
    if trial.reason:
        log.warning("%s; tokenizers encodes the text, with the same result", trial.reason)
    elif report:
        size_mb = sum(len(text.encode()) for text in sample) / 1e6
        report({"stage": stage, "equal_for": f"{NUM_STRINGS:,} strings and {size_mb:.1f} MB"})
    return trial.name


def implausible_sentences(texts: TextDirectory, marks: BoundarySettings) -> str:
    """A description of implausible sentences in a text sample; "" if there are none."""
    found = [sentence for document in texts.sample for sentence in marks.cut(document.text)]
    return (describe_unmarked(found) if marks.sentence_boundaries == "found" else "") or describe_implausible(found)


def describe_accent_loss(texts: TextDirectory, vocab: Vocab) -> str:
    """A description of the accents that the tokenizer removes in a text sample; "" if there are none."""
    return describe_stripped_marks((document.text for document in texts.sample), vocab)


def chain_ledgers(text: Ledger, encoded: Ledger) -> Ledger:
    """The ledger of both passes: documents seen by cleaning, kept by encoding, and dropped by either."""
    assert (text.kept.documents, text.kept.bytes) == (encoded.seen.documents, encoded.seen.bytes), (
        "text and corpus differ in the number of documents or bytes"
    )
    both = Ledger(text.seen, encoded.kept, text.dropped).merge(Ledger(dropped=encoded.dropped))
    both.see(0, tokens=encoded.seen.tokens)
    return both
