"""`sesame ablation`: rows of recipes, trained from several seeds, measured and compared as a paper compares them.

A cell (row, seed) is an ordinary run: its stages are those of `sesame run`, so it is skipped where it is done and goes
on where it was stopped. Cells run side by side on one Ray, as many as there is room for (on a small machine two runs of
one worker are faster than one run of two), each as a child of the table's own MLflow run.
"""

import dataclasses
import json
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from orchestration import figures, launch, tracking
from orchestration.config import Recipe, compute_digest, load, split_overrides
from orchestration.jobs import corpus as corpus_stage
from orchestration.jobs import held_out, stages
from orchestration.jobs import pretrain as pretrain_stage
from orchestration.jobs.ablation_trial import FINETUNINGS, LABELS, STEPS, MeasuredScore, MeasureRequest, measure_run
from orchestration.jobs.job import Job, JobFlags, open_job
from orchestration.launch import StopRequest, ray_session, stop_signals
from orchestration.progress import Report
from orchestration.reports import ablations, build_tree, training_flops
from orchestration.reports.ablations import Ablation, AblationRow, Measure
from preprocessing.errors import BadInput, DataError
from preprocessing.files import of_kind, read_object, write_atomic
from preprocessing.lock import hold_lock
from preprocessing.tokenization import table_rows
from training.tasks import TASKS

SCORES, PAGE, FIGURE = "scores.json", "table.md", "table.png"
MADE_ANEW = "delete its folder, and the same `sesame ablation` makes it anew"
POLL_S: Final = 0.5


@dataclass(frozen=True)
class AblationTrial:
    """One run of a table."""

    row: str
    seed: int
    job: Job
    stage: stages.JobStage  # its measures

    @property
    def name(self) -> str:
        return f"{self.row}, seed {self.seed}"

    def said(self) -> str:
        """What is to become of it."""
        run = self.job.plan.run
        if self.stage.state == "done":
            return f"{self.name}: done, skipped ({run.folder})"
        words = {"done": "trained, to measure", "begun": "begun, goes on", "due": "to do"}[run.state]
        return f"{self.name}: {words} ({run.folder})"


@dataclass(frozen=True)
class AblationPlan:
    """A table that fits together: its cells, what they are asked, and where it is kept."""

    table: Ablation
    cells: tuple[AblationTrial, ...]
    questions: Mapping[str, MeasureRequest]
    stage: stages.JobStage

    @property
    def job(self) -> Job:
        """Any of its jobs: they share cluster and folder."""
        return self.cells[0].job


def plan(table: Ablation, flags: JobFlags, num_seeds: int) -> AblationPlan:
    """The cells of `table` under the flags of a command; BadInput where a row does not fit them."""
    jobs = {
        (label, seed): job_of(table, row, replace(flags, seed=seed))
        for seed in range(num_seeds)  # first: what is done of an interrupted table is a table of fewer seeds
        for label, row in table.rows.items()
    }
    questions, causes = {}, {}
    for name, measure in table.columns.items():
        asked = _rows_of(table, measure, flags)
        questions[name] = MeasureRequest(measure.kind, measure.of, asked.pretraining().to_json() if asked else "")
        by = asked.plan.run.hash if asked else [LABELS, STEPS, *FINETUNINGS] if measure.kind == "task" else ""
        causes[name] = {"kind": measure.kind, "of": measure.of, "by": by, "unit": measure.unit}
    cells = [
        AblationTrial(label, seed, job, stages.measures(job.plan.run, table.name, causes))
        for (label, seed), job in jobs.items()
    ]
    stage = stages.table(table.name, compute_digest(table), [cell.stage for cell in cells], flags.output_dir)
    return AblationPlan(table, tuple(cells), questions, stage)


def _rows_of(table: Ablation, measure: Measure, flags: JobFlags) -> Job | None:
    """The job whose held-out rows a measure is taken on; None where it takes none."""
    if measure.kind in ("task", "rise"):
        assert measure.kind == "rise" or measure.of in TASKS, measure
        return None
    row = table.rows[measure.of]
    return job_of(table, replace(row, overrides=(*row.overrides, *measure.overrides)), replace(flags, seed=0))


