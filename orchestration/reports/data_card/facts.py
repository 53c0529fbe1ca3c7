"""The facts of a data card as plain values, counted in one pass over the shards of a corpus.

Facts contain no time and no path, so equal corpora have equal facts on any machine.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from orchestration.config import Recipe, flatten
from orchestration.reports.data_card.examples import CardExample, examples
from pipeline.readers import Reader, portable
from pipeline.spec import Corpus
from preprocessing.dropped import DROPPED, DroppedDocument, read_dropped
from preprocessing.manifest import Count, Ledger, Manifest
from preprocessing.rows import ExampleDataset, RealizedShare
from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore
from preprocessing.text import REASONS, language
from preprocessing.tokenization import Vocab, display_piece
from training.specs import list_blends

_TOKENS_AT_ONCE: Final = 1 << 20  # approximate number of tokens that are counted together
_LANGUAGE_DOCUMENTS: Final = 300
_LANGUAGE_TOKENS: Final = 400  # tokens at the start of a document that identify its language
_SAMPLES: Final = 5
_SHOWN_DROPPED: Final = 5  # dropped documents of each reason in the card; the sample has more
_SAMPLE_TOKENS: Final = 160
_RANKS: Final = 200  # points of the Zipf plot
_TOP: Final = 20  # vocabulary entries and sources in a table
_MOST_PIECES: Final = 6  # words with more tokens are counted together
_STATISTICS: Final = 60  # maximum number of other statistics of the manifest
# prefixes of the reasons, in the order of the steps that drop documents; readers come first
_BEFORE_FILTERS: Final = ("url_", "bad_encoding", "empty", "too_short", "too_long")
_FILTERS: Final = ("c4", "gopher_quality", "gopher_repetition", "fineweb_quality")  # the order if none is known
_AFTER_FILTERS: Final = (
    *("language", "contaminated", "trimmed", "added"),
    *("repeated_line", "repeated_substring", "duplicate", "near_duplicate", "known", "near_known", "no_tokens"),
)


@dataclass(frozen=True)
class Lengths:
    """Lengths of documents or sentences in tokens; bin i counts the lengths with edges[i] <= length < edges[i + 1]."""

    count: int
    mean: float
    quantiles: dict[str, int]
    edges: tuple[int, ...]
    bins: tuple[int, ...]


@dataclass(frozen=True)
class TokenizerStats:
    """Facts about the vocabulary and the tokens of the text."""

    kind: str
    size: int
    hash: str
    special: tuple[str, ...]
    unused: int  # number of entries that never occur, without special tokens
    unknown: int  # number of unknown tokens
    words_of: tuple[int, ...]  # number of words of 1, 2, ... tokens; the last number includes longer words
    words: int
    top: tuple[tuple[str, int], ...]  # entry, number of its tokens
    zipf: tuple[tuple[int, int], ...]  # rank, number of tokens of its entry; ranks are spaced logarithmically
    covered: tuple[tuple[int, int], ...]  # k, number of tokens from the k most frequent entries


@dataclass(frozen=True)
class SampleDocument:
    """The beginning of a document, decoded."""

    key: str
    source: str
    tokens: int
    text: str


@dataclass(frozen=True)
class DomainTable:
    """The hosts of the documents by their URLs."""

    hosts: int
    without_host: Count  # documents without a URL
    top: tuple[tuple[str, Count], ...]  # the hosts with the most tokens


@dataclass(frozen=True)
class MixedGroup:
    """A group of a mixture: its contents, and the part that a run of the recipe trains on, 0 without a recipe."""

    name: str
    weight: float
    requested: float  # requested fraction of the training tokens
    documents: int
    tokens: int
    trained: int  # number of training tokens, without special tokens
    epochs: float
    ledger: Ledger  # counts the documents of this group
    held_out: dict[str, int]  # number of documents by held-out split


@dataclass(frozen=True)
class DataCardFacts:
    """All facts of a data card."""

    name: str
    digest: str
    spec_hash: str
    text_hash: str
    versions: dict[str, str]
    settings: dict[str, str]  # without paths of this machine; empty if unknown
    splits: dict[str, dict[str, int]]
    seen: Count
    kept: Count
    dropped: dict[str, Count]  # by reason, in the order of the steps
    statistics: dict[str, str]  # other statistics of the manifest
    documents: Lengths
    sentences: Lengths
    vocabulary: TokenizerStats
    languages: dict[str, int]  # language code -> number of documents in a sample
    num_sources: int
    recipe: str  # "" without a recipe
    mixture: tuple[MixedGroup, ...]  # empty without a mixture
    sources: tuple[tuple[str, int, int], ...]  # name, documents, tokens; the sources with the most tokens
    domains: DomainTable | None  # None if the documents have no URLs
    dropped_samples: tuple[DroppedDocument, ...]  # the first of each reason; empty if the corpus has no sample
    samples: tuple[SampleDocument, ...]
    examples: tuple[CardExample, ...]


def facts_of(corpus: Path, recipe: Recipe | None, spec: Corpus | None = None) -> DataCardFacts:
    """The facts of a finished corpus.

    The first training sample has the objective of `recipe`, if any; `spec` has the settings of the corpus. Memory
    holds the columns of one shard, two numbers per document (TokenStore), and one number per vocabulary entry.
    BadInput if the corpus is damaged.
    """
    manifest = Manifest.load(corpus)
    vocab = Vocab.load(corpus / "vocab", manifest.vocab["hash"])
    stores = [TokenStore.open(corpus, split) for split in manifest.splits]
    shards = [shard for store in stores for shard in store.shards]
    tally = _Tally(np.zeros(vocab.size, np.int64))
    for shard in shards:
        tally.add(Shard(shard.path))  # a new object, so that its cached columns are freed after use
    order = _step_order([Path(name).stem for name in spec.clean.filters] if spec else _FILTERS)
    return DataCardFacts(
        name=manifest.name,
        digest=manifest.digest,
        spec_hash=manifest.spec_hash,
        text_hash=manifest.text_hash,
        versions=manifest.versions,
        settings=_settings(spec) if spec else {},
        splits=manifest.splits,
        seen=manifest.ledger.seen,
        kept=manifest.ledger.kept,
        dropped={reason: manifest.ledger.dropped[reason] for reason in sorted(manifest.ledger.dropped, key=order)},
        statistics=_statistics(manifest.statistics),
        documents=_lengths(tally.documents),
        sentences=_lengths(tally.sentences),
        vocabulary=_tokenizer_stats(tally, vocab),
        languages=_languages(shards, vocab),
        num_sources=len(tally.sources),
        recipe=recipe.name if recipe else "",
        mixture=tuple(_mixture(stores[0], vocab, recipe)),
        sources=tuple((name, *tally.sources[name]) for name in sorted(tally.sources, key=tally.sort_key)[:_TOP]),
        domains=_domains(manifest.statistics),
        dropped_samples=tuple(_find_dropped(corpus, order)),
        samples=tuple(_samples(stores[0].shards, vocab)),
        examples=tuple(examples(stores[0], vocab, recipe)),
    )


def _mixture(store: TokenStore, vocab: Vocab, recipe: Recipe | None) -> Iterator[MixedGroup]:
    """The groups of the training split, with the number of tokens that a whole run of the recipe trains on."""
    if not store.groups:
        return
    realized = _count_trained(store, vocab, recipe) if recipe else []
    requested = _compute_requested_shares(store, recipe)
    for number, name in enumerate(sorted(store.manifest.mixture)):
        group, parts = store.manifest.mixture[name], [part[number] for part in realized]
        yield MixedGroup(
            name=name,
            weight=group.weight,
            requested=requested[name],
            documents=group.documents,
            tokens=group.tokens,
            trained=sum(part.tokens for part in parts),
            epochs=sum(part.epochs for part in parts),
            ledger=Ledger.from_dict(group.ledger) if group.ledger else Ledger(),
            held_out=group.held_out,
        )


def _compute_requested_shares(store: TokenStore, recipe: Recipe | None) -> dict[str, float]:
    """The requested fraction of each group in the training tokens: the mean over the phases of the recipe, if any."""
    of_corpus = {name: group.share for name, group in store.manifest.mixture.items()}
    requested = dict.fromkeys(of_corpus, 0.0)
    for phase in recipe.mixed_phases if recipe else ():
        total = sum(phase.mixture.values())
        of_phase = {name: phase.mixture.get(name, 0) / total for name in of_corpus} if total else of_corpus
        part = phase.steps * phase.global_batch_size * phase.seq_length / recipe.num_tokens if recipe else 0.0
        requested = {name: share + part * of_phase[name] for name, share in requested.items()}
    return requested if recipe else of_corpus


def _count_trained(store: TokenStore, vocab: Vocab, recipe: Recipe) -> list[list[RealizedShare]]:
    """What a whole run of the recipe reads of each group, for each sequence length."""
    # phases of equal length continue in the same order of sequences
    positions = dict.fromkeys((phase.seq_length for phase in recipe.phases), 0)
    rows = {
        length: ExampleDataset(
            store,
            vocab,
            recipe.sampling,
            length,
            list_blends(sorted(store.manifest.mixture), recipe.mixed_phases, length),
        )
        for length in positions
    }
    for phase in recipe.phases:
        tokens = phase.steps * phase.global_batch_size * phase.seq_length
        by_tokens = phase.batch_unit == "token"
        positions[phase.seq_length] += (
            len(rows[phase.seq_length].rows_in_token_range(0, tokens))
            if by_tokens
            else phase.steps * phase.global_batch_size
        )
    return [rows[length].count_realized_shares(stop) for length, stop in positions.items()]


# Counting


@dataclass
class _Tally:
    """Counts over all shards."""

    count_V: Ints  # number of tokens of each vocabulary entry
    words_of_P: Ints = field(default_factory=lambda: np.zeros(_MOST_PIECES + 1, np.int64))
    documents: Counter[int] = field(default_factory=Counter)  # number of documents by length
    sentences: Counter[int] = field(default_factory=Counter)
    sources: dict[str, tuple[int, int]] = field(default_factory=dict)  # documents, tokens

    def add(self, shard: Shard) -> None:
        """Add the counts of a shard."""
        num_S = len(shard.sources)
        documents_S = np.bincount(shard.source_N, minlength=num_S)
        tokens_S = np.bincount(shard.source_N, weights=shard.num_tokens_N, minlength=num_S).astype(np.int64)
        for name, documents, tokens in zip(shard.sources, documents_S.tolist(), tokens_S.tolist(), strict=True):
            before = self.sources.get(name, (0, 0))
            self.sources[name] = (before[0] + documents, before[1] + tokens)
        _count(self.documents, shard.num_tokens_N)
        for start, stop in _token_ranges(shard.offset_N1):
            self.count_V += np.bincount(shard.ids_T[start:stop], minlength=len(self.count_V))
            begin, end = np.searchsorted(shard.sentence_at_M, [start, stop])
            _count(self.sentences, np.diff(shard.sentence_at_M[begin:end], append=stop))
            pieces_W = np.diff(np.flatnonzero(shard.word_starts(start, stop)), append=stop - start)
            self.words_of_P += np.bincount(np.minimum(pieces_W, _MOST_PIECES), minlength=_MOST_PIECES + 1)

    def sort_key(self, source: str) -> tuple[int, str]:
        """Sorts the sources by decreasing number of tokens, then by name."""
        return -self.sources[source][1], source


def _token_ranges(offset_N1: Ints) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of whole documents, in tokens; each has at most _TOKENS_AT_ONCE tokens or one document."""
    at, last = 0, len(offset_N1) - 1
    while at < last:
        following = max(at + 1, int(np.searchsorted(offset_N1, offset_N1[at] + _TOKENS_AT_ONCE, side="right")) - 1)
        yield int(offset_N1[at]), int(offset_N1[following])
        at = following


