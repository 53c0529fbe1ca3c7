"""The runs in an output directory: state, step, loss and scores of each, read from its directory without MLflow."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from orchestration import launch, tracking
from orchestration.jobs import runs, stages
from orchestration.jobs.run_names import run_folders
from orchestration.reports import format_decimal, format_value, load_finished_scores, name_score, series, sort_scores
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object
from preprocessing.lock import is_held

State = Literal["finished", "running", "stopped", "unknown", "damaged"]
OF_LOCK: Final[dict[bool | None, State]] = {True: "running", False: "stopped", None: "unknown"}
REMEDY: Final = "repeat the same `sesame train` command to write it again"


@dataclass(frozen=True)
class RunScore:
    """The median score of the pretrained model over its seeds, e.g. of "sst2" in the metric "accuracy"."""

    name: str
    metric: str
    value: float

    def __str__(self) -> str:
        """
        >>> str(RunScore("sst2", "accuracy", 0.9)), str(RunScore("wikitext", "perplexity", 25.31))
        ('sst2 90.0', 'wikitext 25.3')
        """
        return f"{self.name} {format_value(self.value, self.metric)}"


@dataclass(frozen=True)
class RunSummary:
    """One run, as its directory describes it."""

    name: str
    folder: Path
    state: State
    step: int = 0
    num_steps: int = 0
    loss: float | None = None  # of the last logged step
    held_out_loss: float | None = None  # of the last evaluation
    scores: tuple[RunScore, ...] = ()
    changed: float = 0.0  # seconds since the epoch, when the run last wrote a result
    mlflow_run: str = ""
    problem: str = ""  # why it is damaged

    def __str__(self) -> str:
        """For example `gpt2_tiny-1a2b3c4d: finished, step 400/400, loss 3.212, cloze 12.5`."""
        parts = [self.state, f"step {self.step:,}/{self.num_steps:,}"]
        parts += [f"loss {format_decimal(self.loss, 3)}"] if self.loss is not None else []
        return f"{self.name}: {', '.join([*parts, *map(str, self.scores)])}"

    def values(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return asdict(self) | {"folder": str(self.folder)}


def list_runs(out: Path) -> list[RunSummary]:
    """The runs below `out`, the most recently changed first; [] if there are none.

    A run whose files cannot be read has the state "damaged" and a reason. Raises BadInput if `out` is no directory.
    """
    if not out.is_dir():
        raise BadInput(f"{out}: no such directory; name the directory of the results with --output-dir")
    found = [summarize_run(folder) for folder in run_folders(out)]
    return sorted(found, key=lambda one: (-one.changed, one.name))


def summarize_run(folder: Path) -> RunSummary:
    """The summary of the run in a directory."""
    files = [folder / name for name in (launch.RUN, tracking.METRICS_FILE, stages.MARK)]
    files += (folder / "scores").glob(f"*/{stages.MARK}")
    changed = max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
    try:
        return _summarize(folder, changed)
    except BadInput as error:
        return RunSummary(folder.name, folder, "damaged", changed=changed, problem=str(error))


def _summarize(folder: Path, changed: float) -> RunSummary:
    described = read_object(folder / launch.RUN, REMEDY, phases=list)
    with of_kind(folder / launch.RUN, REMEDY):
        num_steps = sum(int(phase["steps"]) for phase in described["phases"])
    last = {name: points[-1] for name, points in tracking.history(folder).items()}
    state = OF_LOCK[is_held(folder)]
    step = max([*(at for at, _ in last.values()), *runs.list_saved_steps(folder)], default=0)
    if (folder / stages.MARK).is_file():
        state, step = "finished", runs.result_of(folder)["step"]
    tracked = tracking.existing_run(folder)
    return RunSummary(
        name=folder.name,
        folder=folder,
        state=state,
        step=step,
        num_steps=num_steps,
        loss=_last_value(last, "train/loss"),
        held_out_loss=_last_value(last, "eval/loss"),
        scores=_scores_of(folder),
        changed=changed,
        mlflow_run=tracked.run_id if tracked else "",
    )


def _last_value(last: dict[str, tuple[int, float]], name: str) -> float | None:
    _, value = last.get(name, (0, math.nan))
    return value if math.isfinite(value) else None


def _scores_of(folder: Path) -> tuple[RunScore, ...]:
    """The finished scores of the pretrained model, in order of their names. If scores of a task differ in other
    settings, the names have a hash, as in the table of scores."""
    return tuple(
        RunScore(name_score(score), score.metric, median(values))
        for score in sorted(sort_scores(load_finished_scores(folder), series(folder)), key=name_score)
        if (values := score.values("pretrained"))
    )
