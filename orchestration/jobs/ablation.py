"""`sesame ablation`: recipes are trained from several seeds, measured, and compared as in a paper.

A trial (row, seed) is an ordinary run with the stages of `sesame run`: a finished trial is skipped, and an interrupted
one resumes. Trials run in parallel in one Ray session, as many as the machine has resources for. On a small machine,
two runs with one worker each are faster than one run with two workers. Each trial is a child of the table's MLflow run.
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
from orchestration.jobs.ablation_trial import FINETUNINGS, LABELS, STEPS, MeasuredScore, MeasureRequest, measure_run
from orchestration.jobs.job import Job, JobFlags, inputs_of, open_job
from orchestration.jobs.pretrain import train
from orchestration.launch import StopRequest, ray_session, stop_signals
from orchestration.planning import workload_of
from orchestration.progress import Report
from orchestration.reports import ablations, build_tree, training_flops
from orchestration.reports.ablations import Ablation, AblationRow, Measure, ScalingLaw
from preprocessing.errors import BadInput, DataError
from preprocessing.files import of_kind, read_object, write_atomic
from preprocessing.lock import hold_lock
from preprocessing.manifest import Manifest
from preprocessing.tokenization import table_rows
from training.evaluation.tasks import TASKS

SCORES, PAGE, FIGURE = "scores.json", "table.md", "table.png"
MADE_ANEW = "delete its directory and repeat the same `sesame ablation` command"
POLL_S: Final = 0.5


@dataclass(frozen=True)
class AblationTrial:
    """One run of a table."""

    row: str
    seed: int
    job: Job
    stage: stages.JobStage  # stage of its measures

    @property
    def name(self) -> str:
        return f"{self.row}, seed {self.seed}"

    def describe(self) -> str:
        """Planned action, as text."""
        run = self.job.plan.run
        if self.stage.state == "done":
            return f"{self.name}: done, skipped ({run.folder})"
        words = {"done": "trained, to be measured", "begun": "incomplete, resumes", "due": "to do"}[run.state]
        return f"{self.name}: {words} ({run.folder})"


@dataclass(frozen=True)
class AblationPlan:
    """A checked table: its trials, their measures, and its directory."""

    table: Ablation
    cells: tuple[AblationTrial, ...]
    questions: Mapping[str, MeasureRequest]
    stage: stages.JobStage

    @property
    def job(self) -> Job:
        """One of its jobs; all have the same cluster and output directory."""
        return self.cells[0].job


def plan(table: Ablation, flags: JobFlags, num_seeds: int) -> AblationPlan:
    """The plan of `table` under the flags of a command. Raises BadInput if a row does not work with the flags."""
    jobs = {
        (label, seed): job_of(table, row, replace(flags, seed=seed))
        # Seeds are the outer loop, so an interrupted table has all rows for its first seeds.
        for seed in range(num_seeds)
        for label, row in table.rows.items()
    }
    inputs = dict[str, str]()  # by digest of the corpus, because listing the files of a text takes time
    jobs = {key: _with_inputs(job, inputs) for key, job in jobs.items()}
    questions, causes = {}, {}
    for name, measure in table.columns.items():
        held_out_job = _find_held_out_job(table, measure, flags)
        if held_out_job:
            held_out_job = _with_inputs(held_out_job, inputs)
        run_json = held_out_job.pretraining().to_json() if held_out_job else ""
        questions[name] = MeasureRequest(measure.kind, measure.of, run_json)
        by = (
            held_out_job.plan.run.hash
            if held_out_job
            else [LABELS, STEPS, *FINETUNINGS]
            if measure.kind == "task"
            else ""
        )
        causes[name] = {"kind": measure.kind, "of": measure.of, "by": by, "unit": measure.unit}
    cells = [
        AblationTrial(label, seed, job, stages.measures(job.plan.run, table.name, causes))
        for (label, seed), job in jobs.items()
    ]
    stage = stages.table(table.name, compute_digest(table), [cell.stage for cell in cells], flags.output_dir)
    return AblationPlan(table, tuple(cells), questions, stage)


def _with_inputs(job: Job, inputs: dict[str, str]) -> Job:
    digest = compute_digest(job.corpus)
    if digest not in inputs:
        inputs[digest] = inputs_of(job.corpus)
    return replace(job, inputs=inputs[digest])


def _find_held_out_job(table: Ablation, measure: Measure, flags: JobFlags) -> Job | None:
    """The job whose held-out sequences a measure uses; None if it uses none."""
    if measure.kind in ("task", "rise", "validation"):
        assert measure.kind != "task" or measure.of in TASKS, measure
        return None
    row = table.rows[measure.of]
    return job_of(table, replace(row, overrides=(*row.overrides, *measure.overrides)), replace(flags, seed=0))


def job_of(table: Ablation, row: AblationRow, flags: JobFlags) -> Job:
    """The job of a trial: one worker unless the command sets another number, and the text of the table unless the
    command names one."""
    job = open_job(replace(flags, recipe=row.recipe, overrides=_overrides(table, row, flags)))
    if flags.data or table.text == "demo":
        return job
    corpus = ablations.corpus(flags.output_dir / "text_of_tables", row.units)
    return replace(job, recipe=replace(job.recipe, data=replace(job.recipe.data, corpus=corpus.name)), corpus=corpus)


def _overrides(table: Ablation, row: AblationRow, flags: JobFlags) -> list[str]:
    """The overrides of a row. Overrides of the command replace those of the row, except the number of steps of a row
    with equal compute."""
    vocab = [table.vocab] if table.vocab and not flags.data else []
    row_overrides = [*row.overrides, *row.sizes.get(flags.scale, ())]
    overrides = ["cluster.num_workers=1", *table.budget_of(flags.scale), *vocab, *row_overrides, *flags.overrides]
    if not row.compute:
        return overrides
    whole = replace(table.rows[table.equal_to], compute=0.0)
    reference = _recipe(whole.recipe, _overrides(table, whole, flags), flags.scale)
    return [
        *overrides,
        f"phases.0.steps={equal_steps(_recipe(row.recipe, overrides, flags.scale), reference, row.compute)}",
    ]


def _recipe(name: str, overrides: Sequence[str], scale: str) -> Recipe:
    return load(name, split_overrides(overrides)[0], scale)


def equal_steps(recipe: Recipe, reference: Recipe, share: float) -> int:
    """Steps of `recipe` for a fraction of the FLOPs that the training of `reference` takes. Raises BadInput if it has
    several phases."""
    if len(recipe.phases) > 1:
        raise BadInput(
            f"invalid phases: got {len(recipe.phases)} phases, expected 1 in a table of equal compute; set one phase "
            "with seq_length, global_batch_size and steps"
        )
    return max(1, round(share * count_flops(reference) / (count_flops(recipe) / recipe.num_steps)))


def count_flops(recipe: Recipe) -> float:
    """FLOPs of training. Unlike `training_flops`, it also counts the vocabulary projection of a second loss."""
    others = [loss for loss in recipe.losses if loss.names_tokens][1:]
    table = table_rows(recipe.data.tokenizer) * recipe.model.table_width
    demand, projected = workload_of(recipe), 0.0
    for phase in recipe.phases:
        work = demand.work(phase.global_batch_size, phase.seq_length)
        projected += phase.steps * sum(loss.targets(work) for loss in others)
    return training_flops(recipe) + 6 * table * projected


def run_ablation(plan: AblationPlan, report: Report) -> dict[str, Any]:
    """Train and measure the missing trials, write and track the page and the figure; returns the data of the page."""
    folder = plan.stage.folder
    if plan.stage.state == "done":
        _log_missing(plan)
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
            stop_signals() as stop_request,
            tracking.run(tracking.tracking_store(plan.job.out), folder, None, _metadata(plan)) as parent,
        ):
            scores = _run_trials(plan, parent, stop_request, report)
            summary = _summary(plan, scores)
            write_atomic(folder / SCORES, json.dumps(summary, indent=1).encode())
            write_atomic(folder / PAGE, ablations.markdown(plan.table, summary).encode())
            _picture(plan.table, summary).savefig(folder / FIGURE)
            _log(plan, summary)
        plan.stage.finish()
    return _load_results(plan.stage)


def _load_results(stage: stages.JobStage) -> dict[str, Any]:
    """The stored results of a finished table."""
    return read_object(stage.folder / SCORES, MADE_ANEW, scores=dict, facts=dict, outcome=str)


def _log_missing(plan: AblationPlan) -> None:
    """Send to MLflow the parts of a finished table that it does not have yet."""
    if PAGE in tracking.read_unlogged_metrics(plan.stage.folder):
        _log(plan, _load_results(plan.stage))
    for cell in plan.cells:
        if (parent := tracking.existing_run(plan.stage.folder)) and cell.name in tracking.read_unlogged_metrics(
            cell.job.plan.run.folder
        ):
            _log_cell(cell, _tags(plan, cell, parent))


def _log(plan: AblationPlan, summary: Mapping[str, Any]) -> None:
    """Send the table to MLflow. If the store fails, the next command for this table sends it again."""
    page, picture = plan.stage.folder / PAGE, _picture(plan.table, summary)

    def log_table(tracked: tracking.TrackedRun) -> None:
        law = ablations.find_law(plan.table, summary["scores"], summary["facts"])
        metrics = ablations.means(summary["scores"]) | (law.metrics() if law else {})
        tracking.log_table(tracked, metrics, page, picture)
        tracking.tag(tracked, outcome=summary["outcome"])

    tracking.mirror(plan.stage.folder, PAGE, "the scores of the table", log_table)


def _picture(table: Ablation, summary: Mapping[str, Any]) -> Any:
    """The figure: the profiles of a scaling ladder, or curves along the axis of the table, or bars if it has no
    axis."""
    if law := ablations.find_law(table, summary["scores"], summary["facts"]):
        return _plot_law(table.title, law)
    if table.axis:
        return figures.panels(table.title, table.axis, ablations.lines(table, summary["scores"], summary["facts"]))
    return figures.plot_groups(table.title, ablations.by_column(table, summary["scores"]), ablations.units(table))


def _plot_law(title: str, law: ScalingLaw) -> Any:
    """The figure of a scaling law: the profile of each budget, and the optimal sizes over the budgets."""
    profiles = []
    for one in law.profiles:
        sizes = [run.parameters for run in one.runs]
        grid = [float(size) for size in np.geomspace(min(sizes), max(sizes), 50)]
        optimum = (one.parameters, one.loss) if one.has_minimum else None
        name = f"{ablations.format_cell('FLOPs', one.flops)} FLOPs"
        points = [(run.parameters, run.loss) for run in one.runs]
        profiles.append(figures.ProfileCurve(name, points, [(size, one.predict(size)) for size in grid], optimum))
    line = [(flops, size.value, size.interval) for flops, size in law.line]
    return figures.plot_profiles(title, profiles, [(one.flops, one.parameters) for one in law.used], line)


def _require_held_out(plan: AblationPlan, corpus: Path) -> None:
    """Raises DataError if the tasks of the table have too few examples, before any training starts."""
    tasks = [question.of for question in plan.questions.values() if question.kind == "task"]
    if reasons := held_out.find_too_few(corpus, tasks, labels=1).values():
        raise DataError("\n".join(reasons))


def _metadata(plan: AblationPlan) -> tracking.Metadata:
    """The MLflow metadata: recipe hashes of the rows, and definitions of the columns."""
    table = plan.table
    rows = {row: [cell.job.recipe.hash for cell in plan.cells if cell.row == row] for row in table.rows}
    columns = {name: dataclasses.asdict(measure) | {"unit": measure.unit} for name, measure in table.columns.items()}
    return tracking.Metadata(
        table.name,
        {"rows": rows, "columns": columns},
        {"table": table.name, "title": table.title, "paper": table.paper, "command": plan.job.command},
        f"{table.title} ({table.paper}): {len(plan.cells)} runs, which are the children of this run.",
        {"table.json": json.dumps({"rows": rows, "columns": columns}, indent=1)},
    )


def _summary(plan: AblationPlan, trial_scores: Mapping[tuple[str, int], Mapping[str, MeasuredScore]]) -> dict[str, Any]:
    """The scores by row, column and seed, and what each column is measured on, as JSON values."""
    rows, columns = plan.table.rows, plan.table.columns
    seeds = sorted({seed for _, seed in trial_scores})
    first = trial_scores[next(iter(rows)), seeds[0]]
    of_row = {cell.row: cell.job.recipe for cell in plan.cells}
    phases = plan.job.recipe.phases
    questions = {name: first[name].questions for name in columns}
    scores = {row: {name: [trial_scores[row, seed][name].value for seed in seeds] for name in columns} for row in rows}
    facts = {row: {fact: FACTS[fact](one) for fact in plan.table.facts} for row, one in of_row.items()}
    law = ablations.find_law(plan.table, scores, facts)
    summary = {
        "table": plan.table.name,
        "scores": scores,
        "questions": questions,
        "outcome": law.describe() if law else ablations.summarize_claims(plan.table, scores, questions),
        "claims": [dataclasses.asdict(verdict) for verdict in ablations.evaluate_claims(plan.table, scores, questions)],
        "rests_on": {name: first[name].rests_on for name in columns},
        "text": sorted({cell.job.corpus.name for cell in plan.cells}),
        "facts": facts,
        "steps": [recipe.num_steps for recipe in of_row.values()],
        "rows_of_a_step": phases[-1].global_batch_size,
        "tokens_of_a_row": max(phase.seq_length for phase in phases),
        "recipes": sorted({cell.job.recipe.name for cell in plan.cells}),
    }
    if law:
        tokens = Manifest.load(plan.job.plan.corpus.folder).splits["train"]["tokens"]
        most = max(recipe.num_tokens for recipe in of_row.values())
        summary |= {"law": law.values(), "epochs": most / tokens}
    return summary


FACTS: Final[Mapping[str, Callable[[Recipe], float]]] = {
    "parameters": lambda recipe: build_tree(recipe).parameters,
    "tokens": lambda recipe: recipe.num_tokens,
    "FLOPs": count_flops,
}


# Trials on Ray


def _run_trials(
    plan: AblationPlan, parent: tracking.TrackedRun, stop_request: StopRequest, report: Report
) -> dict[Any, dict[str, MeasuredScore]]:
    """The scores of every trial. After an error in one trial, or a signal, the other trials save a checkpoint and
    stop."""
    progress = _TrialProgress(plan.cells, report)
    with ThreadPoolExecutor(_count_parallel_trials(plan)) as pool:
        cells: dict[Future[dict[str, MeasuredScore]], AblationTrial] = {
            pool.submit(_run_trial, plan, cell, parent, stop_request, progress): cell for cell in plan.cells
        }
        waiting, error = set(cells), None
        while waiting:
            done, waiting = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
            error = error or next((each for future in done if (each := _error(future))), None)
            if error or stop_request.signal:
                stop_request.signal = stop_request.signal or signal.SIGTERM
                waiting = {future for future in waiting if not future.cancel()}
            progress.update()
    unfinished = sum(future.cancelled() or _error(future) is not None for future in cells)
    if error and not isinstance(error, launch.STOPPED):
        raise error
    if unfinished:
        raise stop_request.make_exception(
            f"{plan.stage.folder}: stopped with {unfinished} of {len(cells)} trials unfinished; repeat the command to "
            "resume"
        )
    return {(cell.row, cell.seed): future.result() for future, cell in cells.items()}


def _error(future: "Future[Any]") -> BaseException | None:
    return None if future.cancelled() else future.exception()


def _run_trial(
    plan: AblationPlan,
    cell: AblationTrial,
    parent: tracking.TrackedRun,
    stop_request: StopRequest,
    progress: "_TrialProgress",
) -> dict[str, MeasuredScore]:
    """Train and measure a trial, or load its results if it is finished."""
    job, stage = cell.job, cell.stage
    tags, folder = _tags(plan, cell, parent), job.plan.run.folder
    train(job, "allow", progress.of(cell), tags, stop_request)
    if stage.state != "done":
        progress.of(cell)({"stage": "scores"})
        scores = launch.run_alone(measure_run, folder.absolute(), job.pretraining().to_json(), dict(plan.questions))
        plain = {name: dataclasses.asdict(score) for name, score in scores.items()}
        stage.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(stage.folder / SCORES, json.dumps(plain, indent=1).encode())
        stage.finish()
    _log_cell(cell, tags)  # an older MLflow run of this trial has another parent, or none
    progress.of(cell)({"stage": "done", "done": job.recipe.num_steps})
    return _load_scores(cell)


def _tags(plan: AblationPlan, cell: AblationTrial, parent: tracking.TrackedRun) -> dict[str, str]:
    """MLflow tags of a trial: its place in the table."""
    tags = {"mlflow.parentRunId": parent.run_id, "mlflow.runName": cell.name, "table": plan.table.name}
    return tags | {"row": cell.row, "seed": str(cell.seed)}


def _load_scores(cell: AblationTrial) -> dict[str, MeasuredScore]:
    """The scores of a finished trial."""
    file = cell.stage.folder / SCORES
    stored = read_object(file, MADE_ANEW)
    with of_kind(file, MADE_ANEW):
        return {name: MeasuredScore(**score) for name, score in stored.items()}


def _log_cell(cell: AblationTrial, tags: Mapping[str, str]) -> None:
    scores = {f"table/{name}": one.value for name, one in _load_scores(cell).items()}

    def log_scores(tracked: tracking.TrackedRun) -> None:
        tracking.tag(tracked, **tags)
        tracking.log_scores(tracked, scores)

    tracking.mirror(cell.job.plan.run.folder, cell.name, f"the scores of {cell.name}", log_scores)


def _count_parallel_trials(plan: AblationPlan) -> int:
    """Number of trials that Ray has resources for at the same time."""
    cluster = plan.job.cluster
    return launch.count_free_groups(
        cluster.count_workers(plan.job.recipe), cluster.cpus_per_worker, cluster.gpus_per_worker
    )


def _gpus(plan: AblationPlan) -> int:
    return plan.job.cluster.count_workers(plan.job.recipe) * plan.job.cluster.gpus_per_worker


class _TrialProgress:
    """Shows the steps of all trials as one progress bar. Trials report from their own threads; the main thread shows
    the sum."""

    def __init__(self, cells: Sequence[AblationTrial], report: Report) -> None:
        self._report = report
        self._done = {cell.name: 0 for cell in cells}
        self._now = dict.fromkeys(self._done, "")  # stage of each trial; "" before the first, "done" after the last
        self._total = sum(cell.job.recipe.num_steps for cell in cells)
        self._lock = threading.Lock()

    def of(self, cell: AblationTrial) -> Report:
        """The report function of a trial."""

        def report(event: Mapping[str, Any]) -> None:
            with self._lock:
                self._done[cell.name] = max(self._done[cell.name], event.get("done", 0))
                self._now[cell.name] = event["stage"]

        return report

    def update(self) -> None:
        """Report the sum. The remaining time is not estimated, because the duration of the measures is unknown."""
        with self._lock:
            done, now = sum(self._done.values()), list(self._now.values())
        event = {"stage": "table", "done": done, "total": self._total, "left_s": 0.0}
        event["ended"] = f"{now.count('done')}/{len(now)} trials"
        others = [stage for stage in now if stage not in ("", "done", "pretrain")]
        self._report(event | ({"now": others[0]} if others else {}))
