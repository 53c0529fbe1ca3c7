"""A recipe is the parts that each layer owns, composed under names: read strictly, checked, hashed. The only YAML here.

A recipe is science: it has a hash. A cluster is circumstance: it has none. A corpus names text, a task asks a question
of labelled files. All are read from the folders beside this file or from a path.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from orchestration import environment
from orchestration.config import error_messages as explain
from orchestration.config import overrides as dotted
from orchestration.config import scales, strict_yaml
from orchestration.config.part_checks import check_facts
from orchestration.gpus import list_gpus
from pipeline.readers import Source, absolute
from pipeline.spec import BeamSettings, Corpus, MixtureGroup
from preprocessing import limits
from preprocessing.credentials import has_credential
from preprocessing.errors import BadInput
from preprocessing.masking import Masking, NoMasking
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.sampling import ExampleSpec
from preprocessing.spec import Shrinks, require, require_name, spec
from preprocessing.tokenization import TokenizerSpec
from training.losses import Loss
from training.optimizers import Optimizer
from training.specs import Architecture, EngineSettings, LossSpikes, Phase
from training.tasks import EACH, TASKS, TEXT, SplitRecords, TaskFile, to_text_task

HOME = Path(__file__).parents[1]
BY_KIND = Field(discriminator="kind")
SPLITS_OF_FIGURES: Final = ("dev", "test")
LABELS = ("name", "paper", "eval_tasks", "reported_results")  # keys of a recipe that change nothing of what is learned
T = TypeVar("T")
A = TypeVar("A", TaskFile, TaskFile | str)
UNAVAILABLE = "unavailable"  # the file of tasks/ that is no task: figures of recipes for which there is none, and why
Folder = Literal["recipes", "clusters", "corpora", "tasks"]
ALONE = "[] with engine.zero_stage 3, or tensor, pipeline or sequence parallelism: no worker has the whole net"
SAMPLES = ("The", "In the beginning", "Once upon a time there was")
_LISTED = 30  # most names in a message


@spec
class Data:
    """The text, its vocabulary, and how it is packed into rows."""

    corpus: str  # a file of corpora/
    tokenizer: Annotated[TokenizerSpec, BY_KIND]
    packing: Annotated[Packing, BY_KIND]
    static_masks: int = 0  # k: static masking, k copies of each row, as in BERT's files; 0: dynamic masking

    shrinks: ClassVar[Shrinks] = {}

    def __post_init__(self) -> None:
        require(self.static_masks >= 0, "data.static_masks", self.static_masks, "a number from 0 up")


@spec
class Recipe:
    """One system of the family, as its paper has it."""

    name: str  # of the recipe, its file and its runs
    paper: str = ""  # the title, or what people call the system
    data: Data
    masking: Annotated[Masking, BY_KIND] = NoMasking()
    objective: Annotated[Objective, BY_KIND]
    losses: tuple[Annotated[Loss, BY_KIND], ...]
    model: Annotated[Architecture, BY_KIND]
    optimizer: Annotated[Optimizer, BY_KIND]
    phases: tuple[Phase, ...]
    eval_tasks: tuple[str, ...] = ()  # tasks of held-out documents, and task files or groups of them: `sesame tasks`
    init_checkpoint: str = (
        ""  # folder of weights to begin with, exported by us or saved by transformers; empty: random ones
    )
    seed: int = 0  # of rows, first weights and dropout
    # Figures as a paper prints them, their `citation` (which tables), `setting` what training they are, and their
    # `split`:
    # dev, test, or one for each figure that has one. `printed`: the size that the paper prints, and why it is another
    # one than `parameters` where it is. `also`: figures of other trainings or splits, by what they are of
    reported_results: dict[str, Any] = dataclasses.field(default_factory=dict)

    shrinks: ClassVar[Shrinks] = {
        "tiny": {"phases": [{"seq_length": 64, "global_batch_size": 32, "steps": 4_000}]},
        "small": {"phases": [{"seq_length": 128, "global_batch_size": 64, "steps": 2_000}]},
    }

    def __post_init__(self) -> None:
        require_name(self.name)
        require(len(self.losses) > 0, "losses", [], "one loss or more")
        kinds = [loss.kind for loss in self.losses]
        require(len(set(kinds)) == len(kinds), "losses", kinds, "each kind at most once")
        require(len(self.phases) > 0, "phases", [], "one phase or more")
        count = self.reported_results.get("parameters", 1)
        require(type(count) is int and count > 0, "reported_results.parameters", count, "a whole number from 1 up")
        for key in ("citation", "setting"):
            said = self.reported_results.get(key, "not said")
            require(
                isinstance(said, str) and said.strip() != "",
                f"reported_results.{key}",
                said,
                "some text, or no such key",
            )
        printed = self.reported_results.get("printed", "not said")
        require(isinstance(printed, str) and printed != "", "reported_results.printed", printed, "a size as text, 110M")
        others = self.reported_results.get("also", {})
        of_each = isinstance(others, Mapping) and all(isinstance(one, Mapping) for one in others.values())
        require(
            of_each, "reported_results.also", others, "for each training or split, in words, its source and figures"
        )
        for of, one in others.items():
            require(
                isinstance(one.get("citation"), str),
                f"reported_results.also.{of}.citation",
                one.get("citation"),
                "some text",
            )
        splits = self.reported_results.get("split", "test")
        for figure, split in splits.items() if isinstance(splits, Mapping) else [("", splits)]:
            require(
                not figure or figure in self.reported_results,
                "reported_results.split",
                figure,
                "figures that are in `reported_results`",
            )
            require(split in SPLITS_OF_FIGURES, "reported_results.split", split, " or ".join(SPLITS_OF_FIGURES))
        require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 up, below 2**63")
        for number, task in enumerate(self.eval_tasks):
            require(
                is_shipped_task(task), f"eval_tasks.{number}", task, f"{', '.join(TASKS)}, or what `sesame tasks` lists"
            )

    @property
    def sampling(self) -> ExampleSpec:
        """What its rows are, whatever their length."""
        return ExampleSpec(
            packing=self.data.packing,
            masking=self.masking,
            objective=self.objective,
            seed=self.seed,
            static_masks=self.data.static_masks,
        )

    @property
    def num_steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    @property
    def num_tokens(self) -> int:
        """Tokens that the whole run asks for, special tokens and the room of short rows included."""
        return sum(phase.steps * phase.global_batch_size * phase.seq_length for phase in self.phases)

    @property
    def science(self) -> dict[str, Any]:
        """All that changes the trained weights, as plain values: labels and what is measured afterwards do not."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key not in LABELS}

    @property
    def hash(self) -> str:
        """sha256 of the science."""
        return compute_digest(self.science)


