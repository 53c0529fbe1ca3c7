"""Keys of a corpus file: text sources, cleaning, deduplication and splits. This module does not import Beam.

The sources are defined in readers/, one file per format. The steps read the other keys: clean.py reads Clean, dedup.py
Dedup, ingest.py Decontaminate, plan.py the weights and shards of a Corpus, and encode.py its words and phrases.
BeamSettings configures runners/.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, Self

from pipeline.own_filter import is_file_of_filter, read_own_filter
from pipeline.readers import Source, absolute, causes_of, is_text, list_kept_fields
from preprocessing.credentials import has_credential, is_credential
from preprocessing.errors import BadInput
from preprocessing.spec import InvalidValue, key, require, require_name, spec
from preprocessing.text import LANGUAGES, RULES, Whitespace, nearest_code

_HEAD: Final = 8192  # bytes of a list that are examined


@spec
class UrlLists:
    """Files with lists that drop web pages by their URL.

    A file has one entry per line; a line that begins with # is ignored. The keys are those of the URL filter of
    datatrove. Sesame has no list of its own.
    """

    domains: str = key(default="", doc="File of domains; a domain also drops its subdomains.")
    urls: str = key(default="", doc="File of whole URLs, with or without http://.")
    banned_words: str = key(default="", doc="File of words; one of them in a URL drops the document.")
    soft_banned_words: str = key(default="", doc="File of words that drop a document if several are in its URL.")
    banned_subwords: str = key(default="", doc="File of letter sequences; one of them anywhere in a URL drops it.")
    soft_word_threshold: int = key(default=2, doc="Number of soft banned words in a URL that drops the document.")

    def __post_init__(self) -> None:
        require(
            self.soft_word_threshold >= 1, "clean.urls.soft_word_threshold", self.soft_word_threshold, "1 or more words"
        )

    @property
    def files(self) -> dict[str, str]:
        """The files of the lists that are set, by key."""
        return {name: path for name, path in asdict(self).items() if isinstance(path, str) and path}

    @property
    def causes(self) -> dict[str, Any]:
        """The threshold and the SHA-256 of each list. Raises BadInput if a file cannot be read."""
        return {"soft_word_threshold": self.soft_word_threshold} | {
            name: digest_of_list(path) for name, path in self.files.items()
        }

    def resolve_paths(self, folder: Path) -> Self:
        """The lists with absolute paths, resolved relative to `folder`."""
        files: dict[str, Any] = {name: absolute(path, folder) for name, path in self.files.items()}
        return replace(self, **files)


def digest_of_list(path: str) -> str:
    """SHA-256 of a file, as hexadecimal digits. Raises BadInput if it cannot be read, or is no text."""
    try:
        facts = os.stat(path)
        return _digest(path, facts.st_mtime_ns, facts.st_size)
    except OSError as error:
        raise BadInput(f"clean.urls: {path}: cannot read the file ({error.strerror}); correct the path") from None


@lru_cache(maxsize=64)
def _digest(path: str, changed: int, size: int) -> str:
    with open(path, "rb") as file:
        if not is_text(file.read(_HEAD)):
            raise BadInput(f"clean.urls: {path}: invalid list: got no text, expected one entry per line; decompress it")
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


@spec
class Clean:
    """Cleaning: repair of documents and filters that drop them."""

    fix_text: bool = key(default=True, doc="Whether encoding errors such as mojibake are repaired with ftfy.")
    whitespace: Whitespace = key(
        default="collapse", doc="Treatment of white space: collapse runs to one space, or keep it as in source code."
    )
    mask_pii: tuple[Literal["email", "ip", "phone"], ...] = key(
        default=(), doc="Types of personal data that placeholders replace."
    )
    languages: tuple[str, ...] = key(
        default=(), doc="Codes of the languages to keep, in lower case, e.g. en (ISO 639-1); []: all."
    )
    min_language_score: float = key(
        default=0.0, doc="Minimum probability of the identified language, from 0 to 1; 0: any."
    )
    urls: UrlLists = key(default=UrlLists(), doc="Lists of domains and words that drop documents by their URL.")
    # The papers are cited in preprocessing/text/filters.py.
    filters: tuple[str, ...] = key(
        default=(),
        choices=(*RULES, "FILE.py"),
        doc="Quality filters to apply, in the order given: names, or your own Python files.",
    )
    min_chars: int = key(default=32, doc="Minimum characters per document; shorter documents are dropped.")
    # The longest novels have 3 to 4 million.
    max_chars: int = key(default=10_000_000, doc="Maximum characters per document, before and after cleaning.")
    max_replacement_char_ratio: float = key(
        default=0.001, doc="Maximum fraction of replacement characters (U+FFFD) per document."
    )
    max_unreadable_ratio: float = key(
        default=0.05, doc="Maximum fraction of unreadable documents, bytes and files before the job fails."
    )

    @property
    def causes(self) -> dict[str, Any]:
        """The keys that determine the cleaned text.

        Newer keys are omitted at their defaults, so that corpora built before these keys existed keep their hashes. A
        file counts by its content. Raises BadInput if a file cannot be read.
        """
        plain = asdict(self)
        for name in ("whitespace", "min_language_score", "urls"):
            if getattr(self, name) == getattr(Clean(), name):
                del plain[name]
        if "urls" in plain:
            plain["urls"] = self.urls.causes
        own = {file: read_own_filter(file) for file in self.own_filters}
        plain["filters"] = tuple(
            f"{own[name].name}:{own[name].digest}" if name in own else name for name in self.filters
        )
        return plain

    @property
    def own_filters(self) -> tuple[str, ...]:
        """The files among the filters."""
        return tuple(filter(is_file_of_filter, self.filters))

    def resolve_paths(self, folder: Path) -> Self:
        """The settings with absolute paths, resolved relative to `folder`. Raises BadInput if a filter is invalid."""
        files = {name: absolute(name, folder) for name in self.own_filters}
        for file in files.values():
            read_own_filter(file)
        filters = tuple(files.get(name, name) for name in self.filters)
        return replace(self, filters=filters, urls=self.urls.resolve_paths(folder))

    def __post_init__(self) -> None:
        for code in self.languages:
            if code not in LANGUAGES:
                remedy = (
                    f"use {nearest}" if (nearest := nearest_code(code)) else "see docs/guides/corpora.md for all codes"
                )
                expected = "a code of py3langid in lower case, e.g. en, de, zh"
                raise InvalidValue("clean.languages", repr(code), f"{expected}; {remedy}", code)
        require(
            0 <= self.min_language_score <= 1,
            "clean.min_language_score",
            self.min_language_score,
            "a probability from 0 to 1",
        )
        for name in self.filters:
            if name not in RULES and not is_file_of_filter(name):
                expected = f"{', '.join(RULES)}, or a Python file, e.g. my_filter.py"
                raise InvalidValue("clean.filters", repr(name), expected, name)
        stems = [Path(name).stem for name in self.filters]
        require(len(set(stems)) == len(stems), "clean.filters", stems, "filters with different names")
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "1 or more characters")
        most = 100_000_000  # a document is held in memory
        holds = self.min_chars <= self.max_chars <= most
        require(holds, "clean.max_chars", self.max_chars, f"from min_chars to {most:,} characters")
        if self.whitespace == "keep" and "c4" in self.filters:
            raise InvalidValue(
                "clean.whitespace",
                "'keep'",
                "collapse with the filter c4, which strips lines; leave one of the two out",
            )
        require(
            0 <= self.max_replacement_char_ratio <= 1,
            "clean.max_replacement_char_ratio",
            self.max_replacement_char_ratio,
            "a fraction from 0 to 1",
        )
        require(
            0 <= self.max_unreadable_ratio <= 1,
            "clean.max_unreadable_ratio",
            self.max_unreadable_ratio,
            "a fraction from 0 to 1",
        )


@spec
class Dedup:
    """Deduplication: one of several equal or similar documents is kept.

    The result does not depend on the order of the documents.
    """

    exact: bool = key(default=True, doc="Whether one of several documents with equal text is kept.")
    minhash: bool = key(default=False, doc="Whether near duplicates by word n-grams are removed with MinHash LSH.")
    ngram_size: int = key(default=5, doc="Words per n-gram of MinHash, from 1 to 64.")
    num_bands: int = key(default=14, doc="Bands of a MinHash signature; documents that agree in one band are compared.")
    # Documents of Jaccard similarity s are compared with probability 1 - (1 - s**rows)**bands.
    rows_per_band: int = key(default=8, doc="Rows per band of a MinHash signature.")
    min_similarity: float = key(default=0.7, doc="Minimum estimated Jaccard similarity of near duplicates.")
    line_min_chars: int = key(
        default=0, doc="Minimum characters of lines that are kept once per corpus; 0: all lines are kept."
    )
    # Lee et al. 2021, arXiv:2107.06499, section 4.1: 50 tokens of a BPE vocabulary.
    substring_min_tokens: int = key(
        default=0, doc="Minimum words and marks of substrings that are kept once per corpus, e.g. 50; 0: all stay."
    )
    reference_corpora: tuple[str, ...] = key(
        default=(), doc="Corpora or text files whose documents are dropped from this corpus."
    )

    def __post_init__(self) -> None:
        for name in ("ngram_size", "num_bands", "rows_per_band"):
            require(1 <= getattr(self, name) <= 64, f"dedup.{name}", getattr(self, name), "an integer from 1 to 64")
        require(0 <= self.min_similarity <= 1, "dedup.min_similarity", self.min_similarity, "a similarity from 0 to 1")
        require(
            self.line_min_chars >= 0,
            "dedup.line_min_chars",
            self.line_min_chars,
            "0 or more characters",
        )
        least = 10  # shorter ones are phrases that texts share without being copies
        holds = self.substring_min_tokens == 0 or self.substring_min_tokens >= least
        require(holds, "dedup.substring_min_tokens", self.substring_min_tokens, f"0, or {least} or more tokens")

    @property
    def causes(self) -> dict[str, Any]:
        """The keys and values. `substring_min_tokens` is omitted at 0, so that corpora built before it keep their
        hashes."""
        return {name: value for name, value in asdict(self).items() if name != "substring_min_tokens" or value}


@spec
class Decontaminate:
    """Decontamination: documents that overlap with evaluation sets are dropped.

    The criterion is a shared n-gram of words (GPT-3, appendix C: 13-grams).
    """

    paths: tuple[str, ...] = key(default=(), doc="Paths to evaluation sets, in any format of a source.")
    ngram_size: int = key(default=13, doc="Words per n-gram, from 1 to 64.")

    def __post_init__(self) -> None:
        require(1 <= self.ngram_size <= 64, "decontaminate.ngram_size", self.ngram_size, "from 1 to 64 words")


@spec
class MixtureGroup:
    """Group of sources in a mixture, with one sampling weight, or with a number of epochs.

    With `epochs` (GPT-3, table 2.2), the weight is epochs x tokens of the group. So the group is read this number of
    times in a run that reads every group as often as requested; `phases.epochs: 1` is such a run.
    """

    name: str = key(doc="Name of the group, for --data NAME=PATH.")
    # GPT-3's weights, as printed, add up to 101.
    weight: float | None = key(
        default=None, doc="Sampling weight; the fraction of training tokens is weight / sum of weights."
    )
    epochs: float | None = key(default=None, doc="Number of epochs over the group, for all groups instead of weights.")
    sources: tuple[Source, ...] = key(default=(), doc="Text sources of the group.")

    def __post_init__(self) -> None:
        known = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name) is not None
        require(known, "mixture.name", self.name, "letters, digits, `_`, `.` and `-`")
        for field, value in (("weight", self.weight), ("epochs", self.epochs)):
            require(value is None or 0 < value < math.inf, f"mixture.{field}", value, "a number above 0")


@spec
class Corpus:
    """Corpus: text sources, cleaning and held-out splits.

    With a `mixture`, training samples its groups by weight, whatever their sizes, and `sources` are those of all
    groups. If several groups have the same document or line, the first listed group keeps it. Held-out splits are not
    weighted: every document occurs once, so that results of two mixtures of the same text are comparable.
    """

    name: str = key(doc="Name of the corpus and its directory.")
    sources: tuple[Source, ...] = key(default=(), doc="Text sources.")
    mixture: tuple[MixtureGroup, ...] = key(
        default=(), doc="Groups of sources that are sampled by weight; not together with sources."
    )
    # XLM 3.1 and mT5 3.1; T5 3.5.2 writes it as a temperature, 1 / alpha.
    mixture_sampling_alpha: float | None = key(
        default=None, doc="Exponent of the groups' tokens that gives the weights, e.g. 0.3; 1: by size."
    )
    clean: Clean = key(default=Clean(), doc="Cleaning and filters.")
    dedup: Dedup = key(default=Dedup(), doc="Deduplication.")
    decontaminate: Decontaminate = key(default=Decontaminate(), doc="Decontamination against evaluation sets.")
    document_order: Literal["key", "input"] = key(
        default="key", doc="Order of documents: by a hash of their text, which is random, or as read."
    )
    # `lines`: as in the files of the reference BERT.
    sentence_boundaries: Literal["found", "lines"] = key(
        default="found", doc="Sentence boundaries: found in the text, or one sentence per line."
    )
    word_segmentation: Literal["pieces", "jieba"] = key(
        default="pieces", doc="Word boundaries for whole-word masking: by the tokenizer, or by jieba for Chinese."
    )
    phrases: str = key(
        default="", doc='Phrases to mask as units: "given" (spans of the sources), or a file with one per line.'
    )
    validation_ratio: float = key(default=0.005, doc="Fraction of documents held out for validation, from 0 to 0.5.")
    test_ratio: float = key(default=0.005, doc="Fraction of documents held out for downstream tasks, from 0 to 0.5.")
    # A small corpus is divided into smaller shards, so that every core has work.
    max_shard_mb: int = key(default=32, doc="Maximum text per shard in MB, from 1 to 1024.")

    def __post_init__(self) -> None:
        require_name(self.name)
        for name in ("validation_ratio", "test_ratio"):
            require(0 <= getattr(self, name) <= 0.5, name, getattr(self, name), "a fraction from 0 to 0.5")
        require(
            self.validation_ratio + self.test_ratio < 1,
            "validation_ratio + test_ratio",
            self.validation_ratio + self.test_ratio,
            "a fraction below 1",
        )
        self._check_mixture()
        if without := [source for source in self.sources if not source.has_urls] if self.clean.urls.files else []:
            remedy = "set `url_key` of the source" if "url_key" in without[0].__dataclass_fields__ else "leave one out"
            expected = f"sources with URLs for clean.urls; {remedy}"
            raise InvalidValue("sources", f"{without[0].kind} {without[0].place}", expected)
        require(1 <= self.max_shard_mb <= 1024, "max_shard_mb", self.max_shard_mb, "from 1 to 1024 MB")

    def _check_mixture(self) -> None:
        names = [group.name for group in self.mixture]
        require(len(set(names)) == len(names), "mixture", names, "unique group names")
        of_groups = tuple(source for group in self.mixture for source in group.sources)
        if self.mixture:
            alone = self.sources in ((), of_groups)
            require(
                alone,
                "sources",
                [source.kind for source in self.sources],
                "no sources next to `mixture`, whose groups define them",
            )
            once = all(of_groups.count(source) == 1 for source in of_groups)
            require(once, "mixture", [source.place for source in of_groups], "every source in exactly one group")
            object.__setattr__(self, "sources", of_groups)  # code that reads all text does not need the groups
        self._check_weights()

    def _check_weights(self) -> None:
        """Raise InvalidValue unless the weights follow from exactly one of weight, epochs and alpha."""
        alpha, of_size = self.mixture_sampling_alpha, "mixture_sampling_alpha"
        require(alpha is None or 0 <= alpha < math.inf, of_size, alpha, "a number from 0 (equal weights) up")
        require(alpha is None or self.mixture != (), of_size, alpha, "none without `mixture`")
        names = [name for name in ("weight", "epochs") if any(getattr(one, name) is not None for one in self.mixture)]
        for number, group in enumerate(self.mixture):
            for name in names or ["weight"]:
                value, where = getattr(group, name), f"mixture.{number}.{name}"
                require(value is None or alpha is None, where, value, f"none with {of_size}; remove one of both")
                require(len(names) < 2, f"mixture.{number}", sorted(names), "either weights or epochs in all groups")
                if value is None and alpha is None:
                    raise InvalidValue(
                        where,
                        "no value",
                        "a number above 0, like the other groups"
                        if names
                        else (f"a number above 0, `epochs` instead, or {of_size} for all groups"),
                    )

    @property
    def causes(self) -> dict[str, Any]:
        """The keys and values of the corpus, without keys at defaults that corpora built before them do not have."""
        plain = asdict(self) | {"clean": self.clean.causes, "dedup": self.dedup.causes}
        plain["sources"] = tuple(causes_of(source) for source in self.sources)
        if self.mixture_sampling_alpha is None:
            del plain["mixture_sampling_alpha"]
        for group, of_group in zip(plain["mixture"], self.mixture, strict=True):
            group["sources"] = tuple(causes_of(source) for source in of_group.sources)
            if of_group.epochs is None:
                del group["epochs"]
        return plain

    @property
    def weight_causes(self) -> dict[str, Any]:
        """The keys and values that determine the weights of the groups; {} without a mixture."""
        if self.mixture_sampling_alpha is not None:
            return {group.name: {"alpha": self.mixture_sampling_alpha} for group in self.mixture}
        return {group.name: {"epochs": group.epochs} if group.epochs else group.weight for group in self.mixture}

    def weigh(self, tokens: Mapping[str, int]) -> dict[str, float]:
        """The weight of each group with this number of tokens.

        >>> groups = tuple(MixtureGroup(name=name) for name in ("en", "sw"))
        >>> Corpus(name="two", mixture=groups, mixture_sampling_alpha=0.5).weigh({"en": 1_000_000, "sw": 10_000})
        {'en': 1000.0, 'sw': 100.0}
        """
        alpha = self.mixture_sampling_alpha
        if alpha is not None:
            return {group.name: float(tokens[group.name] ** alpha) for group in self.mixture}
        return {group.name: group.weight or (group.epochs or 0) * tokens[group.name] for group in self.mixture}

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of documents that any source keeps, sorted."""
        return tuple(sorted({name for source in self.sources for name in list_kept_fields(source)}))

    @property
    def groups_without_text(self) -> list[str]:
        """Names of the groups without a source, if the corpus has sources at all."""
        return [group.name for group in self.mixture if self.sources and not group.sources]

    @property
    def shares(self) -> dict[str, float]:
        """Sampling probability of each mixture group: its fraction of the training tokens.

        It is {} if it follows from the number of tokens of each group.
        """
        weights = {group.name: group.weight for group in self.mixture if group.weight is not None}
        total = math.fsum(weights.values())
        return {name: weight / total for name, weight in weights.items()}


