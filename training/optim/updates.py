"""What every optimiser has."""

from typing import ClassVar, Literal

from preprocessing.spec import Shrinks, require, shrunk, spec
from training.optim.schedule import SCHEDULES, describe

Decays = Literal["matrices", "all"]
"""What weight decay is of: matrices and tables, or norms and biases too."""


@spec
class Updates:
    """What every optimiser has; `peak` is the highest learning rate."""

    peak: float
    warmup: int = 0  # steps
    schedule: str = "linear"  # a name in SCHEDULES
    floor: float = 0.0  # lowest learning rate as a share of the peak
    horizon: int = 0  # step at which the decay ends; 0: with the run
    decay: float = 0.01  # weight decay, of what `decays` says
    decays: Decays = "matrices"  # of matrices and tables, or of norms and biases too (fairseq)
    clip: float = 1.0  # global norm of the raw gradient; 0 = no clipping
    factored_from: ClassVar[int] = 0
    above_all_peaks: ClassVar[float] = 100.0

    shrinks: ClassVar[Shrinks] = {"tiny": {"warmup": 200, "horizon": 0}, "small": {"warmup": 200, "horizon": 0}}

    def __post_init__(self) -> None:
        require(0 < self.peak < self.above_all_peaks, "optim.peak", self.peak, "a learning rate above 0 and below 100")
        require(self.warmup >= 0, "optim.warmup", self.warmup, "a number of steps from 0 up")
        require(self.schedule in SCHEDULES, "optim.schedule", self.schedule, ", ".join(SCHEDULES))
        late = self.horizon == 0 or self.horizon > self.warmup
        require(late, "optim.horizon", self.horizon, f"0, or a step after the warm-up of {self.warmup:,}")
        require(0 <= self.floor <= 1, "optim.floor", self.floor, "a share from 0 to 1")
        require(0 <= self.decay < 1, "optim.decay", self.decay, "a number from 0 up to 1")
        require(self.clip >= 0, "optim.clip", self.clip, "a norm from 0 (off) up")

    def describe_schedule(self) -> str:
        return describe(self)


@spec
class Moments(Updates):
    """What optimisers have that use running means of the gradient and of its square."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6

    shrinks: ClassVar[Shrinks] = shrunk(Updates.shrinks, {"tiny": {"beta2": 0.98}, "small": {"beta2": 0.98}})

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.beta1 < 1, "optim.beta1", self.beta1, "a number from 0 up to 1")
        require(0 <= self.beta2 < 1, "optim.beta2", self.beta2, "a number from 0 up to 1")
        require(self.eps > 0, "optim.eps", self.eps, "a positive number")
