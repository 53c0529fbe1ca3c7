"""What a corpus is made of: where the text is, how it is cleaned, how it is split. No Beam in here.

The sources stand in readers/, one file a format. The steps read the rest: clean.py (Clean), dedup.py (Dedup),
ingest.py (Decontaminate), plan.py (the shares and shards of a Corpus), encode.py (its words and units), runners (Beam).
"""

import json
import math
import re
from dataclasses import asdict, field
from typing import Any, Final, Literal

from pipeline.readers import Source
from preprocessing.credentials import has_credential, is_credential
from preprocessing.spec import require, require_name, spec
from preprocessing.text import Whitespace


@spec
class Clean:
    """How documents are repaired, and which of them are kept."""

    fix_text: bool = True  # mojibake and the like, by ftfy
    whitespace: Whitespace = "collapse"  # runs of it are one blank, lines begin without; keep: all stays, as in code
    mask_pii: tuple[Literal["email", "ip", "phone"], ...] = ()  # private data that placeholders replace
    languages: tuple[str, ...] = ()  # ISO 639-1 codes of those that are kept; none named: all
    filters: tuple[Literal["c4", "gopher_quality", "gopher_repetition"], ...] = ()  # text/filters.py cites them
    min_chars: int = 32  # of a document; shorter ones are dropped
    max_chars: int = 10_000_000  # also before cleaning; the longest novels have 3 to 4 million
    max_replacement_char_ratio: float = (
        0.001  # share of the characters of a document that may be U+FFFD: what could not be decoded
    )
    max_unreadable_ratio: float = (
        0.05  # share of documents, stored bytes and files that may be unreadable before the job fails
    )

    @property
    def causes(self) -> dict[str, Any]:
        """What a cleaned text depends on, without what is as it was before there was a key for it."""
        plain = asdict(self)
        if self.whitespace == "collapse":
            del plain["whitespace"]
        return plain

    def __post_init__(self) -> None:
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "a number of characters from 1 up")
        most = 100_000_000  # a document is held in memory
        holds = self.min_chars <= self.max_chars <= most
        require(holds, "clean.max_chars", self.max_chars, f"a number of characters from min_chars up to {most:,}")
        if self.whitespace == "keep" and "c4" in self.filters:
            raise ValueError(
                "clean.whitespace is 'keep', and the rule c4 of clean.filters strips lines; leave one of the two out"
            )
        require(
            0 <= self.max_replacement_char_ratio <= 1,
            "clean.max_replacement_char_ratio",
            self.max_replacement_char_ratio,
            "a share from 0 to 1",
        )
        require(
            0 <= self.max_unreadable_ratio <= 1,
            "clean.max_unreadable_ratio",
            self.max_unreadable_ratio,
            "a share from 0 to 1",
        )


@spec
class Dedup:
    """Which documents count as the same text; one of them is kept, independent of their order."""

    exact: bool = True  # of documents with the same text one is kept
    minhash: bool = False  # MinHash LSH: documents that share most of their n-grams of words
    ngram_size: int = 5  # words that MinHash takes together
    num_bands: int = 14  # of a signature; documents meet that have all rows of one in common
    rows_per_band: int = (
        8  # of a band; documents with Jaccard similarity s meet with probability 1 - (1 - s**rows)**bands
    )
    min_similarity: float = (
        0.7  # similarity, as the whole signatures estimate it, from which documents that meet are near
    )
    line_min_chars: int = (
        0  # lines of at least so many characters are kept once in the whole corpus; 0: all lines are kept
    )
    reference_corpora: tuple[
        str, ...
    ] = ()  # corpora of Sesame, or text of any kind: documents that they have are dropped

    def __post_init__(self) -> None:
        for name in ("ngram_size", "num_bands", "rows_per_band"):
            require(1 <= getattr(self, name) <= 64, f"dedup.{name}", getattr(self, name), "a number from 1 to 64")
        require(0 <= self.min_similarity <= 1, "dedup.min_similarity", self.min_similarity, "a similarity from 0 to 1")
        require(
            self.line_min_chars >= 0,
            "dedup.line_min_chars",
            self.line_min_chars,
            "a number of characters from 1 up, or 0",
        )


@spec
class Decontaminate:
    """Documents that share an n-gram of words with evaluation sets are dropped (GPT-3, appendix C: 13-grams)."""

    paths: tuple[str, ...] = ()  # of the evaluation sets, any text that a source reads
    ngram_size: int = 13  # words

    def __post_init__(self) -> None:
        require(
            1 <= self.ngram_size <= 64, "decontaminate.ngram_size", self.ngram_size, "a number of words from 1 to 64"
        )


@spec
class MixtureGroup:
    """A part of a mixture: one source or several, and their share of the tokens that are trained on."""

    name: str  # of the group, for --data NAME=PATH
    weight: float  # shares are weights over the sum of all of them: those of GPT-3, as printed, add up to 101
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        known = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name) is not None
        require(known, "mixture.name", self.name, "a word of letters, digits, `_`, `.` and `-`")
        require(0 < self.weight < math.inf, "mixture.weight", self.weight, "a number above 0")


