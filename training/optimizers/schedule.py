"""Learning rate schedules. The learning rate is a pure function of the step, so checkpoints need no scheduler state.

To add a schedule, write its decay as a function and add a line to SCHEDULES, the registry. A decay function returns 1.0
at the peak learning rate and 0.0 at the minimum learning rate.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, Protocol


class LearningRates(Protocol):
    """The keys of an optimizer that determine the learning rate."""

    @property
    def learning_rate(self) -> float:
        """Peak learning rate."""

    @property
    def warmup_steps(self) -> int:
        """Number of warmup steps."""

    @property
    def lr_schedule(self) -> str:
        """A name in SCHEDULES."""

    @property
    def min_lr_ratio(self) -> float:
        """Minimum learning rate after the warmup, as a fraction of the peak."""

    @property
    def lr_decay_steps(self) -> int:
        """Step at which the decay ends; 0: the last step of the run."""

    @property
    def num_decay_steps(self) -> float:
        """Number of steps of the decay after a stable phase; below 1: a fraction of the steps until its end."""

    @property
    def decay_type(self) -> str:
        """The decay after a stable phase, a name in DECAYS."""


class SchedulePhase(Protocol):
    """The keys of a training phase that determine the learning rate."""

    @property
    def steps(self) -> int:
        """Number of steps of the phase."""

    @property
    def learning_rate(self) -> float:
        """Peak learning rate of a schedule that starts with the phase; 0: the previous schedule continues."""

    @property
    def warmup_steps(self) -> int:
        """Number of warmup steps of that schedule."""


@dataclass(frozen=True)
class Cycle:
    """One schedule of a run, from its warmup to its end: `LearningRates` for `total` steps. A run has at least one."""

    begin: int  # steps of the run before the schedule
    total: int  # steps of the schedule
    learning_rate: float
    warmup_steps: int
    lr_schedule: str
    min_lr_ratio: float
    lr_decay_steps: int
    num_decay_steps: float
    decay_type: str


Decay = Callable[[int, int, int], float]
"""(step, warmup, total) -> 1.0 at the peak learning rate, 0.0 at the minimum; all three are steps, step <= total."""


def linear(step: int, warmup: int, total: int) -> float:
    """Linear decay from step 0; the rate after the warmup is below the peak (google-research/bert, optimization.py)."""
    return 1 - step / total


def linear_from_peak(step: int, warmup: int, total: int) -> float:
    """Linear decay from the end of the warmup, as fairseq's polynomial decay of power 1."""
    return 1 - _since_peak(step, warmup, total)


def polynomial(step: int, warmup: int, total: int) -> float:
    """fairseq's polynomial decay of power 3, from the end of the warmup; Longformer (arXiv:2004.05150, appendix)."""
    return (1 - _since_peak(step, warmup, total)) ** 3


def cosine(step: int, warmup: int, total: int) -> float:
    """Half a cosine from the end of the warmup (arXiv:1608.03983 without restarts; GPT-3, arXiv:2005.14165, B)."""
    return 0.5 * (1 + math.cos(math.pi * _since_peak(step, warmup, total)))


def cosine_from_start(step: int, warmup: int, total: int) -> float:
    """Half a cosine from step 0; the warmup replaces its start (authors' code of Transformer-XL, pytorch/train.py)."""
    return 0.5 * (1 + math.cos(math.pi * step / total))


def constant(step: int, warmup: int, total: int) -> float:
    """No decay."""
    return 1.0


def inverse_sqrt(step: int, warmup: int, total: int) -> float:
    """sqrt(warmup / step) from the end of the warmup (arXiv:1706.03762, 5.3, in fairseq's form)."""
    return math.sqrt(max(1, warmup) / max(1, warmup, step))


def one_minus_sqrt(step: int, warmup: int, total: int) -> float:
    """1 - sqrt(fraction of the decay) from the end of the warmup (arXiv:2405.18392, 4, "1-sqrt")."""
    return 1 - math.sqrt(_since_peak(step, warmup, total))


