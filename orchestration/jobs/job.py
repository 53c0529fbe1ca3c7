"""A job: one recipe, one text, one cluster and one output directory, as the flags of a command describe it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from glob import iglob
from pathlib import Path

from orchestration.config import (
    Cluster,
    Recipe,
    check,
    check_schedules,
    compute_digest,
    describe_epochs,
    describe_shortening,
    fit_warmup,
    has_epochs,
    list_names,
    load,
    load_cluster,
    load_corpus,
    resolve_epochs,
    shorten,
    split_overrides,
    without_epochs,
)
from orchestration.jobs import downstream, held_out, initial_weights, stages
from orchestration.jobs.epoch_length import count_batches, count_batches_of_tokens, estimate_batches
from orchestration.jobs.job_flags import JobFlags, flags_of_run
from orchestration.jobs.linked_corpus import LinkedCorpus, find_linked
from orchestration.jobs.mixtures import describe_blends, describe_mixture, describe_shares
from orchestration.jobs.run_names import match_run, refuse_lost_run
from orchestration.planning import device_of
from pipeline.readers import Source, about_how_many, list_unread_files, plan_splits, recognise, recognise_reference
from pipeline.spec import Corpus, MixtureGroup
from preprocessing.errors import BadInput
from preprocessing.manifest import FILE_NAME, Manifest
from preprocessing.rows import UNMIXED
from preprocessing.tokenization import TokenizerSpec, keeps_whitespace, table_rows, without_whitespace
from preprocessing.tokenization import vocab_from_file as vocab_of_file
from training.run import Resume, Run

LONGEST_NAME = 80  # maximum characters of a corpus name that is derived from a file name
_LONGEST_STEP, _LONGEST_PATH = 255, 4095  # maximum bytes of a directory name and of a path on Linux
_SHOWN = 40  # characters of an invalid path that a message shows


@dataclass(frozen=True)
class Job:
    """The inputs of a run, checked against each other. `plan` checks whether the text exists."""

    recipe: Recipe
    cluster: Cluster
    corpus: Corpus
    out: Path
    notes: tuple[str, ...] = ()  # notes about the text, printed with the description of the sources
    command: str = ""  # the command line of this job
    own_text: bool = False  # whether the text comes from --data and not from a named corpus
    corpus_file: str = ""  # the corpus file of the user, if --data is one
    flags: JobFlags = field(default_factory=lambda: JobFlags(recipe=""))  # a run that they named is its recipe here
    of_run: Path | None = None  # the directory of the run that the flags named
    declared: Recipe | None = None  # the recipe before its epochs were converted to steps; None: it has steps only
    has_estimated_steps: bool = False  # whether these steps are estimates, because the corpus does not exist yet
    linked: LinkedCorpus | None = None  # the finished corpus that --data names, instead of a text
    inputs: str = ""  # the fingerprint of the text, if it was computed for another job; listing the files takes time

    @property
    def tokenizer(self) -> TokenizerSpec:
        """The tokenizer of the recipe."""
        return self.recipe.data.tokenizer

    @property
    def source_notes(self) -> list[str]:
        """How each source is read, which files of its directory are not read (`KIND:PATH` changes that), and what is
        held out."""
        if self.linked:
            blends = describe_blends(self.recipe, self._groups)
            return [self.linked.describe(), *describe_shares(self.linked.manifest), *blends, *self.notes]
        lines = [*(source.describe() for source in self.corpus.sources), *list_unread_files(self.corpus.sources)]
        return [
            *lines,
            *self.mixture_notes,
            *self.notes,
            held_out.describe_split_ratios(self.corpus, self.own_text, self.corpus_file),
        ]

    @property
    def mixture_notes(self) -> list[str]:
        """The fractions of the groups in the training tokens, of the corpus and of phases with weights of their own."""
        depends_on_size = bool(self.corpus.mixture and self.corpus.sources) and not self.corpus.shares
        stage = self.plan.corpus if depends_on_size and not self.corpus.groups_without_text else None
        built = stage.folder if stage and stage.state == "done" else None
        return [*describe_mixture(self.corpus, built), *describe_blends(self.recipe, self._groups)]

    @property
    def _groups(self) -> list[str]:
        return _list_groups(self.corpus, self.linked)

    @property
    def expected_problems(self) -> list[str]:
        """Warnings before a corpus is built: it will hold out too little text for the evaluation tasks of the recipe.

        The number of documents is estimated from a sample, before cleaning and deduplication.
        """
        is_made = self.linked or self.plan.corpus.state == "done"
        if is_made or not held_out.select_held_out_tasks(self.recipe.eval_tasks):
            return []
        num = about_how_many(self.corpus.sources, self.corpus.clean.min_chars, self.corpus.clean.max_chars)
        return held_out.warn_of_few_documents(self.corpus, num, self.recipe.eval_tasks, self.own_text)

    def pretraining(self, resume: Resume = "allow") -> Run:
        """The run that the workers of this job train."""
        recipe = self.recipe
        return Run(
            model=recipe.model,
            losses=recipe.losses,
            optimizer=recipe.optimizer,
            phases=recipe.mixed_phases,
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
            keep_best=self.cluster.keep_best,
            early_stopping_patience=self.cluster.early_stopping_patience,
            async_checkpointing=self.cluster.async_checkpointing,
            save_weights_every=self.cluster.save_weights_every,
            sample_prompts=self.cluster.samples_of(recipe),
            downstream_tasks=downstream.task_names(self.cluster),
            downstream_examples=self.cluster.downstream_examples,
            **self.cluster.intervals(recipe),
        )

    @cached_property
    def plan(self) -> stages.JobPlan:
        """The stages of this job. Raises BadInput if its text is not specified or does not exist."""
        if self.linked:
            plan = stages.plan_linked(self.recipe, self.linked.plan(self.out), self.out)
        else:
            require_text(self.corpus)
            plan = stages.plan(self.recipe, self.corpus, self.inputs or inputs_of(self.corpus), self.out)
        if self.of_run and plan.run.folder.resolve() != self.of_run.resolve():
            changed = next((keys for folder, keys in plan.run.find_others() if folder.name == self.of_run.name), [])
            what = f" ({', '.join(changed[:4])})" if changed else ""
            raise BadInput(
                f"{self.of_run}: its recipe or its text has changed since this run began{what}; restore it, or train "
                f"another run with `{self.flags.command('train')}`"
            )
        return plan


def require_text(corpus: Corpus) -> None:
    """Raise BadInput if a corpus, or a group of its mixture, has no source."""
    if not corpus.sources:
        raise BadInput(
            f"corpus {corpus.name}: its text cannot be distributed; name your copy with --data PATH, or use "
            "--data demo" + _of_each_group(corpus.mixture)
        )
    if missing := corpus.groups_without_text:
        raise BadInput(
            f"corpus {corpus.name}: mixture: no text for {', '.join(missing)}; name it with "
            f"--data {missing[0]}=PATH, or use your own corpus file without this group"
        )


def require_whitespace(where: str, corpus: Corpus, tokenizer: TokenizerSpec) -> None:
    """Raise BadInput if a corpus keeps white space that its tokenizer removes."""
    if corpus.clean.whitespace == "keep" and not _keeps_whitespace(tokenizer):
        raise BadInput(f"{where}: corpus {corpus.name}: {without_whitespace(tokenizer.kind)}")


def cluster_of(flags: JobFlags) -> Cluster:
    """The cluster that a command names, with its overrides. Raises BadInput if its GPU type is unknown."""
    cluster = load_cluster(flags.cluster, split_overrides(flags.overrides)[1])
    if cluster.gpu_type:
        device_of(cluster.gpu_type)
    return cluster


def open_job(flags: JobFlags) -> Job:
    """Load, combine and check everything that the flags name. Raises BadInput with one line per problem.

    If they name a run instead of a recipe, the flags of its training are loaded from its directory.
    """
    notes = list[str]()
    if of_run := match_run(flags):
        flags = flags_of_run(of_run, flags)
        notes = [f"cluster: {flags.cluster}" + ("" if flags.is_cluster_given else ", as when the run began")]
    else:
        refuse_lost_run(flags)
    if any(not given.strip() for given in flags.data):
        raise BadInput(
            "invalid --data: got an empty value, expected a path, GROUP=PATH, or the name of a corpus; set it or leave "
            "it out"
        )
    for name, given in _list_given_names(flags):
        _require_path(name, given)
    if flags.output_dir.exists() and not flags.output_dir.is_dir():
        raise BadInput(f"--output-dir {flags.output_dir}: exists and is not a directory; use another one")
    of_recipe, _ = split_overrides(flags.overrides)
    if flags.seed is not None:
        of_recipe.append(f"seed={flags.seed}")
    recipe, cluster = load(flags.recipe, of_recipe, flags.scale, with_epochs=True), cluster_of(flags)
    default = load_corpus(recipe.data.corpus)
    own = len(flags.data) > 1 or any(not _is_corpus(given) for given in flags.data)
    if linked := find_linked(flags.data, flags.holdout_ratio):
        linked.require_tokenizer(flags.recipe, recipe.data.tokenizer, flags.output_dir)
        corpus = replace(default, name=linked.manifest.name, sources=(), mixture=(), mixture_sampling_alpha=None)
    else:
        corpus = held_out.with_split_ratios(
            _corpus(flags.data, default, flags.holdout_ratio is not None), flags.holdout_ratio, own
        )
    declared, has_estimated_steps = (recipe if has_epochs(recipe) else None), False
    if declared:
        recipe, has_estimated_steps = _resolve(declared, corpus, flags.output_dir, linked, cluster)
        notes += describe_epochs(declared, recipe, has_estimated_steps)
        whole = load(flags.recipe, without_epochs(of_recipe), flags.scale, with_epochs=True)
        if not has_epochs(whole) and len(whole.phases) == len(recipe.phases):
            recipe, shortened = fit_warmup(recipe, whole, of_recipe)
            notes += shortened
    misfits = list(check_schedules(recipe))  # of the values that the user knows, before --max-steps changes them
    is_possible = not misfits and not (has_estimated_steps and (flags.max_steps or 0) > recipe.num_steps)
    if flags.max_steps is not None and is_possible and (shorter := shorten(recipe, flags.max_steps)):
        whole = recipe
        recipe = load(flags.recipe, [*of_recipe, *shorter], flags.scale)
        notes.append(describe_shortening(whole, recipe))
    groups = _list_groups(corpus, linked)
    if groups and (reason := recipe.sampling.unmixable):
        raise BadInput(f"{flags.recipe}: corpus {corpus.name} is a mixture, and {reason}; {UNMIXED}")
    try:
        describe_blends(recipe, groups)
    except BadInput as error:
        raise BadInput(f"{flags.recipe}: {error}") from None
    unweighted = default.mixture and not corpus.mixture and flags.data and not linked
    of_mixture = (f"mixture: none, so the weights of {default.name} are not used{_of_each_group(default.mixture)}",)
    if recipe.init_checkpoint:
        initial_weights.require_weights(recipe.init_checkpoint)
    start = str(Path(recipe.init_checkpoint).absolute()) if recipe.init_checkpoint else ""
    recipe = replace(recipe, data=replace(recipe.data, corpus=corpus.name), init_checkpoint=start)
    if not linked:
        require_whitespace(flags.recipe, corpus, recipe.data.tokenizer)
    problems = check(recipe, cluster)
    if has_estimated_steps:  # checked again when the corpus exists
        early = list(check_schedules(recipe))
        problems = [problem for problem in problems if problem not in early]
        notes += [f"{problem}, unless the corpus has more text than estimated" for problem in early]
    if problems:
        is_shortened = not declared and flags.max_steps is None and any(one.startswith("phases.") for one in of_recipe)
        also = ", or shorten the run with --max-steps instead, which also shortens the warm-up" if is_shortened else ""
        lines = (f"{problem}{also if problem in misfits else ''}" for problem in problems)
        raise BadInput("\n".join(f"{flags.recipe}: {line}" for line in lines))
    downstream.check_downstream_tasks(recipe, cluster)
    file = next((given for given in flags.data if not own and given not in list_names("corpora")), "")
    return Job(
        recipe,
        cluster,
        corpus,
        flags.output_dir,
        (*(of_mixture if unweighted else ()), *notes),
        flags.command_line,
        own_text=own,
        corpus_file=file,
        flags=flags,
        of_run=of_run,
        declared=declared,
        has_estimated_steps=has_estimated_steps,
        linked=linked,
    )


def _list_groups(corpus: Corpus, linked: LinkedCorpus | None) -> list[str]:
    """The groups of a mixture: those of a finished corpus are in its manifest."""
    return list(linked.manifest.mixture) if linked else [group.name for group in corpus.mixture]


def _resolve(
    declared: Recipe, corpus: Corpus, out: Path, linked: LinkedCorpus | None, cluster: Cluster
) -> tuple[Recipe, bool]:
    """The recipe with steps instead of epochs, and whether these are estimates, because the corpus is not built.

    Raises BadInput if the corpus has no text.
    """
    count = partial(count_batches, recipe=declared, cache=cluster.engine.shard_cache)
    if linked:
        if (stage := linked.plan(out)).state != "done":
            is_exact = all(phase.batch_unit == "token" for phase in declared.phases if phase.epochs)
            return resolve_epochs(declared, partial(count_batches_of_tokens, linked.manifest, declared)), not is_exact
        return resolve_epochs(declared, partial(count, stage.folder)), False
    if not corpus.sources:
        raise BadInput(
            f"invalid phases: got epochs, expected steps, because the text of corpus {corpus.name} is not known; name "
            "your copy with --data PATH, or set steps"
        )
    stage = stages.plan(declared, corpus, inputs_of(corpus), out).corpus
    if stage.state != "done":
        return resolve_epochs(declared, partial(estimate_batches, corpus, declared)), True
    return resolve_epochs(declared, partial(count, stage.folder)), False


def _list_given_names(flags: JobFlags) -> list[tuple[str, str]]:
    """Flags whose values are names or paths, with these values."""
    single = [
        ("recipe", flags.recipe),
        ("--cluster", flags.cluster),
        ("--scale", flags.scale),
        ("--output-dir", str(flags.output_dir)),
    ]
    return [*single, *(("--data", given) for given in flags.data)]


def _require_path(name: str, value: str) -> None:
    """Raises BadInput if a value can be neither a path nor a name, e.g. because it is the text itself."""
    longest = max(len(step.encode(errors="surrogateescape")) for step in value.split("/"))
    impossible = "\0" in value or longest > _LONGEST_STEP or len(value) > _LONGEST_PATH
    if impossible or ("\n" in value and not Path(value).exists()):
        shown = repr(value[:_SHOWN] + "..." if len(value) > _SHOWN else value)
        raise BadInput(
            f"invalid {name}: got {shown} ({len(value):,} characters), expected a path or a name; write text to a file "
            "and use its path"
        )


def _keeps_whitespace(spec: TokenizerSpec) -> bool:
    return keeps_whitespace(vocab_of_file(spec)) if spec.path else spec.is_of_bytes


def inputs_of(corpus: Corpus) -> str:
    """Fingerprint of all text that a corpus depends on, including reference corpora for deduplication and
    decontamination."""
    others = [*corpus.dedup.reference_corpora, *corpus.decontaminate.paths]
    corpora = [path for path in others if (Path(path) / FILE_NAME).is_file()]
    keys = dict.fromkeys(corpus.decontaminate.paths, "decontaminate.paths")
    keys |= dict.fromkeys(corpus.dedup.reference_corpora, "dedup.reference_corpora")
    texts = [path for path in others if path not in corpora]
    sources = [*corpus.sources, *(source for path in texts for source in recognise_reference(path, keys[path]))]
    phrases = Path(corpus.phrases)
    units = phrases.read_text(encoding="utf-8", errors="replace") if phrases.is_file() else ""
    digests = [Manifest.load(path).digest for path in corpora]
    return compute_digest([[split.name for split in plan_splits(sources)], digests, units])


def _corpus(data: Sequence[str], default: Corpus, hold_out_given: bool = False) -> Corpus:
    """The text that --data names, cleaned like the recipe's corpus; or the single corpus file that it names.

    Raises BadInput if a corpus file is used with other text, and sets keys to other values than the recipe's corpus.
    """
    if not data:
        return default
    if grouped := _group_texts(data, default):
        return grouped
    corpora = [load_corpus(given) for given in data if _is_corpus(given)]
    if len(data) == len(corpora) == 1:
        if not (corpora[0].sources or corpora[0].mixture or data[0] in list_names("corpora")):
            raise BadInput(f"{data[0]}: invalid sources: got none, expected one or more; add a source")
        return corpora[0]
    if mixed := [corpus.name for corpus in corpora if corpus.mixture]:
        raise BadInput(
            f"--data {mixed[0]}: is a mixture, whose weights do not include other text; use it as the only --data"
        )
    for given, corpus in zip(filter(_is_corpus, data), corpora, strict=True):
        if keys := _own_keys(corpus, default, given in list_names("corpora") or hold_out_given):
            others = " and ".join(dict.fromkeys(other for other in data if other != given)) or "the other one"
            raise BadInput(
                f"--data {given}: its {', '.join(keys)} would not apply to {others}; use it as the only --data, "
                "list all text in its `sources`, or remove these keys"
            )
    sources: list[Source] = [source for corpus in corpora for source in corpus.sources]
    sources += [source for given in data if not _is_corpus(given) for source in _detect_sources(given)]
    return replace(default, name=_name(data), sources=tuple(sources), mixture=(), mixture_sampling_alpha=None)


def _own_keys(corpus: Corpus, default: Corpus, ignore_ratios: bool) -> list[str]:
    """Keys of a corpus whose values differ from those of text that is read like `default`. `ignore_ratios` ignores the
    split ratios."""
    usual = held_out.with_split_ratios(default, None, own=True)
    ignored = {"name", "sources", "mixture"} | ({"validation_ratio", "test_ratio"} if ignore_ratios else set())
    keys = (field.name for field in fields(Corpus) if field.name not in ignored)
    return [key for key in keys if getattr(corpus, key) not in (getattr(usual, key), getattr(Corpus(name="x"), key))]


def _group_texts(data: Sequence[str], default: Corpus) -> Corpus | None:
    """The mixture of `default` with the text that `--data GROUP=PATH` names; None if no --data has this form."""
    split = [_group_and_path(given) for given in data]
    if not any(name for name, _ in split):
        return None
    if not default.mixture:
        given = next(given for given, (name, _) in zip(data, split, strict=True) if name)
        raise BadInput(
            f"invalid --data: got {given}, expected an existing path, because corpus {default.name} has no groups; "
            "check the path, or write a corpus file with `mixture` (docs/guides/corpora.md) and use --data FILE"
        )
    known = [group.name for group in default.mixture]
    for given, (name, _) in zip(data, split, strict=True):
        if name not in known:
            raise BadInput(
                f"invalid --data: got {given}, expected GROUP=PATH with a group of corpus {default.name} "
                f"({', '.join(known)}); use such a group, or name all text without groups"
            )
    if files := [path for name, path in split if name and _is_corpus(path)]:
        raise BadInput(
            f"--data {files[0]}: is a corpus, but a group of a mixture needs text; name the text of its `sources`"
        )
    groups = tuple(
        replace(
            group,
            sources=(
                *group.sources,
                *(source for name, path in split if name == group.name for source in _detect_sources(path)),
            ),
        )
        for group in default.mixture
    )
    sources = [source for group in groups for source in group.sources]
    if repeated := next((source.place for source in sources if sources.count(source) > 1), ""):
        raise BadInput(
            f"invalid --data: got {repeated} more than once, expected each path once, in one group; leave one out"
        )
    return replace(default, sources=(), mixture=groups)


def _detect_sources(path: str) -> list[Source]:
    """The detected sources of a path, with absolute paths."""
    return [source.resolve_paths(Path()) for source in recognise(path)]


def _group_and_path(value: str) -> tuple[str, str]:
    """
    >>> _group_and_path("books1=jsonl:/data/books"), _group_and_path("s3://bucket/a=b")
    (('books1', 'jsonl:/data/books'), ('', 's3://bucket/a=b'))
    """
    name, _, path = value.partition("=")
    is_path = Path(value).exists() or next(iglob(value, recursive=True), None) is not None
    is_group = path and re.fullmatch(r"[\w.-]+", name) and not is_path
    return (name, path) if is_group else ("", value)


def _of_each_group(mixture: Sequence[MixtureGroup]) -> str:
    """How to give text to each group of a mixture, as the end of a message."""
    named = " ".join(f"--data {group.name}=PATH" for group in mixture)
    return f"; for the mixture of its paper, use {named}" if mixture else ""


def _is_corpus(value: str) -> bool:
    return value.endswith((".yaml", ".yml")) or (value in list_names("corpora") and not Path(value).exists())


def _name(data: Sequence[str]) -> str:
    r"""A directory name for text without a name of its own.

    >>> _name(["jsonl:/data/news-2019/*.jsonl.gz", "/data/books"])
    'news_2019_and_1_more'
    >>> _name(["/data/\u0130zmir.txt"]), len(_name(["/data/" + 200 * "x"]))
    ('i_zmir', 80)
    """
    steps = [step for step in re.split(r"[/:]", data[0]) if re.search(r"\w", step) and "*" not in step]
    # lowercase can turn one letter into two characters, the second of which is not a letter
    lower = (steps or ["text"])[-1].split(".")[0].lower()
    word = re.sub(r"\W+", "_", lower).strip("_")[:LONGEST_NAME] or "text"
    return word + (f"_and_{len(data) - 1}_more" if len(data) > 1 else "")