@spec
class Cluster:
    """Where a recipe runs: how many workers, and how each of them works."""

    name: str  # of the cluster
    num_workers: int = 0  # 0: one for each `cpus_per_worker` cores, or each GPU, of this machine; not with an address
    min_workers: int = 1  # with which a run goes on, at least, where nodes are gone; 0: no fewer than it began with
    cpus_per_worker: int = 1  # cores
    gpus_per_worker: int = 0  # 1 with device cuda: a worker uses one
    gpu_type: str = ""  # kind of its GPUs, as `sesame plan` counts with them: a100, h100; empty: those of this machine
    usd_per_device_hour: float = 0.0  # US dollars for an hour of a device; 0: the rate that `sesame plan` knows of
    ray_address: str = ""  # of a running Ray cluster; empty: Ray is started here
    finetuning_workers: int = 1  # of one fine-tuning of an evaluation; more where a net does not fit on one
    max_restarts: int = 3  # of all workers, in a row and without progress, when one of them dies
    hang_timeout_minutes: float = (
        10.0  # without a step, before the workers are started again; 0: never. Other work: six times
    )
    scale_up_interval_minutes: float = (
        10.0  # at least between two stops to go on with more workers, where nodes come; 0: no stops
    )
    log_every: int = 10  # steps between two points of the training metrics, which are means over these steps
    eval_every: int = 0  # steps between evaluations on held-out text; 0: as often as checkpoints
    save_every: int = 0  # steps between checkpoints; 0: a quarter of the run, at most 1,000
    keep_checkpoints: int = 2  # checkpoints, the newest
    keep_checkpoint_every: int = 0  # steps between checkpoints that stay for good, beside the newest; 0: none does
    async_checkpointing: bool = True  # write checkpoints while training goes on, from a copy in the host's memory
    save_weights_every: int = (
        0  # steps between weights that stay, for `sesame eval --checkpoints-every`; 0: those of the end alone
    )
    sample_prompts: tuple[str, ...] = SAMPLES  # prompts that a decoder goes on from at each evaluation; []: none
    profile_steps: int = (
        0  # steps of the first worker that are traced, after a few others: where the time goes; 0: none
    )
    skip_steps: tuple[int, ...] = ()  # whose batches are not learned from, from 1 up; as an earlier run has found them
    # variables of the workers, as NCCL_SOCKET_IFNAME: eth0; ${NAME} stands for one of whoever starts the run, the
    # only way to give a credential
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    ray_dashboard: bool = False  # of the Ray that is started here, on 127.0.0.1; its address is said when it is there
    engine: EngineSettings = EngineSettings()
    loss_spikes: LossSpikes = LossSpikes()
    beam: BeamSettings = BeamSettings()

    def __post_init__(self) -> None:
        require_name(self.name)
        environment.check(self.env)
        self._check_address()
        require(
            not (self.ray_dashboard and self.ray_address),
            "ray_dashboard",
            True,
            "false with an address: that Ray has its own",
        )
        require(self.num_workers >= 0, "num_workers", self.num_workers, "a number from 0 (all cores) up")
        allowed = (
            f"a number from 0 (as many as workers) to workers ({self.num_workers})" if self.num_workers else "from 0 up"
        )
        require(
            0 <= self.min_workers <= (self.num_workers or self.min_workers), "min_workers", self.min_workers, allowed
        )
        for name in ("scale_up_interval_minutes", "hang_timeout_minutes"):
            minutes = getattr(self, name)
            require(0 <= minutes < math.inf, name, minutes, "a number of minutes from 0 (never) up")
        require(self.cpus_per_worker >= 1, "cpus_per_worker", self.cpus_per_worker, "a number of cores from 1 up")
        require(
            self.finetuning_workers >= 1, "finetuning_workers", self.finetuning_workers, "a number of workers from 1 up"
        )
        require(self.max_restarts >= 0, "max_restarts", self.max_restarts, "a number from 0 up")
        require(self.log_every >= 1, "log_every", self.log_every, "a number of steps from 1 up")
        for name in ("eval_every", "save_every", "keep_checkpoint_every", "save_weights_every"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "a number of steps from 0 up")
        require(
            0 <= self.usd_per_device_hour <= 1e6,
            "usd_per_device_hour",
            self.usd_per_device_hour,
            "US dollars from 0 to a million",
        )
        require(
            0 <= self.profile_steps <= 100,
            "profile_steps",
            self.profile_steps,
            "a number of steps from 0 (none) to 100",
        )
        require(
            self.keep_checkpoints >= 1, "keep_checkpoints", self.keep_checkpoints, "a number of checkpoints from 1 up"
        )
        require(all(step >= 1 for step in self.skip_steps), "skip_steps", list(self.skip_steps), "steps from 1 up")
        require(
            self._has_whole_nets or self.sample_prompts in ((), SAMPLES),
            "sample_prompts",
            list(self.sample_prompts),
            ALONE,
        )
        each, unit = self.engine.workers_per_row, self.engine.workers_unit
        allowed = (
            f"0, or a multiple of engine.tensor_parallel_size x pipeline_parallel_size x sequence_parallel_size "
            f"({each})"
        )
        allowed += f" and of zero_hpz_partition_size: of {unit}" if unit != each else ""
        require(self.num_workers % unit == 0, "num_workers", self.num_workers, allowed)
        device = self.engine.device
        require(device == "cuda" or not self.gpu_type, "gpu_type", self.gpu_type, f"empty with device {device}")
        gpus = 1 if device == "cuda" else 0
        require(self.gpus_per_worker == gpus, "gpus_per_worker", self.gpus_per_worker, f"{gpus} with device {device}")

    def _check_address(self) -> None:
        """Raise ValueError where no Ray can have such an address."""
        if has_credential(self.ray_address):
            raise ValueError("ray_address is one with a login, allowed is HOST:PORT, ray://HOST:PORT, auto, or nothing")
        host = re.fullmatch(r"(ray://)?([^\s/@:\[\]]+|\[[0-9a-fA-F:.%]+\]):([0-9]{1,5})", self.ray_address)
        fits = self.ray_address in ("", "auto") or (host is not None and int(host[3]) < 2**16)
        require(
            fits, "ray_address", self.ray_address, "HOST:PORT, ray://HOST:PORT, auto, or nothing: Ray is started here"
        )

    def count_workers(self, recipe: Recipe) -> int:
        """What the cluster says, or as many as this machine has GPUs for, or cores (`cpus_per_worker`) and memory."""
        if self.num_workers:
            return self.num_workers
        gpus, cores = self.gpus_per_worker, limits.processes()
        return self.workers_in(len(list_gpus()) // gpus if gpus else cores // self.cpus_per_worker, recipe)

    def workers_in(self, room: int, recipe: Recipe) -> int:
        """As many as there is room for, in multiples of `engine.workers_unit`; no more groups that share rows than a
        batch has rows, and one unit at least."""
        unit, rows = self.engine.workers_unit, min(phase.global_batch_size for phase in recipe.phases)
        return unit * max(1, min(room, rows * self.engine.workers_per_row) // unit)

    @property
    def _has_whole_nets(self) -> bool:
        """Whether each worker can go on from a prompt by itself."""
        return self.engine.zero_stage != 3 and self.engine.workers_per_row == 1

    @property
    def gpus(self) -> int:
        """Those of training and of one evaluation, whichever are more; 0: all, or none."""
        return self.gpus_per_worker * max(self.num_workers, self.finetuning_workers) if self.num_workers else 0

    def samples_of(self, recipe: Recipe) -> tuple[str, ...]:
        """The prompts of a recipe whose net goes on from them; where no worker has all of it, none."""
        writes = any(loss.kind == "next_token" for loss in recipe.losses) and not recipe.model.reads_source
        return self.sample_prompts if writes and self._has_whole_nets else ()

    def intervals(self, recipe: Recipe) -> dict[str, int]:
        """Steps between two points of the metrics, two evaluations, two checkpoints; they change nothing learned."""
        save_every = self.save_every or max(1, min(1_000, recipe.num_steps // 4))
        return {"log_every": self.log_every, "eval_every": self.eval_every or save_every, "save_every": save_every}


_CLUSTER_KEYS = {field.name for field in dataclasses.fields(Cluster)} - {
    field.name for field in dataclasses.fields(Recipe)
}


_ENGINE_KEYS = {field.name for field in dataclasses.fields(EngineSettings)}


@spec
class _GroupFile(MixtureGroup):
    """A group of a mixture as pydantic reads it."""

    sources: tuple[Annotated[Source, BY_KIND], ...] = ()


@spec
class CorpusFile(Corpus):
    """A corpus file: text, what is kept of it, and what is held out. The `kind` of a source says which class it is."""

    sources: tuple[Annotated[Source, BY_KIND], ...] = ()
    mixture: tuple[_GroupFile, ...] = ()


def list_names(folder: Folder) -> list[str]:
    """What can be named without a path: bert_base, gpt2, ..."""
    found = (name.removesuffix(".yaml") for name in os.listdir(HOME / folder) if name.endswith(".yaml"))
    return sorted(name for name in found if name != UNAVAILABLE)


@cache
def task_groups() -> frozenset[str]:
    """The names by which several task files are asked for at once: glue, ner, ..."""
    files = (HOME / "tasks").glob("*.yaml")
    found = (re.search(r"^group: (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE) for file in files)
    return frozenset(one[1] for one in found if one)


def load(name_or_path: str, overrides: Sequence[str] = (), scale: str = "") -> Recipe:
    """The recipe of this name or file, shrunk to `scale`, with dotted overrides (`optimizer.peak=2e-4`) on top.

    What its paper says to expect goes with the recipe as it is written, not with a changed one.

    >>> load("bert_base", ["optimizer.learning_rate=2e-4"], scale="tiny").optimizer.learning_rate
    0.0002
    """
    check_facts()
    document, where = _open("recipes", name_or_path)
    for given in overrides:
        said, key = dotted.redact_override(given), re.split(r"[.=]", given)[0]
        if key in _CLUSTER_KEYS:
            raise BadInput(f"override {said}: {key} belongs to the cluster; write {dotted.CLUSTER}{said}")
        if key in _ENGINE_KEYS:
            raise BadInput(f"override {said}: {key} belongs to the cluster; write {dotted.CLUSTER}engine.{said}")
    if scale or overrides:
        document.pop("reported_results", None)
    if scale:
        document["name"] = f"{document.get('name', name_or_path)}_{scale}"
        scales.shrink(document, scale, Recipe)
    return _validated(Recipe, document, where, overrides)


def load_cluster(name_or_path: str, overrides: Sequence[str] = ()) -> Cluster:
    """The cluster of this name or file, with overrides (`cluster.num_workers=2`) on top."""
    document, where = _open("clusters", name_or_path)
    return _validated(Cluster, document, where, overrides)


def load_corpus(name_or_path: str) -> Corpus:
    """The corpus of this name or file, paths taken from its folder; without sources where text may not be shipped."""
    document, where = _open("corpora", name_or_path)
    read = _validated(CorpusFile, document, where)
    fields = {field.name: getattr(read, field.name) for field in dataclasses.fields(Corpus)}
    folder = HOME / "corpora" if name_or_path in list_names("corpora") else Path(name_or_path).parent
    dedup, decontaminate = fields["dedup"], fields["decontaminate"]
    fields["sources"] = () if read.mixture else tuple(source.anchored(folder) for source in read.sources)
    fields["mixture"] = tuple(
        MixtureGroup(
            name=group.name, weight=group.weight, sources=tuple(each.anchored(folder) for each in group.sources)
        )
        for group in read.mixture
    )
    against, paths = (
        [absolute(path, folder) for path in given] for given in (dedup.reference_corpora, decontaminate.paths)
    )
    fields["dedup"] = dataclasses.replace(dedup, reference_corpora=tuple(against))
    fields["decontaminate"] = dataclasses.replace(decontaminate, paths=tuple(paths))
    if fields["phrases"] not in ("", "given"):
        fields["phrases"] = absolute(fields["phrases"], folder)
    return Corpus(**fields)


def load_task(name_or_path: str) -> TaskFile:
    """The task of this name or file. Files of a user's own task are looked for below the data folder, then beside it
    (`beside_first` turns the two round). Where there is no file NAME_text, it is the task NAME (or NAME_tuned) as text
    to text.

    BadInput where a user's own task has the name of one of Sesame's.

    >>> load_task("sst2").task.labels
    ('0', '1')
    >>> load_task("race_text").task.task.kind
    'multiple_choice'
    """
    if labelled := _labelled(name_or_path):
        return to_text_task(load_task(labelled))
    document, where = _open("tasks", name_or_path)
    task = _validated(TaskFile, document, where)
    is_shipped = name_or_path in list_names("tasks")
    if not is_shipped and Path(name_or_path).resolve().parent != HOME / "tasks":
        refuse_name(task.name, f"{where}: name is {task.name!r}", "give it another name")
    each = {name: task.variants if EACH in name else ("",) for name in task.files}
    files = {
        name.replace(EACH, word): _put(split, word) if EACH in name else split
        for name, split in task.files.items()
        for word in each[name]
    }
    scored = tuple(name.replace(EACH, word) for name in task.score_splits for word in each[name])
    if not is_shipped:
        folder = Path(name_or_path).parent.resolve()
        files = {name: _beside(split, folder) for name, split in files.items()}
    return dataclasses.replace(task, files=files, score_splits=scored)


def is_shipped_task(name: str) -> bool:
    """Whether Sesame has a task, or a group of tasks, of this name."""
    return name in TASKS or name in list_names("tasks") or name in task_groups() or bool(_labelled(name))


def refuse_name(name: str, where: str, remedy: str) -> None:
    """BadInput where a user's own task has the name of one of Sesame's: their scores would lie in one place."""
    if is_shipped_task(name):
        raise BadInput(f"{where}, which Sesame's own task has; {remedy}")


def _labelled(name: str) -> str:
    """The task that NAME_text is the text-to-text form of, "" where it has a file of its own or there is none."""
    known, stem = list_names("tasks"), name.removesuffix(TEXT)
    if stem == name or name in known:
        return ""
    return next((one for one in (f"{stem}_tuned", stem) if one in known), "")


def tasks_of(asked: str = "") -> list[TaskFile]:
    """The tasks of names and groups, with commas between: `glue,squad2,mine.yaml`; all of them where none is named."""
    if not asked:
        return [load_task(name) for name in list_names("tasks")]
    found: dict[str, tuple[TaskFile, str]] = {}
    for word in filter(None, asked.split(",")):
        named = [load_task(name) for name in list_names("tasks")] if word in task_groups() else [load_task(word)]
        for task in named:
            if word in (task.group, task.name) or len(named) == 1:
                add_task(found, task, word)
    if not found:
        raise BadInput(f"{asked!r} names no task; `sesame tasks` lists them")
    return [task for task, _ in found.values()]


def add_task(found: dict[str, tuple[A, str]], task: A, given: str) -> bool:
    """Take over a task and what it was given as, by its name; whether it is a new one. BadInput where another one has
    the name: their scores would lie in one place."""
    name = task if isinstance(task, str) else task.name
    if name not in found:
        found[name] = task, given
        return True
    known, before = found[name]
    if known != task and Path(before).resolve() != Path(given).resolve():
        raise BadInput(f"two tasks are named {name}: {before} and {given}; rename one of them")
    return False


def find_unavailable() -> dict[str, str]:
    """Figures that recipes quote for which there is no task, and why: `superglue`, or `race.middle`."""
    where = f"tasks/{UNAVAILABLE}.yaml"
    return strict_yaml.read(HOME / where, where)


def _put(split: SplitRecords, word: str) -> SplitRecords:
    """The split of one of the words that {variant} stands for."""
    return dataclasses.replace(
        split,
        paths=tuple(path.replace(EACH, word) for path in split.paths),
        include={
            column: tuple(value.replace(EACH, word) for value in values) for column, values in split.include.items()
        },
        aligned_files={
            column: (one.replace(EACH, word), other) for column, (one, other) in split.aligned_files.items()
        },
        fallbacks=tuple(_put(one, word) for one in split.fallbacks),
    )


def _beside(split: SplitRecords, folder: Path) -> SplitRecords:
    """The split with the same files in this folder as a further place of each."""
    there = tuple(str(folder / path) for path in split.paths if not Path(path).is_absolute())
    return dataclasses.replace(
        split, paths=(*split.paths, *there), fallbacks=tuple(_beside(one, folder) for one in split.fallbacks)
    )


def beside_first(task: TaskFile) -> TaskFile:
    """The task with the files beside a user's own task file before those below the data folder: where no data folder is
    named, that is the current one, whose files have nothing to do with the task."""

    def turned(split: SplitRecords) -> SplitRecords:
        paths = sorted(split.paths, key=lambda path: not Path(path).is_absolute())
        return dataclasses.replace(split, paths=tuple(paths), fallbacks=tuple(map(turned, split.fallbacks)))

    return dataclasses.replace(task, files={name: turned(split) for name, split in task.files.items()})


def compute_digest(value: Any) -> str:
    """sha256 of the canonical JSON of a part, or of anything JSON can hold; people see the first 12 digits.

    >>> compute_digest({"b": 1, "a": (2,)}) == compute_digest({"a": [2], "b": 1})
    True
    """
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _open(folder: Folder, name_or_path: str) -> tuple[dict[str, Any], str]:
    """The document, and what to call it in messages."""
    known = list_names(folder)
    if name_or_path in known:
        where = f"{folder}/{name_or_path}.yaml"
        return strict_yaml.read(HOME / where, where), where
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        if (stem := Path(name_or_path).stem) in known and not Path(name_or_path).exists():
            raise BadInput(f"{name_or_path}: no such file; did you mean {stem}, of the {folder} that Sesame has?")
        return strict_yaml.read(Path(name_or_path), name_or_path), name_or_path
    groups = task_groups() if folder == "tasks" else frozenset[str]()
    close = explain.find_nearest(name_or_path.lower(), [*known, *groups])
    hint = f"; did you mean {close}?" if close else ""
    listed = ", ".join(known) if len(known) <= _LISTED else f"`sesame {folder}` lists them"
    raise BadInput(f"{name_or_path} is not one of the {folder} ({listed}) and not a .yaml file{hint}")


@cache
def _adapter(root: type) -> TypeAdapter[Any]:
    return TypeAdapter(root)


def _validated(root: type[T], document: dict[str, Any], where: str, overrides: Sequence[str] = ()) -> T:
    for override in overrides:
        dotted.override(document, override, root)

    def origin(line: str) -> str:
        """The override that a complaint is about, else the file."""
        said = re.split("[ :=]", line)[0] + "."
        keys = {given: given.removeprefix(dotted.CLUSTER).partition("=")[0] + "." for given in overrides}
        return next(
            (
                f"override {dotted.redact_override(given)}"
                for given, key in keys.items()
                if said.startswith(key) or key.startswith(said)
            ),
            where,
        )

    try:
        adapter = _adapter(root)  # type: ignore[arg-type]  # a type is hashable, whatever mypy says
        return adapter.validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        lines = explain.explain(error, root, document)
        raise BadInput("\n".join(f"{origin(line)}: {line}" for line in lines)) from None
