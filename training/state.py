"""What a run is between two steps, and what comes of a step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from training.engines import StepResult
from training.meter import BatchWork

Sums = Mapping[str, Mapping[str, float]]
"""By kind of a loss: its sums by name, and under `targets` their number."""


@dataclass(frozen=True)
class State:
    """What survives a crash beside weights and optimiser; the data's own state is the step."""

    step: int = 0  # updates done, skipped ones included
    tokens: int = 0  # read by all workers, without padding
    skipped: int = 0  # updates that were not made: without a finite gradient, or of batches to skip
    skipped_in_row: int = 0
    sums: Sums = field(default_factory=dict)  # of the updates since the losses were last logged
    loss: float = math.nan  # when it was last logged
    evaluation: dict[str, float] = field(default_factory=dict)  # when it was last done
    skip_steps: tuple[int, ...] = ()  # whose batches are not learned from, counted from 1: as given, or as found
    recent_losses: tuple[float, ...] = ()  # of the last updates, for spikes; empty where the policy is off
    recent_norms: tuple[float, ...] = ()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "State":
        """The state that was stored as JSON."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class Update:
    """What came of the batches of a step."""

    result: StepResult
    loss: float = math.nan  # known where spikes are looked for
    sums: Sums = field(default_factory=dict)  # of this step, where spikes are looked for; else they are in the tally
    is_read: bool = True  # False: the batches were not looked at


NOT_MADE = Update(StepResult(math.nan, skipped=True), is_read=False)


def advance(state: State, work: BatchWork, update: Update) -> State:
    """The state after the work of a step, whether its update was made or not."""
    skipped, diverges = update.result.skipped, update.result.skipped and not update.result.overflow
    return replace(
        state,
        step=state.step + 1,
        tokens=state.tokens + work.read,
        skipped=state.skipped + skipped,
        skipped_in_row=state.skipped_in_row + update.is_read if diverges else 0,
    )
