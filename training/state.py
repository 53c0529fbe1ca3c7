"""The state of a run between two steps, and the result of a step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from training.engines import StepResult
from training.meter import BatchWork

Sums = Mapping[str, Mapping[str, float]]
"""Sums by kind of loss and by name; `targets` is the number of targets."""


@dataclass(frozen=True)
class State:
    """The state in a checkpoint, in addition to weights and optimizer states. The position in the data is the step."""

    step: int = 0  # completed updates, including skipped ones
    tokens: int = 0  # tokens read by all workers, without padding
    skipped: int = 0  # skipped updates: their gradient was not finite, or their batches are in skip_steps
    skipped_in_row: int = 0
    sums: Sums = field(default_factory=dict)  # sums of the updates since the last log
    loss: float = math.nan  # last logged training loss
    evaluation: dict[str, float] = field(default_factory=dict)  # metrics of the last evaluation
    skip_steps: tuple[
        int, ...
    ] = ()  # steps whose batches are skipped, counted from 1: from the cluster file, and after spikes
    recent_losses: tuple[float, ...] = ()  # losses of the last updates, for spikes; empty if the policy is off
    recent_norms: tuple[float, ...] = ()
    best: dict[str, float] = field(default_factory=dict)  # best evaluation; {} if the run does not track it (best.py)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "State":
        """The state from the JSON in a checkpoint."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class Update:
    """The result of a step."""

    result: StepResult
    loss: float = math.nan  # loss of this step, if spikes are detected
    sums: Sums = field(
        default_factory=dict
    )  # sums of this step, if spikes are detected; otherwise they are in the tally
    is_read: bool = True  # False: the batches were skipped without a forward pass


NOT_MADE = Update(StepResult(math.nan, skipped=True), is_read=False)


def advance(state: State, work: BatchWork, update: Update) -> State:
    """The state after a step, whether its update was applied or skipped."""
    skipped = update.result.skipped
    diverges = skipped and not update.result.overflow
    return replace(
        state,
        step=state.step + 1,
        tokens=state.tokens + work.read,
        skipped=state.skipped + skipped,
        skipped_in_row=state.skipped_in_row + update.is_read if diverges else 0,
    )
