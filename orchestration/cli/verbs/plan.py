"""sesame plan"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.groups import TextOptions
from orchestration.cli.shared import command, open_flags
from orchestration.terminal import CommandResult, print_answer, print_error
from preprocessing.errors import BadInput, ResourceError


def plan(
    recipe: options.AnyRecipe = "",
    overrides: options.Overrides = None,
    cluster: options.ClusterName = "local",
    budget: Annotated[str, typer.Option(metavar="USD", help="Spend at most this much, e.g. 500usd.")] = "",
    deadline: Annotated[str, typer.Option(metavar="TIME", help="Finish within this time, e.g. 3d, 12h.")] = "",
    published: Annotated[
        bool, typer.Option("--published", help="Compare the planner with published and measured runs.")
    ] = False,
    compute_optimal: Annotated[
        str | None,
        typer.Option(
            metavar="FLOPS", help="Print the best number of parameters and tokens for these FLOPs, e.g. 1e21."
        ),
    ] = None,
    scale: options.Scale = "",
    max_steps: options.MaxTrainSteps = None,
    as_json: options.Json = False,
) -> int:
    """Predict memory per device, time and cost of a run, and suggest faster parallel layouts."""
    from orchestration import planning
    from orchestration.terminal import plans

    if compute_optimal is not None:
        given = {"--published": published, "--budget": budget, "--deadline": deadline, "--cluster": cluster != "local"}
        of_recipe = {"--scale": bool(scale), "--max-steps": max_steps is not None}
        _refuse_other_options(given, {} if recipe else of_recipe)
        named = open_flags(recipe, overrides, TextOptions(scale), max_steps=max_steps)[1].recipe if recipe else None
        limits = planning.LEAST_FLOPS, planning.MOST_FLOPS
        optimum = planning.find_compute_optimum(
            options.parse_flops("--compute-optimal", compute_optimal, *limits), named
        )
        nearest = optimum.optima[0].nearest
        next_words = [nearest[0]] if nearest else ["gpt2", "--compute-optimal", compute_optimal]
        shown = plans.view_compute_optimum(optimum)
        return print_answer(CommandResult((shown,), optimum.values(), (command("plan", *next_words),)), as_json)
    if budget and deadline:
        return print_error("invalid --deadline: got --budget too, expected only one of them; remove one", 2)
    if published:
        if recipe or budget or deadline or scale or cluster != "local":
            return print_error(
                "invalid --published: got other arguments, expected --json at most; remove the others", 2
            )
        runs = list(planning.compare_published_runs())
        measured = list(planning.predict_timed_steps())
        values = {"runs": [run.values() for run in runs], "measured": [run.values() for run in measured]}
        tables = plans.view_timed_steps(measured), plans.view_published_runs(runs)
        return print_answer(CommandResult(tables, values, ("sesame plan gpt3_175b --cluster 1024xh100",)), as_json)
    if not recipe:
        return print_error("invalid RECIPE: got no value, expected a recipe or --published; see `sesame recipes`", 2)
    flags, job = open_flags(recipe, overrides, TextOptions(scale), cluster=cluster, max_steps=max_steps)
    money = options.parse_amount("--budget", budget, {"usd": 1.0, "": 1.0}, "500usd")
    within = options.parse_amount("--deadline", deadline, {"d": 86_400.0, "h": 3_600.0, "m": 60.0}, "3d or 12h")
    found = planning.estimate_run(job.recipe, job.cluster, budget=money, deadline_s=within)
    use = found.wanted or (found.better[0] if found.why_not and found.better else None)
    chosen = dataclasses.replace(flags, overrides=replace_keys(flags.overrides, found.overrides(use) if use else ()))
    next_ = () if found.why_not and not use else (chosen.command("check"),)
    code = ResourceError.exit_code if found.why_not else 0
    return print_answer(CommandResult((plans.view_plan(found),), found.values(), next_, code), as_json)


def _refuse_other_options(given: Mapping[str, object], of_recipe: Mapping[str, bool]) -> None:
    """Raise BadInput if --compute-optimal is combined with options of another plan, or of a recipe without one."""
    for option, value in given.items():
        if value:
            raise BadInput(
                f"invalid --compute-optimal: got {option} too, expected RECIPE and its options at most; remove {option}"
            )
    for option, value in of_recipe.items():
        if value:
            raise BadInput(f"invalid {option}: got no RECIPE, expected one; name a recipe, or remove {option}")


def replace_keys(overrides: Sequence[str], new: Sequence[str]) -> list[str]:
    """The overrides without those whose keys `new` sets, and then `new`.

    >>> replace_keys(["cluster.num_workers=64", "seed=1"], ["cluster.num_workers=16"])
    ['seed=1', 'cluster.num_workers=16']
    """
    keys = {override.partition("=")[0] for override in new}
    return [*(override for override in overrides if override.partition("=")[0] not in keys), *new]
