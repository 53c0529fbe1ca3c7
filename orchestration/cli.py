"""The command `sesame`: flags in, one answer out. What a verb does is in the modules that it imports when it is called.

Exit codes: 0 done, 2 usage or bad input, 3 too little usable data, 4 the machine refuses, 5 diverged, 75 preempted (the
same command goes on), 130 interrupted. What a user can mend is said in one line of stderr for each thing that is wrong.
"""

import dataclasses
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.exceptions import TyperException

from orchestration import environment, options, system_errors
from orchestration.signals import signals_raise
from orchestration.terminal import BEGAN_S, Answer, announce, is_plain, planned, print_answer, refuse, waiting
from orchestration.version import sesame_version
from preprocessing.credentials import without_credentials
from preprocessing.errors import BadInput, ResourceError, SesameError, missing_module

if TYPE_CHECKING:
    from orchestration.jobs import Flags, Job, Plan
    from orchestration.launch import JobServer

WORK = Path("work")
_typed = ContextVar[tuple[str, ...]]("_typed", default=())  # the words that `main` was given
COMPLETE = "_SESAME_COMPLETE"  # in the environment: the shell asks what a word could become
_PYDANTIC = {  # what it says of values of options, and we
    r"Input should be greater than or equal to (\S+)": r"allowed is a number from \1 up",
    r"Input should be less than or equal to (\S+)": r"allowed is a number up to \1",
    "Input should be a valid integer.*": "allowed is a whole number",
    "Input should be a valid number.*": "allowed is a number",
    "Value error, ": "",
}
app = typer.Typer(
    help="Pretrain the BERT and GPT family, from raw text to downstream scores. Begin with `sesame recipes`.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"sesame {sesame_version()}")
        raise typer.Exit


@app.callback()
def sesame(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version of Sesame.")
    ] = False,
) -> None:
    """Pretrain the BERT and GPT family, from raw text to downstream scores. Begin with `sesame recipes`."""


@app.command()
def recipes(
    recipe: options.AnyRecipe = "",
    overrides: options.Overrides = None,
    diff: options.OtherRecipe = "",
    table: Annotated[bool, typer.Option("--table", help="The family as Markdown, with each oracle.")] = False,
    scale: options.Scale = "",
    as_json: options.Json = False,
) -> int:
    """The family as a table; a recipe as a tree with its parameters; how another one differs from it."""
    from orchestration.config import load, names
    from orchestration.reports import abstract, family
    from orchestration.terminal import views

    values: dict[str, Any]
    if not recipe:
        found = family.ordered(load(name, scale=scale) for name in names("recipes"))
        if table and not as_json:
            print(family.markdown(found))
            return 0
        more = {one.name: {"oracle": family.oracle(one)} if table else {} for one in found}
        values = {one.name: {**family.row(one), **more[one.name], "hash": one.hash} for one in found}
        return print_answer(Answer((views.recipes(found),), values, (f"sesame recipes {found[0].name}",)), as_json)
    one = load(recipe, overrides or (), scale)
    if not diff:
        values = dataclasses.asdict(one) | {"hash": one.hash, "parameters": family.parameters(one)}
        return print_answer(Answer((views.recipe(one),), values, (_quoted("check", recipe),)), as_json)
    other = load(diff, scale=scale)
    lines = abstract(one, other)
    values = {"from": one.name, "to": other.name, "differences": lines}
    return print_answer(Answer((views.difference(one, other, lines),), values, (_quoted("check", diff),)), as_json)


@app.command()
def keys(
    part: options.Part = "",
    as_json: options.Json = False,
) -> int:
    """Every key of a recipe, a cluster file and a corpus file: its type, its default, and what it means."""
    from orchestration.config import find_keys, parts
    from orchestration.terminal import views

    found = find_keys(part) if part else list(parts())
    values: dict[str, Any] = {"parts": [dataclasses.asdict(each) for each in found]}
    return print_answer(
        Answer((views.keys(found),), values, ("sesame check bert_base optimizer.learning_rate=2e-4",)), as_json
    )


