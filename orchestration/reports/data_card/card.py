"""The data card of a corpus: contents, sources, dropped documents with the reasons, and training samples.

facts.py counts, this module writes the sections, and page.py writes them as Markdown and as one HTML page that needs no
other file. Equal corpora give equal bytes.
"""

import io
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestration import figures
from orchestration.config import Recipe
from orchestration.reports.data_card import page as card_page
from orchestration.reports.data_card.examples import CardExample
from orchestration.reports.data_card.facts import DataCardFacts, DomainTable, Lengths, TokenizerStats, facts_of
from orchestration.reports.data_card.page import CardSample, CardTable, Fold, Part, Picture, Quote, Section
from pipeline.spec import Corpus
from preprocessing.dropped import SHOWN_CHARS, DroppedDocument
from preprocessing.files import write_atomic
from preprocessing.manifest import Count
from preprocessing.tokenization import SPACE_SIGN, legend

if TYPE_CHECKING:  # importing it takes a second
    from matplotlib.figure import Figure

__all__ = ["DataCardFacts", "facts_of", "html", "markdown", "pictures", "save", "write"]

NAMES: Final = ("data_card.md", "data_card.html")
_LABELS: Final = {  # statistics of the manifest whose keys do not say what they count
    "repaired.documents": "documents with invalid bytes",
    "repaired.sequences": "invalid byte sequences, replaced by U+FFFD",
    "masked": "personal data replaced by placeholders",
    "repeated_substrings.documents": "documents without their repeated substrings",
    "repeated_substrings.removed": "removed repeated substrings",
    "evaluation_texts.texts": "evaluation texts for decontamination",
    "evaluation_texts.too_short": "evaluation texts that are too short and ignored",
}
_BAR: Final = 40  # characters of the longest bar of a histogram in Markdown


def write(corpus: Path, recipe: Recipe | None, folder: Path, spec: Corpus | None = None) -> list[Path]:
    """Write the card of a finished corpus to `folder` and return its files: data_card.md and data_card.html."""
    known = facts_of(corpus, recipe, spec)
    return save(known, pictures(known), folder)


def save(known: DataCardFacts, drawn: Mapping[str, "Figure"], folder: Path) -> list[Path]:
    """Write the card of these facts and figures to `folder`."""
    files = [folder / name for name in NAMES]
    for file, text in zip(files, (markdown(known), html(known, drawn)), strict=True):
        write_atomic(file, text.encode())
    return files


def markdown(known: DataCardFacts) -> str:
    """The card as Markdown."""
    return card_page.markdown(_title(known), _sections(known))


def html(known: DataCardFacts, drawn: Mapping[str, "Figure"]) -> str:
    """The card as one page that contains these figures."""
    return card_page.html(_title(known), _sections(known), {name: _png(figure) for name, figure in drawn.items()})


def pictures(known: DataCardFacts) -> dict[str, "Figure"]:
    """The figures of a card by name."""
    documents, sentences = known.documents, known.sentences
    steps = {_words(reason): count for reason, count in {"read": known.seen, **known.dropped}.items()}
    return {
        "funnel": figures.plot_funnel(
            {
                "documents": {reason: count.documents for reason, count in steps.items()},
                "bytes": {reason: count.bytes for reason, count in steps.items()},
            }
        ),
        "document_lengths": figures.plot_histogram(documents.edges, documents.bins, "tokens per document", "documents"),
        "sentence_lengths": figures.plot_histogram(sentences.edges, sentences.bins, "tokens per sentence", "sentences"),
        "zipf": figures.plot_zipf(known.vocabulary.zipf),
    }


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(
        file, format="png", transparent=True, metadata={"Software": None}
    )  # without the version of matplotlib, so that equal figures have equal bytes
    return file.getvalue()


# Sections


def _title(known: DataCardFacts) -> str:
    return f"Corpus {known.name}"


def _sections(known: DataCardFacts) -> list[Section]:
    return [
        _summary(known),
        _splits(known),
        *([_mixture(known)] if known.mixture else []),
        _funnel(known),
        *([_show_dropped(known)] if known.dropped_samples else []),
        _sources(known),
        *([_domains(known.domains, known.kept.tokens)] if known.domains else []),
        _languages(known),
        _lengths("Documents", "document_lengths", known.documents),
        _lengths("Sentences", "sentence_lengths", known.sentences),
        _vocabulary(known.vocabulary, known.kept.tokens),
        _zipf(known.vocabulary, known.kept.tokens),
        Section("Sample documents", "The first tokens of some documents, decoded.", tuple(_quotes(known))),
        *([_examples(known.examples)] if known.examples else []),
        _describe_origin(known),
    ]


