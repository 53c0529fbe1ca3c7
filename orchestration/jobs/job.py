"""A job: one recipe, on one text, on one cluster, under one folder, as the flags of a command describe it."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from glob import iglob
from pathlib import Path

from orchestration.config import (
    Cluster,
    Recipe,
    check,
    compute_digest,
    load,
    load_cluster,
    load_corpus,
    names,
    split_overrides,
)
from orchestration.jobs import held_out, stages
from orchestration.planning import device_of
from pipeline.readers import Source, about_how_many, left_out, plan_splits, recognise
from pipeline.spec import Corpus, MixtureGroup
from preprocessing.errors import BadInput
from preprocessing.folders import require_local_path
from preprocessing.manifest import FILE_NAME, Manifest
from preprocessing.rows import UNMIXED
from preprocessing.tokenization import TokenizerSpec, keeps_whitespace, table_rows, without_whitespace
from preprocessing.tokenization import vocab_from_file as vocab_of_file
from training.run import Resume, Run

LONGEST_NAME = 80  # characters of the name of a corpus that has its file's
_LONGEST_STEP, _LONGEST_PATH = 255, 4095  # bytes of a name of a folder and of a path, as Linux has them
_SHOWN = 40  # characters of what cannot be a path
WEIGHTS = ("config.json", "spec.json", "manifest.json")  # of transformers, an export of ours, a checkpoint


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """The flags that the verbs share, as they were given."""

    recipe: str
    overrides: Sequence[str] = ()
    scale: str = ""
    cluster: str = "local"
    data: Sequence[str] = ()
    output_dir: Path = Path("work")
    seed: int | None = None
    holdout_ratio: float | None = None  # share of the text that --data names
    command_line: str = ""  # as it was typed

    def __post_init__(self) -> None:
        require_local_path("--output-dir", self.output_dir)

    def command(self, verb: str, *more: str) -> str:
        """The command line that does `verb` with these flags.

        >>> JobFlags(recipe="gpt2", scale="tiny", data=("my text",), cluster="one_gpu").command("train")
        "sesame train gpt2 --cluster one_gpu --scale tiny --data 'my text'"
        >>> JobFlags(recipe="gpt2", cluster="8xh100", overrides=("cluster.num_workers=4",)).command("check")
        'sesame check gpt2 cluster.num_workers=4 --cluster 8xh100'
        """
        of_recipe, _ = split_overrides(self.overrides)
        values = self.overrides if verb in ("check", "plan", "train", "run") else of_recipe
        words = ["sesame", verb, self.recipe, *(["DIR"] if verb == "export" else []), *values]
        if verb in ("check", "plan", "corpus", "train", "run", "eval") and self.cluster != "local":
            words += ["--cluster", self.cluster]
        words += ["--scale", self.scale] if self.scale else []
        words += [word for given in self.data for word in ("--data", given)]
        words += ["--holdout-ratio", str(self.holdout_ratio)] if self.holdout_ratio is not None else []
        words += ["--output-dir", str(self.output_dir)] if self.output_dir != Path("work") else []
        words += ["--seed", str(self.seed)] if self.seed is not None and verb != "corpus" else []
        return shlex.join([*words, *more])


@dataclass(frozen=True)
class Job:
    """What is to be done. Its parts fit together; whether its text is there is asked by `plan`."""

    recipe: Recipe
    cluster: Cluster
    corpus: Corpus
    out: Path
    notes: tuple[str, ...] = ()  # about the text, to be said with how it is read
    command: str = ""  # the command line that asked for it
    own_text: bool = False  # whether --data names its text, not a corpus

    @property
    def recognised(self) -> list[str]:
        """How each source is read, and what of its folder is not (`KIND:PATH` says it otherwise); what is held out."""
        lines = [*(source.describe() for source in self.corpus.sources), *left_out(self.corpus.sources)]
        return [*lines, *_mixed(self.corpus), *self.notes, held_out.describe_split_ratios(self.corpus, self.own_text)]

    @property
    def foreseen(self) -> list[str]:
        """What is to be said, before a corpus is made, where it will hold out too little for the tasks of the recipe.

        Its documents are counted by a sample, before they are cleaned and it is known which of them are the same.
        """
        if self.plan.corpus.state == "done" or not held_out.held_out_tasks(self.recipe.eval_tasks):
            return []
        num = about_how_many(self.corpus.sources, self.corpus.clean.min_chars, self.corpus.clean.max_chars)
        return held_out.warn_of_few_documents(self.corpus, num, self.recipe.eval_tasks, self.own_text)

    def pretraining(self, resume: Resume = "allow") -> Run:
        """The run that this job asks the workers for."""
        recipe = self.recipe
        return Run(
            model=recipe.model,
            losses=recipe.losses,
            optimizer=recipe.optimizer,
            phases=recipe.phases,
            sampling=recipe.sampling,
            recipe_hash=recipe.hash,
            corpus=str(self.plan.corpus.folder.absolute()),
            vocab_size=table_rows(recipe.data.tokenizer),
            init_checkpoint=recipe.init_checkpoint,
            folder=str(self.plan.run.folder.absolute()),
            engine=self.cluster.engine,
            resume=resume,
            profile_steps=self.cluster.profile_steps,
            loss_spikes=self.cluster.loss_spikes,
            skip_steps=self.cluster.skip_steps,
            keep_checkpoints=self.cluster.keep_checkpoints,
            keep_checkpoint_every=self.cluster.keep_checkpoint_every,
            async_checkpointing=self.cluster.async_checkpointing,
            save_weights_every=self.cluster.save_weights_every,
            sample_prompts=self.cluster.samples_of(recipe),
            **self.cluster.intervals(recipe),
        )

    @cached_property
    def plan(self) -> stages.JobPlan:
        """The stages of this job; BadInput where its text has yet to be named, or is not where its corpus says."""
        if not self.corpus.sources:
            raise BadInput(
                f"corpus {self.corpus.name} is text that may not be shipped: say where yours is with --data PATH, "
                "or take --data demo" + _of_each_group(self.corpus.mixture)
            )
        if lacking := self.corpus.groups_without_text:
            raise BadInput(
                f"corpus {self.corpus.name}: mixture: no text for {', '.join(lacking)}; name it with "
                f"--data {lacking[0]}=PATH, or leave the group out of a corpus file of your own"
            )
        return stages.plan(self.recipe, self.corpus, inputs_of(self.corpus), self.out)


def cluster_of(flags: JobFlags) -> Cluster:
    """The cluster that a command names, with the overrides of its keys; BadInput where its hardware is not known."""
    cluster = load_cluster(flags.cluster, split_overrides(flags.overrides)[1])
    if cluster.gpu_type:
        device_of(cluster.gpu_type)
    return cluster


def open_job(flags: JobFlags) -> Job:
    """Read, compose and check what the flags name; BadInput with one line for each thing that is wrong."""
    if any(not given.strip() for given in flags.data):
        raise BadInput("--data is empty, allowed is a path, GROUP=PATH, or the name of a corpus")
    for name, given in _given_names(flags):
        _require_path(name, given)
    if flags.output_dir.exists() and not flags.output_dir.is_dir():
        raise BadInput(f"--output-dir {flags.output_dir}: is there and is no folder; give another one")
    of_recipe, _ = split_overrides(flags.overrides)
    if flags.seed is not None:
        of_recipe.append(f"seed={flags.seed}")
    recipe, cluster = load(flags.recipe, of_recipe, flags.scale), cluster_of(flags)
    default = load_corpus(recipe.data.corpus)
    own = len(flags.data) > 1 or any(not _is_corpus(given) for given in flags.data)
    corpus = held_out.with_split_ratios(
        _corpus(flags.data, default, flags.holdout_ratio is not None), flags.holdout_ratio, own
    )
    if corpus.mixture and (reason := recipe.sampling.unmixable):
        raise BadInput(f"{flags.recipe}: corpus {corpus.name} is a mixture, and {reason}; {UNMIXED}")
    unweighted = default.mixture and not corpus.mixture and flags.data
    notes = (f"mixture: none, so the weights of {default.name} do not count{_of_each_group(default.mixture)}",)
    if recipe.init_checkpoint and not any((Path(recipe.init_checkpoint) / name).is_file() for name in WEIGHTS):
        is_folder = Path(recipe.init_checkpoint).is_dir()
        why = f"has none of {', '.join(WEIGHTS)}" if is_folder else "no such folder"
        raise BadInput(
            f"init_checkpoint is {recipe.init_checkpoint}: {why}; give one that `sesame export` or transformers made"
        )
    start = str(Path(recipe.init_checkpoint).absolute()) if recipe.init_checkpoint else ""
    recipe = replace(recipe, data=replace(recipe.data, corpus=corpus.name), init_checkpoint=start)
    if corpus.clean.whitespace == "keep" and not _keeps_whitespace(recipe.data.tokenizer):
        raise BadInput(f"{flags.recipe}: corpus {corpus.name}: {without_whitespace(recipe.data.tokenizer.kind)}")
    if problems := check(recipe, cluster):
        raise BadInput("\n".join(f"{flags.recipe}: {problem}" for problem in problems))
    return Job(recipe, cluster, corpus, flags.output_dir, notes if unweighted else (), flags.command_line, own_text=own)


def _given_names(flags: JobFlags) -> list[tuple[str, str]]:
    """Flags that are names or paths, and their values."""
    alone = [
        ("recipe", flags.recipe),
        ("--cluster", flags.cluster),
        ("--scale", flags.scale),
        ("--output-dir", str(flags.output_dir)),
    ]
    return [*alone, *(("--data", given) for given in flags.data)]


def _require_path(name: str, given: str) -> None:
    """BadInput where this can be neither a path nor a name: text itself, say."""
    longest = max(len(step.encode(errors="surrogateescape")) for step in given.split("/"))
    impossible = "\0" in given or longest > _LONGEST_STEP or len(given) > _LONGEST_PATH
    if impossible or ("\n" in given and not Path(given).exists()):
        shown = repr(given[:_SHOWN] + "..." if len(given) > _SHOWN else given)
        raise BadInput(
            f"{name} is {shown} ({len(given):,} characters), allowed is a path or a name; write text to a file, and "
            "give its path"
        )


def _keeps_whitespace(spec: TokenizerSpec) -> bool:
    return keeps_whitespace(vocab_of_file(spec)) if spec.path else spec.is_of_bytes


def inputs_of(corpus: Corpus) -> str:
    """Fingerprint of all text that a corpus depends on, what it is compared with included."""
    others = [*corpus.dedup.reference_corpora, *corpus.decontaminate.paths]
    corpora = [path for path in others if (Path(path) / FILE_NAME).is_file()]
    sources = [*corpus.sources, *(source for path in others if path not in corpora for source in recognise(path))]
    phrases = Path(corpus.phrases)
    units = phrases.read_text(encoding="utf-8", errors="replace") if phrases.is_file() else ""
    digests = [Manifest.load(path).digest for path in corpora]
    return compute_digest([[split.name for split in plan_splits(sources)], digests, units])


def _corpus(data: Sequence[str], default: Corpus, hold_out_given: bool = False) -> Corpus:
    """The text that --data names, cleaned as the recipe's own corpus is, or the one corpus file that it names.

    BadInput where a corpus file among others says otherwise than the recipe's own corpus how text is read.
    """
    if not data:
        return default
    if grouped := _grouped(data, default):
        return grouped
    corpora = [load_corpus(given) for given in data if _is_corpus(given)]
    if len(data) == len(corpora) == 1:
        if not (corpora[0].sources or corpora[0].mixture or data[0] in names("corpora")):
            raise BadInput(f"{data[0]}: sources is empty, allowed is one or more")
        return corpora[0]
    if mixed := [corpus.name for corpus in corpora if corpus.mixture]:
        raise BadInput(f"--data {mixed[0]}: is a mixture, and its weights say nothing of other text; name it alone")
    for given, corpus in zip(filter(_is_corpus, data), corpora, strict=True):
        if keys := _own_keys(corpus, default, given in names("corpora") or hold_out_given):
            beside = " and ".join(dict.fromkeys(other for other in data if other != given)) or "the other one"
            raise BadInput(
                f"--data {given}: its {', '.join(keys)} would say nothing of {beside}; name it alone, with all text "
                "among its `sources`, or leave them out of it"
            )
    sources: list[Source] = [source for corpus in corpora for source in corpus.sources]
    sources += [source for given in data if not _is_corpus(given) for source in _recognised(given)]
    return replace(default, name=_name(data), sources=tuple(sources), mixture=())


def _own_keys(corpus: Corpus, default: Corpus, shares_aside: bool) -> list[str]:
    """What a corpus says otherwise than the text that is read as `default` says, its shares aside where so asked."""
    usual = held_out.with_split_ratios(default, None, own=True)
    aside = {"name", "sources", "mixture"} | ({"validation_ratio", "test_ratio"} if shares_aside else set())
    keys = (field.name for field in fields(Corpus) if field.name not in aside)
    return [key for key in keys if getattr(corpus, key) not in (getattr(usual, key), getattr(Corpus(name="x"), key))]


def _grouped(data: Sequence[str], default: Corpus) -> Corpus | None:
    """The mixture of `default` with the text that `--data GROUP=PATH` names; None where no --data has this form."""
    split = [_group_and_path(given) for given in data]
    if not any(name for name, _ in split):
        return None
    if not default.mixture:
        given = next(given for given, (name, _) in zip(data, split, strict=True) if name)
        raise BadInput(
            f"--data {given}: no such file, and no group: corpus {default.name} is no mixture; check the path, or say "
            "which mixture it belongs to, as in data.corpus=common_crawl_books"
        )
    known = [group.name for group in default.mixture]
    for given, (name, _) in zip(data, split, strict=True):
        if name not in known:
            raise BadInput(
                f"--data {given}: names no group of corpus {default.name}; write GROUP=PATH, GROUP being one of "
                f"{', '.join(known)}, or name all text without groups"
            )
    if files := [path for name, path in split if name and _is_corpus(path)]:
        raise BadInput(
            f"--data {files[0]}: is a corpus, and a group of a mixture takes text only; name the text of its `sources`"
        )
    groups = tuple(
        replace(
            group,
            sources=(
                *group.sources,
                *(source for name, path in split if name == group.name for source in _recognised(path)),
            ),
        )
        for group in default.mixture
    )
    return replace(default, sources=(), mixture=groups)


def _recognised(given: str) -> list[Source]:
    """The sources that a path looks like, with absolute paths."""
    return [source.anchored(Path()) for source in recognise(given)]


def _group_and_path(given: str) -> tuple[str, str]:
    """
    >>> _group_and_path("books1=jsonl:/data/books"), _group_and_path("s3://bucket/a=b")
    (('books1', 'jsonl:/data/books'), ('', 's3://bucket/a=b'))
    """
    name, _, path = given.partition("=")
    is_path = Path(given).exists() or next(iglob(given, recursive=True), None) is not None
    is_group = path and re.fullmatch(r"[\w.-]+", name) and not is_path
    return (name, path) if is_group else ("", given)


def _of_each_group(mixture: Sequence[MixtureGroup]) -> str:
    """How text is given to the groups of a mixture, to end a message with."""
    named = " ".join(f"--data {group.name}=PATH" for group in mixture)
    return f"; for the mixture of its paper {named}" if mixture else ""


def _mixed(corpus: Corpus) -> list[str]:
    """What training reads of each group, in one line; none where the corpus is no mixture."""
    total = sum(Fraction(str(group.weight)) for group in corpus.mixture)
    shares = ", ".join(f"{100 * share:.2f} % {name}" for name, share in corpus.shares.items())
    sums_up = "" if total in (1, 100) else f" (weights are taken over their sum, {float(total):g})"
    return [f"mixture: of the tokens of training {shares}{sums_up}"] if shares else []


def _is_corpus(given: str) -> bool:
    return given.endswith((".yaml", ".yml")) or (given in names("corpora") and not Path(given).exists())


def _name(data: Sequence[str]) -> str:
    r"""A folder's name for text that has none of its own.

    >>> _name(["jsonl:/data/news-2019/*.jsonl.gz", "/data/books"])
    'news_2019_and_1_more'
    >>> _name(["/data/\u0130zmir.txt"]), len(_name(["/data/" + 200 * "x"]))
    ('i_zmir', 80)
    """
    steps = [step for step in re.split(r"[/:]", data[0]) if re.search(r"\w", step) and "*" not in step]
    lower = (steps or ["text"])[-1].split(".")[0].lower()  # of a letter that may be two, the second no letter
    word = re.sub(r"\W+", "_", lower).strip("_")[:LONGEST_NAME] or "text"
    return word + (f"_and_{len(data) - 1}_more" if len(data) > 1 else "")
