"""The keys that all optimizers share."""

from typing import ClassVar, Literal

from preprocessing.spec import AtMost, ScaleOverrides, key, merge_scales, require, spec
from training.optimizers.schedule import SCHEDULES, DecayType, count_decay_steps, describe, has_stable_phase

Decays = Literal["matrices", "all"]
"""The parameters that receive weight decay: matrices and tables, or all, including norms and biases."""


@spec
class Updates:
    """Keys of every optimizer."""

    learning_rate: float = key(doc="Peak learning rate.")
    warmup_steps: int = key(default=0, doc="Number of warmup steps.")
    lr_schedule: str = key(default="linear_from_start", choices=SCHEDULES, doc="Learning rate schedule.")
    min_lr_ratio: float = key(default=0.0, doc="Minimum learning rate as a fraction of the peak, from 0 to 1.")
    lr_decay_steps: int = key(default=0, doc="Step at which the decay ends; 0: the last step of the run.")
    num_decay_steps: float = key(
        default=0.1, doc="Number of steps of the decay of warmup_stable_decay; below 1 a fraction of all steps."
    )
    decay_type: DecayType = key(default="cosine", doc="Form of the decay of warmup_stable_decay.")
    weight_decay: float = key(
        default=0.01, doc="Decoupled weight decay, for the parameters that weight_decay_params selects."
    )
    # fairseq uses `all`, which includes norms and biases
    weight_decay_params: Decays = key(
        default="matrices", doc="Parameters that receive weight decay: matrices and embeddings, or all."
    )
    max_grad_norm: float = key(default=1.0, doc="Maximum global norm of the gradient; 0: no clipping.")
    factored_from: ClassVar[int] = 0
    above_all_peaks: ClassVar[float] = 100.0

    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"warmup_steps": 200, "lr_decay_steps": 0, "num_decay_steps": AtMost(0.2)},
        "small": {"warmup_steps": 200, "lr_decay_steps": 0, "num_decay_steps": AtMost(0.2)},
    }

    def __post_init__(self) -> None:
        require(
            0 < self.learning_rate < self.above_all_peaks,
            "optimizer.learning_rate",
            self.learning_rate,
            "a learning rate above 0 and below 100",
        )
        require(self.warmup_steps >= 0, "optimizer.warmup_steps", self.warmup_steps, "a number of steps, at least 0")
        require(self.lr_schedule in SCHEDULES, "optimizer.lr_schedule", self.lr_schedule, ", ".join(SCHEDULES))
        late = self.lr_decay_steps == 0 or self.lr_decay_steps > self.warmup_steps
        require(
            late,
            "optimizer.lr_decay_steps",
            self.lr_decay_steps,
            f"0, or a step after the {self.warmup_steps:,} warmup steps",
        )
        steps = self.num_decay_steps
        whole = "a number of steps, or a fraction above 0 and below 1"
        require(0 < steps < 1 or steps == int(steps) >= 1, "optimizer.num_decay_steps", steps, whole)
        if has_stable_phase(self) and self.lr_decay_steps:
            most = self.lr_decay_steps - self.warmup_steps
            fits = count_decay_steps(self, self.lr_decay_steps) <= most
            require(fits, "optimizer.num_decay_steps", steps, f"at most {most:,} steps before step lr_decay_steps")
        require(0 <= self.min_lr_ratio <= 1, "optimizer.min_lr_ratio", self.min_lr_ratio, "a fraction from 0 to 1")
        require(0 <= self.weight_decay < 1, "optimizer.weight_decay", self.weight_decay, "a number from 0 to below 1")
        at_least_0 = "a norm, at least 0 (0: no clipping)"
        require(self.max_grad_norm >= 0, "optimizer.max_grad_norm", self.max_grad_norm, at_least_0)

    def describe_schedule(self) -> str:
        return describe(self)


@spec
class Moments(Updates):
    """Keys of optimizers with running means of the gradient and of the squared gradient."""

    beta1: float = key(default=0.9, doc="Decay rate of the running mean of the gradient.")
    beta2: float = key(default=0.999, doc="Decay rate of the running mean of the squared gradient.")
    eps: float = key(default=1e-6, doc="Term added to the denominator of the update.")

    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Updates.scale_overrides, {"tiny": {"beta2": 0.98}, "small": {"beta2": 0.98}}
    )

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.beta1 < 1, "optimizer.beta1", self.beta1, "a number from 0 to below 1")
        require(0 <= self.beta2 < 1, "optimizer.beta2", self.beta2, "a number from 0 to below 1")
        require(self.eps > 0, "optimizer.eps", self.eps, "a positive number")