def _summary(known: DataCardFacts) -> Section:
    kept, pieces = known.kept, known.vocabulary
    paragraph = (
        f"The corpus has {kept.documents:,} documents with {kept.tokens:,} tokens from {kept.bytes / 1e6:,.1f} MB of "
        f"text ({_ratio(kept.bytes, kept.tokens)} bytes per token). It contains "
        f"{_share(kept.documents, known.seen.documents)} of the documents and "
        f"{_share(kept.bytes, known.seen.bytes)} of the bytes that were read."
    )
    rows = {
        "digest": known.digest,
        "tokenizer": f"{pieces.kind}, {pieces.size:,} vocabulary entries, hash {pieces.hash[:12]}",
        "mean document length": f"{known.documents.mean:,.1f} tokens",
        "mean sentence length": f"{known.sentences.mean:,.1f} tokens",
        "tokens per word": _ratio(kept.tokens, pieces.words),
        "unknown tokens": _share(pieces.unknown, kept.tokens),
        **{_LABELS.get(key, _words(key)): value for key, value in known.statistics.items()},
    }
    return Section("Summary", paragraph, (CardTable(("fact", "value"), tuple(rows.items()), 2),))


def _splits(known: DataCardFacts) -> Section:
    total = sum(count["rows"] for count in known.splits.values())
    rows = tuple(
        (name, f"{count['rows']:,}", _share(count["rows"], total), f"{count['tokens']:,}", f"{count['shards']:,}")
        for name, count in known.splits.items()
    )
    paragraph = "The hash of its text assigns each document to a split."
    return Section("Splits", paragraph, (CardTable(("split", "documents", "fraction", "tokens", "shards"), rows),))


def _mixture(known: DataCardFacts) -> Section:
    trained = sum(group.trained for group in known.mixture)
    of_training = _describe_training(known, trained) if trained else ""
    paragraph = (
        f"Training samples each group in proportion to its weight, independent of its size. {of_training}Held-out "
        "splits are not weighted. A document that is in several groups belongs to the first of them in the corpus file."
    )
    rows = tuple(
        (
            group.name,
            f"{group.documents:,}",
            f"{group.tokens:,}",
            f"{group.weight:g}",
            f"{100 * group.requested:.2f} %",
            *((f"{100 * group.trained / trained:.2f} %", f"{group.epochs:,.2f}") if trained else ()),
        )
        for group in sorted(known.mixture, key=lambda group: -group.weight)
    )
    head = ("group", "documents", "tokens", "weight", "requested fraction")
    head = (*head, *(("fraction of training", "epochs") if trained else ()))
    has_counts = known.mixture[0].ledger.seen.documents > 0  # older versions did not count by group
    return Section("Mixture", paragraph, (CardTable(head, rows), *([_group_counts(known)] if has_counts else [])))


def _describe_training(known: DataCardFacts, trained: int) -> str:
    """What a run of the recipe reads of a mixture, as sentences."""
    off = max(abs(group.trained / trained - group.requested) for group in known.mixture)
    return (
        f"{known.recipe} reads {trained:,} tokens of text. Each epoch of a group reads all its sequences once, in a "
        f"new random order. The fractions of training differ from the requested fractions by at most {100 * off:.4f} "
        "%. They are computed from the number of sequences and the mean length of a sequence in each group. "
    )


def _group_counts(known: DataCardFacts) -> CardTable:
    """For each group the documents that were read, dropped for each reason, kept, and assigned to each split."""
    reasons = [
        reason
        for reason in known.dropped
        if any(group.ledger.dropped.get(reason, Count()).documents for group in known.mixture)
    ]
    splits = list(dict.fromkeys(split for group in known.mixture for split in group.held_out))
    rows = tuple(
        (
            group.name,
            f"{group.ledger.seen.documents:,}",
            *(f"{group.ledger.dropped.get(reason, Count()).documents:,}" for reason in reasons),
            f"{group.ledger.kept.documents:,}",
            *(f"{group.held_out[split]:,}" for split in splits),
            f"{group.documents:,}",
        )
        for group in sorted(known.mixture, key=lambda group: -group.weight)
    )
    return CardTable(("group", "read", *map(_words, reasons), "kept", *splits, "train"), rows)


