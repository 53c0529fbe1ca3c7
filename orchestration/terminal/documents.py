"""Documents of a corpus, or of a directory of cleaned text, as they are stored: a range of them, one by its key, the
sample of the dropped ones, and the hosts with the most tokens. No recipe is needed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from preprocessing.dropped import DROPPED, DroppedDocument, read_dropped
from preprocessing.errors import BadInput
from preprocessing.manifest import FILE_NAME, Count, Manifest
from preprocessing.schema import SPLITS
from preprocessing.shards import Shard, TokenStore
from preprocessing.tokenization import ShownToken, Vocab, display_tokens

ALL: Final = "all"  # the name of all reasons
_TEXT: Final = "text.json"  # file of a directory of cleaned text
_SHORTEST_KEY: Final = 4  # digits
_NUMBER, _QUIET = "green", "dim"


@dataclass(frozen=True)
class StoredDocument:
    """A document. In a directory of cleaned text it has no shard and no tokens yet."""

    key: str
    split: str
    number: int  # index in the split
    source: str
    metadata: Mapping[str, str | None]
    text: str
    shard: str | None = None
    row: int | None = None
    tokens: int | None = None
    sentences: tuple[tuple[ShownToken, ...], ...] = ()  # in `before`, a token has a space if a word begins

    def plain(self) -> dict[str, Any]:
        """The values for JSON, without the sentences."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "sentences"}


class _Place(NamedTuple):
    """The place of a document, and the function that reads it."""

    key: str
    read: Callable[[], StoredDocument]


def has_documents(folder: Path) -> bool:
    """Whether a directory is a corpus or a directory of cleaned text."""
    return _is_corpus(folder) or (folder / _TEXT).is_file()


def _is_corpus(folder: Path) -> bool:
    return (folder / FILE_NAME).is_file()


def read_documents(folder: Path, first: int, count: int) -> list[StoredDocument]:
    """`count` documents from index `first`: training, then validation, then test. Raises BadInput if there are none."""
    documents = [place.read() for place in islice(_iterate_places(folder), first, first + count)]
    if not documents:
        total = sum(1 for _ in _iterate_places(folder))
        raise BadInput(
            f"{folder}: invalid step: got number {first:,} for its first document, expected less than {total:,}; set a "
            "smaller --step"
        )
    return documents


def find_document(folder: Path, key: str) -> StoredDocument:
    """The document whose key has these first hexadecimal digits. Raises BadInput if none or several have them."""
    digits = key.lower()
    if len(digits) < _SHORTEST_KEY or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        raise BadInput(
            f"invalid --document: got {key!r}, expected {_SHORTEST_KEY} to 32 hexadecimal digits of a key; take a key "
            "from the data card or from duplicates.arrow"
        )
    found = dict[str, _Place]()
    for place in _iterate_places(folder, digits):  # without deduplication, several documents have the same key
        found.setdefault(place.key, place)
    if len(found) > 1:
        keys = ", ".join(sorted(found)[:3])
        raise BadInput(f"invalid --document: got {key!r}, expected the start of one key; give more digits, e.g. {keys}")
    if not found:
        raise BadInput(
            f"invalid --document: got {key!r}, expected the key of a document of {folder.name}; take a key from its "
            "data card, or search the dropped documents with --dropped all"
        )
    return next(iter(found.values())).read()


def _iterate_places(folder: Path, digits: str = "") -> Iterator[_Place]:
    """The documents in order of their splits and numbers, or only those whose keys begin with `digits`."""
    return _iterate_corpus(folder, digits) if _is_corpus(folder) else _iterate_text(folder, digits)


def _iterate_corpus(folder: Path, digits: str) -> Iterator[_Place]:
    manifest = Manifest.load(folder)
    for split in manifest.splits:
        store = TokenStore.open(folder, split, verify=False)
        vocab, first = Vocab.load(store.vocab_dir, manifest.vocab["hash"]), 0
        for shard in store.shards:
            for row in shard.find_keys(digits) if digits else range(len(shard)):
                yield _Place(shard.key(row).hex(), partial(_read, vocab, split, shard, row, first + row))
            first += len(shard)


