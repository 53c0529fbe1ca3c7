"""What a corpus is made of: where the text is, how it is cleaned, how it is split. No Beam in here.

The sources stand in readers/, one file a format. The steps read the rest: clean.py (Clean), dedup.py (Dedup),
ingest.py (Decontaminate), plan.py (the shares and shards of a Corpus), encode.py (its words and units).
"""

from typing import Literal

from pipeline.readers import Source
from preprocessing.spec import require, spec


@spec
class Clean:
    """How documents are repaired, and which of them are kept."""

    repair: bool = True  # mojibake and the like, by ftfy
    mask: tuple[Literal["email", "ip", "phone"], ...] = ()  # private data that placeholders replace
    languages: tuple[str, ...] = ()  # ISO 639-1 codes of those that are kept; none named: all
    rules: tuple[Literal["c4", "gopher_quality", "gopher_repetition"], ...] = ()  # text/filters.py cites them
    min_chars: int = 32
    max_chars: int = 10_000_000  # also before cleaning; the longest novels have 3 to 4 million
    max_lost: float = 0.001  # share of the characters of a document that may be U+FFFD: what could not be decoded
    max_rejects: float = 0.05  # share of the documents that may be unreadable before the job fails

    def __post_init__(self) -> None:
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "a number of characters from 1 up")
        most = 100_000_000  # a document is held in memory
        holds = self.min_chars <= self.max_chars <= most
        require(holds, "clean.max_chars", self.max_chars, f"a number of characters from min_chars up to {most:,}")
        require(0 <= self.max_lost <= 1, "clean.max_lost", self.max_lost, "a share from 0 to 1")
        require(0 <= self.max_rejects <= 1, "clean.max_rejects", self.max_rejects, "a share from 0 to 1")


@spec
class Dedup:
    """Which documents count as the same text; one of them is kept, independent of their order."""

    exact: bool = True
    near: bool = False  # MinHash LSH: documents that share most of their n-grams of words
    ngram: int = 5
    bands: int = 14
    rows: int = 8  # of a band; documents with Jaccard similarity s meet with probability 1 - (1 - s**rows)**bands
    least: float = 0.7  # similarity, as the whole signatures estimate it, from which documents that meet are near
    lines: int = 0  # lines of at least so many characters are kept once in the whole corpus; 0: all lines are kept
    against: tuple[str, ...] = ()  # corpora of Sesame, or text of any kind: documents that they have are dropped

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
    order: Literal["key", "input"] = "key"  # of the documents: by a hash of their text, which is random, or as read
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