def _since_peak(step: int, warmup: int, total: int) -> float:
    """Number of steps since the warmup, as a fraction of all steps after it."""
    return (step - warmup) / max(1, total - warmup)


@dataclass(frozen=True)
class Shape:
    """A decay function, its description, and the form of the warmup.

    The warmup rises linearly from 0 ("replaces", "multiplies") or from the minimum ("from_floor"). It replaces the
    decay, or is multiplied by it ("multiplies"). With "none", there is no warmup, and the rate is the peak for
    `warmup_steps` steps. The decay ends at the minimum; with `stops`, it goes to 0 and is cut off at the minimum.
    """

    decay: Decay
    describes: str  # the learning rate after the warmup, in words
    warm_up: Literal["replaces", "from_floor", "multiplies", "none"] = "replaces"
    stops: bool = False  # True: the decay goes to 0 and is cut off at the minimum
    is_stable: bool = False  # True: the rate is constant until a decay of `num_decay_steps`, one of DECAYS


DecayType = Literal["linear", "cosine", "1-sqrt"]
DECAYS: Final[Mapping[str, Decay]] = {"linear": linear_from_peak, "cosine": cosine, "1-sqrt": one_minus_sqrt}
"""Decays after a stable phase, which takes the place of their warmup. The names are those of transformers."""

SCHEDULES: Final[Mapping[str, Shape]] = {
    "linear_from_start": Shape(linear, "linear decay from step 0"),
    # ELECTRA (google-research/electra, optimization.py)
    "linear_times_warmup": Shape(linear, "linear decay from step 0 (multiplied by the warmup)", "multiplies"),
    "linear_after_warmup": Shape(linear_from_peak, "linear decay from the peak"),
    # ULMFiT (arXiv:1801.06146, 3.2); the paper's `ratio` is 1 / min_lr_ratio
    "slanted_triangular": Shape(linear_from_peak, "slanted triangular decay", "from_floor"),
    "polynomial": Shape(polynomial, "polynomial decay of power 3"),
    "cosine": Shape(cosine, "cosine decay"),
    "cosine_from_start": Shape(cosine_from_start, "cosine decay from step 0"),
    # Megatron-LM (arXiv:1909.08053, 4.2; learning_rates.py of 2019)
    "cosine_truncated": Shape(cosine, "truncated cosine decay", stops=True),
    "constant": Shape(constant, "no decay"),
    "inverse_sqrt": Shape(inverse_sqrt, "inverse square root decay"),
    # T5 (arXiv:1910.10683, 3.1.2)
    "constant_then_inverse_sqrt": Shape(inverse_sqrt, "constant rate, then inverse square root decay", "none"),
    # MiniCPM (arXiv:2404.06395, 4); its decay is one of DECAYS, and its warmup that of transformers' get_wsd_schedule
    "warmup_stable_decay": Shape(constant, "constant rate", "from_floor", is_stable=True),
}


def describe(optim: LearningRates) -> str:
    """Describe the learning rate after the warmup in words.

    >>> from training.optimizers import AdamW
    >>> describe(AdamW(learning_rate=1e-4, lr_schedule="cosine", min_lr_ratio=0.1))
    'cosine decay to 10% of the peak'
    """
    words = SCHEDULES[optim.lr_schedule].describes
    if has_stable_phase(optim):
        steps = optim.num_decay_steps
        last = f"{steps:,.0f} steps" if steps >= 1 else f"{100 * steps:.4g}% of the steps"
        words += f", then {optim.decay_type} decay over the last {last}"
    return words + (f" to {optim.min_lr_ratio:.0%} of the peak" if optim.min_lr_ratio else "")


def has_stable_phase(optim: LearningRates) -> bool:
    """Whether the rate stays at its peak between the warmup and a decay of `num_decay_steps`."""
    return SCHEDULES[optim.lr_schedule].is_stable


def count_decay_steps(optim: LearningRates, total: int) -> int:
    """Number of steps of the decay after a stable phase, which ends after `total` steps.

    >>> from training.optimizers import AdamW
    >>> [count_decay_steps(AdamW(learning_rate=1e-3, num_decay_steps=steps), 2_000) for steps in (0.2, 150)]
    [400, 150]
    """
    return int(optim.num_decay_steps) if optim.num_decay_steps >= 1 else round(optim.num_decay_steps * total)


