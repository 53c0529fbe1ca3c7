"""A corpus without a recipe: a corpus file, and a tokenizer. Any recipe with both uses its directories.

Without a tokenizer, the job makes the cleaned documents only.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

from orchestration.config import (
    Cluster,
    list_names,
    load,
    load_corpus,
    parse_tokenizer,
    split_overrides,
    to_non_defaults,
)
from orchestration.jobs import held_out, stages
from orchestration.jobs.job import (
    cluster_of,
    inputs_of,
    require_text,
    require_whitespace,
)
from orchestration.jobs.job_flags import JobFlags
from orchestration.jobs.mixtures import describe_mixture
from pipeline.readers import list_unread_files
from pipeline.spec import Corpus
from preprocessing.errors import BadInput
from preprocessing.spec import InvalidValue, kind_of
from preprocessing.tokenization import TokenizerSpec, Vocab, vocab_from_file

_MOST_TOKENS = 10_000_000  # upper bound on the size of a vocabulary that is read from a file
EXPECTED_TOKENIZER = (
    "a tokenizer file or directory, a recipe, or keys such as '{kind: byte_level_bpe, vocab_size: 8000}'"
)


@dataclass(frozen=True)
class CorpusJob:
    """The inputs of a corpus without a recipe. `plan` checks whether the text exists."""

    corpus: Corpus
    file: str  # the corpus file, or the name of a corpus
    cluster: Cluster
    out: Path
    vocab_spec: TokenizerSpec | None
    command: str = ""

    @property
    def tokenizer(self) -> TokenizerSpec:
        """The tokenizer. BadInput if the job has none, so that it makes documents only."""
        if self.vocab_spec is None:
            raise BadInput(f"invalid --tokenizer: got no value, expected {EXPECTED_TOKENIZER}; set it")
        return self.vocab_spec

    @property
    def source_notes(self) -> list[str]:
        """How each source is read, which files are not read, and what is held out."""
        return [
            *(source.describe() for source in self.corpus.sources),
            *list_unread_files(self.corpus.sources),
            *describe_mixture(self.corpus, self._built),
            *([f"tokenizer: {_describe(self.vocab_spec)}"] if self.vocab_spec else []),
            held_out.describe_split_ratios(
                self.corpus, own=False, file="" if self.file in list_names("corpora") else self.file
            ),
        ]

    @property
    def _built(self) -> Path | None:
        """The directory of the corpus, if it exists."""
        has_text = bool(self.corpus.sources) and not self.corpus.groups_without_text
        is_done = bool(self.vocab_spec) and has_text and self.plan.corpus.state == "done"
        return self.plan.corpus.folder if is_done else None

    @cached_property
    def text(self) -> stages.JobStage:
        """The stage of the cleaned documents. Raises BadInput if the text is not specified or does not exist."""
        require_text(self.corpus)
        return stages.plan_text(self.corpus, inputs_of(self.corpus), self.out)

    @cached_property
    def plan(self) -> stages.CorpusPlan:
        """The stages of a corpus with token IDs."""
        return stages.plan_corpus(self.tokenizer, self.corpus, self.text, self.out)

    @property
    def wanted(self) -> Sequence[stages.JobStage]:
        """The stages that this job makes: all, or the text if there is no tokenizer."""
        return self.plan if self.vocab_spec else (self.text,)


def open_corpus_job(flags: JobFlags, tokenizer: str = "") -> CorpusJob:
    """Load and check the corpus, the tokenizer and the cluster. `flags.recipe` is the name or the file of the corpus.

    Raises BadInput with one line if one of them is invalid, or if the flags have values that only a recipe uses.
    """
    name = flags.recipe
    of_recipe, _ = split_overrides(flags.overrides)
    for option, value, remedy in (
        ("--data", next(iter(flags.data), ""), f"list it in `sources` of {name}, or name a recipe"),
        ("--holdout-ratio", flags.holdout_ratio, f"set validation_ratio and test_ratio in {name}"),
        ("override", next(iter(of_recipe), ""), f"write it into {name}, or name a recipe"),
    ):
        if value not in ("", None):
            raise BadInput(f"invalid {option}: got {value} with the corpus {name}, expected none; {remedy}")
    if flags.output_dir.exists() and not flags.output_dir.is_dir():
        raise BadInput(f"--output-dir {flags.output_dir}: exists and is not a directory; use another one")
    corpus = load_corpus(name)
    vocab_spec = _open_tokenizer(tokenizer, flags.scale) if tokenizer else None
    if flags.scale and not (vocab_spec and _is_recipe(tokenizer)):
        raise BadInput(
            f"invalid --scale: got {flags.scale} with the corpus {name}, expected none, except with the recipe of "
            "--tokenizer; leave it out"
        )
    if vocab_spec:
        require_whitespace(name, corpus, vocab_spec)
    return CorpusJob(corpus, name, cluster_of(flags), flags.output_dir, vocab_spec, flags.command_line)


def _describe(tokenizer: TokenizerSpec) -> str:
    """The kind and the other keys of a tokenizer that differ from their defaults."""
    return ", ".join(f"{key} {value}" for key, value in to_non_defaults(tokenizer).items())


def _is_recipe(given: str) -> bool:
    return given in list_names("recipes") or given.endswith((".yaml", ".yml"))


def _open_tokenizer(given: str, scale: str) -> TokenizerSpec:
    """The tokenizer that --tokenizer names: keys of a recipe, a recipe, or the file or directory of a tokenizer."""
    if given.lstrip().startswith("{"):
        return parse_tokenizer(given, "--tokenizer")
    if Path(given).exists() and not given.endswith((".yaml", ".yml")):
        return _read_tokenizer(given)
    if _is_recipe(given):
        return load(given, (), scale).data.tokenizer
    raise BadInput(f"invalid --tokenizer: got {given!r}, expected {EXPECTED_TOKENIZER}; correct the path or the name")


def _read_tokenizer(path: str) -> TokenizerSpec:
    """The kind and size of the tokenizer in a file or directory. Raises BadInput if no kind reads it."""
    why = ""
    for member in get_args(TokenizerSpec):
        keys = member.__dataclass_fields__
        if "path" not in keys:
            continue
        for values in _variants(keys):
            try:
                found = member(path=path, vocab_size=_MOST_TOKENS, **values)
                vocab = vocab_from_file(found)
                if getattr(found, "lowercase", False) and _has_capitals(vocab):
                    found = replace(found, lowercase=False)
                vocab_from_file(fitting := replace(found, vocab_size=vocab.size))
            except (BadInput, InvalidValue) as error:
                why = why or str(error)
                continue
            return fitting
    kinds = ", ".join(kind_of(member) for member in get_args(TokenizerSpec))
    raise BadInput(
        f"invalid --tokenizer: got {path}, which no tokenizer kind reads ({why}), expected a file of one of {kinds}; "
        f"write '{{kind: KIND, path: {path}, vocab_size: N}}'"
    )


def _has_capitals(vocab: Vocab) -> bool:
    """Whether a token has an upper-case letter, so that the text of the tokenizer is not folded to lower case."""
    special = set(vocab.special_ids)
    pieces = (vocab.piece(id) for id in range(vocab.size) if id not in special)
    pieces = (piece for piece in pieces if piece[:1] not in ("[", "<"))  # names such as <S>
    return any(piece != piece.lower() for piece in pieces)


def _variants(keys: Collection[str]) -> list[dict[str, bool]]:
    """Values of keys to try: a file may need the case that is not the default."""
    return [{}, {"lowercase": True}, {"lowercase": False}] if "lowercase" in keys else [{}]