def job_of(table: Ablation, row: AblationRow, flags: JobFlags) -> Job:
    """The job of a cell: one worker, unless the command says otherwise, and the table's text unless it names some."""
    job = open_job(replace(flags, recipe=row.recipe, overrides=_overrides(table, row, flags)))
    if flags.data or table.text == "demo":
        return job
    corpus = ablations.corpus(flags.output_dir / "text_of_tables", row.units)
    return replace(job, recipe=replace(job.recipe, data=replace(job.recipe.data, corpus=corpus.name)), corpus=corpus)


def _overrides(table: Ablation, row: AblationRow, flags: JobFlags) -> list[str]:
    """The overrides of a row; those of the command stand above all but the steps of a row of equal compute."""
    vocab = [table.vocab] if table.vocab and not flags.data else []
    own = [*row.overrides, *row.sizes.get(flags.scale, ())]
    given = ["cluster.num_workers=1", *table.budget_of(flags.scale), *vocab, *own, *flags.overrides]
    if not row.compute:
        return given
    whole = replace(table.rows[table.equal_to], compute=0.0)
    reference = _recipe(whole.recipe, _overrides(table, whole, flags), flags.scale)
    return [*given, f"phases.0.steps={equal_steps(_recipe(row.recipe, given, flags.scale), reference, row.compute)}"]


def _recipe(name: str, overrides: Sequence[str], scale: str) -> Recipe:
    return load(name, split_overrides(overrides)[0], scale)


def equal_steps(recipe: Recipe, reference: Recipe, share: float) -> int:
    """Steps of `recipe` for a share of the FLOPs that training the reference takes; BadInput where it has phases."""
    if len(recipe.phases) > 1:
        raise BadInput("a table of equal compute has one phase a row; give phases one length, batch and steps")
    return max(1, round(share * count_flops(reference) / (count_flops(recipe) / recipe.num_steps)))


def count_flops(recipe: Recipe) -> float:
    """FLOPs of training; unlike `training_flops`, with what a second loss projects to the vocabulary too."""
    others = [loss for loss in recipe.losses if loss.names_tokens][1:]
    table = table_rows(recipe.data.tokenizer) * recipe.model.table_width
    chosen = recipe.masking.predicted
    projected = 0.0
    for phase in recipe.phases:
        tokens = phase.global_batch_size * phase.seq_length
        batch = {"lengths": np.array([tokens]), "targets": np.empty(round(chosen * tokens), bool)}
        projected += phase.steps * sum(loss.count(batch) for loss in others)
    return training_flops(recipe) + 6 * table * projected


def run_ablation(plan: AblationPlan, report: Report) -> dict[str, Any]:
    """Train and measure what is not done, write the page and the figure, and track it all; what they are made from."""
    folder = plan.stage.folder
    if plan.stage.state == "done":
        _log_owed(plan)
    else:
        for job in {cell.job.plan.corpus.folder: cell.job for cell in plan.cells}.values():
            corpus_stage.corpus(job, (), report)
            _require_held_out(plan, job.plan.corpus.folder)
        cluster = plan.job.cluster
        with (
            hold_lock(folder),
            ray_session(
                cluster.ray_address,
                cpus=launch.cores(),
                gpus=_gpus(plan),
                dashboard=cluster.ray_dashboard,
                logs=folder / "ray-logs",
                report=report,
            ),
            stop_signals() as asked,
            tracking.run(tracking.tracking_store(plan.job.out), folder, None, _metadata(plan)) as parent,
        ):
            found = _all_cells(plan, parent, asked, report)
            summary = _summary(plan, found)
            write_atomic(folder / SCORES, json.dumps(summary, indent=1).encode())
            write_atomic(folder / PAGE, ablations.markdown(plan.table, summary).encode())
            _picture(plan.table, summary).savefig(folder / FIGURE)
            _log(plan, summary)
        plan.stage.finish()
    return _kept(plan.stage)


def _kept(stage: stages.JobStage) -> dict[str, Any]:
    """What a table that is done has found."""
    return read_object(stage.folder / SCORES, MADE_ANEW, scores=dict, facts=dict, outcome=str)


def _log_owed(plan: AblationPlan) -> None:
    """Give MLflow what it did not take of a table that is done."""
    if PAGE in tracking.unlogged_metrics(plan.stage.folder):
        _log(plan, _kept(plan.stage))
    for cell in plan.cells:
        if (parent := tracking.existing_run(plan.stage.folder)) and cell.name in tracking.unlogged_metrics(
            cell.job.plan.run.folder
        ):
            _log_cell(cell, _tags(plan, cell, parent))


