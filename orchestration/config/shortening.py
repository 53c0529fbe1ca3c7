"""Shortens a recipe to a number of steps: all phases, their warm-up and the decay in proportion."""

import json
from dataclasses import asdict
from itertools import accumulate, pairwise

from orchestration.config.recipe import Recipe
from preprocessing.errors import BadInput


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