def _count(lengths: Counter[int], length_N: Ints) -> None:
    """Add these lengths to a counter."""
    values, counts = np.unique(length_N, return_counts=True)
    lengths.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _lengths(counted: Mapping[int, int]) -> Lengths:
    """Mean, quantiles and a histogram of lengths; the histogram has two bins per doubling of the length."""
    value_L = np.array(sorted(counted), np.int64)
    count_L = np.array([counted[value] for value in value_L.tolist()], np.int64)
    upto_L, total = np.cumsum(count_L), int(count_L.sum())
    quantile = {
        name: int(value_L[np.searchsorted(upto_L, fraction * total)])
        for name, fraction in {"shortest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "longest": 1.0}.items()
    }
    edges = np.unique(np.round(2 ** (np.arange(2 * int(value_L[-1]).bit_length() + 1) / 2)).astype(np.int64))
    edges = edges[max(0, np.searchsorted(edges, value_L[0], side="right") - 1) :]
    edges = edges[: np.searchsorted(edges, value_L[-1], side="right") + 1]
    bins = np.histogram(value_L, edges, weights=count_L)[0].astype(np.int64)
    mean = float((value_L * count_L).sum() / total)
    return Lengths(total, mean, quantile, tuple(edges.tolist()), tuple(bins.tolist()))


def _tokenizer_stats(tally: _Tally, vocab: Vocab) -> TokenizerStats:
    """The facts about the vocabulary."""
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
        top=tuple((display_piece(vocab, id), int(tally.count_V[id])) for id in order_V[: min(used, _TOP)].tolist()),
        zipf=tuple((rank, int(count_V[rank - 1])) for rank in rank_R.tolist()),
        covered=tuple((k, int(upto_V[k - 1])) for k in (10, 100, 1_000, 10_000) if k < used),
    )


