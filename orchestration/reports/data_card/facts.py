"""What there is to say about a corpus, as plain values: counted in one pass over its shards.

Nothing in here varies from run to run or from machine to machine: no time, no path. Equal corpora have equal facts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from orchestration.config import Recipe, flatten
from orchestration.reports.data_card.examples import CardExample, examples
from pipeline.readers import Reader, portable
from pipeline.spec import Corpus
from preprocessing.manifest import Count, Ledger, Manifest
from preprocessing.rows import ExampleDataset
from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore
from preprocessing.text import language
from preprocessing.tokenization import Vocab, shown_piece

_AT_ONCE: Final = 1 << 20  # tokens of documents that are counted together, about
_LANGUAGE_DOCUMENTS: Final = 300
_LANGUAGE_TOKENS: Final = 400  # of a document: enough to know its language
_SAMPLES: Final = 5
_SAMPLE_TOKENS: Final = 160
_RANKS: Final = 200  # points of the Zipf plot
_TOP: Final = 20  # pieces, sources
_MOST_PIECES: Final = 6  # of a word, counted one by one; longer words are counted together
_STATISTICS: Final = 60  # lines of what else the manifest counts
_STEPS: Final = (  # how reasons begin, in the order of the steps that drop documents; those of reading come first
    *("empty", "too_short", "too_long", "c4_", "gopher_", "language", "contaminated", "trimmed", "added"),
    *("repeated_line", "duplicate", "near_duplicate", "known", "near_known", "no_tokens"),
)


@dataclass(frozen=True)
class Lengths:
    """How long documents or sentences are, in tokens; bin i is from edges[i] up to, without it, edges[i + 1]."""

    count: int
    mean: float
    quantiles: dict[str, int]
    edges: tuple[int, ...]
    bins: tuple[int, ...]


@dataclass(frozen=True)
class TokenizerStats:
    """The vocabulary, and how well it fits the text."""

    kind: str
    size: int
    hash: str
    special: tuple[str, ...]
    unused: int  # pieces that never occur, without the special ones
    unknown: int  # tokens
    words_of: tuple[int, ...]  # words of 1, 2, ... pieces; the last one: of that many or more
    words: int
    top: tuple[tuple[str, int], ...]  # piece, tokens
    zipf: tuple[tuple[int, int], ...]  # rank, tokens of the piece; ranks are spaced by ratio
    covered: tuple[tuple[int, int], ...]  # k, tokens that are one of the k most frequent pieces


@dataclass(frozen=True)
class SampleDocument:
    """The beginning of a document, decoded."""

    key: str
    source: str
    tokens: int
    text: str


@dataclass(frozen=True)
class MixedGroup:
    """A group of a mixture: what it has, and what the run of the card's recipe reads of it."""

    name: str
    weight: float
    asked: float  # share of the tokens that are trained on
    documents: int
    tokens: int
    trained: int  # tokens, without special ones
    epochs: float
    ledger: Ledger  # of the documents that it gave
    held_out: dict[str, int]  # documents in the other splits


@dataclass(frozen=True)
class DataCardFacts:
    """Everything that a data card says."""

    name: str
    digest: str
    spec_hash: str
    text_hash: str
    versions: dict[str, str]
    made: dict[str, str]  # the settings, without the paths of a machine; empty where they were not given
    splits: dict[str, dict[str, int]]
    seen: Count
    kept: Count
    dropped: dict[str, Count]  # by reason, in the order of the steps
    statistics: dict[str, str]  # what else the manifest counts
    documents: Lengths
    sentences: Lengths
    pieces: TokenizerStats
    languages: dict[str, int]  # code -> documents of a sample
    num_sources: int
    recipe: str
    mixture: tuple[MixedGroup, ...]  # empty where nothing is weighted
    sources: tuple[tuple[str, int, int], ...]  # name, documents, tokens, of those with most tokens
    samples: tuple[SampleDocument, ...]
    examples: tuple[CardExample, ...]