@spec
class Corpus:
    """Named text: its sources, what is kept of them, and what is held out.

    With a `mixture`, training reads its groups by their weights, whatever their sizes, and `sources` are those of all
    groups. Of what several groups have, a document or a line, the first of them as listed keeps it. The splits that are
    held out are not weighted: they have each document as often as any other, so that the
    figures of two mixtures of the same text compare.
    """

    name: str  # of the corpus and its folder
    sources: tuple[Source, ...] = ()
    mixture: tuple[MixtureGroup, ...] = ()
    clean: Clean = Clean()
    dedup: Dedup = Dedup()
    decontaminate: Decontaminate = Decontaminate()
    document_order: Literal["key", "input"] = (
        "key"  # of the documents: by a hash of their text, which is random, or as read
    )
    sentence_boundaries: Literal["found", "lines"] = (
        "found"  # lines: each line is one, as in the files of the reference BERT
    )
    word_segmentation: Literal["pieces", "jieba"] = (
        "pieces"  # what begins a word: the vocabulary's pieces, or Chinese segmentation
    )
    phrases: str = ""  # phrases to mask as one: "given" (spans of the sources), or a file of phrases, one a line
    validation_ratio: float = 0.005  # share of the documents
    test_ratio: float = 0.005  # share of the documents, for downstream tasks
    max_shard_mb: int = 32  # most MB of text in a shard; a small corpus is cut finer, for the sake of the cores

    def __post_init__(self) -> None:
        require_name(self.name)
        for name in ("validation_ratio", "test_ratio"):
            require(0 <= getattr(self, name) <= 0.5, name, getattr(self, name), "a share from 0 to 0.5")
        require(
            self.validation_ratio + self.test_ratio < 1,
            "validation_ratio + test_ratio",
            self.validation_ratio + self.test_ratio,
            "a share below 1",
        )
        self._check_mixture()
        require(1 <= self.max_shard_mb <= 1024, "max_shard_mb", self.max_shard_mb, "a number of MB from 1 to 1024")

    def _check_mixture(self) -> None:
        names = [group.name for group in self.mixture]
        require(len(set(names)) == len(names), "mixture", names, "each name once")
        of_groups = tuple(source for group in self.mixture for source in group.sources)
        if self.mixture:
            alone = self.sources in ((), of_groups)
            require(
                alone,
                "sources",
                [source.kind for source in self.sources],
                "none beside `mixture`, whose groups have them",
            )
            once = all(of_groups.count(source) == 1 for source in of_groups)
            require(once, "mixture", [source.place for source in of_groups], "each source in one group")
            object.__setattr__(self, "sources", of_groups)  # who reads the text need not ask for groups

    @property
    def groups_without_text(self) -> list[str]:
        """Names of the groups without a source, where others have one."""
        return [group.name for group in self.mixture if self.sources and not group.sources]

    @property
    def shares(self) -> dict[str, float]:
        """Of each group of the mixture, its share of the training tokens."""
        total = math.fsum(group.weight for group in self.mixture)
        return {group.name: group.weight / total for group in self.mixture}


_READERS: Final = {"direct": "FnApiRunner", "flink": "FlinkRunner", "spark": "SparkRunner"}  # by how options begin
Runner = Literal["FnApiRunner", "PortableRunner", "FlinkRunner", "SparkRunner", "DataflowRunner"]


@spec
class BeamSettings:
    """Where Beam makes a corpus: its runner, and options of Beam itself. Comes from the cluster file."""

    runner: Runner = "FnApiRunner"  # FnApiRunner: this machine, in one process or several
    options: dict[str, Any] = field(default_factory=dict)  # of Beam, without dashes: {parallelism: 16}

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            where = f"beam.options.{name}"
            if name == "runner":
                raise ValueError(f"{where} is given, allowed is no such option: it is beam.runner")
            if not re.fullmatch("[a-z][a-zA-Z0-9_]*", name):
                raise ValueError(f"{where} is given, allowed are words of Beam's own, without dashes: parallelism")
            if has_credential({name: value}) or (is_credential(name) and not isinstance(value, bool)):  # ${NAME} too
                raise ValueError(f"{where} is given, allowed is no credential: it is for `env`, as NAME: ${{NAME}}")
            fits = isinstance(value, str | int | float | list | dict)
            require(fits, where, value, "a word, a number, true or false, a list or a mapping")

    @property
    def foreign(self) -> dict[str, str]:
        """Options that only another runner reads, by their names; which one it is.

        >>> BeamSettings(runner="FlinkRunner", options={"spark_version": "3", "parallelism": 2}).foreign
        {'spark_version': 'SparkRunner'}
        """
        readers = {name: _READERS.get(name.partition("_")[0], self.runner) for name in self.options}
        return {name: reader for name, reader in readers.items() if reader != self.runner}

    @property
    def arguments(self) -> list[str]:
        """As a command line has them; `--no_NAME` is for runners.check_options, as Beam knows it of few names.

        >>> BeamSettings(runner="FlinkRunner", options={"streaming": False, "files": ["a", "b"]}).arguments
        ['--runner=FlinkRunner', '--no_streaming', '--files=a', '--files=b']
        """
        words = [] if self.runner == "FnApiRunner" else [f"--runner={self.runner}"]
        for name, value in self.options.items():
            if isinstance(value, bool):
                words += [f"--{name}" if value else f"--no_{name}"]
            else:
                said = [json.dumps(value)] if isinstance(value, dict) else value if isinstance(value, list) else [value]
                words += [f"--{name}={one}" for one in said]
        return words