def rate(optim: LearningRates, step: int, total: int) -> float:
    """Learning rate of the update after `step` finished updates, in a run of `total` updates.

    With a warmup, the first update has a learning rate of 0, as in the reference implementation of BERT.

    >>> from training.optimizers import AdamW
    >>> bert = AdamW(learning_rate=1e-4, warmup_steps=10_000)
    >>> [round(rate(bert, step, 1_000_000), 9) for step in (0, 5_000, 10_000, 500_000, 1_000_000)]
    [0.0, 5e-05, 9.9e-05, 5e-05, 0.0]
    >>> wsd = AdamW(learning_rate=1.0, lr_schedule="warmup_stable_decay", num_decay_steps=0.4, decay_type="linear")
    >>> [rate(wsd, step, 10) for step in (0, 6, 7, 8, 9, 10)]
    [1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    total = optim.lr_decay_steps or total
    shape, warmup = SCHEDULES[optim.lr_schedule], 1.0
    if step < optim.warmup_steps and shape.warm_up != "none":
        warmup = step / optim.warmup_steps
        if shape.warm_up == "replaces":
            return optim.learning_rate * warmup
        if shape.warm_up == "from_floor":
            return optim.learning_rate * (optim.min_lr_ratio + (1 - optim.min_lr_ratio) * warmup)
    if has_stable_phase(optim):
        stable = total - count_decay_steps(optim, total)
        decay = DECAYS[optim.decay_type](max(stable, min(step, total)), stable, total)
    else:
        decay = shape.decay(min(step, total), optim.warmup_steps, total)
    fraction = max(optim.min_lr_ratio, decay) if shape.stops else optim.min_lr_ratio + (1 - optim.min_lr_ratio) * decay
    return optim.learning_rate * warmup * fraction


def cycles(optim: LearningRates, phases: Sequence[SchedulePhase]) -> list[Cycle]:
    """The schedules of a run: the schedule of its optimizer, and another one from each phase with a peak rate.

    After a stable phase only the last one decays, because a training in stages has one decay (ModernBERT,
    arXiv:2412.13663, table 3).

    >>> from training.optimizers import Lamb
    >>> from training.specs import Phase
    >>> second = Phase(seq_length=512, global_batch_size=4, steps=20, learning_rate=0.004, warmup_steps=5)
    >>> phases = [Phase(seq_length=128, global_batch_size=8, steps=70), second]
    >>> schedules = cycles(Lamb(learning_rate=0.006, warmup_steps=9), phases)
    >>> [(cycle.begin, cycle.total, cycle.learning_rate, cycle.warmup_steps) for cycle in schedules]
    [(0, 70, 0.006, 9), (70, 20, 0.004, 5)]
    """
    begins = [0, *accumulate(phase.steps for phase in phases)]
    starts = [(0, optim.learning_rate, optim.warmup_steps)]
    starts += [
        (at, phase.learning_rate, phase.warmup_steps)
        for at, phase in zip(begins, phases, strict=False)
        if phase.learning_rate
    ]
    ends = [*(at for at, _, _ in starts[1:]), begins[-1]]
    falls = [*[0.0] * (len(starts) - 1), optim.num_decay_steps]
    shape = optim.lr_schedule, optim.min_lr_ratio, optim.lr_decay_steps
    return [
        Cycle(begin, end - begin, peak, warmup, *shape, decay, optim.decay_type)
        for (begin, peak, warmup), end, decay in zip(starts, ends, falls, strict=True)
    ]


def rate_at(optim: LearningRates, phases: Sequence[SchedulePhase], step: int) -> float:
    """Learning rate of the update after `step` finished updates, in a run with these phases."""
    cycle = next(cycle for cycle in reversed(cycles(optim, phases)) if cycle.begin <= step)
    return rate(cycle, step - cycle.begin, cycle.total)