def _read(vocab: Vocab, split: str, shard: Shard, row: int, number: int) -> StoredDocument:
    tokens, key = display_tokens(vocab, shard.tokens(row).tolist()), shard.key(row).hex()
    text = "".join(token.before + token.text for token in tokens).strip()
    start, stop = shard.offset_N1[row : row + 2].tolist()
    is_word, is_sentence = shard.word_starts(start, stop).tolist(), shard.sentence_starts(start, stop).tolist()
    pieces = [token._replace(before=" " * starts) for token, starts in zip(tokens, is_word, strict=True)]
    bounds = [*(at for at, starts in enumerate(is_sentence) if starts), len(pieces)]
    sentences = tuple(tuple(pieces[first:last]) for first, last in pairwise(bounds))
    place = (shard.path.name, row, len(tokens))
    return StoredDocument(key, split, number, shard.source(row), shard.metadata(row), text, *place, sentences)


def _iterate_text(folder: Path, digits: str) -> Iterator[_Place]:
    from pipeline.steps import TextDirectory  # imports Beam

    texts, counts = TextDirectory.load(folder), dict.fromkeys(SPLITS, 0)
    for shard in texts.shards:
        split = next(split for split in SPLITS if shard.name.startswith(split))
        for document in texts.documents(shard.start, shard.stop):
            key, text = document.key.hex(), document.text
            found = StoredDocument(key, split, counts[split], document.source, document.metadata, text)
            counts[split] += 1
            if key.startswith(digits):
                yield _Place(key, partial(replace, found))


def render_document(found: StoredDocument) -> Text:
    """A document as text, below a table of its values."""
    facts = [(name, value) for name, value in found.plain().items() if name not in ("text", "metadata")]
    facts += [(name, "" if value is None else value) for name, value in found.metadata.items()]  # may have equal names
    width = max(len(name) for name, _ in facts)
    head = "".join(f"{name:<{width}}  {value}\n" for name, value in facts)
    return Text(head, _QUIET).append(found.text, "default")


def render_documents(documents: Sequence[StoredDocument]) -> Group:
    """Documents as text, each below a line with its split, number, source, key, metadata and tokens."""
    return Group(*map(_format, documents))


def _format(found: StoredDocument) -> Text:
    tokens = "" if found.tokens is None else f", {found.tokens:,} tokens"
    what = _describe(found.source, found.key, found.metadata)
    head = f"{found.split}, document {found.number:,}, {what}{tokens}\n"
    return Text(head, _QUIET).append(f"{found.text}\n", "default")


def find_dropped(folder: Path, reason: str) -> list[DroppedDocument]:
    """The sampled documents with this reason, or with any for "all". Raises BadInput if there are none.

    A reason may have blanks instead of underscores, as in a data card.
    """
    reason = reason.strip().replace(" ", "_")
    try:
        sample = read_dropped(folder / DROPPED)
    except OSError:
        mark = folder / (FILE_NAME if _is_corpus(folder) else _TEXT)
        raise BadInput(
            f"{folder / DROPPED}: missing or damaged; delete {mark} and make the corpus again with "
            "`sesame corpus` (a text made by an older version has no sample: delete its directory too)"
        ) from None
    found = [each for each in sample if reason in (ALL, each.reason)]
    reasons = sorted({each.reason for each in sample})
    if not found and (counted := count_dropped(folder).get(reason)):
        raise BadInput(_explain_no_sample(reason, counted, reasons))
    if not found and (reason != ALL or reasons):
        expected = f"{ALL} or one of {', '.join(reasons)}" if reasons else f"{ALL}: no document with text was dropped"
        raise BadInput(f"invalid --dropped: got {reason!r}, expected {expected}; choose one of these")
    return found


