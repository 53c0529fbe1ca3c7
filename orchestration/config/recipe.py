"""The schema of recipes, clusters and corpus files: their keys, and the allowed values.

A recipe consists of the parts that each layer defines. It has a hash, because it determines the trained weights. A
cluster has no hash, because it only determines where and how a recipe runs.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from orchestration import environment, trackers
from orchestration.config.hardware import workers_with_room
from orchestration.config.library import is_shipped_task
from pipeline.readers import Source
from pipeline.spec import BeamSettings, Corpus, MixtureGroup
from preprocessing.blends import require_weights
from preprocessing.credentials import has_credential
from preprocessing.masking import Masking, NoMasking
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.sampling import ExampleSpec
from preprocessing.spec import InvalidValue, ScaleOverrides, key, require, require_name, spec
from preprocessing.tokenization import TokenizerSpec
from training.evaluation.tasks import TASKS
from training.losses import Loss
from training.optimizers import Optimizer
from training.specs import Architecture, EngineSettings, LossSpikes, Phase

BY_KIND = Field(discriminator="kind")
SPLITS_OF_RESULTS: Final = ("dev", "test")
LABELS = ("name", "paper", "eval_tasks", "reported_results")  # keys of a recipe without effect on the weights
NO_PROMPTS = (
    "[] with engine.zero_stage 3 or with tensor, pipeline or sequence parallelism, because no worker has all weights; "
    "set it to []"
)
SAMPLES = ("The", "In the beginning", "Once upon a time there was")


@spec
class Data:
    """Text, tokenizer and packing of a recipe."""

    corpus: str = key(doc="Name of a corpus file in corpora/, or a path to one.")
    tokenizer: Annotated[TokenizerSpec, BY_KIND] = key(doc="Tokenizer type and its vocabulary.")
    packing: Annotated[Packing, BY_KIND] = key(doc="Packing of documents into sequences.")
    static_masks: int = key(default=0, doc="Number of fixed masked copies per sequence (BERT: 10); 0: dynamic masking.")
    mixture: dict[str, float] = key(
        default_factory=dict, doc="Weights of the corpus's groups, by group; {}: the weights of the corpus file."
    )
    # With a corpus in an object store, the machine needs room for two windows only.
    shuffle_window_shards: int = key(
        default=0, doc="Number of shards whose sequences are shuffled together; 0: all shards."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require(self.static_masks >= 0, "data.static_masks", self.static_masks, "a number of at least 0")
        require_weights("data.mixture", self.mixture)
        window = self.shuffle_window_shards
        require(window >= 0, "data.shuffle_window_shards", window, "a number of at least 0")
        is_ordered = window > 0 and self.packing.ordered
        require(not is_ordered, "data.shuffle_window_shards", window, "0, because these sequences are not shuffled")


@spec
class Recipe:
    """Recipe of one pretrained model, as published in its paper."""

    name: str = key(doc="Name of the recipe, its file and its runs.")
    paper: str = key(default="", doc="Model and paper: name, authors, year and arXiv number.")
    data: Data = key(doc="Text, tokenizer and packing.")
    masking: Annotated[Masking, BY_KIND] = key(default=NoMasking(), doc="Selection of tokens to predict.")
    objective: Annotated[Objective, BY_KIND] = key(doc="Transformation of a sequence into model inputs and labels.")
    losses: tuple[Annotated[Loss, BY_KIND], ...] = key(doc="Losses, whose weighted sum is minimized.")
    model: Annotated[Architecture, BY_KIND] = key(doc="Architecture and sizes of the model.")
    optimizer: Annotated[Optimizer, BY_KIND] = key(doc="Optimizer and learning rate schedule.")
    phases: tuple[Phase, ...] = key(doc="Phases of training, in order.")
    eval_tasks: tuple[str, ...] = key(default=(), doc="Downstream tasks or groups of tasks; `sesame tasks` lists them.")
    init_checkpoint: str = key(
        default="", doc="Directory of initial weights, exported by Sesame or transformers; empty: random weights."
    )
    seed: int = key(default=0, doc="Seed for data order, initialization and dropout.")
    # Keys that are not scores:
    # - `citation`: the tables of the paper.
    # - `setting`: the training with these scores.
    # - `split`: dev, test, or one per score that has one.
    # - `printed`: the size that the paper prints, and the reason if it differs from `parameters`.
    # - `also`: scores of other trainings or splits, by a description.
    reported_results: dict[str, Any] = key(
        default_factory=dict, doc="Results that the paper reports, with their source and split."
    )

    scale_overrides: ClassVar[ScaleOverrides] = {
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
        require(type(count) is int and count > 0, "reported_results.parameters", count, "an integer of at least 1")
        for name in ("citation", "setting"):
            text = self.reported_results.get(name, "none")
            require(isinstance(text, str) and text.strip() != "", f"reported_results.{name}", text, "text")
        printed = self.reported_results.get("printed", "none")
        is_size = isinstance(printed, str) and printed != ""
        require(is_size, "reported_results.printed", printed, "a size as text, e.g. 110M")
        others = self.reported_results.get("also", {})
        of_each = isinstance(others, Mapping) and all(isinstance(one, Mapping) for one in others.values())
        require(
            of_each,
            "reported_results.also",
            others,
            "a mapping from each other training or split to its source and results",
        )
        for of, one in others.items():
            require(
                isinstance(one.get("citation"), str),
                f"reported_results.also.{of}.citation",
                one.get("citation"),
                "text",
            )
        splits = self.reported_results.get("split", "test")
        for figure, split in splits.items() if isinstance(splits, Mapping) else [("", splits)]:
            require(
                not figure or figure in self.reported_results,
                "reported_results.split",
                figure,
                "a result of reported_results",
            )
            require(split in SPLITS_OF_RESULTS, "reported_results.split", split, " or ".join(SPLITS_OF_RESULTS))
        self._check_token_batches()
        require(0 <= self.seed < 2**63, "seed", self.seed, "an integer from 0 to 2**63 - 1")
        for number, task in enumerate(self.eval_tasks):
            require(
                is_shipped_task(task),
                f"eval_tasks.{number}",
                task,
                f"{', '.join(TASKS)}, or a name that `sesame tasks` lists",
            )

    def _check_token_batches(self) -> None:
        """Raise InvalidValue if weights change between batches of tokens: a position would follow from all before."""
        for number, phase in enumerate(self.mixed_phases):
            alike = [one for one in self.mixed_phases if one.seq_length == phase.seq_length]
            is_possible = all(one.batch_unit == "sequence" for one in alike) or alike[0].mixture == phase.mixture
            allowed = f"equal mixtures in all phases of {phase.seq_length} tokens with batch_unit token"
            require(is_possible, f"phases.{number}.mixture", phase.mixture, allowed)

    @property
    def mixed_phases(self) -> tuple[Phase, ...]:
        """The phases of a run: those without a mixture have the mixture of `data`."""
        return tuple(dataclasses.replace(phase, mixture=phase.mixture or self.data.mixture) for phase in self.phases)

    @property
    def sampling(self) -> ExampleSpec:
        """The settings that determine its training sequences, without their length."""
        return ExampleSpec(
            packing=self.data.packing,
            masking=self.masking,
            objective=self.objective,
            seed=self.seed,
            static_masks=self.data.static_masks,
            shuffle_window_shards=self.data.shuffle_window_shards,
        )

    @property
    def num_steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the whole run, with special tokens and padding."""
        return sum(phase.steps * phase.global_batch_size * phase.seq_length for phase in self.phases)

    @property
    def science(self) -> dict[str, Any]:
        """The values that determine the trained weights, i.e. all keys without LABELS.

        Phases have no epochs here, because a run has steps only. A mixture that is not set is left out, so that recipes
        without one keep their hashes.
        """
        values = {key: value for key, value in dataclasses.asdict(self).items() if key not in LABELS}
        for phase in values["phases"]:
            del phase["epochs"]
        for part in (values["data"], *values["phases"]):
            if not part["mixture"]:
                del part["mixture"]
        if not values["data"]["shuffle_window_shards"]:  # runs of earlier versions have the same hash
            del values["data"]["shuffle_window_shards"]
        return values

    @property
    def hash(self) -> str:
        """sha256 of `science`."""
        return compute_digest(self.science)


