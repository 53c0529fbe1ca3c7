"""Spikes of the loss and the gradient norm relative to recent updates, and the batches that are skipped for them."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from preprocessing.errors import Diverged
from training.run import Run
from training.specs import LossSpikes
from training.state import State, Sums
from training.update import Update

SPIKES = "spikes.jsonl"  # file in the run directory with each spike and its skipped batches
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spike:
    """A value above its limit, or a value that is not finite."""

    step: int  # counted from 1, as in the metrics
    name: str  # "loss" or "grad_norm"
    value: float
    limit: float  # larger values are spikes

    def describe(self) -> str:
        """The spike, in one line.

        >>> Spike(130, "loss", 9.5, 2.25).describe()
        'step 130: loss 9.5 is a spike, the limit is 2.25'
        """
        if not math.isfinite(self.value):
            return f"step {self.step}: {self.name} {self.value} is not finite"
        return f"step {self.step}: {self.name} {self.value:.6g} is a spike, the limit is {self.limit:.6g}"


def limit(recent: Sequence[float], stability: LossSpikes) -> float:
    """The largest value that is not a spike after the `recent` values; inf if there are fewer than `window_steps`.

    >>> limit([1.0, 3.0, 1.0, 3.0], LossSpikes(window_steps=4)), limit([1.0], LossSpikes(window_steps=4))
    (8.0, inf)
    """
    if len(recent) < stability.window_steps:
        return math.inf
    return float(np.mean(recent) + stability.threshold_sigmas * np.std(recent))


def spike(step: int, name: str, value: float, recent: Sequence[float], stability: LossSpikes) -> Spike | None:
    """The spike if `value` is above the limit or not finite; None otherwise."""
    highest = limit(recent, stability)
    ordinary = math.isfinite(value) and value <= highest
    return None if ordinary else Spike(step, name, value, highest)


def append_value(recent: Sequence[float], value: float, stability: LossSpikes) -> tuple[float, ...]:
    """The last `window_steps` values, including the new one."""
    return (*recent, value)[-stability.window_steps :]


def highest_loss(run: Run, state: State) -> float:
    """The loss above which the update is skipped."""
    return limit(state.recent_losses, run.loss_spikes) if run.loss_spikes.policy == "skip" else math.inf


def spikes_of(run: Run, state: State, update: Update) -> list[Spike]:
    """The spikes of an update. If the update was skipped, the first spike is the reason.

    A gradient that is not finite is a spike, unless the loss scale of fp16 overflowed: such an overflow is normal.
    """
    if run.loss_spikes.policy == "off" or not update.is_read:
        return []
    skipped, norm = update.result.skipped, update.result.grad_norm
    spikes = [spike(state.step, "loss", update.loss, state.recent_losses, run.loss_spikes)]
    if skipped and not spikes[0] and not update.result.overflow:
        spikes.append(Spike(state.step, "grad_norm", math.nan, math.inf))
    elif not skipped and math.isfinite(norm):  # DeepSpeed's stage 0 does not compute the norm
        spikes.append(spike(state.step, "grad_norm", norm, state.recent_norms, run.loss_spikes))
    return [each for each in spikes if each]


def skip_spikes(run: Run, is_first: bool, state: State, update: Update, spikes: Sequence[Spike]) -> State:
    """Log and record the spikes, and return the state with the batches to skip if the policy skips them.

    Raises Diverged if the policy is `fail`, or after too many skipped batches. `is_first` is True on the first worker,
    which writes the log and the file.
    """
    stability, lines = run.loss_spikes, "; ".join(one.describe() for one in spikes)
    back = stability.policy == "rollback" and not update.result.skipped
    skips = update.result.skipped or back
    batches = range(max(1, state.step - stability.skip_before if back else state.step), state.step + 1) if skips else ()
    skip_steps = tuple(sorted({*state.skip_steps, *batches}))
    if is_first:
        LOG.warning("%s%s", lines, f"; skipped steps: {skip_steps}" if skips else "")
        Path(run.folder).mkdir(parents=True, exist_ok=True)
        with open(Path(run.folder) / SPIKES, "a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(asdict(one) | {'skipped': list(batches)})}\n" for one in spikes)
    if stability.policy == "fail":
        raise Diverged(
            f"{run.folder}: {lines}; lower optimizer.learning_rate (it is {run.optimizer.learning_rate:g}), or set "
            "cluster.loss_spikes.policy=skip or rollback"
        )
    own_skips = [
        step for step in skip_steps if step > state.step - stability.window_steps and step not in run.skip_steps
    ]
    if stability.policy != "warn" and len(own_skips) > stability.max_skips:
        raise Diverged(
            f"{run.folder}: {lines}; more than {stability.max_skips} of the last {stability.window_steps} batches were "
            f"skipped; lower optimizer.learning_rate (it is {run.optimizer.learning_rate:g}) or raise "
            "cluster.loss_spikes.max_skips"
        )
    return replace(state, skip_steps=skip_steps)


def remember_update(run: Run, state: State, update: Update) -> State:
    """The state with the sums, the loss and the norm of an update, unless the update was skipped."""
    if run.loss_spikes.policy == "off" or update.result.skipped:
        return state
    norm = update.result.grad_norm
    return replace(
        state,
        sums=_add(state.sums, update.sums),
        recent_losses=append_value(state.recent_losses, update.loss, run.loss_spikes),
        recent_norms=append_value(state.recent_norms, norm, run.loss_spikes)
        if math.isfinite(norm)
        else state.recent_norms,
    )


def _add(sums: Sums, more: Sums) -> dict[str, dict[str, float]]:
    """The sums of both arguments, by kind and name."""
    kinds = {**sums, **more}
    return {
        kind: {
            name: sums.get(kind, {}).get(name, 0) + value for name, value in more.get(kind, sums.get(kind, {})).items()
        }
        for kind in kinds
    }