def _funnel(known: DataCardFacts) -> Section:
    paragraph = (
        "Each byte that was read is either kept or counted under one reason below. The reason trimmed counts the "
        "bytes that cleaning removes from documents that remain, so it has bytes, but no documents."
    )
    seen, rows, left = known.seen, [], known.seen
    for reason, count in known.dropped.items():
        left -= count
        documents = (f"{count.documents:,}", _share(count.documents, seen.documents), f"{left.documents:,}")
        sizes = (f"{count.bytes:,}", _share(count.bytes, seen.bytes), f"{left.bytes:,}")
        rows.append((_words(reason), *documents, *sizes))
    first = ("read", "", "", f"{seen.documents:,}", "", "", f"{seen.bytes:,}")
    kept = (_share(known.kept.documents, seen.documents), _share(known.kept.bytes, seen.bytes))
    last = ("kept", "", kept[0], f"{known.kept.documents:,}", "", kept[1], f"{known.kept.bytes:,}")
    head = ("reason", "documents", "fraction", "documents left", "bytes", "fraction", "bytes left")
    shown = Picture("funnel", "Bar chart of the documents and bytes that remain after each filter")
    return Section("Kept and dropped documents", paragraph, (CardTable(head, (first, *rows, last)), shown))


def _sources(known: DataCardFacts) -> Section:
    tokens = known.kept.tokens
    rows = tuple((name, f"{docs:,}", f"{count:,}", _share(count, tokens)) for name, docs, count in known.sources)
    paragraph = f"The corpus has {known.num_sources:,} {'source' if known.num_sources == 1 else 'sources'}."
    if len(rows) < known.num_sources:
        paragraph += f" The table lists the {len(rows)} with the most tokens."
    return Section("Sources", paragraph, (CardTable(("source", "documents", "tokens", "fraction"), rows),))


def _domains(found: DomainTable, tokens: int) -> Section:
    rows = [(host, count) for host, count in found.top]
    paragraph = f"The URLs of the documents have {found.hosts:,} {'host' if found.hosts == 1 else 'hosts'}."
    if len(rows) < found.hosts:
        paragraph += f" The table lists the {len(rows)} with the most tokens."
    if found.without_host.documents:
        rows.append(("(no URL)", found.without_host))
    cells = tuple(
        (host, f"{count.documents:,}", f"{count.bytes:,}", f"{count.tokens:,}", _share(count.tokens, tokens))
        for host, count in rows
    )
    return Section("Domains", paragraph, (CardTable(("host", "documents", "bytes", "tokens", "fraction"), cells),))


def _show_dropped(known: DataCardFacts) -> Section:
    paragraph = (
        "The beginnings of some dropped documents, by reason. They are those with the smallest hashes, so the choice "
        "is random, but equal for equal text. The command sesame inspect --dropped shows more of them."
    )
    folds = list[Fold]()
    for reason in dict.fromkeys(each.reason for each in known.dropped_samples):
        of_reason = [each for each in known.dropped_samples if each.reason == reason]
        total = known.dropped.get(reason, Count()).documents
        head = f"{_words(reason)}: {len(of_reason):,} of {total:,} documents"
        folds.append(Fold(head, tuple(quote for each in of_reason for quote in _quote_dropped(each))))
    return Section("Examples of dropped documents", paragraph, tuple(folds))


def _quote_dropped(found: DroppedDocument) -> Iterator[Quote]:
    """The beginning of a dropped document and, if it repeats another, of the kept one unless they are equal."""
    more = " ..." if found.chars > len(found.text) else ""
    head = f"{_origin(found.source, found.key, found.metadata)}, {found.chars:,} characters"
    if found.kept_key:
        head += f"; kept: {_origin(found.kept_source or 'reference corpus', found.kept_key, found.kept_metadata)}"
    yield Quote(head, found.text + more)
    if found.kept_text and found.kept_text != found.text:
        more = " ..." if len(found.kept_text) == SHOWN_CHARS else ""
        yield Quote("The kept document", found.kept_text + more)


def _origin(source: str, key: str, metadata: Mapping[str, str | None]) -> str:
    return ", ".join([source, f"key {key[:12]}", *(f"{name} {value}" for name, value in metadata.items() if value)])


def _languages(known: DataCardFacts) -> Section:
    total = sum(known.languages.values())
    rows = tuple((code, f"{count:,}", _share(count, total)) for code, count in known.languages.items())
    paragraph = f"py3langid identified the language of {total:,} documents, evenly spaced over the corpus."
    return Section("Languages", paragraph, (CardTable(("language", "documents", "fraction"), rows),))


