"""What every optimiser has."""

from typing import ClassVar, Literal

from preprocessing.spec import Shrinks, merge_scales, require, spec
from training.optimizers.schedule import SCHEDULES, describe

Decays = Literal["matrices", "all"]
"""What weight decay is of: matrices and tables, or norms and biases too."""


@spec
class Updates:
    """What every optimiser has; `learning_rate` is the highest learning rate."""

    learning_rate: float
    warmup_steps: int = 0  # steps
    lr_schedule: str = "linear_from_start"  # a name in SCHEDULES
    min_lr_ratio: float = 0.0  # lowest learning rate as a share of the peak
    lr_decay_steps: int = 0  # step at which the decay ends; 0: with the run
    weight_decay: float = 0.01  # weight decay, of what `weight_decay_params` says
    weight_decay_params: Decays = "matrices"  # of matrices and tables, or of norms and biases too (fairseq)
    max_grad_norm: float = 1.0  # global norm of the raw gradient; 0 = no clipping
    factored_from: ClassVar[int] = 0
    above_all_peaks: ClassVar[float] = 100.0

    shrinks: ClassVar[Shrinks] = {
        "tiny": {"warmup_steps": 200, "lr_decay_steps": 0},
        "small": {"warmup_steps": 200, "lr_decay_steps": 0},
    }

    def __post_init__(self) -> None:
        require(
            0 < self.learning_rate < self.above_all_peaks,
            "optimizer.learning_rate",
            self.learning_rate,
            "a learning rate above 0 and below 100",
        )
        require(self.warmup_steps >= 0, "optimizer.warmup_steps", self.warmup_steps, "a number of steps from 0 up")
        require(self.lr_schedule in SCHEDULES, "optimizer.lr_schedule", self.lr_schedule, ", ".join(SCHEDULES))
        late = self.lr_decay_steps == 0 or self.lr_decay_steps > self.warmup_steps
        require(
            late,
            "optimizer.lr_decay_steps",
            self.lr_decay_steps,
            f"0, or a step after the warm-up of {self.warmup_steps:,}",
        )
        require(0 <= self.min_lr_ratio <= 1, "optimizer.min_lr_ratio", self.min_lr_ratio, "a share from 0 to 1")
        require(0 <= self.weight_decay < 1, "optimizer.weight_decay", self.weight_decay, "a number from 0 up to 1")
        require(self.max_grad_norm >= 0, "optimizer.max_grad_norm", self.max_grad_norm, "a norm from 0 (off) up")

    def describe_schedule(self) -> str:
        return describe(self)


@spec
class Moments(Updates):
    """What optimisers have that use running means of the gradient and of its square."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6

    shrinks: ClassVar[Shrinks] = merge_scales(Updates.shrinks, {"tiny": {"beta2": 0.98}, "small": {"beta2": 0.98}})

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.beta1 < 1, "optimizer.beta1", self.beta1, "a number from 0 up to 1")
        require(0 <= self.beta2 < 1, "optimizer.beta2", self.beta2, "a number from 0 up to 1")
        require(self.eps > 0, "optimizer.eps", self.eps, "a positive number")