def _log(plan: AblationPlan, summary: Mapping[str, Any]) -> None:
    """Give the table to MLflow; what that does not take is given to it by the next command that asks for the table."""
    page, picture = plan.stage.folder / PAGE, _picture(plan.table, summary)

    def log_table(tracked: tracking.TrackedRun) -> None:
        tracking.log_table(tracked, ablations.means(summary["scores"]), page, picture)
        tracking.tag(tracked, outcome=summary["outcome"])

    tracking.mirror(plan.stage.folder, PAGE, "the scores of the table", log_table)


def _picture(table: Ablation, summary: Mapping[str, Any]) -> Any:
    """The figure: curves over the axis of the table, or bars where it has none."""
    if table.axis:
        return figures.panels(table.title, table.axis, ablations.lines(table, summary["scores"], summary["facts"]))
    return figures.plot_groups(table.title, ablations.by_column(table, summary["scores"]), ablations.units(table))


def _require_held_out(plan: AblationPlan, corpus: Path) -> None:
    """DataError where the tasks of the table have too few rows: without them it would be trained in vain."""
    tasks = [question.of for question in plan.questions.values() if question.kind == "task"]
    if reasons := held_out.find_too_few(corpus, tasks, labels=1).values():
        raise DataError("\n".join(reasons))


def _metadata(plan: AblationPlan) -> tracking.Metadata:
    """Which recipes are the rows, by their hashes, and what the columns are."""
    table = plan.table
    rows = {row: [cell.job.recipe.hash for cell in plan.cells if cell.row == row] for row in table.rows}
    columns = {name: dataclasses.asdict(measure) | {"unit": measure.unit} for name, measure in table.columns.items()}
    return tracking.Metadata(
        table.name,
        {"rows": rows, "columns": columns},
        {"table": table.name, "title": table.title, "paper": table.paper, "command": plan.job.command},
        f"{table.title} ({table.paper}): {len(plan.cells)} runs, the children of this one.",
        {"table.json": json.dumps({"rows": rows, "columns": columns}, indent=1)},
    )


def _summary(plan: AblationPlan, found: Mapping[tuple[str, int], Mapping[str, MeasuredScore]]) -> dict[str, Any]:
    """The scores by row, column and seed, and what they rest on, as JSON has them."""
    rows, columns = plan.table.rows, plan.table.columns
    seeds = sorted({seed for _, seed in found})
    first = found[next(iter(rows)), seeds[0]]
    of_row = {cell.row: cell.job.recipe for cell in plan.cells}
    phases = plan.job.recipe.phases
    questions = {name: first[name].questions for name in columns}
    scores = {row: {name: [found[row, seed][name].value for seed in seeds] for name in columns} for row in rows}
    return {
        "table": plan.table.name,
        "scores": scores,
        "questions": questions,
        "outcome": ablations.summarize_claims(plan.table, scores, questions),
        "claims": [dataclasses.asdict(verdict) for verdict in ablations.evaluate_claims(plan.table, scores, questions)],
        "rests_on": {name: first[name].rests_on for name in columns},
        "text": sorted({cell.job.corpus.name for cell in plan.cells}),
        "facts": {row: {fact: FACTS[fact](one) for fact in plan.table.facts} for row, one in of_row.items()},
        "steps": [recipe.num_steps for recipe in of_row.values()],
        "rows_of_a_step": phases[-1].global_batch_size,
        "tokens_of_a_row": max(phase.seq_length for phase in phases),
        "recipes": sorted({cell.job.recipe.name for cell in plan.cells}),
    }


FACTS: Final[Mapping[str, Callable[[Recipe], float]]] = {
    "parameters": lambda recipe: build_tree(recipe).parameters,
    "FLOPs": count_flops,
}


# Cells on Ray


def _all_cells(
    plan: AblationPlan, parent: tracking.TrackedRun, asked: StopRequest, report: Report
) -> dict[Any, dict[str, MeasuredScore]]:
    """The scores of every cell. The error of one stops the others, after a checkpoint; so does a signal."""
    progress = _Together(plan.cells, report)
    with ThreadPoolExecutor(_room(plan)) as pool:
        cells: dict[Future[dict[str, MeasuredScore]], AblationTrial] = {
            pool.submit(_cell, plan, cell, parent, asked, progress): cell for cell in plan.cells
        }
        waiting, error = set(cells), None
        while waiting:
            done, waiting = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
            error = error or next((each for future in done if (each := _error(future))), None)
            if error or asked.signal:
                asked.signal = asked.signal or signal.SIGTERM
                waiting = {future for future in waiting if not future.cancel()}
            progress.show()
    left = sum(future.cancelled() or _error(future) is not None for future in cells)
    if error and not isinstance(error, launch.STOPPED):
        raise error
    if left:
        raise asked.make_exception(f"{plan.stage.folder}: stopped with {left} of {len(cells)} cells to do")
    return {(cell.row, cell.seed): future.result() for future, cell in cells.items()}