def facts_of(corpus: Path, recipe: Recipe, spec: Corpus | None = None) -> DataCardFacts:
    """The facts of a finished corpus; `recipe` says which objective comes first, `spec` how the corpus was made.

    Beside a shard's own columns, memory holds two numbers a document (TokenStore) and one a piece. BadInput where the
    corpus is damaged.
    """
    manifest = Manifest.load(corpus)
    vocab = Vocab.load(corpus / "vocab", manifest.vocab["hash"])
    stores = [TokenStore.open(corpus, split) for split in manifest.splits]
    shards = [shard for store in stores for shard in store.shards]
    tally = _Tally(np.zeros(vocab.size, np.int64))
    for shard in shards:
        tally.add(Shard(shard.path))  # opened anew, so that what it works out is not kept
    return DataCardFacts(
        name=manifest.name,
        digest=manifest.digest,
        spec_hash=manifest.spec_hash,
        text_hash=manifest.text_hash,
        versions=manifest.versions,
        made=_made(spec) if spec else {},
        splits=manifest.splits,
        seen=manifest.ledger.seen,
        kept=manifest.ledger.kept,
        dropped={reason: manifest.ledger.dropped[reason] for reason in sorted(manifest.ledger.dropped, key=_turn)},
        statistics=_statistics(manifest.statistics),
        documents=_lengths(tally.documents),
        sentences=_lengths(tally.sentences),
        pieces=_pieces(tally, vocab),
        languages=_languages(shards, vocab),
        num_sources=len(tally.sources),
        recipe=recipe.name,
        mixture=tuple(_mixture(stores[0], vocab, recipe)),
        sources=tuple((name, *tally.sources[name]) for name in sorted(tally.sources, key=tally.least_first)[:_TOP]),
        samples=tuple(_samples(stores[0].shards, vocab)),
        examples=tuple(examples(stores[0], vocab, recipe)),
    )


def _mixture(store: TokenStore, vocab: Vocab, recipe: Recipe) -> Iterator[MixedGroup]:
    """The groups of the training split, where it has any, and what the whole run reads of them."""
    if not store.groups:
        return
    positions = dict.fromkeys((phase.seq_length for phase in recipe.phases), 0)  # rows of a length are read on and on
    rows = {length: ExampleDataset(store, vocab, recipe.sampling, length) for length in positions}
    for phase in recipe.phases:
        tokens = phase.steps * phase.global_batch_size * phase.seq_length
        by_tokens = phase.batch_unit == "token"
        positions[phase.seq_length] += (
            len(rows[phase.seq_length].rows_in_token_range(0, tokens))
            if by_tokens
            else phase.steps * phase.global_batch_size
        )
    realised = [rows[length].realised(stop) for length, stop in positions.items()]
    for number, name in enumerate(sorted(store.manifest.mixture)):
        group, parts = store.manifest.mixture[name], [part[number] for part in realised]
        yield MixedGroup(
            name=name,
            weight=group.weight,
            asked=group.share,
            documents=group.documents,
            tokens=group.tokens,
            trained=sum(part.tokens for part in parts),
            epochs=sum(part.epochs for part in parts),
            ledger=Ledger.from_dict(group.ledger) if group.ledger else Ledger(),
            held_out=group.held_out,
        )


# Counting