def _explain_no_sample(reason: str, counted: Count, reasons: Sequence[str]) -> str:
    """Why the sample has no document with a reason of the ledger.

    >>> print(_explain_no_sample("http_error", Count(2, 900), ["known", "too_short"]))
    invalid --dropped: got 'http_error', expected all or one of known, too_short, because Sesame stores no text of the \
2 documents with this reason; see their number in the data card
    """
    expected = f"{ALL} or one of {', '.join(reasons)}" if reasons else f"{ALL}: no document with text was dropped"
    why, where = "this reason counts bytes, but no documents", "see their number in the data card"
    if number := counted.documents:
        documents = f"the {number:,} documents" if number > 1 else "the only document"
        why = f"Sesame stores no text of {documents} with this reason"
    return f"invalid --dropped: got {reason!r}, expected {expected}, because {why}; {where}"


def count_dropped(folder: Path) -> Mapping[str, Count]:
    """All dropped documents by reason."""
    if _is_corpus(folder):
        return Manifest.load(folder).ledger.dropped
    from pipeline.steps import TextDirectory  # imports Beam

    return TextDirectory.load(folder).ledger.dropped


def render_dropped(found: Sequence[DroppedDocument], dropped: Mapping[str, Count]) -> Group | Text:
    """The sampled documents as text, by reason. `dropped` counts all documents by reason."""
    if not found:
        return Text("no document with text was dropped")
    num, shown, before = Counter(each.reason for each in found), list[Text](), ""
    for each in found:
        if each.reason != before:
            total = dropped.get(each.reason, Count()).documents
            shown.append(Text(f"{each.reason}: {num[each.reason]:,} of {total:,} documents", "bold"))
            before = each.reason
        shown.append(_format_dropped(each))
    return Group(*shown)


def _format_dropped(found: DroppedDocument) -> Text:
    text = Text(f"{_describe(found.source, found.key, found.metadata)}, {found.chars:,} characters\n", _QUIET)
    text.append(f"{found.text}{' ...' * (found.chars > len(found.text))}\n", "default")
    if found.kept_key:
        kept = _describe(found.kept_source or "reference corpus", found.kept_key, found.kept_metadata)
        text.append(f"kept instead: {kept}\n", _QUIET)
        if found.kept_text and found.kept_text != found.text:
            text.append(f"{found.kept_text}\n", "default")
    return text


def _describe(source: str, key: str, metadata: Mapping[str, str | None]) -> str:
    """
    >>> _describe("a.warc", "c0ffee0123456789", {"url": "http://a.org", "date": None})
    'a.warc, key c0ffee012345, url http://a.org'
    """
    return ", ".join([source, f"key {key[:12]}", *(f"{name} {value}" for name, value in metadata.items() if value)])


def find_domains(corpus: Path) -> dict[str, Any]:
    """The counts by host in the manifest. Raises BadInput if the documents have no URLs."""
    if not _is_corpus(corpus):
        raise BadInput(
            f"{corpus}: invalid --domains: got a directory of cleaned text, expected a corpus with token IDs; make one "
            "with `sesame corpus CORPUS --tokenizer TOKENIZER`, or with a recipe"
        )
    statistics = Manifest.load(corpus).statistics
    if "domains" not in statistics:
        raise BadInput(
            f"{corpus}: invalid --domains: got documents without URLs, expected a source that keeps them; add "
            "`keep: [url]` to the source in the corpus file and make the corpus again"
        )
    found: dict[str, Any] = statistics["domains"]
    return found


def render_domains(found: Mapping[str, Any]) -> Table:
    """The hosts with the most tokens as a table."""
    title = f"{found['hosts']:,} {'host' if found['hosts'] == 1 else 'hosts'}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style=_QUIET)
    for column in ("host", "documents", "bytes", "tokens"):
        table.add_column(column, overflow="fold", justify="left" if column == "host" else "right")
    for host, documents, size, tokens in [*found["top"], *_without_host(found)]:
        table.add_row(Text(host), f"{documents:,}", f"{size:,}", Text(f"{tokens:,}", _NUMBER))
    return table


def _without_host(found: Mapping[str, Any]) -> list[tuple[str, int, int, int]]:
    documents, size, tokens = found["without_host"]
    return [("(no URL)", documents, size, tokens)] if documents else []
