"""Shortens a recipe to a number of steps: all phases, their warm-up and the decay in proportion. A warm-up that has
more steps than the epochs of the user is shortened too."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import accumulate, pairwise

from orchestration.config.overrides import origin
from orchestration.config.recipe import Recipe
from preprocessing.errors import BadInput
from training.optimizers import cycles


def shorten(recipe: Recipe, steps: int, name: str = "--max-steps") -> list[str]:
    """Overrides that shorten a recipe to `steps` steps; [] if it has as many.

    Raises BadInput, which calls the number `name`, if the recipe has fewer steps.
    """
    total = recipe.num_steps
    if not 1 < steps <= total:
        raise BadInput(f"invalid {name}: got {steps}, expected 2 to {total:,}, the steps of the recipe; change it")
    if steps == total:
        return []
    upto = [round(steps * stop / total) for stop in accumulate(phase.steps for phase in recipe.phases)]
    counts = [stop - start for start, stop in pairwise([0, *upto])]
    phases = [
        asdict(phase) | {"steps": count, "warmup_steps": phase.warmup_steps and _part(phase.warmup_steps, steps, total)}
        for phase, count in zip(recipe.phases, counts, strict=True)
        if count
    ]
    optimizer = recipe.optimizer
    warmup = min(optimizer.warmup_steps, _part(optimizer.warmup_steps, steps, total))
    short = [f"phases={json.dumps(phases)}", f"optimizer.warmup_steps={warmup}"]
    if optimizer.lr_decay_steps:
        decay = max(warmup + 1, _part(optimizer.lr_decay_steps, steps, total))
        short.append(f"optimizer.lr_decay_steps={decay}")
    if optimizer.num_decay_steps >= 1:
        short.append(f"optimizer.num_decay_steps={_part(int(optimizer.num_decay_steps), steps, total)}")
    return short


def _part(count: int, steps: int, total: int) -> int:
    """
    >>> _part(10_000, 100, 1_000_000), _part(200, 60, 400)
    (1, 30)
    """
    return max(1, count * steps // total)


def describe_shortening(recipe: Recipe, short: Recipe) -> str:
    """The steps and warm-up of a shortened recipe, as a note of one line."""
    phases = ", ".join(f"{phase.steps:,}" for phase in short.phases)
    several = f" in phases of {phases}" if len(short.phases) > 1 else ""
    warmup = f"{recipe.optimizer.warmup_steps:,} -> {short.optimizer.warmup_steps:,}"
    return f"--max-steps: {short.num_steps:,} of {recipe.num_steps:,} steps{several}; warm-up {warmup} steps"


def fit_warmup(recipe: Recipe, whole: Recipe, overrides: Sequence[str]) -> tuple[Recipe, list[str]]:
    """A recipe whose epochs became steps, with each warm-up that is too long in proportion, and a note on each.

    `whole` is the recipe with its own steps. A warm-up that `overrides` set does not change.
    """
    before = cycles(whole.optimizer, whole.phases)
    now = cycles(recipe.optimizer, recipe.phases)
    peaks = [number for number, phase in enumerate(recipe.phases) if phase.learning_rate]
    keys = ["optimizer.warmup_steps", *(f"phases.{number}.warmup_steps" for number in peaks)]
    phases, optimizer, notes = list(recipe.phases), recipe.optimizer, list[str]()
    for number, (key, old, new) in enumerate(zip(keys, before, now, strict=True)):
        if not 0 < new.total <= new.warmup_steps < old.total or origin(key, overrides, ""):
            continue
        warmup = min(_part(new.warmup_steps, new.total, old.total), new.total - 1)
        if number == 0:
            optimizer = replace(optimizer, warmup_steps=warmup)
        else:
            phases[peaks[number - 1]] = replace(phases[peaks[number - 1]], warmup_steps=warmup)
        notes.append(
            f"{key}: {new.warmup_steps:,} -> {warmup:,}, because the run has {new.total:,} instead of "
            f"{old.total:,} steps; set it to change this"
        )
    return replace(recipe, optimizer=optimizer, phases=tuple(phases)), notes
