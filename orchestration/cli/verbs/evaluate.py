"""sesame eval"""

from orchestration.cli import options
from orchestration.cli.groups import FinetuningOptions, JobOptions, RunOptions
from orchestration.cli.shared import flags_of, quote_command, ui_command
from orchestration.terminal import CommandResult, announce, print_answer, print_plan, show_wait
from preprocessing.errors import SesameError


def evaluate(
    run: options.Run,
    overrides: options.Overrides = None,
    *,
    tasks: options.Tasks = "",
    csv: options.Csv = None,
    task_data_dir: options.TaskDataDir = None,
    baseline: options.Baseline = "none",
    leaderboard_dir: options.LeaderboardDir = None,
    checkpoints_every: options.CheckpointsEvery = 0,
    finetuning: FinetuningOptions,
    cluster: options.ClusterName = "local",
    where: RunOptions,
    output: JobOptions,
) -> int:
    """Evaluate a finished run on downstream tasks, each with the grid of its paper; finished trials are reused."""
    with show_wait("importing"):
        from orchestration.jobs import cluster_of, eval_request, eval_target, score_plan, stages
        from orchestration.reports import score_rows, score_values
        from orchestration.terminal import views

    flags = flags_of(run, overrides, where, cluster=cluster)
    hardware, target = cluster_of(flags), eval_target.subject_of(flags)
    wanted = eval_request.EvalRequest(
        tasks=eval_request.tasks_from_words(tasks or ("" if csv else eval_target.target_eval_tasks(flags)), csv or ()),
        task_data_dir=task_data_dir,
        for_leaderboard=leaderboard_dir is not None,
        with_baseline=baseline == "random_init",
        machine=hardware.engine,
        **finetuning.values(),
    )
    with show_wait("reading the files of the tasks"):
        targets = eval_target.targets_at_steps(target, checkpoints_every) if checkpoints_every else [target]
        plan_all = score_plan.plan_tasks if tasks or csv else score_plan.plan_supported_tasks
        plans = [plan for each in targets for plan in plan_all(each, wanted)]
        score_plan.check_flags(plans, wanted)
    due = [plan.stage for plan in plans]
    described = [line for plan in plans for line in (plan.files_description, plan.grid_description)]
    announce(due, filter(None, dict.fromkeys([*described, stages.other_values(due)])))
    if output.dry_run:
        return print_answer(print_plan(due, quote_command()), output.as_json)
    from orchestration.terminal import show_progress

    with show_progress(output.progress) as report:
        report({"stage": "importing PyTorch"})
        from orchestration.jobs import evaluate as evaluate_stage

        left_out: list[SesameError] = []
        scores = evaluate_stage.evaluate(
            target.folder, plans, hardware, report, where.output_dir, left_out, flags.command_line
        )
        files = evaluate_stage.submit(plans, scores, leaderboard_dir) if leaderboard_dir else []
    values = {"folder": str(target.folder), "scores": score_values(scores), "submission": files}
    # A directory of transformers has no corpus, and needs no export.
    next_ = (ui_command(where.output_dir), *((flags.command("export"),) if target.corpus else ()))
    code = left_out[0].exit_code if left_out else 0  # exit code of the first task that started but has no score
    shown_ = views.scores(score_rows(scores)), views.examples(scores)
    return print_answer(CommandResult(shown_, values, next_, code), output.as_json)