# Values as text


def _step_order(filters: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """Sorts reasons into the order of the steps that drop documents; `filters` are the names of the filters in order.

    >>> sorted(["duplicate", "mine_x", "bad_json", "gopher_ellipses", "c4_lorem_ipsum"], key=_step_order(_FILTERS))
    ['bad_json', 'mine_x', 'c4_lorem_ipsum', 'gopher_ellipses', 'duplicate']
    >>> reasons = ["c4_lorem_ipsum", "gopher_duplicate_lines", "gopher_ellipses", "mine_x"]
    >>> sorted(reasons, key=_step_order(["gopher_repetition", "mine", "gopher_quality", "c4"]))
    ['gopher_duplicate_lines', 'mine_x', 'gopher_ellipses', 'c4_lorem_ipsum']
    """
    of_filters = (prefix for name in filters for prefix in REASONS.get(name, (name, f"{name}_")))
    places = {prefix: at for at, prefix in enumerate((*_BEFORE_FILTERS, *of_filters, *_AFTER_FILTERS), 1)}

    def order_of(reason: str) -> tuple[int, str]:
        own = [prefix for prefix in places if reason.startswith(prefix) and (prefix not in filters or prefix == reason)]
        return places[max(own, key=len)] if own else 0, reason

    return order_of


def _statistics(counted: Mapping[str, Any]) -> dict[str, str]:
    """Other statistics of the manifest by dotted key, without those that the card counts itself."""
    others = {key: value for key, value in counted.items() if key not in ("sentences", "words", "unknown", "domains")}
    names = {"evaluation_texts.texts": "evaluation_texts"}
    return {
        names.get(key, key): _as_text(value) for key, value in islice(flatten(others), _STATISTICS) if _as_text(value)
    }


def _domains(statistics: Mapping[str, Any]) -> DomainTable | None:
    found = statistics.get("domains")
    if found is None:
        return None
    top = tuple((host, Count(*counts)) for host, *counts in found["top"][:_TOP])
    return DomainTable(found["hosts"], Count(*found["without_host"]), top)


def _find_dropped(corpus: Path, order: Callable[[str], tuple[int, str]]) -> Iterator[DroppedDocument]:
    """The first dropped documents of each reason in the sample, in the order of the steps."""
    try:
        sample = read_dropped(corpus / DROPPED)
    except OSError:  # a corpus of an older version
        return
    for reason in sorted({each.reason for each in sample}, key=order):
        yield from islice((each for each in sample if each.reason == reason), _SHOWN_DROPPED)


def _settings(spec: Corpus) -> dict[str, str]:
    """The settings of a corpus as text, with the names of paths and the kinds of sources only."""
    settings = asdict(spec)
    del settings["name"], settings["sources"], settings["mixture"]
    made_of = spec.clean.causes  # files by their names and hashes
    settings["clean"] |= {name: made_of.get(name, "") for name in ("filters", "urls")}
    settings["phrases"] = Path(spec.phrases).name
    settings["dedup"]["reference_corpora"] = [Path(path).name for path in spec.dedup.reference_corpora]
    settings["decontaminate"]["paths"] = [Path(path).name for path in spec.decontaminate.paths]
    kinds = Counter(_kind(source) for source in spec.sources)
    texts = {"sources": ", ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in sorted(kinds.items()))}
    return texts | {key: _as_text(value) for key, value in flatten(settings) if _as_text(value)}


def _kind(source: Reader) -> str:
    """The kind and the settings of a source, without its paths.

    >>> from pipeline.readers import JsonlReader
    >>> _kind(JsonlReader(path="/home/me/news"))
    'jsonl (text_key text)'
    """
    settings = [f"{key} {_as_text(value)}" for key, value in portable(source).items() if key != "kind" and value]
    return source.kind + (f" ({', '.join(settings)})" if settings else "")


def _as_text(value: Any) -> str:
    """A value as text.

    >>> _as_text(True), _as_text(12345), _as_text(0.005), _as_text(("a", "b")), _as_text([])
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


# Samples of documents


def _languages(shards: Sequence[Shard], vocab: Vocab) -> dict[str, int]:
    """The languages of a sample of documents, evenly spaced over the corpus; the most frequent language comes first."""
    found = Counter(
        language(vocab.decode(_tokens(shard, i, _LANGUAGE_TOKENS)))[0]
        for shard, i in _spread(shards, _LANGUAGE_DOCUMENTS)
    )
    return {code: found[code] for code in sorted(found, key=lambda code: (-found[code], code))}


def _samples(shards: Sequence[Shard], vocab: Vocab) -> Iterator[SampleDocument]:
    """The beginnings of some documents, decoded."""
    for shard, i in _spread(shards, _SAMPLES):
        num_tokens = int(shard.num_tokens_N[i])
        text = vocab.decode(_tokens(shard, i, _SAMPLE_TOKENS)).strip() + " ..." * (num_tokens > _SAMPLE_TOKENS)
        yield SampleDocument(shard.key(i).hex(), shard.source(i), num_tokens, text)


def _spread(shards: Sequence[Shard], count: int) -> Iterator[tuple[Shard, int]]:
    """At most `count` evenly spaced documents. Documents are sorted by hash, so this sample is not biased."""
    end_K = np.cumsum([len(shard) for shard in shards])
    total = int(end_K[-1])
    count = min(count, total)
    for n in range(count):
        at = (2 * n + 1) * total // (2 * count)
        k = int(np.searchsorted(end_K, at, side="right"))
        yield shards[k], at - int(end_K[k]) + len(shards[k])


def _tokens(shard: Shard, i: int, most: int) -> Ints:
    """The first tokens of document `i`, at most `most`."""
    start, stop = shard.offset_N1[i : i + 2].tolist()
    return shard.ids_T[start : min(stop, start + most)]
