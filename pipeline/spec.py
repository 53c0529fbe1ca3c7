"""What a corpus is made of: where the text is, how it is cleaned, how it is split. No Beam in here.

The modules that read these parts are next door: sources.py and what it calls (the sources), clean.py (Clean), dedup.py
(Dedup), plan.py (the shares and shards of a Corpus), encode.py (its words and units).
"""

from typing import Literal

from preprocessing.spec import require, spec

# A `path` is a file, a folder (all files below it) or a glob, here or as a URL of fsspec (s3://, gs://, memory://).


@spec
class Text:
    """Plain text, optionally .gz, .bz2 or .zst. What a document is: a file, a line, or what blank lines separate."""

    kind: Literal["text"] = "text"
    path: str
    unit: Literal["document", "line", "paragraphs"] = "document"


@spec
class Books:
    """A file is a book; what Project Gutenberg puts around its text goes."""

    kind: Literal["books"] = "books"
    path: str


@spec
class Jsonl:
    """One JSON object a line, optionally .gz, .bz2 or .zst; the document is the string at `field`."""

    kind: Literal["jsonl"] = "jsonl"
    path: str
    field: str = "text"
    spans: str = ""  # field with [[start, stop], ...] in characters of the text: entities, phrases (see Corpus.units)


@spec
class Table:
    """Parquet, Arrow files or streams, or a folder that Hugging Face `datasets` saved; a row is a document."""

    kind: Literal["table"] = "table"
    path: str
    field: str = "text"
    spans: str = ""  # column with [[start, stop], ...], as for Jsonl


@spec
class WikiDump:
    """A MediaWiki `pages-articles` XML dump, optionally .bz2, .gz or .zst: articles without their markup."""

    kind: Literal["wiki_dump"] = "wiki_dump"
    path: str


@spec
class WikiExtractor:
    """What WikiExtractor writes: `<doc id= url= title=>`, lines, `</doc>`, or its JSON; optionally .gz, .bz2, .zst."""

    kind: Literal["wikiextractor"] = "wikiextractor"
    path: str


@spec
class Parallel:
    """Aligned files, one for each language: line i of all of them together is document i, its sides are its spans."""

    kind: Literal["parallel"] = "parallel"
    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        require(len(self.paths) >= 2, "parallel.paths", self.paths, "two files or more")


@spec
class Warc:
    """Web archives: the main text of the HTML responses of WARC files, the texts of WET files; .gz or not."""

    kind: Literal["warc"] = "warc"
    path: str


@spec
class Installed:
    """The documentation installed with Python and its packages: pydoc's topics and docstrings. Nothing is imported."""

    kind: Literal["installed"] = "installed"
    packages: tuple[str, ...] = ()  # top-level names, "python" for the standard library; none named means all


Source = Text | Books | Jsonl | Table | WikiDump | WikiExtractor | Parallel | Warc | Installed


@spec
class Clean:
    """What is mended in a document, and which documents are kept."""

    repair: bool = True  # mojibake and the like, by ftfy
    mask: tuple[Literal["email", "ip", "phone"], ...] = ()  # private data that placeholders replace
    languages: tuple[str, ...] = ()  # ISO 639-1 codes of those that are kept; none named: all
    rules: tuple[Literal["c4", "gopher_quality", "gopher_repetition"], ...] = ()  # text/filters.py cites them
    min_chars: int = 32
    max_chars: int = 10_000_000  # also before cleaning; the longest novels have 3 to 4 million
    max_rejects: float = 0.05  # share of the documents that may be unreadable before the job fails

    def __post_init__(self) -> None:
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "a number of characters from 1 up")
        most = 100_000_000  # a document is held in memory
        holds = self.min_chars <= self.max_chars <= most
        require(holds, "clean.max_chars", self.max_chars, f"a number of characters from min_chars up to {most:,}")
        require(0 <= self.max_rejects <= 1, "clean.max_rejects", self.max_rejects, "a share from 0 to 1")


@spec
class Dedup:
    """What counts as the same text twice; of several documents one is kept, whichever order they came in."""

    exact: bool = True
    near: bool = False  # MinHash LSH: documents that share most of their n-grams of words
    ngram: int = 5
    bands: int = 14
    rows: int = 8  # of a band; documents with Jaccard similarity s meet with probability 1 - (1 - s**rows)**bands
    least: float = 0.7  # similarity, as the whole signatures estimate it, below which those that meet are not near
    lines: int = 0  # lines of at least so many characters are kept once in the whole corpus; 0: all lines are kept
    against: tuple[str, ...] = ()  # corpora of Sesame, or text of any kind, whose documents are not wanted again

    def __post_init__(self) -> None:
        for name in ("ngram", "bands", "rows"):
            require(1 <= getattr(self, name) <= 64, f"dedup.{name}", getattr(self, name), "a number from 1 to 64")
        require(0 <= self.least <= 1, "dedup.least", self.least, "a similarity from 0 to 1")
        require(self.lines >= 0, "dedup.lines", self.lines, "a number of characters from 1 up, or 0")


@spec
class Decontaminate:
    """Documents that share an n-gram of words with evaluation sets are dropped (GPT-3, appendix C: 13-grams)."""

    paths: tuple[str, ...] = ()  # of the evaluation sets, any text that a source reads
    ngram: int = 13

    def __post_init__(self) -> None:
        require(1 <= self.ngram <= 64, "decontaminate.ngram", self.ngram, "a number of words from 1 to 64")


@spec
class Corpus:
    """Named text: its sources, what is kept of them, and what is held out."""

    name: str
    sources: tuple[Source, ...] = ()
    clean: Clean = Clean()
    dedup: Dedup = Dedup()
    decontaminate: Decontaminate = Decontaminate()
    order: Literal["key", "input"] = (
        "key"  # of the documents: by a hash of their text, which is random, or as they came
    )
    sentences: Literal["found", "lines"] = "found"  # lines: each line is one, as in the files of the reference BERT
    words: Literal["pieces", "jieba"] = "pieces"  # what begins a word: the vocabulary's pieces, or Chinese segmentation
    units: str = ""  # phrases to mask as one: "given" (spans of the sources), or a file of phrases, one a line
    validation: float = 0.005  # share of the documents
    test: float = 0.005
    shard_mb: int = 32  # most MB of text in a shard; a small corpus is cut finer, for the sake of the cores

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            require(0 <= getattr(self, name) <= 0.5, name, getattr(self, name), "a share from 0 to 0.5")
        require(self.validation + self.test < 1, "validation + test", self.validation + self.test, "a share below 1")
        require(1 <= self.shard_mb <= 1024, "shard_mb", self.shard_mb, "a number of MB from 1 to 1024")