def _error(future: "Future[Any]") -> BaseException | None:
    return None if future.cancelled() else future.exception()


def _cell(
    plan: AblationPlan, cell: AblationTrial, parent: tracking.TrackedRun, asked: StopRequest, progress: "_Together"
) -> dict[str, MeasuredScore]:
    """Train a cell and measure it, or find it done."""
    job, stage = cell.job, cell.stage
    tags, folder = _tags(plan, cell, parent), job.plan.run.folder
    pretrain_stage.train(job, "allow", progress.of(cell), tags, asked)
    if stage.state != "done":
        progress.of(cell)({"stage": "scores"})
        scores = launch.run_alone(measure_run, folder.absolute(), job.pretraining().to_json(), dict(plan.questions))
        plain = {name: dataclasses.asdict(score) for name, score in scores.items()}
        stage.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(stage.folder / SCORES, json.dumps(plain, indent=1).encode())
        stage.finish()
    _log_cell(cell, tags)  # a run of an earlier day has another parent, or none
    progress.of(cell)({"stage": "done", "done": job.recipe.num_steps})
    return _scores_of(cell)


def _tags(plan: AblationPlan, cell: AblationTrial, parent: tracking.TrackedRun) -> dict[str, str]:
    """What the MLflow run of a cell says of its place in the table."""
    tags = {"mlflow.parentRunId": parent.run_id, "mlflow.runName": cell.name, "table": plan.table.name}
    return tags | {"row": cell.row, "seed": str(cell.seed)}


def _scores_of(cell: AblationTrial) -> dict[str, MeasuredScore]:
    """Of a cell that is done."""
    file = cell.stage.folder / SCORES
    kept = read_object(file, MADE_ANEW)
    with of_kind(file, MADE_ANEW):
        return {name: MeasuredScore(**score) for name, score in kept.items()}


def _log_cell(cell: AblationTrial, tags: Mapping[str, str]) -> None:
    found = {f"table/{name}": one.value for name, one in _scores_of(cell).items()}

    def log_scores(tracked: tracking.TrackedRun) -> None:
        tracking.tag(tracked, **tags)
        tracking.log_scores(tracked, found)

    tracking.mirror(cell.job.plan.run.folder, cell.name, f"the scores of {cell.name}", log_scores)


def _room(plan: AblationPlan) -> int:
    """How many cells Ray has room for at a time."""
    cluster = plan.job.cluster
    return launch.count_free_groups(
        cluster.count_workers(plan.job.recipe), cluster.cpus_per_worker, cluster.gpus_per_worker
    )


def _gpus(plan: AblationPlan) -> int:
    return plan.job.cluster.count_workers(plan.job.recipe) * plan.job.cluster.gpus_per_worker


class _Together:
    """The steps of all cells as one bar. Cells report from threads of their own, the main thread shows the sum."""

    def __init__(self, cells: Sequence[AblationTrial], report: Report) -> None:
        self._report = report
        self._done = {cell.name: 0 for cell in cells}
        self._now = dict.fromkeys(self._done, "")  # their stages: "" before the first, "done" after the last
        self._total = sum(cell.job.recipe.num_steps for cell in cells)
        self._lock = threading.Lock()

    def of(self, cell: AblationTrial) -> Report:
        """What a cell reports to."""

        def report(event: Mapping[str, Any]) -> None:
            with self._lock:
                self._done[cell.name] = max(self._done[cell.name], event.get("done", 0))
                self._now[cell.name] = event["stage"]

        return report

    def show(self) -> None:
        """Report the sum; no time left, since nobody knows how long the measures take that follow the steps."""
        with self._lock:
            done, now = sum(self._done.values()), list(self._now.values())
        event = {"stage": "table", "done": done, "total": self._total, "left_s": 0.0}
        event["ended"] = f"{now.count('done')}/{len(now)} cells"
        others = [stage for stage in now if stage not in ("", "done", "pretrain")]
        self._report(event | ({"now": others[0]} if others else {}))
