"""A run: everything a worker must know, as one frozen value that travels as JSON."""

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from preprocessing.errors import BadInput
from preprocessing.files import checked_json, from_json, parse_json, write_atomic
from preprocessing.manifest import FILE_NAME
from preprocessing.sampling import ExampleSpec
from preprocessing.spec import part
from training.losses import Loss
from training.optimizers import Optimizer
from training.specs import Architecture, EngineSettings, LossSpikes, Phase

Resume = Literal["allow", "never", "must"]
WARM_UP: Final = 3  # steps before the first that is profiled: buffers are made, kernels chosen
CHECKPOINTS: Final = "checkpoints"  # folder in that of a run
RUN: Final = "pretrain.json"  # in the folder of a run: the run, as the workers got it


@dataclass(frozen=True, kw_only=True)
class Run:
    """Pretraining of one recipe on one corpus by one kind of worker."""

    # science: the recipe
    model: Architecture
    losses: tuple[Loss, ...]
    optimizer: Optimizer
    phases: tuple[Phase, ...]
    sampling: ExampleSpec  # of the rows of all phases
    recipe_hash: str = ""
    # matter
    corpus: str  # folder of a finished corpus
    vocab_size: int  # rows of the token table, at least the pieces of the corpus' vocabulary
    init_checkpoint: str = ""  # folder of weights to start from, ours or transformers'; empty: random initialisation
    # circumstance: the cluster and the command
    folder: str  # of the run: checkpoints/ is in it
    engine: EngineSettings
    resume: Resume = "allow"
    loss_spikes: LossSpikes = field(default_factory=LossSpikes)
    skip_steps: tuple[int, ...] = ()  # whose batches are not learned from, counted from 1
    profile_steps: int = 0  # steps whose time is recorded, once and after a few others; 0: none
    log_every: int = 10  # steps
    save_every: int = 1_000  # steps; also at the end and when stopped
    keep_checkpoints: int = 2  # checkpoints, the newest
    keep_checkpoint_every: int = 0  # steps between checkpoints that stay for good; 0: none does
    async_checkpointing: bool = True  # write checkpoints while training goes on, from a copy in memory
    save_weights_every: int = 0  # steps between weights that stay, to be evaluated; 0: those of the end alone
    eval_every: int = 1_000  # steps; also at the end; 0: never
    sample_prompts: tuple[
        str, ...
    ] = ()  # prompts that a decoder goes on from before the first step and at each evaluation
    eval_rows: int = 1_024  # rows of the validation split, at most

    @property
    def steps(self) -> int:
        """Updates of all phases together."""
        return sum(phase.steps for phase in self.phases)

    @property
    def seed(self) -> int:
        """Seed of the rows, of the first weights and of dropout."""
        return self.sampling.seed

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """The run that `to_json` wrote."""
        value = parse_json(text)
        made = {key: part(union, value[key]) for key, union in {"model": Architecture, "optimizer": Optimizer}.items()}
        made["sampling"] = ExampleSpec.of(value["sampling"])
        made["losses"] = tuple(part(Loss, loss) for loss in value["losses"])
        made["phases"] = tuple(Phase(**phase) for phase in value["phases"])
        made["sample_prompts"] = tuple(value.get("sample_prompts", ()))
        made["skip_steps"] = tuple(value.get("skip_steps", ()))
        made["loss_spikes"] = LossSpikes(**value.get("loss_spikes", {}))
        made["engine"] = EngineSettings(**value["engine"])
        return cls(**value | made)


def steps(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, whole or not, the newest first; a copy with a longer name is none."""
    found = (path for path in folder.glob("step-*") if re.fullmatch("step-[0-9]{9,}", path.name))
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step of a checkpoint.

    >>> step_of(Path("checkpoints/step-000000123"))
    123
    """
    return int(path.name.removeprefix("step-"))


def write_run(run: Run) -> None:
    """Write `pretrain.json` into the folder of a run, with a checksum of itself. OSError where that cannot be."""
    write_atomic(Path(run.folder) / RUN, checked_json(parse_json(run.to_json())))


def load_run(folder: Path) -> dict[str, Any]:
    """The values in the `pretrain.json` of a run's folder, one of before without a checksum too.

    A folder that was moved or copied is where it is now, and so is its corpus, if that came along. BadInput where there
    is none, or it is not as it was written.
    """
    path = folder / RUN
    try:
        value = from_json(path.read_bytes())
        if isinstance(value, dict) and "trunk" in value:
            raise BadInput(
                f"{path}: is a run of Sesame 0.1; train it again, or start from its weights: init_checkpoint={folder}"
            )
        return _where_it_is(value, folder.absolute())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give the folder of a run") from None
    except ValueError as error:
        raise BadInput(f"{path}: is damaged ({error}); the same `sesame train` as before writes it anew") from None


def _where_it_is(value: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a run, with the paths that hold in this folder."""
    was, corpus = value.get("folder"), value.get("corpus")
    if not (isinstance(was, str) and isinstance(corpus, str)) or was == str(folder):
        return value
    beside = os.path.normpath(folder / os.path.relpath(corpus, was))
    is_there = os.path.isfile(os.path.join(beside, FILE_NAME))
    return value | {"folder": str(folder), "corpus": beside if is_there else corpus}


def stored_run(folder: Path) -> Run:
    """The run of a folder. BadInput where there is none, or not one of this version."""
    value = load_run(folder)
    try:
        return Run.from_json(json.dumps(value))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(f"{folder / RUN}: holds no run of this version; give the folder of one that is") from None
