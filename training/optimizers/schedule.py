"""The learning rate of a step: a pure function, so that resuming needs no scheduler state.

A schedule is one function here and one line in SCHEDULES, the registry. The function is the decay: what is left of the
way from the peak to the floor, 1.0 at the peak and 0.0 at the floor.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, Protocol


class LearningRates(Protocol):
    """What the learning rate takes from an optimiser."""

    @property
    def learning_rate(self) -> float:
        """Highest learning rate."""

    @property
    def warmup_steps(self) -> int:
        """Steps."""

    @property
    def lr_schedule(self) -> str:
        """A name in SCHEDULES."""

    @property
    def min_lr_ratio(self) -> float:
        """Lowest learning rate after the warm-up, as a share of the peak."""

    @property
    def lr_decay_steps(self) -> int:
        """Step at which the decay ends; 0: with the run."""


class SchedulePhase(Protocol):
    """What the learning rate takes from a phase."""

    @property
    def steps(self) -> int:
        """Its updates."""

    @property
    def learning_rate(self) -> float:
        """Highest learning rate of a schedule that begins with it; 0: the one before goes on."""

    @property
    def warmup_steps(self) -> int:
        """Steps, of that schedule."""


@dataclass(frozen=True)
class Cycle:
    """A schedule from its warm-up to its end, which a run has one or several of: `LearningRates` of `total` updates."""

    begin: int  # updates of the run before it
    total: int  # updates
    learning_rate: float
    warmup_steps: int
    lr_schedule: str
    min_lr_ratio: float
    lr_decay_steps: int = 0


Decay = Callable[[int, int, int], float]
"""(step, warmup, total), in steps, with step <= total -> share of the way from the peak to the floor that is left."""


def linear(step: int, warmup: int, total: int) -> float:
    """From step 0 on: right after the warm-up the rate is below the peak (google-research/bert, optimization.py)."""
    return 1 - step / total


def linear_from_peak(step: int, warmup: int, total: int) -> float:
    """From the end of the warm-up on: fairseq's polynomial decay of power 1."""
    return 1 - _since_peak(step, warmup, total)


def polynomial(step: int, warmup: int, total: int) -> float:
    """As `linear_from_peak`, to the third power: fairseq's, as in Longformer (arXiv:2004.05150, appendix)."""
    return (1 - _since_peak(step, warmup, total)) ** 3


def cosine(step: int, warmup: int, total: int) -> float:
    """Half a cosine: arXiv:1608.03983 without restarts, as GPT-3 (arXiv:2005.14165, appendix B)."""
    return 0.5 * (1 + math.cos(math.pi * _since_peak(step, warmup, total)))


def cosine_from_start(step: int, warmup: int, total: int) -> float:
    """Half a cosine from step 0 on, which the warm-up replaces (authors' code of Transformer-XL, pytorch/train.py)."""
    return 0.5 * (1 + math.cos(math.pi * step / total))


def constant(step: int, warmup: int, total: int) -> float:
    """No decay."""
    return 1.0


def inverse_sqrt(step: int, warmup: int, total: int) -> float:
    """sqrt(warmup / step) from the end of the warm-up on (arXiv:1706.03762, 5.3, in fairseq's form)."""
    return math.sqrt(max(1, warmup) / max(1, warmup, step))


def _since_peak(step: int, warmup: int, total: int) -> float:
    """Steps since the warm-up, as a share of all steps behind it."""
    return (step - warmup) / max(1, total - warmup)


@dataclass(frozen=True)
class Shape:
    """A decay, and what happens to it in the steps of the warm-up.

    The warm-up rises linearly from 0 to the peak, or from the floor. It stands in place of the decay, multiplies it, or
    there is none: the rate is the peak for `warmup_steps` steps. The decay ends at the floor, or goes to 0 and stops
    where it meets the floor.
    """

    decay: Decay
    describes: str  # what becomes of the learning rate after the warm-up, in words
    warm_up: Literal["replaces", "from_floor", "multiplies", "none"] = "replaces"
    stops: bool = False  # True: the decay goes to 0, and stops at the floor