@app.command()
def tasks(
    task: options.AnyTask = "",
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> int:
    """Downstream tasks: what they ask, how they are scored, and with --data-dir what of their data is at hand."""
    from orchestration.config import beside_first, is_shipped_task, tasks_of
    from orchestration.reports import tasks_as_values, tasks_at_hand
    from orchestration.terminal import views

    found = tasks_of(task)
    if data_dir is None:
        found = [beside_first(one) for one in found]
    are_own = not any(is_shipped_task(one.name) for one in found)  # their files may lie beside them
    with waiting("reading the files of the tasks"):
        there = tasks_at_hand(found, data_dir or Path()) if data_dir or are_own else {}
    shown = views.task(found[0], there.get(found[0].name)) if len(found) == 1 else views.tasks(found, there)
    first = found[0].name if task else "sst2"
    one = first if is_shipped_task(first) else next(filter(None, task.split(",")))  # its file
    next_ = (shlex.join(["sesame", "tasks", one, *(["--data-dir", str(data_dir)] if data_dir else [])]),)
    return print_answer(Answer((shown,), tasks_as_values(found, there), next_ if len(found) > 1 else ()), as_json)


@app.command()
def check(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    on: options.On = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    as_json: options.Json = False,
) -> int:
    """Validate a recipe on a cluster in under a second, without its text and without a GPU."""
    from orchestration import planning
    from orchestration.config import remarks, without_effect
    from orchestration.terminal import views

    flags, job = _open(recipe, overrides, on=on, scale=scale, data=data, hold_out=hold_out)
    workers = job.cluster.count_workers(job.recipe)
    environment.resolved(job.cluster.env, os.environ)
    notes = planning.refuse_what_does_not_fit(job.recipe, job.cluster)
    announce((), [*without_effect(job.cluster), *remarks(job.recipe, job.cluster)])
    values = {"recipe": job.recipe.name, "hash": job.recipe.hash, "workers": workers, "notes": notes}
    shown = views.checked(job.recipe, workers, job.cluster.name)
    return print_answer(Answer((shown, *notes), values, (flags.command("run"),)), as_json)


@app.command()
def plan(
    recipe: options.AnyRecipe = "",
    overrides: options.Overrides = None,
    on: options.On = "local",
    budget: Annotated[str, typer.Option(metavar="USD", help="At most so much money: 500usd.")] = "",
    deadline: Annotated[str, typer.Option(metavar="TIME", help="At most so long: 3d, 12h.")] = "",
    table: Annotated[bool, typer.Option("--table", help="Runs, published and our own, beside the plan.")] = False,
    scale: options.Scale = "",
    as_json: options.Json = False,
) -> int:
    """Memory of each device, time and cost of a whole run before anything is spent, and the layouts that are faster."""
    from orchestration import planning
    from orchestration.terminal import plans

    if budget and deadline:
        return refuse("plan: --budget and --deadline are both given; ask for one of them at a time", 2)
    if table:
        if recipe or budget or deadline or scale or on != "local":
            return refuse("plan: --table is of published runs and takes no recipe and no other flag but --json", 2)
        runs = list(planning.compared())
        own = list(planning.retold())
        values = {"runs": [run.values() for run in runs], "measured": [run.values() for run in own]}
        tables = plans.measured(own), plans.published(runs)
        return print_answer(Answer(tables, values, ("sesame plan gpt3_175b --on 1024xh100",)), as_json)
    if not recipe:
        return refuse("plan: name a recipe (`sesame recipes`), or ask for --table", 2)
    flags, job = _open(recipe, overrides, on=on, scale=scale)
    money = options.amount("--budget", budget, {"usd": 1.0, "": 1.0}, "500usd")
    within = options.amount("--deadline", deadline, {"d": 86_400.0, "h": 3_600.0, "m": 60.0}, "3d or 12h")
    found = planning.plan(job.recipe, job.cluster, budget=money, deadline_s=within)
    return print_answer(Answer((plans.shown(found),), found.values(), (flags.command("check"),)), as_json)


@app.command()
def corpus(
    context: typer.Context,
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    on: options.On = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    card: Annotated[bool, typer.Option("--card", help="Also a data card, as Markdown and HTML.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Also the finished training rows (static masking).")] = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    progress: options.Progress = "auto",
) -> int:
    """Make the vocabulary and the Arrow corpus by Beam, as CLUSTER says, or options of Beam after `--`."""
    from orchestration.jobs import stages
    from orchestration.terminal import views

    flags, job = _open(recipe, overrides, on=on, scale=scale, data=data, hold_out=hold_out, out=out)
    wanted = [*_plan(job)[:3], *(stages.rows(job.recipe, job.plan.corpus, out).values() if rows else ())]
    announce(wanted, _recognised(job))
    if dry_run:
        _check_beam(job, context.obj)
        return print_answer(planned(wanted, _again()), as_json)
    from orchestration.terminal import shown

    with shown(progress) as report:
        report({"stage": "importing Beam"})
        from orchestration.jobs import corpus as corpus_stage

        manifest = corpus_stage.corpus(job, context.obj, report, card)
        folders = corpus_stage.rows(job, context.obj, report) if rows else {}
    _warn_of_few_rows(job)
    folder = job.plan.corpus.folder
    values = {
        "folder": str(folder),
        "digest": manifest.digest,
        "splits": manifest.splits,
        "ledger": manifest.ledger.to_dict(),
        "rows": {length: str(made) for length, made in folders.items()},
    }
    made = [f"data card: {folder / name}" for name in (corpus_stage.data_card.NAMES if card else ())]
    made += [f"rows of {length} tokens: {path}" for length, path in folders.items()]
    next_ = (flags.command("train"), flags.command("inspect"), _ui(out))
    return print_answer(Answer((views.card(manifest), views.lines(made)), values, next_), as_json)


@app.command()
def train(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    on: options.On = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    resume: options.Resume = "allow",
    log_every: options.LogEvery = None,
    eval_every: options.EvalEvery = None,
    save_every: options.SaveEvery = None,
    profile: options.Profile = None,
    dashboard: options.Dashboard = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    progress: options.Progress = "auto",
) -> int:
    """Pretrain through Ray and DeepSpeed, on a corpus that is made; goes on by itself where it was stopped."""
    overrides = [*(overrides or ()), *_cluster_keys(log_every, eval_every, save_every, profile, dashboard)]
    flags, job = _open(recipe, overrides, on=on, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    due = _plan(job)[2:]
    notes = _refuse_what_cannot_be(job, resume)
    announce(due, [*_recognised(job), *notes])
    if dry_run:
        return print_answer(planned(due, _again()), as_json)
    from orchestration.terminal import shown, views

    _warn_of_few_rows(job)
    with shown(progress) as report:
        report({"stage": "importing"})
        from orchestration.jobs import pretrain as pretrain_stage

        result = pretrain_stage.train(job, resume, report)
    values = {"folder": str(job.plan.run.folder)} | result
    next_ = (flags.command("eval"), flags.command("inspect"), _ui(out))
    return print_answer(Answer((views.trained(job.plan.run.folder, result),), values, next_), as_json)


@app.command("eval")
def evaluate(
    run: options.Run,
    overrides: options.Overrides = None,
    tasks: options.Tasks = "",
    csv: options.Csv = None,
    data_dir: options.DataDir = None,
    grid: options.Grid = "",
    rates: options.Rates = "",
    batches: options.Batches = "",
    epochs: options.Epochs = "",
    steps: options.TuningSteps = 0,
    length: options.Length = 0,
    features: options.Features = None,
    seeds: options.GridSeeds = None,
    labels: options.Labels = "",
    against: options.Against = "nothing",
    submit: options.Submit = None,
    every: options.Every = 0,
    on: options.On = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    progress: options.Progress = "auto",
) -> int:
    """Score a finished run on downstream tasks, each on the grid of its paper; what is done is not done again."""
    with waiting("importing"):
        from orchestration.jobs import cluster_of, request, score_plan, stages, subject
        from orchestration.reports import score_rows, score_values
        from orchestration.terminal import views

    flags = _flags(run, overrides, on=on, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    cluster, net = cluster_of(flags), subject.subject_of(flags)
    named = request.asked_for(tasks or ("" if csv else subject.evals_of(flags)), csv or ())
    wanted = request.Wanted(
        tasks=named,
        data=data_dir,
        grid=grid,
        rates=options.numbers("--rates", rates, float),
        batches=options.numbers("--batches", batches, int),
        epochs=options.numbers("--epochs", epochs, float),
        steps=steps,
        length=length,
        features=features,
        seeds=seeds or 0,
        labels=options.numbers("--labels", labels, int, least=2),
        submit=submit is not None,
        against_random=against == "random",
        machine=cluster.engine,
    )
    with waiting("reading the files of the tasks"):
        nets = subject.at_steps(net, every) if every else [net]
        plan = score_plan.planned if tasks or csv else score_plan.fitting
        plans = [one for each in nets for one in plan(each, wanted)]
        score_plan.check_flags(plans, wanted)
    due = [plan.stage for plan in plans]
    announce(due, filter(None, dict.fromkeys([*(plan.said for plan in plans), stages.other_values(due)])))
    if dry_run:
        return print_answer(planned([plan.stage for plan in plans], _again()), as_json)
    from orchestration.terminal import shown

    with shown(progress) as report:
        report({"stage": "importing PyTorch"})
        from orchestration.jobs import evaluate as evaluate_stage

        left_out: list[SesameError] = []
        scores = evaluate_stage.evaluate(net.folder, plans, cluster, report, out, left_out)
        files = evaluate_stage.submit(plans, scores, submit) if submit else []
    values = {"folder": str(net.folder), "scores": score_values(scores), "submission": files}
    next_ = (_ui(out), *((flags.command("export"),) if net.corpus else ()))  # of ours
    code = left_out[0].exit_code if left_out else 0  # of tasks that were begun and have no score
    shown_ = views.scores(score_rows(scores)), views.examples(scores)
    return print_answer(Answer(shown_, values, next_, code), as_json)


@app.command("run")
def everything(
    context: typer.Context,
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    on: options.On = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
    seeds: options.Seeds = 3,
    labels: options.Labels = "",
    resume: options.Resume = "allow",
    log_every: options.LogEvery = None,
    eval_every: options.EvalEvery = None,
    save_every: options.SaveEvery = None,
    profile: options.Profile = None,
    dashboard: options.Dashboard = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    progress: options.Progress = "auto",
) -> int:
    """All stages: corpus, train, eval. What is done is skipped; what was made with other values is named."""
    labelled_rows = options.numbers("--labels", labels, int, least=2)
    overrides = [*(overrides or ()), *_cluster_keys(log_every, eval_every, save_every, profile, dashboard)]
    flags, job = _open(recipe, overrides, on=on, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    due = _plan(job)
    notes = _refuse_what_cannot_be(job, resume)
    announce(due, [*_recognised(job), *notes])
    if dry_run:
        _check_beam(job, context.obj)
        return print_answer(planned(due, _again()), as_json)
    from orchestration.terminal import shown, views

    with shown(progress) as report:
        report({"stage": "importing Beam"})
        from orchestration.jobs import corpus as corpus_stage

        manifest = corpus_stage.corpus(job, context.obj, report)
        report({"stage": "importing PyTorch"})
        from orchestration.jobs import pretrain as pretrain_stage
        from orchestration.jobs import ray_stages, request
        from orchestration.reports import score_rows, score_values

        wanted = request.Wanted(
            tasks=request.asked_for(job.recipe.eval_tasks),
            data=data_dir,
            seeds=seeds,
            labels=labelled_rows,
            against_random=True,
            machine=job.cluster.engine,
        )
        left_out: list[SesameError] = []
        result, scores = ray_stages.pretrain_and_evaluate(job, resume, report, wanted, left_out)
    written = pretrain_stage.samples_of(job.plan.run.folder)
    values = {
        "folder": str(job.plan.run.folder),
        "corpus": manifest.digest,
        "result": result,
        "samples": written,
        "scores": score_values(scores),
    }
    shown_ = (
        views.card(manifest),
        views.trained(job.plan.run.folder, result),
        views.scores(score_rows(scores)),
        views.samples(written) if written else views.examples(scores),
    )
    next_ = (
        _ui(out),
        flags.command("inspect"),
        flags.command("register", "--as", "NAME"),
        flags.command("export"),
    )
    code = left_out[0].exit_code if left_out else 0
    return print_answer(Answer(shown_, values, next_, code), as_json)


@app.command()
def table(
    name: options.AnyTable = "",
    overrides: options.Overrides = None,
    on: options.On = "local",
    scale: options.Scale = "tiny",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of each row.")] = 3,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    progress: options.Progress = "auto",
) -> int:
    """A table of the literature, small: its rows pretrained side by side, and whether the paper's order came out."""
    with waiting("importing"):
        from orchestration.reports.ablations import tables
        from orchestration.terminal import views

    if not name:
        values: dict[str, Any] = {one.name: {"title": one.title, "paper": one.paper} for one in tables.TABLES.values()}
        return print_answer(
            Answer((views.tables(tables.TABLES.values()),), values, ("sesame table albert-sp",)), as_json
        )
    from orchestration.terminal import shown

    compared, flags = (
        tables.named(name),
        _flags(name, overrides, on=on, scale=scale, data=data, hold_out=hold_out, out=out),
    )
    with waiting("importing Beam"):
        from orchestration.jobs import ablation as ablation_job
    with waiting("looking at what there is of its runs"):
        plan = ablation_job.plan(compared, flags, seeds)
        notes = [note for cell in plan.cells for note in _refuse_what_cannot_be(cell.job, "allow")]
    announce((), dict.fromkeys(notes))
    next_ = _ui(out)
    if dry_run:
        lines = [cell.said() for cell in plan.cells]
        return print_answer(Answer((views.lines(lines),), {"cells": lines}, (_again(),)), as_json)
    with shown(progress) as report:
        values = ablation_job.make(plan, report)
    if not as_json:
        print((plan.stage.folder / ablation_job.PAGE).read_text(encoding="utf-8"))
    return print_answer(Answer((), values | {"folder": str(plan.stage.folder)}, (next_,)), as_json)


@app.command()
def inspect(
    run: options.RunOrRecipe,
    overrides: options.Overrides = None,
    step: Annotated[int, typer.Option(metavar="N", min=0, help="The step whose batch is shown.")] = 0,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="How many rows of it.")] = 4,
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> int:
    """The very rows that the model sees at a step, decoded; masked tokens are marked, their labels behind them."""
    with waiting("importing"):
        from orchestration.jobs import pretrain as pretrain_stage
        from orchestration.terminal import inspect as inspection

    flags = _flags(run, overrides, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    with waiting("making the rows"):
        found = inspection.samples(pretrain_stage.run_of(flags), step, rows)
    values = {"samples": [sample.plain() for sample in found]}
    return print_answer(
        Answer((inspection.shown(found),), values, (flags.command("inspect", "--step", str(step + 1)),)), as_json
    )


@app.command()
def export(
    run: options.Run,
    folder: options.NewFolder,
    overrides: options.Overrides = None,
    to: Annotated[Literal["hf"], typer.Option(help="For `from_pretrained` of transformers.")] = "hf",
    heads: Annotated[bool, typer.Option(help="Heads too; without them, AutoModel takes all of it.")] = True,
    license: Annotated[str, typer.Option(metavar="ID", help="Of the weights, for the model card.")] = "unknown",
    push: Annotated[str, typer.Option(metavar="REPO", help="Also to this repository of the hub.")] = "",
    step: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of a kept step, finished or not. [default: the end]")
    ] = 0,
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> int:
    """Copy the weights, configuration and tokenizer of a run to where `transformers` loads them from."""
    with waiting("importing PyTorch"):
        from orchestration.jobs import pretrain as pretrain_stage
        from orchestration.terminal import views
        from training.formats import auto_class

    flags = _flags(run, overrides, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    run_folder = pretrain_stage.run_folder(flags)
    with waiting(f"writing {folder}" + (f", then pushing it to {push}" if push else "")):
        files, becomes, address = pretrain_stage.export(
            run_folder, folder, heads=heads, license=license, repo=push, step=step
        )
    said = [f"{folder}: {', '.join(files)}", f"to transformers it is a {becomes}"]
    said += [f"pushed, in a private repository where it is a new one: {address}"] if address else []
    auto = auto_class(becomes.split(",")[0])
    loads = _python(f"from transformers import {auto}; {auto}.from_pretrained({_literal(str(folder))})")
    values = {"folder": str(folder), "files": files, "is": becomes, "auto_class": auto, "pushed": address}
    return print_answer(Answer((views.lines(said),), values, (loads,)), as_json)


@app.command()
def sample(
    run: options.Run,
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="What the net goes on from.")],
    max_new: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of each at most.")] = 64,
    greedy: Annotated[bool, typer.Option("--greedy", help="The most probable token, each time.")] = False,
    beams: Annotated[int | None, typer.Option(metavar="N", min=1, help="The best row of so many.")] = None,
    temperature: Annotated[float | None, typer.Option(metavar="X", help="Scores are divided by it.")] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="From the N most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(metavar="P", help="From the fewest tokens that have P in all.")] = None,
    masked: Annotated[
        Literal["", "gibbs", "mask_predict"],
        typer.Option(metavar="gibbs|mask_predict", help="Fill in --max-new masks, at ___ or behind the prompt."),
    ] = "",
    novelty: Annotated[bool, typer.Option("--novelty", help="Say what of it the corpus has, and where.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of the recipe that was trained; repeatable.")
    ] = None,
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    draw: Annotated[int, typer.Option(metavar="N", min=0, help="Another sample; the same N gives the same.")] = 0,
    as_json: options.Json = False,
) -> int:
    """What a trained net writes behind each PROMPT; with an encoder, for each PROMPT as its source."""
    with waiting("importing PyTorch"):
        from orchestration.jobs import sample as sample_stage
        from orchestration.jobs.subject import folder_of
        from orchestration.terminal import views

    flags = _flags(run, overrides, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    folder = folder_of(flags)
    given = {"greedy": greedy or None, "beams": beams, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    values = {name: value for name, value in given.items() if value is not None}
    with waiting("writing"):
        ways: dict[str, Any] = {"masked": masked, "novelty": novelty}
        found = sample_stage.sample(folder, prompts, values=values, max_new=max_new, seed=draw, **ways)
    said = [sample_stage.said(one, masked) for one in found]
    said += [sample_stage.novelty_said(one["novelty"]) for one in found if novelty]
    said += sample_stage.begins_said(found)
    next_ = (flags.command("inspect"),) if sample_stage.of_ours(folder) else ()
    return print_answer(Answer((views.lines(said),), {"folder": str(folder), "samples": found}, next_), as_json)


@app.command()
def register(
    run: options.Run,
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="In MLflow's model registry; made where missing.")],
    overrides: options.Overrides = None,
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> int:
    """Make the model of a finished run the next version of NAME in MLflow's model registry."""
    with waiting("importing"):
        from orchestration.jobs import pretrain as pretrain_stage
        from orchestration.terminal import views

    flags = _flags(run, overrides, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    with waiting("asking MLflow"):
        found = pretrain_stage.register(flags, name)
    said = f"{name}: version {found.number}" + ("" if found.is_new else ", registered before")
    predict = f"import mlflow; print(mlflow.pyfunc.load_model({found.uri!r}).predict({found.example!r}))"
    next_ = (
        shlex.join(["env", f"MLFLOW_TRACKING_URI={found.store}", "python", "-c", predict]),
        _ui(out),
    )
    return print_answer(Answer((views.lines([said]),), dataclasses.asdict(found), next_), as_json)


@app.command()
def submit(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    address: options.Address = "",
    stages: Annotated[
        Literal["run", "train"], typer.Option(help="All stages, or pretraining on a made corpus.")
    ] = "run",
    on: options.On = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    hold_out: options.HoldOut = None,
    out: options.Out = WORK,
    seed: options.Seed = None,
    again: Annotated[bool, typer.Option("--again", help="Also where a job has done it already.")] = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> int:
    """Send a recipe to a running Ray cluster, which sees --out and --data as this machine does; once, not twice."""
    flags, job = _open(recipe, overrides, on=on, scale=scale, data=data, hold_out=hold_out, out=out, seed=seed)
    environment.resolved(job.cluster.env, os.environ)  # what is lacking is said before anything is asked
    from orchestration.jobs import open_job, submission
    from orchestration.terminal import views

    with waiting("importing Ray"):
        from orchestration.launch import JobServer, server_url

        url = server_url(address)
        with waiting(f"asking {url}"):
            server = JobServer(url)
            known = server.jobs()
            name, done = submission.next_attempt(submission.identity(job, flags, stages), known, again)
            sent = flags if done else submission.sized(flags, job, server)
    notes = [] if done else submission.refuse_what_does_not_fit(job if sent is flags else open_job(sent))
    if not dry_run:
        submission.remove_left(job.out, known)
    command = submission.command(sent, stages)
    values = {"job": name, "address": url, "command": command, "submitted": not (done or dry_run), "notes": notes}
    if done:
        said = f"{name} has done this already, nothing is sent; --again sends it anew"
        return print_answer(Answer((views.lines([said]),), values, (_of_job("logs", name, address),)), as_json)
    if dry_run:
        said = f"would send {name}: {command}"
        return print_answer(Answer((views.lines([said, *notes]),), values, (_again(),)), as_json)
    with waiting(f"sending {name}"), submission.sent_environment(job, name) as variables:
        server.submit(name, command, variables)
    next_ = (_of_job("logs", name, address, "--follow"), *(_of_job(verb, name, address) for verb in ("status", "stop")))
    return print_answer(Answer((views.lines([f"{name}: sent to {url}", *notes]),), values, next_), as_json)


@app.command()
def status(job: options.AnyJob = "", address: options.Address = "", as_json: options.Json = False) -> int:
    """The jobs of a cluster, or one of them: whether it runs, since when, and how it ended."""
    from orchestration.terminal import views

    server = _jobs_of(address)
    found = [server.job(job)] if job else server.jobs()
    values = {"address": server.url, "jobs": [dataclasses.asdict(one) for one in found]}
    next_ = (
        [_of_job("logs", found[-1].id, address)] if found else [_quoted("submit", "bert_base", "--address", server.url)]
    )
    return print_answer(Answer((views.submitted(found),), values, tuple(next_)), as_json)


@app.command()
def logs(
    job: options.JobId,
    address: options.Address = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until it ends; its exit code is ours then.")] = False,
    as_json: options.Json = False,
) -> int:
    """What a job of a cluster has written, its stdout and its stderr."""
    if follow and as_json:
        raise BadInput("--follow writes as the job does, --json is one document at the end: give one of them")
    server = _jobs_of(address)
    if not follow:
        text = server.logs(job)
        if as_json:
            return print_answer(Answer((), {"job": job, "logs": text}, (_of_job("status", job, address),)), as_json)
        print(text, end="", flush=True)
        return 0
    server.follow(job, lambda text: print(text, end="", flush=True))
    ended = server.ended(job)
    print(f"{job}: {ended.status}  next  {_of_job('status', job, address)}", file=sys.stderr)
    return 0 if ended.status == "SUCCEEDED" else ended.exit_code or ResourceError.exit_code


@app.command()
def stop(job: options.JobId, address: options.Address = "", as_json: options.Json = False) -> int:
    """End a job of a cluster as SIGTERM does: training writes a checkpoint first; sent again, it goes on from there."""
    from orchestration.jobs import submission
    from orchestration.terminal import views

    server = _jobs_of(address)
    left = server.variable(job, environment.FILE)
    was_running = server.stop(job)
    with waiting(f"waiting for {job} to write a checkpoint and end"):
        ended = server.ended(job)
    submission.remove_left_for(job, left)
    said = f"{job}: {ended.status}" + ("" if was_running else ", it had ended before")
    values = {"job": job, "status": ended.status, "stopped": was_running}
    return print_answer(Answer((views.lines([said]),), values, (_of_job("logs", job, address),)), as_json)


@app.command()
def doctor(
    out: options.Out = WORK,
    on: options.On = "local",
    port: options.Port = 5000,
    as_json: options.Json = False,
) -> int:
    """Look at this machine: versions, compiler, /dev/shm, disk, ports, Ray and MLflow, each with its remedy."""
    from orchestration.config import load_cluster
    from orchestration.terminal import doctor as checkup
    from orchestration.terminal import views

    def ask(address: str) -> str:
        from orchestration.launch import reachable

        return reachable(address)

    def ask_store(uri: str) -> tuple[str, str]:
        from orchestration.tracking import examined

        return examined(uri)

    with waiting("looking at this machine"):
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        found = checkup.examine(out, load_cluster(on).ray_address, uri, port, ask, ask_store)
    values = {"findings": [dataclasses.asdict(finding) for finding in found]}
    exit_code = 4 if any(finding.fatal and finding.remedy for finding in found) else 0
    return print_answer(
        Answer((views.findings(found),), values, ("sesame run bert_base --scale tiny",), exit_code), as_json
    )


@app.command()
def ui(out: options.Out = WORK, port: options.Port = 5000) -> int:
    """Serve the MLflow UI of everything under DIR, on this machine only; Ctrl-C ends it."""
    from orchestration.tracking import server

    return server.ui(out, port)


def _cluster_keys(
    log_every: int | None, eval_every: int | None, save_every: int | None, profile: int | None, dashboard: bool
) -> list[str]:
    """The flags that are short for keys of the cluster, as these."""
    given: dict[str, int | str | None] = {"log_every": log_every, "eval_every": eval_every, "save_every": save_every}
    given |= {"profile_steps": profile, "ray_dashboard": "true" if dashboard else None}
    return [f"cluster.{key}={value}" for key, value in given.items() if value is not None]


def _again() -> str:
    """The command line as it was typed; a dry run's without `--dry-run`, which is what it speaks of."""
    return shlex.join(_again_in_words())


def _again_in_words() -> list[str]:
    return ["sesame", *(word for word in _typed.get() if word != "--dry-run")]


def _jobs_of(address: str) -> "JobServer":
    """The jobs of the cluster that --address or the environment names."""
    with waiting("asking the cluster"):
        from orchestration.launch import JobServer, server_url

        return JobServer(server_url(address))


def _of_job(verb: str, job: str, address: str, *more: str) -> str:
    """The command line that does `verb` with a job of a cluster."""
    return _quoted(verb, job, *more, *(["--address", address] if address else []))


def _quoted(*words: str) -> str:
    """The command line of `sesame` with these words, which may have blanks."""
    return shlex.join(["sesame", *words])


def _python(code: str) -> str:
    """The command line that runs a line of Python."""
    return f"python -c {shlex.quote(code)}"


def _literal(text: str) -> str:
    """A string of Python in double quotes: a command line has the single ones around it."""
    return json.dumps(text, ensure_ascii=False)


def _ui(out: Path) -> str:
    """The command line that shows the runs of a folder."""
    return _quoted("ui", "--out", str(out))


def _flags(recipe: str, overrides: Sequence[str] | None, **given: Any) -> "Flags":
    with waiting("importing"):
        from orchestration.jobs import Flags

    kept = shlex.join(without_credentials(_again_in_words()))
    given |= {"data": given.get("data") or (), "command_line": kept}
    return Flags(recipe=recipe, overrides=overrides or (), **given)


def _open(recipe: str, overrides: Sequence[str] | None, **given: Any) -> tuple["Flags", "Job"]:
    flags = _flags(recipe, overrides, **given)
    from orchestration.jobs import open_job

    with waiting("reading the recipe"):
        return flags, open_job(flags)


def _plan(job: "Job") -> "Plan":
    """The stages of a job; a folder of many files takes its time."""
    with waiting("looking at the text"):
        return job.plan


def _recognised(job: "Job") -> list[str]:
    """What a job has understood of its text and of its cluster, in lines."""
    from orchestration.config import without_effect

    with waiting("looking at the text"):
        few = job.foreseen
    return [*job.recognised, *few, *without_effect(job.cluster)]


def _refuse_what_cannot_be(job: "Job", resume: str) -> list[str]:
    """Before anything is announced or made, unless the run is done: BadInput where `env` lacks a variable,
    ResourceError where GPUs are missing here, or a device has less memory than is asked of it. What was assumed of the
    devices, in lines."""
    from orchestration import planning

    if job.plan.run.state == "done" and resume != "never":
        return []
    environment.resolved(job.cluster.env, os.environ)
    return planning.refuse_what_cannot_be(job.recipe, job.cluster)


def _check_beam(job: "Job", given: Sequence[str]) -> None:
    """What Beam says of the options of a cluster and those behind `--`; it is not imported where there are none."""
    if words := [*job.cluster.beam.arguments, *given]:
        with waiting("importing Beam"):
            from pipeline.runners import check_here

        check_here(words)


def _warn_of_few_rows(job: "Job") -> None:
    """Which tasks have too little held-out text."""
    from orchestration.jobs import hold_out

    with waiting(hold_out.STAGE):
        hold_out.tasks_without_text(job.plan.corpus, job.recipe.eval_tasks)


def _empty_folder(words: Sequence[str]) -> str:
    """Which folder to write to is given as no text at all, which Path takes for the current one; else "".

    >>> _empty_folder(["run", "gpt2", "--out", ""]), _empty_folder(["export", "gpt2", ""]), _empty_folder(["--out=."])
    ('--out', 'DIR', '')
    """
    for option in ("--out", "--submit"):
        if f"{option}=" in words or (option, "") in pairwise(words):
            return option
    return "DIR" if words[:1] == ["export"] and "" in words[1:] else ""


def _usage(error: TyperException) -> str:
    """What was typed wrong, in one line; a key that was written as an option is answered as such."""
    from orchestration.config import key_of

    option = getattr(error, "option_name", "") or ""
    if key := key_of(option.lstrip("-").replace("-", "_")):
        return f"no such option: {option}; here it is a key: write {key}=VALUE"
    said = error.format_message().replace("\n", " ")
    for pattern, ours in _PYDANTIC.items():
        said = re.sub(pattern, ours, said)
    return said


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own where none is given; its exit code. Beam's options follow `--`."""
    BEGAN_S.set(perf_counter())
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, beam = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    if beam and ours[:1] not in (["corpus"], ["run"]):
        return refuse("options after `--` are for Beam: only corpus and run take them", 2)
    if is_plain():
        os.environ["TERM"] = "dumb"  # to rich and typer, and to whatever is started: text and nothing else
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    if empty := _empty_folder(ours):
        return refuse(f"{empty} is empty, as a variable that is not set; give a folder: . is this one", 2)
    try:
        environment.take()
        environment.use_own_caches()
        command = typer.main.get_command(app)
        if COMPLETE in os.environ:
            command(prog_name="sesame")
        with command.make_context("sesame", ours or ["--help"], obj=beam) as context:
            _typed.set(tuple(given))
            with signals_raise():
                return int(command.invoke(context) or 0)
    except typer.Exit as asked_for_help:
        return asked_for_help.exit_code
    except TyperException as error:
        return refuse(_usage(error), 2)
    except SesameError as error:
        return refuse(str(error), error.exit_code)
    except KeyboardInterrupt as error:
        return refuse(str(error) or "interrupted", 130)
    except BrokenPipeError:  # whoever read stdout has seen enough; rich ends in the same way
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        return refuse(missing_module(error), ResourceError.exit_code)
    except Exception as error:
        said, exit_code = system_errors.said(error)
        if not said:
            raise
        return refuse(said, exit_code)


if __name__ == "__main__":
    sys.exit(main())
