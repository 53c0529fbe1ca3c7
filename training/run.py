"""The description of a run for its workers: one frozen value, which is sent as JSON."""

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from preprocessing.errors import BadInput
from preprocessing.files import from_json, parse_json, to_checked_json, write_atomic
from preprocessing.manifest import FILE_NAME
from preprocessing.sampling import ExampleSpec
from preprocessing.spec import part
from training.losses import Loss
from training.optimizers import Optimizer
from training.specs import Architecture, EngineSettings, LossSpikes, Phase

Resume = Literal["allow", "never", "must"]
WARM_UP: Final = 3  # steps before the first profiled step, in which buffers are allocated and kernels selected
CHECKPOINTS: Final = "checkpoints"  # directory in the run directory
DOWNSTREAM: Final = "downstream.json"  # file in the run directory with the sample of the downstream tasks
EPOCHS: Final = "epochs.json"  # file in the run directory with the sizes of past epochs (EpochRecord)
RUN: Final = "pretrain.json"  # file in the run directory with the description of the run


@dataclass(frozen=True, kw_only=True)
class Run:
    """Pretraining of one recipe on one corpus by one kind of worker."""

    # from the recipe
    model: Architecture
    losses: tuple[Loss, ...]
    optimizer: Optimizer
    phases: tuple[Phase, ...]
    sampling: ExampleSpec  # data of all phases
    recipe_hash: str = ""
    # data and initial weights
    corpus: str  # directory of a finished corpus
    vocab_size: int  # rows of the token table, at least the vocabulary size of the corpus
    init_checkpoint: str = ""  # directory of initial weights, of Sesame or transformers; empty: random initialization
    # from the cluster file and the command
    folder: str  # run directory, which contains checkpoints/
    engine: EngineSettings
    resume: Resume = "allow"
    loss_spikes: LossSpikes = field(default_factory=LossSpikes)
    skip_steps: tuple[int, ...] = ()  # steps whose batches are skipped, counted from 1
    profile_steps: int = 0  # number of profiled steps, after WARM_UP steps; 0: none
    log_every: int = 10  # steps between logged metrics
    save_every: int = 1_000  # steps between checkpoints; also at the end and when training stops
    keep_checkpoints: int = 2  # number of newest checkpoints to keep
    keep_checkpoint_every: int = 0  # steps between checkpoints that are never removed; 0: none
    keep_best: bool = False  # also keep the checkpoint with the lowest validation loss
    early_stopping_patience: int = 0  # evaluations without a lower validation loss after which training ends; 0: never
    async_checkpointing: bool = True  # write checkpoints in the background, from a copy in memory
    save_weights_every: int = 0  # steps between saved weights for evaluation; 0: only at the end
    eval_every: int = 1_000  # steps between evaluations; also at the end; 0: never
    sample_prompts: tuple[
        str, ...
    ] = ()  # prompts that a decoder continues before the first step and at each evaluation
    eval_rows: int = 1_024  # maximum number of validation sequences
    downstream_tasks: tuple[str, ...] = ()  # tasks that are scored at each evaluation; those of files in DOWNSTREAM
    downstream_examples: int = 200  # maximum questions of each of these tasks

    @property
    def steps(self) -> int:
        """Number of updates in all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def seed(self) -> int:
        """Seed for data order, initialization and dropout."""
        return self.sampling.seed

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """The run from the JSON that `to_json` wrote."""
        value = parse_json(text)
        fields = {
            key: part(union, value[key]) for key, union in {"model": Architecture, "optimizer": Optimizer}.items()
        }
        fields["sampling"] = ExampleSpec.of(value["sampling"])
        fields["losses"] = tuple(part(Loss, loss) for loss in value["losses"])
        fields["phases"] = tuple(Phase(**phase) for phase in value["phases"])
        fields["sample_prompts"] = tuple(value.get("sample_prompts", ()))
        fields["downstream_tasks"] = tuple(value.get("downstream_tasks", ()))
        fields["skip_steps"] = tuple(value.get("skip_steps", ()))
        fields["loss_spikes"] = LossSpikes(**value.get("loss_spikes", {}))
        fields["engine"] = EngineSettings(**value["engine"])
        return cls(**value | fields)


def steps(folder: Path) -> list[Path]:
    """The directories of checkpoints in `folder`, complete or not, the newest first.

    A copy with a longer name, such as `step-000000123-old`, is not a checkpoint.
    """
    paths = (path for path in folder.glob("step-*") if re.fullmatch("step-[0-9]{9,}", path.name))
    return sorted(paths, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step of a checkpoint.

    >>> step_of(Path("checkpoints/step-000000123"))
    123
    """
    return int(path.name.removeprefix("step-"))


def write_run(run: Run) -> None:
    """Write `pretrain.json`, which includes its own checksum, into the run directory. Raises OSError."""
    write_atomic(Path(run.folder) / RUN, to_checked_json(parse_json(run.to_json())))


def load_run(folder: Path) -> dict[str, Any]:
    """The values in `pretrain.json` in the run directory; files of earlier versions have no checksum.

    If the directory was moved or copied, the values name its new path. They also name the new path of the corpus, if it
    was moved together with the directory. Raises BadInput if the file is missing or damaged.
    """
    path = folder / RUN
    try:
        value = from_json(path.read_bytes())
        if isinstance(value, dict) and "trunk" in value:
            raise BadInput(
                f"{path}: invalid run: got a run of Sesame 0.1; train it again, or start from its weights with "
                f"init_checkpoint={folder}"
            )
        return _with_current_paths(value, folder.absolute())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give the directory of a run") from None
    except ValueError as error:
        raise BadInput(
            f"{path}: is damaged ({error}); repeat the same `sesame train` command to write it again"
        ) from None


def _with_current_paths(value: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a run whose directory is `folder` now, with the current paths of directory and corpus."""
    old_folder, corpus = value.get("folder"), value.get("corpus")
    if not (isinstance(old_folder, str) and isinstance(corpus, str)) or old_folder == str(folder):
        return value
    moved_corpus = os.path.normpath(folder / os.path.relpath(corpus, old_folder))
    is_moved = os.path.isfile(os.path.join(moved_corpus, FILE_NAME))
    return value | {"folder": str(folder), "corpus": moved_corpus if is_moved else corpus}


def load_stored_run(folder: Path) -> Run:
    """The run of a directory. Raises BadInput if there is none, or if another version wrote it."""
    value = load_run(folder)
    try:
        return Run.from_json(json.dumps(value))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(
            f"{folder / RUN}: has no run of this version; give the directory of a run of this version"
        ) from None