@spec
class Cluster:
    """Cluster that runs a recipe: workers, checkpoints, logging and engine."""

    name: str = key(doc="Name of the cluster.")
    # With ray_address, 0 is invalid.
    num_workers: int = key(
        default=0, doc="Number of workers; 0: one per GPU, or per cpus_per_worker CPU cores, of this machine."
    )
    min_workers: int = key(
        default=1, doc="Minimum workers to continue with after node loss; 0: as many as at the start."
    )
    cpus_per_worker: int = key(default=1, doc="CPU cores per worker.")
    gpus_per_worker: int = key(default=0, doc="GPUs per worker: 1 with device cuda, otherwise 0.")
    gpu_type: str = key(
        default="", doc="GPU type for the estimates of `sesame plan`, e.g. a100; empty: the GPUs of this machine."
    )
    usd_per_device_hour: float = key(
        default=0.0, doc="Price of one device hour in US dollars; 0: the rate known to `sesame plan`."
    )
    ray_address: str = key(default="", doc="Address of a running Ray cluster; empty: start Ray on this machine.")
    finetuning_workers: int = key(
        default=1, doc="Workers per fine-tuning; more than 1 if the model does not fit on one."
    )
    max_restarts: int = key(default=3, doc="Maximum consecutive restarts without progress after a worker dies.")
    # Outside training steps, the limit is six times as long.
    hang_timeout_minutes: float = key(default=10.0, doc="Minutes without a step before the workers restart; 0: never.")
    scale_up_interval_minutes: float = key(
        default=10.0, doc="Minimum minutes between restarts to add workers on new nodes; 0: never restart."
    )
    log_every: int = key(default=10, doc="Steps between logged metrics, which are means over these steps.")
    eval_every: int = key(default=0, doc="Steps between evaluations on validation text; 0: as save_every.")
    save_every: int = key(default=0, doc="Steps between checkpoints; 0: a quarter of the run, at most 1,000.")
    keep_checkpoints: int = key(default=2, doc="Number of newest checkpoints to keep.")
    keep_checkpoint_every: int = key(default=0, doc="Steps between checkpoints to keep permanently; 0: none.")
    keep_best: bool = key(
        default=False, doc="Whether the checkpoint with the lowest validation loss is kept permanently."
    )
    early_stopping_patience: int = key(
        default=0, doc="Evaluations without a lower validation loss after which training ends; 0: never."
    )
    async_checkpointing: bool = key(
        default=True, doc="Whether checkpoints are written in the background, from a copy in host memory."
    )
    save_weights_every: int = key(
        default=0, doc="Steps between saved weights for `sesame eval --checkpoints-every`; 0: final weights only."
    )
    sample_prompts: tuple[str, ...] = key(
        default=SAMPLES, doc="Prompts that a decoder completes at each evaluation; []: none."
    )
    downstream_tasks: tuple[str, ...] = key(
        default=(), doc="Likelihood tasks to score on a sample at each evaluation, e.g. piqa, cloze; []: none."
    )
    downstream_examples: int = key(default=200, doc="Questions of each downstream task in the sample.")
    downstream_data_dir: str = key(
        default="", doc="Directory of the files of downstream_tasks; empty: the paths in their task files."
    )
    profile_steps: int = key(
        default=0, doc="Number of steps to profile on the first worker, after the first few steps; 0: no profile."
    )
    trackers: tuple[str, ...] = key(
        default=(trackers.MLFLOW,),
        choices=trackers.NAMES,
        doc="Trackers that record a run; MLflow always does, the others in the directory of the run.",
    )
    # An earlier run reports the steps that it skipped because of loss spikes.
    skip_steps: tuple[int, ...] = key(default=(), doc="Steps to skip without training, counted from 1.")
    # Example: NCCL_SOCKET_IFNAME: eth0. ${NAME} is replaced by the variable of the process that starts the run.
    env: dict[str, str] = key(
        default_factory=dict, doc="Environment variables of the workers; credentials only as ${NAME}."
    )
    ray_dashboard: bool = key(
        default=False, doc="Whether Ray serves its dashboard on 127.0.0.1, if the run starts Ray itself."
    )
    engine: EngineSettings = key(default=EngineSettings(), doc="Engine of one worker.")
    loss_spikes: LossSpikes = key(default=LossSpikes(), doc="Detection of loss spikes and the response to them.")
    beam: BeamSettings = key(default=BeamSettings(), doc="Apache Beam runner that builds the corpus.")

    def __post_init__(self) -> None:
        require_name(self.name)
        environment.check(self.env)
        self._check_address()
        require(
            not (self.ray_dashboard and self.ray_address),
            "ray_dashboard",
            True,
            "false with ray_address; use the dashboard of that Ray cluster",
        )
        require(self.num_workers >= 0, "num_workers", self.num_workers, "a number from 0 (all of this machine) up")
        allowed = (
            f"a number from 0 (num_workers) to {self.num_workers}" if self.num_workers else "a number of at least 0"
        )
        require(
            0 <= self.min_workers <= (self.num_workers or self.min_workers), "min_workers", self.min_workers, allowed
        )
        for name in ("scale_up_interval_minutes", "hang_timeout_minutes"):
            minutes = getattr(self, name)
            require(0 <= minutes < math.inf, name, minutes, "a number of minutes from 0 (never) up")
        require(self.cpus_per_worker >= 1, "cpus_per_worker", self.cpus_per_worker, "at least 1 core")
        require(self.finetuning_workers >= 1, "finetuning_workers", self.finetuning_workers, "at least 1 worker")
        require(self.max_restarts >= 0, "max_restarts", self.max_restarts, "a number of at least 0")
        require(self.log_every >= 1, "log_every", self.log_every, "at least 1 step")
        for name in ("eval_every", "save_every", "keep_checkpoint_every", "save_weights_every"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0 steps")
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
        for name in self.trackers:
            require(name in trackers.NAMES, "trackers", name, " or ".join(trackers.NAMES))
        require(self.downstream_examples >= 1, "downstream_examples", self.downstream_examples, "at least 1 question")
        require(self.keep_checkpoints >= 1, "keep_checkpoints", self.keep_checkpoints, "at least 1 checkpoint")
        patience = self.early_stopping_patience
        require(patience >= 0, "early_stopping_patience", patience, "a number of evaluations of at least 0")
        require(all(step >= 1 for step in self.skip_steps), "skip_steps", list(self.skip_steps), "steps of at least 1")
        require(
            self._has_all_weights or self.sample_prompts in ((), SAMPLES),
            "sample_prompts",
            list(self.sample_prompts),
            NO_PROMPTS,
        )
        each, unit = self.engine.workers_per_row, self.engine.workers_unit
        allowed = (
            f"0, or a multiple of engine.tensor_parallel_size x pipeline_parallel_size x sequence_parallel_size "
            f"({each})"
        )
        allowed += f" and of zero_hpz_partition_size, i.e. of {unit}" if unit != each else ""
        require(self.num_workers % unit == 0, "num_workers", self.num_workers, allowed)
        device = self.engine.device
        require(device == "cuda" or not self.gpu_type, "gpu_type", self.gpu_type, f"empty with device {device}")
        gpus = 1 if device == "cuda" else 0
        require(self.gpus_per_worker == gpus, "gpus_per_worker", self.gpus_per_worker, f"{gpus} with device {device}")

    def _check_address(self) -> None:
        """Raise InvalidValue if the address has no valid form."""
        allowed = "HOST:PORT, ray://HOST:PORT or auto, or no value to start Ray on this machine"
        if has_credential(self.ray_address):
            raise InvalidValue("ray_address", "an address with a login", allowed)
        host = re.fullmatch(r"(ray://)?([^\s/@:\[\]]+|\[[0-9a-fA-F:.%]+\]):([0-9]{1,5})", self.ray_address)
        fits = self.ray_address in ("", "auto") or (host is not None and int(host[3]) < 2**16)
        require(fits, "ray_address", self.ray_address, allowed)

    def count_workers(self, recipe: Recipe) -> int:
        """`num_workers`; if it is 0, the number of workers for which this machine has GPUs, or cores and memory."""
        if self.num_workers:
            return self.num_workers
        return self.workers_in(workers_with_room(self.cpus_per_worker, self.gpus_per_worker), recipe)

    def workers_in(self, room: int, recipe: Recipe) -> int:
        """The number of workers for which there is room, as a multiple of `engine.workers_unit` and at least one unit.

        Each group of workers reads different sequences, so there are at most as many groups as sequences in a batch.
        """
        unit, rows = self.engine.workers_unit, min(phase.global_batch_size for phase in recipe.phases)
        return unit * max(1, min(room, rows * self.engine.workers_per_row) // unit)

    @property
    def _has_all_weights(self) -> bool:
        """Whether each worker has all weights, so that it can complete a prompt."""
        return self.engine.zero_stage != 3 and self.engine.workers_per_row == 1

    @property
    def gpus(self) -> int:
        """The number of GPUs for training or for one fine-tuning, whichever is larger; 0: all GPUs, or none."""
        return self.gpus_per_worker * max(self.num_workers, self.finetuning_workers) if self.num_workers else 0

    def samples_of(self, recipe: Recipe) -> tuple[str, ...]:
        """The prompts that the model of a recipe completes; () if it is no decoder, or if no worker has all weights."""
        is_decoder = any(loss.logits_for == "causal" for loss in recipe.losses) and not recipe.model.reads_source
        return self.sample_prompts if is_decoder and self._has_all_weights else ()

    def intervals(self, recipe: Recipe) -> dict[str, int]:
        """Steps between logged metrics, between evaluations and between checkpoints; they do not change the weights."""
        save_every = self.save_every or max(1, min(1_000, recipe.num_steps // 4))
        return {"log_every": self.log_every, "eval_every": self.eval_every or save_every, "save_every": save_every}


@spec
class _GroupFile(MixtureGroup):
    """Group of sources in a mixture."""

    sources: tuple[Annotated[Source, BY_KIND], ...] = ()


@spec
class CorpusFile(Corpus):
    """Corpus file: text sources, cleaning and held-out splits."""

    sources: tuple[Annotated[Source, BY_KIND], ...] = ()
    mixture: tuple[_GroupFile, ...] = ()


def compute_digest(value: Any) -> str:
    """sha256 of the canonical JSON of a part or of another value. Messages contain its first 12 digits.

    >>> compute_digest({"b": 1, "a": (2,)}) == compute_digest({"a": [2], "b": 1})
    True
    """
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
