"""sesame recipes"""

import dataclasses
from typing import Annotated, Any

import typer

from orchestration.cli import options
from orchestration.cli.shared import command
from orchestration.terminal import CommandResult, print_answer


def recipes(
    recipe: options.AnyRecipe = "",
    overrides: options.Overrides = None,
    diff: options.OtherRecipe = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all recipes as a Markdown table.")] = False,
    scale: options.Scale = "",
    as_json: options.Json = False,
) -> int:
    """List all recipes, show one with its parameter count, or compare two."""
    from orchestration.config import list_names, load
    from orchestration.reports import describe_difference, family
    from orchestration.terminal import views

    values: dict[str, Any]
    if not recipe:
        found = family.sort_recipes(load(name, scale=scale) for name in list_names("recipes"))
        if markdown and not as_json:
            print(family.markdown(found))
            return 0
        more = {one.name: {"oracle": family.oracle(one)} if markdown else {} for one in found}
        values = {one.name: {**family.row(one), **more[one.name], "hash": one.hash} for one in found}
        return print_answer(
            CommandResult((views.recipes(found),), values, (command("recipes", found[0].name),)), as_json
        )
    one = load(recipe, overrides or (), scale)
    if not diff:
        values = dataclasses.asdict(one) | {"hash": one.hash, "parameters": family.count_parameters(one)}
        return print_answer(CommandResult((views.recipe(one),), values, (command("check", recipe),)), as_json)
    other = load(diff, scale=scale)
    lines = describe_difference(one, other)
    values = {"from": one.name, "to": other.name, "differences": lines}
    return print_answer(
        CommandResult((views.difference(one, other, lines),), values, (command("check", diff),)), as_json
    )