@dataclass
class _Tally:
    """What is counted over all shards."""

    count_V: Ints  # tokens of each piece
    words_of_P: Ints = field(default_factory=lambda: np.zeros(_MOST_PIECES + 1, np.int64))
    documents: Counter[int] = field(default_factory=Counter)  # by their length
    sentences: Counter[int] = field(default_factory=Counter)
    sources: dict[str, tuple[int, int]] = field(default_factory=dict)  # documents, tokens

    def add(self, shard: Shard) -> None:
        num_S = len(shard.sources)
        documents_S = np.bincount(shard.source_N, minlength=num_S)
        tokens_S = np.bincount(shard.source_N, weights=shard.num_tokens_N, minlength=num_S).astype(np.int64)
        for name, documents, tokens in zip(shard.sources, documents_S.tolist(), tokens_S.tolist(), strict=True):
            before = self.sources.get(name, (0, 0))
            self.sources[name] = (before[0] + documents, before[1] + tokens)
        _count(self.documents, shard.num_tokens_N)
        for start, stop in _stretches(shard.offset_N1):
            self.count_V += np.bincount(shard.ids_T[start:stop], minlength=len(self.count_V))
            begin, end = np.searchsorted(shard.sentence_at_M, [start, stop])
            _count(self.sentences, np.diff(shard.sentence_at_M[begin:end], append=stop))
            pieces_W = np.diff(np.flatnonzero(shard.word_starts(start, stop)), append=stop - start)
            self.words_of_P += np.bincount(np.minimum(pieces_W, _MOST_PIECES), minlength=_MOST_PIECES + 1)

    def least_first(self, source: str) -> tuple[int, str]:
        """Sorts the sources with most tokens to the front, equal ones by name."""
        return -self.sources[source][1], source


def _stretches(offset_N1: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of tokens of whole documents that together are all, each of about _AT_ONCE or of one document."""
    at, last = 0, len(offset_N1) - 1
    while at < last:
        following = max(at + 1, int(np.searchsorted(offset_N1, offset_N1[at] + _AT_ONCE, side="right")) - 1)
        yield int(offset_N1[at]), int(offset_N1[following])
        at = following


def _count(lengths: Counter[int], length_N: Ints) -> None:
    values, counts = np.unique(length_N, return_counts=True)
    lengths.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _lengths(counted: Mapping[int, int]) -> Lengths:
    """Lengths as people read them: quantiles, and bins of which two double a length."""
    value_L = np.array(sorted(counted), np.int64)
    count_L = np.array([counted[value] for value in value_L.tolist()], np.int64)
    upto_L, total = np.cumsum(count_L), int(count_L.sum())
    quantile = {
        said: int(value_L[np.searchsorted(upto_L, share * total)])
        for said, share in {"shortest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "longest": 1.0}.items()
    }
    edges = np.unique(np.round(2 ** (np.arange(2 * int(value_L[-1]).bit_length() + 1) / 2)).astype(np.int64))
    edges = edges[max(0, np.searchsorted(edges, value_L[0], side="right") - 1) :]
    edges = edges[: np.searchsorted(edges, value_L[-1], side="right") + 1]
    bins = np.histogram(value_L, edges, weights=count_L)[0].astype(np.int64)
    mean = float((value_L * count_L).sum() / total)
    return Lengths(total, mean, quantile, tuple(edges.tolist()), tuple(bins.tolist()))


def _pieces(tally: _Tally, vocab: Vocab) -> TokenizerStats:
    order_V = np.argsort(-tally.count_V, kind="stable")
    count_V = tally.count_V[order_V]
    used = int((count_V > 0).sum())
    upto_V = np.cumsum(count_V)
    rank_R = np.unique(np.round(np.geomspace(1, used, _RANKS)).astype(np.int64))
    is_ordinary_V = np.ones(vocab.size, np.bool_)
    is_ordinary_V[list(vocab.special_ids)] = False
    return TokenizerStats(
        kind=vocab.kind,
        size=vocab.size,
        hash=vocab.hash,
        special=tuple(vocab.piece(id) for id in vocab.special_ids),
        unused=int((is_ordinary_V & (tally.count_V == 0)).sum()),
        unknown=0 if vocab.unk is None or vocab.unk == vocab.sep else int(tally.count_V[vocab.unk]),
        words_of=tuple(tally.words_of_P[1:].tolist()),
        words=int(tally.words_of_P.sum()),
        top=tuple((shown_piece(vocab, id), int(tally.count_V[id])) for id in order_V[: min(used, _TOP)].tolist()),
        zipf=tuple((rank, int(count_V[rank - 1])) for rank in rank_R.tolist()),
        covered=tuple((k, int(upto_V[k - 1])) for k in (10, 100, 1_000, 10_000) if k < used),
    )


# Values in words


def _turn(reason: str) -> tuple[int, str]:
    """Sorts reasons into the order of the steps that drop documents.

    >>> sorted(["duplicate", "bad_json", "gopher_ellipses", "c4_lorem_ipsum"], key=_turn)
    ['bad_json', 'c4_lorem_ipsum', 'gopher_ellipses', 'duplicate']
    """
    return next((turn for turn, step in enumerate(_STEPS, 1) if reason.startswith(step)), 0), reason


def _statistics(counted: Mapping[str, Any]) -> dict[str, str]:
    """What the manifest counts, on dotted keys; what the card counts by itself is left out."""
    others = {key: value for key, value in counted.items() if key not in ("sentences", "words", "unknown")}
    return {key: _said(value) for key, value in islice(flatten(others), _STATISTICS) if _said(value)}


def _made(spec: Corpus) -> dict[str, str]:
    """The settings of a corpus; of a path only the name, of sources only their kinds."""
    settings = asdict(spec)
    del settings["name"], settings["sources"], settings["mixture"]
    settings["phrases"] = Path(spec.phrases).name
    settings["dedup"]["reference_corpora"] = [Path(path).name for path in spec.dedup.reference_corpora]
    settings["decontaminate"]["paths"] = [Path(path).name for path in spec.decontaminate.paths]
    kinds = Counter(_kind(source) for source in spec.sources)
    said = {"sources": ", ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in sorted(kinds.items()))}
    return said | {key: _said(value) for key, value in flatten(settings) if _said(value)}


def _kind(source: Reader) -> str:
    """A source without its paths.

    >>> from pipeline.readers import JsonlReader
    >>> _kind(JsonlReader(path="/home/me/news"))
    'jsonl (text_key text)'
    """
    settings = [f"{key} {_said(value)}" for key, value in portable(source).items() if key != "kind" and value]
    return source.kind + (f" ({', '.join(settings)})" if settings else "")


def _said(value: Any) -> str:
    """
    >>> _said(True), _said(12345), _said(0.005), _said(("a", "b")), _said([])
    ('yes', '12,345', '0.005', 'a, b', '')
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)


