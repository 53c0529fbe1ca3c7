"""The data card of a corpus: what is in it, where it is from, what was dropped and why, what a model will see of it.

Facts (card_facts.py) -> sections -> Markdown and one HTML page that needs no other file (card_page.py). The same corpus
gives the same bytes.
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
from orchestration.reports.data_card.facts import DataCardFacts, Lengths, TokenizerStats, facts_of
from orchestration.reports.data_card.page import CardSample, CardTable, Part, Picture, Quote, Section
from pipeline.spec import Corpus
from preprocessing.files import write_atomic
from preprocessing.manifest import Count

if TYPE_CHECKING:  # it takes a second to import
    from matplotlib.figure import Figure

__all__ = ["DataCardFacts", "facts_of", "html", "markdown", "pictures", "save", "write"]

NAMES: Final = ("data_card.md", "data_card.html")
_BAR: Final = 40  # characters of the longest bar of a histogram in Markdown


def write(corpus: Path, recipe: Recipe, folder: Path, spec: Corpus | None = None) -> list[Path]:
    """Write the card of a finished corpus to `folder` and return its files: data_card.md and data_card.html."""
    known = facts_of(corpus, recipe, spec)
    return save(known, pictures(known), folder)


def save(known: DataCardFacts, drawn: Mapping[str, "Figure"], folder: Path) -> list[Path]:
    """Write a card whose facts and figures are there."""
    files = [folder / name for name in NAMES]
    for file, text in zip(files, (markdown(known), html(known, drawn)), strict=True):
        write_atomic(file, text.encode())
    return files


def markdown(known: DataCardFacts) -> str:
    """The card as Markdown."""
    return card_page.markdown(_title(known), _sections(known))


def html(known: DataCardFacts, drawn: Mapping[str, "Figure"]) -> str:
    """The card as one page, with these figures inside."""
    return card_page.html(_title(known), _sections(known), {name: _png(figure) for name, figure in drawn.items()})


def pictures(known: DataCardFacts) -> dict[str, "Figure"]:
    """The figures of a card, by name."""
    documents, sentences = known.documents, known.sentences
    steps = {_words(reason): count for reason, count in {"seen": known.seen, **known.dropped}.items()}
    return {
        "funnel": figures.plot_funnel(
            {
                "documents": {reason: count.documents for reason, count in steps.items()},
                "bytes": {reason: count.bytes for reason, count in steps.items()},
            }
        ),
        "document_lengths": figures.plot_histogram(
            documents.edges, documents.bins, "tokens of a document", "documents"
        ),
        "sentence_lengths": figures.plot_histogram(
            sentences.edges, sentences.bins, "tokens of a sentence", "sentences"
        ),
        "zipf": figures.plot_zipf(known.pieces.zipf),
    }


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", transparent=True, metadata={"Software": None})  # no version: the same bytes
    return file.getvalue()


# What the card says


def _title(known: DataCardFacts) -> str:
    return f"Corpus {known.name}"


def _sections(known: DataCardFacts) -> list[Section]:
    return [
        _summary(known),
        _splits(known),
        *([_mixture(known)] if known.mixture else []),
        _funnel(known),
        _sources(known),
        _languages(known),
        _lengths("Documents", "document_lengths", known.documents),
        _lengths("Sentences", "sentence_lengths", known.sentences),
        _vocabulary(known.pieces, known.kept.tokens),
        _zipf(known.pieces, known.kept.tokens),
        Section("Sample documents", "The beginnings of documents, decoded from their tokens.", tuple(_quotes(known))),
        _examples(known.examples),
        _made(known),
    ]


def _summary(known: DataCardFacts) -> Section:
    kept, pieces = known.kept, known.pieces
    said = (
        f"{kept.documents:,} documents with {kept.tokens:,} tokens, made of {kept.bytes / 1e6:,.1f} MB of text: "
        f"{_ratio(kept.bytes, kept.tokens)} bytes a token. {_share(kept.documents, known.seen.documents)} of the "
        f"documents and {_share(kept.bytes, known.seen.bytes)} of the bytes that were read are kept."
    )
    rows = {
        "digest": known.digest,
        "vocabulary": f"{pieces.size:,} pieces, {pieces.kind}, {pieces.hash[:12]}",
        "mean document": f"{known.documents.mean:,.1f} tokens",
        "mean sentence": f"{known.sentences.mean:,.1f} tokens",
        "tokens a word": _ratio(kept.tokens, pieces.words),
        "unknown tokens": _share(pieces.unknown, kept.tokens),
        **{_words(key): value for key, value in known.statistics.items()},
    }
    return Section("Summary", said, (CardTable(("fact", "value"), tuple(rows.items()), 2),))


def _splits(known: DataCardFacts) -> Section:
    total = sum(count["rows"] for count in known.splits.values())
    rows = tuple(
        (name, f"{count['rows']:,}", _share(count["rows"], total), f"{count['tokens']:,}", f"{count['shards']:,}")
        for name, count in known.splits.items()
    )
    said = "A document belongs to a split by the hash of its text, wherever it stood."
    return Section("Splits", said, (CardTable(("split", "documents", "share", "tokens", "shards"), rows),))


def _mixture(known: DataCardFacts) -> Section:
    trained = sum(group.trained for group in known.mixture)
    off = max(abs(group.trained / trained - group.asked) for group in known.mixture)
    said = (
        f"Training reads each group by its weight, whatever its size: {known.recipe} takes {trained:,} tokens of text. "
        "A group is read in an order of its own until each of its rows was there once, then again in another order. "
        f"Shares differ from the weights by {100 * off:.4f} % at most: rows are counted, and tokens are those rows at "
        "the mean length of their group's. Held-out splits are not weighted. What several groups have stays in the "
        "first of them that the corpus file lists."
    )
    rows = tuple(
        (
            group.name,
            f"{group.documents:,}",
            f"{group.tokens:,}",
            f"{group.weight:g}",
            f"{100 * group.asked:.2f} %",
            f"{100 * group.trained / trained:.2f} %",
            f"{group.epochs:,.2f}",
        )
        for group in sorted(known.mixture, key=lambda group: -group.weight)
    )
    head = ("group", "documents", "tokens", "weight", "asked", "of training", "epochs")
    given = [_given(known)] if known.mixture[0].ledger.seen.documents else []  # none in a corpus of an older version
    return Section("Mixture", said, (CardTable(head, rows), *given))


def _given(known: DataCardFacts) -> CardTable:
    """What each group gave, and what became of it, in documents."""
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
    return CardTable(("group", "gave", *map(_words, reasons), "kept", *splits, "train"), rows)


def _funnel(known: DataCardFacts) -> Section:
    said = (
        "Everything that was read is kept or dropped for a reason, to the byte. Text that is taken out of a document "
        "counts bytes and no document."
    )
    seen, rows, left = known.seen, [], known.seen
    for reason, count in known.dropped.items():
        left -= count
        documents = (f"{count.documents:,}", _share(count.documents, seen.documents), f"{left.documents:,}")
        sizes = (f"{count.bytes:,}", _share(count.bytes, seen.bytes), f"{left.bytes:,}")
        rows.append((_words(reason), *documents, *sizes))
    first = ("seen", "", "", f"{seen.documents:,}", "", "", f"{seen.bytes:,}")
    kept = (_share(known.kept.documents, seen.documents), _share(known.kept.bytes, seen.bytes))
    last = ("kept", "", kept[0], f"{known.kept.documents:,}", "", kept[1], f"{known.kept.bytes:,}")
    head = ("dropped", "documents", "share", "left", "bytes", "share", "left")
    shown = Picture("funnel", "What is left of the documents and of the bytes after each reason to drop some")
    return Section("What was kept and what was dropped", said, (CardTable(head, (first, *rows, last)), shown))


def _sources(known: DataCardFacts) -> Section:
    tokens = known.kept.tokens
    rows = tuple((name, f"{docs:,}", f"{count:,}", _share(count, tokens)) for name, docs, count in known.sources)
    said = f"{known.num_sources:,} sources" + (
        f", of which these {len(rows)} have the most tokens." if len(rows) < known.num_sources else "."
    )
    return Section("Sources", said, (CardTable(("source", "documents", "tokens", "share"), rows),))


def _languages(known: DataCardFacts) -> Section:
    total = sum(known.languages.values())
    rows = tuple((code, f"{count:,}", _share(count, total)) for code, count in known.languages.items())
    said = f"As py3langid tells them from the beginnings of {total:,} documents, spread evenly over the corpus."
    return Section("Languages", said, (CardTable(("language", "documents", "share"), rows),))


def _lengths(title: str, picture: str, lengths: Lengths) -> Section:
    what = title.lower()
    said = f"{lengths.count:,} {what} of {lengths.mean:,.1f} tokens on average."
    rows = tuple((name, f"{value:,}") for name, value in lengths.quantiles.items())
    most = max(lengths.bins)
    lines = [
        f"{start:>9,} - {stop - 1:<9,} {count:>12,}  {'#' * round(_BAR * count / most)}".rstrip()
        for (start, stop), count in zip(pairwise(lengths.edges), lengths.bins, strict=True)
    ]
    shown = Picture(picture, f"Histogram of the lengths of {what}", tuple(lines))
    return Section(title, said, (CardTable((f"length of {what}", "tokens"), rows), shown))


def _vocabulary(pieces: TokenizerStats, tokens: int) -> Section:
    ordinary = pieces.size - len(pieces.special)
    said = (
        f"{pieces.kind} with {pieces.size:,} pieces, {len(pieces.special)} of them special "
        f"({' '.join(pieces.special)}). A word is cut into {_ratio(tokens, pieces.words)} pieces on average."
    )
    whole, continued = pieces.words_of[0], pieces.words - pieces.words_of[0]
    facts = (
        ("words", f"{pieces.words:,}", ""),
        ("words that are one piece", f"{whole:,}", _share(whole, pieces.words)),
        ("words that are continued", f"{continued:,}", _share(continued, pieces.words)),
        ("unknown tokens", f"{pieces.unknown:,}", _share(pieces.unknown, tokens)),
        ("pieces that never occur", f"{pieces.unused:,}", _share(pieces.unused, ordinary)),
        *((f"tokens of the {k:,} most frequent pieces", f"{n:,}", _share(n, tokens)) for k, n in pieces.covered),
    )
    last = len(pieces.words_of)
    cut = tuple(
        (f"{number}{' or more' * (number == last)}", f"{count:,}", _share(count, pieces.words))
        for number, count in enumerate(pieces.words_of, 1)
    )
    return Section(
        "Vocabulary", said, (CardTable(("", "count", "share"), facts), CardTable(("pieces", "words", "share"), cut))
    )


def _zipf(pieces: TokenizerStats, tokens: int) -> Section:
    said = "How often each piece occurs, over its rank; natural language follows 1 / rank for most of the way."
    rows = tuple(
        (f"{rank}", piece, f"{count:,}", _share(count, tokens)) for rank, (piece, count) in enumerate(pieces.top, 1)
    )
    table = CardTable(("rank", "piece", "tokens", "share"), rows, 2)
    return Section("Frequent pieces", said, (Picture("zipf", "Frequency of the pieces over their rank"), table))


def _quotes(known: DataCardFacts) -> Iterator[Part]:
    for sample in known.samples:
        yield Quote(f"{sample.source}: {sample.tokens:,} tokens, key {sample.key[:12]}", sample.text)


def _examples(examples: tuple[CardExample, ...]) -> Section:
    said = (
        "A row of the first shard as each objective of the family sees it. What is predicted is marked, with the label "
        "behind it; a marked token that is no mask was swapped or kept."
    )
    shown = (CardSample(each.recipe, f"{each.said}. {each.note}".strip(), each.tokens) for each in examples)
    return Section("Training samples", said, tuple(shown))


def _made(known: DataCardFacts) -> Section:
    said = "The settings of the corpus, the hashes of what it was made from, and the libraries that have a say in it."
    hashes = {"hash of the settings": known.spec_hash[:16], "hash of the text": known.text_hash[:16]}
    rows = known.made | hashes | {f"version of {name}": version for name, version in known.versions.items()}
    return Section("How it was made", said, (CardTable(("setting", "value"), tuple(rows.items()), 2),))


def _words(key: str) -> str:
    """
    >>> _words("repaired.too_long")
    'repaired too long'
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
