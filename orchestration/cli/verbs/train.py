"""sesame train"""

from orchestration.cli import options
from orchestration.cli.groups import JobOptions, RunOptions, TrainingOptions
from orchestration.cli.shared import (
    describe_inputs,
    flags_of_folder,
    open_flags,
    quote_command,
    refuse_impossible,
    stages_of,
    ui_command,
    warn_of_few_rows,
)
from orchestration.terminal import CommandResult, announce, print_answer, print_plan


def train(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    *,
    cluster: options.ClusterName = "local",
    run: RunOptions,
    training: TrainingOptions,
    output: JobOptions,
) -> int:
    """Pretrain with Ray and DeepSpeed on an existing corpus; resume from the latest checkpoint."""
    _, job = open_flags(
        recipe, [*(overrides or ()), *training.overrides()], run, cluster=cluster, max_steps=training.max_steps
    )
    corpus, *due = stages_of(job)[2:]
    notes = refuse_impossible(job, training.resume)
    if corpus.state != "done":
        notes.append(f"corpus: missing ({corpus.folder}); make it first with `sesame corpus`, or use `sesame run`")
    announce(due, [*describe_inputs(job), *notes])
    if output.dry_run:
        return print_answer(print_plan(due, quote_command()), output.as_json)
    from orchestration.terminal import show_progress, views

    warn_of_few_rows(job)
    with show_progress(output.progress) as report:
        report({"stage": "importing"})
        from orchestration.jobs import train as pretrain

        result = pretrain(job, training.resume, report)
    values = {"folder": str(job.plan.run.folder)} | result
    made = flags_of_folder(job.plan.run.folder, run.output_dir)
    next_ = (made.command("eval"), made.command("inspect"), ui_command(run.output_dir))
    return print_answer(
        CommandResult((views.summarize_training(job.plan.run.folder, result),), values, next_), output.as_json
    )
