"""Phases whose length is a number of epochs: their steps follow from the number of batches of one epoch."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestration.config.recipe import Recipe
from preprocessing.errors import BadInput
from training.specs import Phase


def has_epochs(recipe: Recipe) -> bool:
    """Whether the length of a phase is a number of epochs."""
    return any(phase.epochs for phase in recipe.phases)


def without_epochs(overrides: Sequence[str]) -> list[str]:
    """The overrides without those that set the epochs of a phase.

    >>> without_epochs(["phases.0.epochs=3", "seed=1", "phases.1={seq_length: 8, epochs: 1}"])
    ['seed=1']
    """
    return [given for given in overrides if not re.match(r"phases\.\d+[.=].*\bepochs\b", given, re.DOTALL)]


def refuse_epochs(recipe: Recipe, where: str) -> None:
    """BadInput if the length of a phase is a number of epochs, because a command without text cannot convert it."""
    for number, phase in enumerate(recipe.phases):
        if phase.epochs:
            raise BadInput(
                f"{where}: invalid phases.{number}.epochs: got {phase.epochs:g}, expected steps, because this command "
                f"reads no text; set phases.{number}.steps"
            )


def resolve_epochs(recipe: Recipe, count_batches: Callable[[Phase], float]) -> Recipe:
    """The recipe with steps instead of epochs. `count_batches` returns the number of batches of one epoch.

    An incomplete last batch counts as a step, as in the Trainer of `transformers`.
    """
    phases = [
        replace(phase, steps=max(1, math.ceil(phase.epochs * count_batches(phase))), epochs=0.0)
        if phase.epochs
        else phase
        for phase in recipe.phases
    ]
    return replace(recipe, phases=tuple(phases))


def describe_epochs(declared: Recipe, resolved: Recipe, is_estimate: bool) -> list[str]:
    """The steps of each phase whose length is a number of epochs, one line each."""
    about, why = ("about ", "; the exact number follows from the corpus") if is_estimate else ("", "")
    return [
        f"phases.{number}: {one.epochs:g} epochs are {about}{phase.steps:,} steps of {phase.global_batch_size:,} "
        f"sequences{why}"
        for number, (one, phase) in enumerate(zip(declared.phases, resolved.phases, strict=True))
        if one.epochs
    ]
