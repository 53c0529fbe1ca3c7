"""sesame run"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from orchestration.cli import options
from orchestration.cli.groups import JobOptions, RunOptions, TrainingOptions
from orchestration.cli.shared import (
    check_beam,
    describe_inputs,
    flags_of_folder,
    open_flags,
    quote_command,
    refuse_impossible,
    stages_of,
    ui_command,
)
from orchestration.terminal import CommandResult, announce, print_answer, print_plan
from preprocessing.errors import SesameError

if TYPE_CHECKING:
    from orchestration.jobs import JobStage


def run(
    context: typer.Context,
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    *,
    cluster: options.ClusterName = "local",
    where: RunOptions,
    training: TrainingOptions,
    task_data_dir: options.TaskDataDir = None,
    num_seeds: options.NumSeeds = 3,
    max_train_samples: options.MaxTrainSamples = "",
    output: JobOptions,
) -> int:
    """Run all stages: corpus, training, evaluation. Skip finished stages, and list earlier runs with other values."""
    samples = options.parse_numbers("--max-train-samples", max_train_samples, int, least=2)
    flags, job = open_flags(
        recipe, [*(overrides or ()), *training.overrides()], where, cluster=cluster, max_steps=training.max_steps
    )
    due: Sequence[JobStage] = stages_of(job)
    notes = refuse_impossible(job, training.resume)
    if job.has_estimated_steps:
        due, notes = due[:3], [*notes, "run: to do; its directory depends on its number of steps"]
    announce(due, [*describe_inputs(job), *notes])
    if output.dry_run:
        check_beam(job, context.obj, due[:3])
        return print_answer(print_plan(due, quote_command()), output.as_json)
    from orchestration.jobs import open_job, start_early
    from orchestration.terminal import show_progress, views

    with show_progress(output.progress) as report:
        report({"stage": "importing Beam"})
        with start_early(job, training.resume):
            from orchestration.jobs import corpus as corpus_stage

            manifest = corpus_stage.corpus(job, context.obj, report)
            if job.has_estimated_steps:
                job = open_job(flags)
                announce(job.plan[3:], job.notes)
            from orchestration.config import tasks_from_words
            from orchestration.evaluation import eval_request, ray_stages
            from orchestration.jobs import samples_of
            from orchestration.reports import score_rows, score_values

            wanted = eval_request.EvalRequest(
                tasks=tasks_from_words(job.recipe.eval_tasks),
                task_data_dir=task_data_dir,
                num_seeds=num_seeds,
                max_train_samples=samples,
                with_baseline=True,
                machine=job.cluster.engine,
            )
            left_out: list[SesameError] = []
            result, scores = ray_stages.pretrain_and_evaluate(job, training.resume, report, wanted, left_out)
    written = samples_of(job.plan.run.folder)
    values = {
        "folder": str(job.plan.run.folder),
        "corpus": manifest.digest,
        "result": result,
        "samples": written,
        "scores": score_values(scores),
    }
    shown_ = (
        views.card(manifest),
        views.summarize_training(job.plan.run.folder, result),
        views.scores(score_rows(scores)),
        views.samples(written) if written else views.examples(scores),
    )
    made = flags_of_folder(job.plan.run.folder, where.output_dir)
    next_ = (
        ui_command(where.output_dir),
        made.command("inspect"),
        made.command("register", "--name", "NAME"),
        made.command("export"),
    )
    code = left_out[0].exit_code if left_out else 0
    return print_answer(CommandResult(shown_, values, next_, code), output.as_json)
