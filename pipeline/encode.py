"""Planned documents -> shards of token ids, each with a seal that holds its ledger."""

from dataclasses import asdict
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.clean import Document
from pipeline.plan import Shard, Texts
from pipeline.stage import seal, sealed
from preprocessing.errors import BadInput
from preprocessing.manifest import Ledger
from preprocessing.shards import write_shard
from preprocessing.text import sentences
from preprocessing.vocab import Encoded, Vocab

ENCODER_VERSION: Final = 1  # one more whenever the same text gives other shards: finished shards are made again
_AT_ONCE: Final = 2 << 20  # bytes of text: the library takes about fifty times as much
_SAMPLE: Final = 1 << 20
_MOST_UNKNOWN: Final = 0.2  # share of tokens; a vocabulary of the right language has well below 1 %


def encode_shard(shard: Shard, text_folder: str, out: str, **identity: str) -> None:
    """Write a shard, unless it is there, whole and of this identity (hashes of text and vocabulary, version)."""
    part = Path(out) / shard.name
    if sealed(part, **identity) is not None:
        return
    vocab = _vocab(out, identity["vocab"])
    documents = Texts.load(text_folder).documents(shard.start, shard.stop)
    ledger = Ledger()
    kept: list[tuple[Document, Encoded]] = []
    for document, encoded in zip(documents, chain.from_iterable(_encoded(documents, vocab)), strict=True):
        size, tokens = len(document.text.encode()), len(encoded.ids)
        ledger.see(bytes=size, tokens=tokens)
        if tokens:
            ledger.keep(bytes=size)
            kept.append((document, encoded))
        else:
            ledger.drop("no_tokens", bytes=size)
    if not kept:
        raise BadInput(
            f"{text_folder}: the vocabulary has no token for any text of {shard.name}; use another vocabulary"
        )
    texts, columns = [document for document, _ in kept], [encoded for _, encoded in kept]
    info = write_shard(
        part,
        [encoded.ids for encoded in columns],
        [encoded.word_starts for encoded in columns],
        [encoded.sentence_starts for encoded in columns],
        [text.source for text in texts],
        [text.key for text in texts],
        vocab_size=vocab.size,
    )
    ledger.keep(0, tokens=info.tokens)
    statistics = {
        "sentences": sum(int(encoded.sentence_starts.sum()) for encoded in columns),
        "words": sum(int(encoded.word_starts.sum()) for encoded in columns),
        "unknown": sum(int((encoded.ids == vocab.unk).sum()) for encoded in columns) if vocab.unk is not None else 0,
    }
    seal(part, info=asdict(info), ledger=ledger.to_dict(), statistics=statistics, **identity)


def _encoded(documents: list[Document], vocab: Vocab) -> Any:
    """The documents encoded, in lists of a few MB of text."""
    batch, size = list[list[str]](), 0
    for document in documents:
        batch.append(sentences(document.text))
        size += len(document.text)
        if size >= _AT_ONCE:
            yield vocab.encode_documents(batch)
            batch, size = [], 0
    yield vocab.encode_documents(batch)


@lru_cache(maxsize=1)
def _vocab(folder: str, wanted: str) -> Vocab:
    """The vocabulary of a corpus, loaded once in each process."""
    return Vocab.load(Path(folder) / "vocab", wanted)


def check_fit(vocab: Vocab, texts: Texts) -> None:
    """BadInput where a sample of the text is unknown to the vocabulary for a good part: another language, or script."""
    planned_N = texts.plan_N[: np.searchsorted(np.cumsum(texts.plan_N["bytes"].astype(np.int64)), _SAMPLE) + 1]
    ids = [encoded.ids for encoded in chain.from_iterable(_encoded(texts.documents(0, len(planned_N)), vocab))]
    ids_T = np.concatenate(ids)
    if not len(ids_T):
        raise BadInput(f"{texts.folder}: the vocabulary has no token for this text; use another vocabulary")
    unknown = float((ids_T == vocab.unk).mean()) if vocab.unk is not None else 0.0
    if unknown > _MOST_UNKNOWN:
        raise BadInput(
            f"{texts.folder}: the vocabulary does not fit, {unknown:.0%} of the tokens are unknown to it (at most "
            f"{_MOST_UNKNOWN:.0%} is allowed); train one on this text or name one of its language"
        )


def chained(text: Ledger, encoded: Ledger) -> Ledger:
    """The ledger of both passes: what was read is what cleaning saw, what is kept is what encoding kept."""
    assert (text.kept.documents, text.kept.bytes) == (encoded.seen.documents, encoded.seen.bytes), (
        "documents went astray"
    )
    both = Ledger(text.seen, encoded.kept, text.dropped).merge(Ledger(dropped=encoded.dropped))
    both.see(0, tokens=encoded.seen.tokens)
    return both