# Looking into documents


def _languages(shards: Sequence[Shard], vocab: Vocab) -> dict[str, int]:
    """The languages of documents spread evenly over the corpus, the most frequent first."""
    found = Counter(
        language(vocab.decode(_tokens(shard, i, _LANGUAGE_TOKENS)))[0]
        for shard, i in _spread(shards, _LANGUAGE_DOCUMENTS)
    )
    return {code: found[code] for code in sorted(found, key=lambda code: (-found[code], code))}


def _samples(shards: Sequence[Shard], vocab: Vocab) -> Iterator[SampleDocument]:
    for shard, i in _spread(shards, _SAMPLES):
        num_tokens = int(shard.num_tokens_N[i])
        text = vocab.decode(_tokens(shard, i, _SAMPLE_TOKENS)).strip() + " ..." * (num_tokens > _SAMPLE_TOKENS)
        yield SampleDocument(shard.key(i).hex(), shard.source(i), num_tokens, text)


def _spread(shards: Sequence[Shard], count: int) -> Iterator[tuple[Shard, int]]:
    """At most `count` documents, evenly spaced: a fair sample, as documents are in the order of their hashes."""
    end_K = np.cumsum([len(shard) for shard in shards])
    total = int(end_K[-1])
    count = min(count, total)
    for n in range(count):
        at = (2 * n + 1) * total // (2 * count)
        k = int(np.searchsorted(end_K, at, side="right"))
        yield shards[k], at - int(end_K[k]) + len(shards[k])


def _tokens(shard: Shard, i: int, most: int) -> Ints:
    start, stop = shard.offset_N1[i : i + 2].tolist()
    return shard.ids_T[start : min(stop, start + most)]
