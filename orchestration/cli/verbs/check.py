"""sesame check"""

import os

from orchestration import environment
from orchestration.cli import options
from orchestration.cli.groups import TextOptions
from orchestration.cli.shared import check_initial_weights, open_flags
from orchestration.terminal import CommandResult, announce, print_answer


def check(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    cluster: options.ClusterName = "local",
    scale: options.Scale = "",
    data: options.Data = None,
    holdout_ratio: options.HoldoutRatio = None,
    max_steps: options.MaxTrainSteps = None,
    as_json: options.Json = False,
) -> int:
    """Validate a recipe on a cluster, without text and without a GPU."""
    from orchestration import planning
    from orchestration.config import find_ignored_keys, find_remarks
    from orchestration.jobs import remind_of_vocabulary
    from orchestration.terminal import views

    flags, job = open_flags(
        recipe, overrides, TextOptions(scale, data, holdout_ratio), cluster=cluster, max_steps=max_steps
    )
    workers = job.cluster.count_workers(job.recipe)
    environment.resolve(job.cluster.env, os.environ)
    check_initial_weights(job)
    notes = [*job.mixture_notes, *planning.refuse_what_does_not_fit(job.recipe, job.cluster)]
    warnings = [*find_ignored_keys(job.cluster), *remind_of_vocabulary(job.recipe)]
    announce((), [*warnings, *find_remarks(job.recipe, job.cluster)])
    layout = planning.describe_layout(job.recipe, job.cluster)
    values = {"recipe": job.recipe.name, "hash": job.recipe.hash, "workers": workers, "layout": layout, "notes": notes}
    shown = views.format_check(job.recipe, workers, job.cluster.name, is_estimate=job.has_estimated_steps)
    return print_answer(CommandResult((shown, f"layout  {layout}", *notes), values, (flags.command("run"),)), as_json)
