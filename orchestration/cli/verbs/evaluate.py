"""sesame eval"""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from orchestration.cli import options
from orchestration.cli.groups import FinetuningOptions, JobOptions, RunOptions
from orchestration.cli.shared import command, flags_of, quote_command, ui_command
from orchestration.terminal import CommandResult, announce, print_answer, print_plan, show_wait
from preprocessing.errors import BadInput, SesameError

if TYPE_CHECKING:
    from training.evaluation.tasks import TaskFile


def evaluate(
    run: options.Run,
    overrides: options.Overrides = None,
    *,
    tasks: options.Tasks = "",
    csv: options.Csv = None,
    task_data_dir: options.TaskDataDir = None,
    baseline: options.Baseline = "none",
    leaderboard_dir: options.LeaderboardDir = None,
    save: options.Save = None,
    checkpoints_every: options.CheckpointsEvery = 0,
    finetuning: FinetuningOptions,
    cluster: options.ClusterName = "local",
    where: RunOptions,
    output: JobOptions,
) -> int:
    """Evaluate a run on downstream tasks with the grids of papers, or score a fine-tuned model of --save again."""
    with show_wait("importing"):
        from orchestration.config import tasks_from_words
        from orchestration.evaluation import eval_request, eval_target
        from orchestration.jobs import cluster_of, finetuned_source, start_evaluation_early

    flags = flags_of(run, overrides, where, cluster=cluster)
    hardware, target = cluster_of(flags), eval_target.subject_of(flags)
    if target.finetuned and save:
        raise BadInput(f"--save: {run} is a fine-tuned model, which is only scored; leave --save out")
    if target.finetuned and baseline == "random_init":
        raise BadInput(f"--baseline: {run} is a fine-tuned model, which is only scored; leave --baseline out")
    if target.finetuned and not tasks and not csv:
        own, directory = finetuned_source.task_of(target.finetuned)
        named: list[TaskFile | str] = [own]
        task_data_dir = task_data_dir or directory
    else:
        words = tasks or ("" if csv else eval_target.target_eval_tasks(flags))
        tables = list[str]()
        named = tasks_from_words(words, csv or (), tables.append)
        announce((), tables)
    wanted = eval_request.EvalRequest(
        tasks=named,
        task_data_dir=task_data_dir,
        for_leaderboard=leaderboard_dir is not None,
        with_baseline=baseline == "random_init",
        machine=hardware.engine,
        **finetuning.values(),
    )
    early = nullcontext() if output.dry_run else start_evaluation_early(target.folder, named, hardware)
    with early:
        from orchestration.evaluation import saved_models, score_plan
        from orchestration.jobs import stages
        from orchestration.reports import score_rows, score_values
        from orchestration.terminal import views

        with show_wait("reading the files of the tasks"):
            targets = eval_target.targets_at_steps(target, checkpoints_every) if checkpoints_every else [target]
            is_named = tasks or csv or target.finetuned
            plan_all = score_plan.plan_tasks if is_named else score_plan.plan_supported_tasks
            plans = [plan for each in targets for plan in plan_all(each, wanted)]
            score_plan.check_flags(plans, wanted)
            saves = saved_models.plan_saves(target, plans, save, quote_command()) if save else None
        due = [plan.stage for plan in plans]
        described = [line for plan in plans for line in (plan.files_description, plan.grid_description)]
        announce(due, filter(None, dict.fromkeys([*described, stages.other_values(due)])))
        if output.dry_run:
            return print_answer(print_plan(due, quote_command()), output.as_json)
        from orchestration.terminal import show_progress

        with show_progress(output.progress) as report:
            report({"stage": "importing the evaluation"})
            from orchestration.evaluation import evaluate as evaluate_stage
            from orchestration.evaluation import leaderboard

            left_out: list[SesameError] = []
            out, line = where.output_dir, flags.command_line
            scores = evaluate_stage.evaluate(target.folder, plans, hardware, report, out, left_out, line, saves)
            files = leaderboard.submit(plans, scores, leaderboard_dir) if leaderboard_dir else []
    saved = list[str]()
    values: dict[str, object] = {"folder": str(target.folder), "scores": score_values(scores), "submission": files}
    if saves:
        saved = values["saved"] = [str(place) for place in saves.places.values() if place.is_dir()]
        announce((), saves.notes)
    if target.finetuned:
        announce((), saved_models.compare_all(target.finetuned, plans, scores))
    # A directory of transformers has no corpus, and needs no export.
    next_ = (ui_command(where.output_dir), *((flags.command("export"),) if target.corpus else ()))
    next_ += (command("eval", saved[0], "--output-dir", str(where.output_dir)),) if saved else ()
    code = left_out[0].exit_code if left_out else 0  # exit code of the first task that started but has no score
    shown_ = views.scores(score_rows(scores)), views.examples(scores)
    return print_answer(CommandResult(shown_, values, next_, code), output.as_json)