def _lengths(title: str, picture: str, lengths: Lengths) -> Section:
    what = title.lower()
    paragraph = f"The corpus has {lengths.count:,} {what} with a mean length of {lengths.mean:,.1f} tokens."
    rows = tuple((name, f"{value:,}") for name, value in lengths.quantiles.items())
    most = max(lengths.bins)
    lines = [
        f"{start:>9,} - {stop - 1:<9,} {count:>12,}  {'#' * round(_BAR * count / most)}".rstrip()
        for (start, stop), count in zip(pairwise(lengths.edges), lengths.bins, strict=True)
    ]
    shown = Picture(picture, f"Histogram of the lengths of {what} in tokens", tuple(lines))
    return Section(title, paragraph, (CardTable((f"length of {what}", "tokens"), rows), shown))


def _vocabulary(pieces: TokenizerStats, tokens: int) -> Section:
    ordinary = pieces.size - len(pieces.special)
    paragraph = (
        f"The {pieces.kind} vocabulary has {pieces.size:,} entries, of which {len(pieces.special)} are special tokens "
        f"({' '.join(pieces.special)}). A word has {_ratio(tokens, pieces.words)} tokens on average."
    )
    whole, continued = pieces.words_of[0], pieces.words - pieces.words_of[0]
    facts = (
        ("words", f"{pieces.words:,}", ""),
        ("words of one token", f"{whole:,}", _share(whole, pieces.words)),
        ("words of several tokens", f"{continued:,}", _share(continued, pieces.words)),
        ("unknown tokens", f"{pieces.unknown:,}", _share(pieces.unknown, tokens)),
        ("vocabulary entries that never occur", f"{pieces.unused:,}", _share(pieces.unused, ordinary)),
        *((f"tokens from the {k:,} most frequent entries", f"{n:,}", _share(n, tokens)) for k, n in pieces.covered),
    )
    last = len(pieces.words_of)
    cut = tuple(
        (f"{number}{' or more' * (number == last)}", f"{count:,}", _share(count, pieces.words))
        for number, count in enumerate(pieces.words_of, 1)
    )
    return Section(
        "Vocabulary",
        paragraph,
        (CardTable(("fact", "count", "fraction"), facts), CardTable(("tokens per word", "words", "fraction"), cut)),
    )


def _zipf(pieces: TokenizerStats, tokens: int) -> Section:
    paragraph = (
        "Vocabulary entries by frequency. In natural language, the frequency is roughly proportional to 1 / rank. "
        f"{SPACE_SIGN} is the space in front of a word."
    )
    rows = tuple(
        (f"{rank}", piece, f"{count:,}", _share(count, tokens)) for rank, (piece, count) in enumerate(pieces.top, 1)
    )
    table = CardTable(("rank", "entry", "count", "fraction"), rows, 2)
    return Section("Frequent tokens", paragraph, (Picture("zipf", "Frequency of vocabulary entries by rank"), table))


def _quotes(known: DataCardFacts) -> Iterator[Part]:
    for sample in known.samples:
        yield Quote(f"{sample.source}: {sample.tokens:,} tokens, key {sample.key[:12]}", sample.text)


def _examples(examples: tuple[CardExample, ...]) -> Section:
    paragraph = (
        "One sequence from the first shard, as built for each objective of the model family. Each predicted token is "
        "marked, and its label follows in parentheses. A marked token that is not a mask was replaced at random or "
        "left unchanged."
    )
    signs = legend(token for each in examples for token in each.tokens)
    shown = (CardSample(each.recipe, f"{each.description}. {each.note}".strip(), each.tokens) for each in examples)
    return Section("Training samples", f"{paragraph} {signs}{'.' * bool(signs)}".strip(), tuple(shown))


def _describe_origin(known: DataCardFacts) -> Section:
    paragraph = (
        "Settings of the corpus, hashes of the settings and of the text, and versions of the libraries that affect it."
    )
    hashes = {"hash of the settings": known.spec_hash[:16], "hash of the text": known.text_hash[:16]}
    rows = known.settings | hashes | {f"version of {name}": version for name, version in known.versions.items()}
    return Section("Settings and versions", paragraph, (CardTable(("setting", "value"), tuple(rows.items()), 2),))


def _words(key: str) -> str:
    """
    >>> _words("rejected.too_long")
    'rejected too long'
    """
    return key.replace("_", " ").replace(".", " ")


def _share(part: int, whole: int) -> str:
    """
    >>> _share(1, 8), _share(0, 0), _share(1, 100_000)
    ('12.5 %', '-', '0.001 %')
    """
    if not whole:
        return "-"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 1 or not part else f"{percent:.2g} %"


def _ratio(amount: int, unit: int) -> str:
    return f"{amount / unit:.2f}" if unit else "-"