# the runner that reads an option, by the first word of the option
_READERS: Final = {"direct": "FnApiRunner", "flink": "FlinkRunner", "spark": "SparkRunner"}
Runner = Literal["FnApiRunner", "PortableRunner", "FlinkRunner", "SparkRunner", "DataflowRunner"]


@spec
class BeamSettings:
    """Apache Beam runner that builds the corpus; part of the cluster file."""

    runner: Runner = key(
        default="FnApiRunner", doc="Runner; FnApiRunner runs on this machine, in one or several processes."
    )
    options: dict[str, Any] = key(default_factory=dict, doc="Options of Beam, without dashes, e.g. {parallelism: 16}.")

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            where = f"beam.options.{name}"
            if name == "runner":
                raise InvalidValue(where, "a value", "no such option; set beam.runner instead")
            if not re.fullmatch("[a-z][a-zA-Z0-9_]*", name):
                raise InvalidValue(where, "a value", "an option of Beam, without dashes, e.g. parallelism; rename it")
            if has_credential({name: value}) or (is_credential(name) and not isinstance(value, bool)):  # ${NAME} too
                raise InvalidValue(where, "a credential", "none; write it into `env`, as NAME: ${NAME}")
            fits = isinstance(value, str | int | float | list | dict)
            require(fits, where, value, "a string, a number, true, false, a list or a mapping")

    @property
    def foreign(self) -> dict[str, str]:
        """Options that only another runner reads, mapped to the name of that runner.

        >>> BeamSettings(runner="FlinkRunner", options={"spark_version": "3", "parallelism": 2}).foreign
        {'spark_version': 'SparkRunner'}
        """
        readers = {name: _READERS.get(name.partition("_")[0], self.runner) for name in self.options}
        return {name: reader for name, reader in readers.items() if reader != self.runner}

    @property
    def arguments(self) -> list[str]:
        """Command-line arguments for Beam.

        They include `--no_NAME`, which Beam accepts for few names; `runners.check_options` handles the others.

        >>> BeamSettings(runner="FlinkRunner", options={"streaming": False, "files": ["a", "b"]}).arguments
        ['--runner=FlinkRunner', '--no_streaming', '--files=a', '--files=b']
        """
        words = [] if self.runner == "FnApiRunner" else [f"--runner={self.runner}"]
        for name, value in self.options.items():
            if isinstance(value, bool):
                words += [f"--{name}" if value else f"--no_{name}"]
            else:
                values = (
                    [json.dumps(value)] if isinstance(value, dict) else value if isinstance(value, list) else [value]
                )
                words += [f"--{name}={one}" for one in values]
        return words
