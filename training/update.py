"""The result of a step, and the state after it."""

import math
from dataclasses import dataclass, field, replace

from training.engines import StepResult
from training.meter import BatchWork
from training.state import State, Sums


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


def advance(state: State, work: BatchWork) -> State:
    """The state after a step, whether its update was applied or skipped. `count_skipped` adds which of them it was."""
    return replace(state, step=state.step + 1, tokens=state.tokens + work.read)


def count_skipped(state: State, update: Update) -> State:
    """The state that also counts this update if it was skipped. It reads the result from the device."""
    skipped = update.result.skipped
    diverges = skipped and not update.result.overflow
    return replace(
        state,
        skipped=state.skipped + skipped,
        skipped_in_row=state.skipped_in_row + update.is_read if diverges else 0,
    )
