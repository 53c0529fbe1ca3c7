"""Muon."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, merge_scales, require, spec
from training.optimizers.updates import Moments

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Muon(Moments):
    """Muon: orthogonalized momentum for the matrices of the layers (Keller Jordan, 2024).

    AdamW updates embeddings, heads, norms and biases. `adjust_lr_fn: match_rms_adamw` (arXiv:2502.16982, 2.2)
    multiplies an update by 0.2 sqrt(larger side). Its size is then that of AdamW's update, so that AdamW's learning
    rates and weight decay apply. `original` is the author's scale: sqrt(rows / columns) for matrices with more rows
    than columns, otherwise 1. The author's learning rates are 0.02 for matrices and about a fiftieth of that for other
    parameters (`adamw_lr_ratio`).
    """

    kind: Literal["muon"] = "muon"
    momentum: float = key(default=0.95, doc="Decay rate of the running mean of a matrix gradient (Nesterov momentum).")
    adjust_lr_fn: Literal["match_rms_adamw", "original"] = key(
        default="match_rms_adamw", doc="Scale of a matrix update: by its larger side, or by rows / columns."
    )
    adamw_lr_ratio: float = key(
        default=1.0, doc="Learning rate of the parameters under AdamW, as a multiple of the rate of matrices."
    )
    # the author uses bf16, which is faster on a GPU
    newton_schulz_dtype: Literal["fp32", "bf16"] = key(default="fp32", doc="Precision of the Newton-Schulz iteration.")
    eps: float = key(default=1e-8, doc="Term added to the denominator of AdamW's update.")
    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = True
    states: ClassVar[float] = 1.0  # momentum
    other_states: ClassVar[float] = 2.0

    # three times AdamW's rates; with a third of these, or three times, BERT trained more slowly (400 steps, synthetic)
    scale_overrides: ClassVar[ScaleOverrides] = merge_scales(
        Moments.scale_overrides, {"tiny": {"learning_rate": 1e-2}, "small": {"learning_rate": 3e-3}}
    )

    def __post_init__(self) -> None:
        Moments.__post_init__(self)
        require(0 <= self.momentum < 1, "optimizer.momentum", self.momentum, "a number from 0 to below 1")
        require(self.adamw_lr_ratio > 0, "optimizer.adamw_lr_ratio", self.adamw_lr_ratio, "a number above 0")

    def describe(self) -> str:
        return "Muon"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """Build the optimizer of parameter `groups`; the engine sets the learning rate before each step."""
        from training.optimizers.steps import OrthogonalUpdates, split_groups

        single = split_groups(groups)
        for group in single:
            if not group["is_hidden"]:
                group["scale"] = self.adamw_lr_ratio * group.get("scale", 1.0)
        keys = {"momentum": self.momentum, "scaling": self.adjust_lr_fn, "newton_schulz": self.newton_schulz_dtype}
        return OrthogonalUpdates(
            single, self.learning_rate, {"betas": (self.beta1, self.beta2), "eps": self.eps, **keys}
        )