SCHEDULES: Final[Mapping[str, Shape]] = {
    "linear_from_start": Shape(linear, "linear decay from step 0"),
    # ELECTRA (google-research/electra, optimization.py)
    "linear_times_warmup": Shape(linear, "linear decay from step 0, times the warm-up", "multiplies"),
    "linear_after_warmup": Shape(linear_from_peak, "linear decay from the peak"),
    # ULMFiT (arXiv:1801.06146, 3.2): its ratio is 1 / floor
    "slanted_triangular": Shape(
        linear_from_peak, "linear decay from the peak, to where the warm-up began", "from_floor"
    ),
    "polynomial": Shape(polynomial, "polynomial decay of power 3"),
    "cosine": Shape(cosine, "cosine decay"),
    "cosine_from_start": Shape(cosine_from_start, "cosine decay from step 0"),
    # Megatron-LM (arXiv:1909.08053, 4.2; learning_rates.py of 2019)
    "cosine_truncated": Shape(cosine, "cosine decay, stopped", stops=True),
    "constant": Shape(constant, "no decay"),
    "inverse_sqrt": Shape(inverse_sqrt, "decay with one over the root of the step"),
    # T5 (arXiv:1910.10683, 3.1.2)
    "constant_then_inverse_sqrt": Shape(
        inverse_sqrt, "decay with one over the root of the step, from a constant rate", "none"
    ),
}


def describe(optim: LearningRates) -> str:
    """What becomes of the learning rate after the warm-up, in words.

    >>> from training.optimizers import AdamW
    >>> describe(AdamW(learning_rate=1e-4, lr_schedule="cosine", min_lr_ratio=0.1))
    'cosine decay to 10% of the peak'
    """
    return SCHEDULES[optim.lr_schedule].describes + (
        f" to {optim.min_lr_ratio:.0%} of the peak" if optim.min_lr_ratio else ""
    )


def rate(optim: LearningRates, step: int, total: int) -> float:
    """Learning rate of the update that follows `step` finished ones, in a run of `total` updates.

    The rate of the very first update of a run with warm-up is 0, as in the reference implementation of BERT.

    >>> from training.optimizers import AdamW
    >>> bert = AdamW(learning_rate=1e-4, warmup_steps=10_000)
    >>> [round(rate(bert, step, 1_000_000), 9) for step in (0, 5_000, 10_000, 500_000, 1_000_000)]
    [0.0, 5e-05, 9.9e-05, 5e-05, 0.0]
    """
    total = optim.lr_decay_steps or total
    shape, risen = SCHEDULES[optim.lr_schedule], 1.0
    if step < optim.warmup_steps and shape.warm_up != "none":
        risen = step / optim.warmup_steps
        if shape.warm_up == "replaces":
            return optim.learning_rate * risen
        if shape.warm_up == "from_floor":
            return optim.learning_rate * (optim.min_lr_ratio + (1 - optim.min_lr_ratio) * risen)
    left = shape.decay(min(step, total), optim.warmup_steps, total)
    share = max(optim.min_lr_ratio, left) if shape.stops else optim.min_lr_ratio + (1 - optim.min_lr_ratio) * left
    return optim.learning_rate * risen * share


def cycles(optim: LearningRates, phases: Sequence[SchedulePhase]) -> list[Cycle]:
    """The schedules of a run: that of its optimiser, and one more from each phase on that has a peak.

    >>> from training.optimizers import Lamb
    >>> from training.specs import Phase
    >>> second = Phase(seq_length=512, global_batch_size=4, steps=20, learning_rate=0.004, warmup_steps=5)
    >>> phases = [Phase(seq_length=128, global_batch_size=8, steps=70), second]
    >>> found = cycles(Lamb(learning_rate=0.006, warmup_steps=9), phases)
    >>> [(cycle.begin, cycle.total, cycle.learning_rate, cycle.warmup_steps) for cycle in found]
    [(0, 70, 0.006, 9), (70, 20, 0.004, 5)]
    """
    begins = [0, *accumulate(phase.steps for phase in phases)]
    own = [(0, optim.learning_rate, optim.warmup_steps)]
    own += [
        (at, phase.learning_rate, phase.warmup_steps)
        for at, phase in zip(begins, phases, strict=False)
        if phase.learning_rate
    ]
    ends = [*(at for at, _, _ in own[1:]), begins[-1]]
    return [
        Cycle(begin, end - begin, peak, warmup, optim.lr_schedule, optim.min_lr_ratio, optim.lr_decay_steps)
        for (begin, peak, warmup), end in zip(own, ends, strict=True)
    ]


def rate_at(optim: LearningRates, phases: Sequence[SchedulePhase], step: int) -> float:
    """Learning rate of the update that follows `step` finished ones, in a run of these phases."""
    cycle = next(cycle for cycle in reversed(cycles(optim, phases)) if cycle.begin <= step)
    return rate(cycle, step - cycle.begin, cycle.total)
