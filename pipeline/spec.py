"""What a corpus is made of: where the text is, how it is cleaned, how it is split. No Beam in here.

The modules that read these parts are next door: sources.py (Text, Jsonl, WikiExtractor), installed.py (Installed),
clean.py (Clean) and dedup.py (the shares and shards of a Corpus).
"""

from typing import Literal

from preprocessing.knob import knob, require


@knob
class Text:
    """Plain text, optionally .gz or .zst. What a document is: a file, a line, or what blank lines separate."""

    kind: Literal["text"] = "text"
    path: str  # a file, a folder (all files below it) or a glob
    unit: Literal["document", "line", "paragraphs"] = "document"


@knob
class Jsonl:
    """One JSON object a line, optionally .gz or .zst; the document is the string at `field`."""

    kind: Literal["jsonl"] = "jsonl"
    path: str  # a file, a folder (its .jsonl, .ndjson and .json files) or a glob
    field: str = "text"


@knob
class WikiExtractor:
    """What WikiExtractor writes: `<doc id= url= title=>`, lines, `</doc>`, optionally .gz or .zst."""

    kind: Literal["wikiextractor"] = "wikiextractor"
    path: str  # a file, a folder (all files below it) or a glob


@knob
class Installed:
    """The documentation installed with Python and its packages: pydoc's topics and docstrings. Nothing is imported."""

    kind: Literal["installed"] = "installed"
    packages: tuple[str, ...] = ()  # top-level names, "python" for the standard library; none named means all


Source = Text | Jsonl | WikiExtractor | Installed


@knob
class Clean:
    """Which documents are kept, by their length in characters after cleaning."""

    min_chars: int = 32
    max_chars: int = 10_000_000  # the longest novels have 3 to 4 million

    def __post_init__(self) -> None:
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "a number of characters from 1 up")
        most = 100_000_000  # a document is held in memory
        holds = self.min_chars <= self.max_chars <= most
        require(holds, "clean.max_chars", self.max_chars, f"a number of characters from min_chars up to {most:,}")


@knob
class Corpus:
    """Named text: its sources, what is kept of them, and what is held out."""

    name: str
    sources: tuple[Source, ...] = ()
    clean: Clean = Clean()
    validation: float = 0.005  # share of the documents
    test: float = 0.005
    shard_mb: int = 64  # most MB of text in a shard; a small corpus is cut finer, for the sake of the cores
    dedup: Literal["exact", "none"] = "exact"

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            require(0 <= getattr(self, name) <= 0.5, name, getattr(self, name), "a share from 0 to 0.5")
        require(self.validation + self.test < 1, "validation + test", self.validation + self.test, "a share below 1")
        require(1 <= self.shard_mb <= 1024, "shard_mb", self.shard_mb, "a number of MB from 1 to 1024")
