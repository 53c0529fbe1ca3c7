"""Muon."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import Shrinks, merge_scales, require, spec
from training.optimizers.updates import Moments

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Muon(Moments):
    """Momentum whose singular values are all made about 1, for the matrices of the layers; AdamW for tables, heads,
    norms and biases (Keller Jordan, "Muon", 2024).

    `adjust_lr_fn: match_rms_adamw` (arXiv:2502.16982, 2.2) makes updates as large as AdamW's, .2 sqrt(larger side), so
    that its rates and weight decay fit. `shape` is the author's, sqrt(rows / columns) where a matrix has more rows; his
    rates are .02 for matrices and about a fiftieth of it for the rest (`adamw_lr_ratio`).
    """

    kind: Literal["muon"] = "muon"
    momentum: float = 0.95  # share of the running mean of a matrix' gradients that is kept; Nesterov's
    adjust_lr_fn: Literal["match_rms_adamw", "original"] = (
        "match_rms_adamw"  # of the update of a matrix: by its larger side, or by rows / columns
    )
    adamw_lr_ratio: float = 1.0  # learning rate of what AdamW updates, as a share of that of matrices
    newton_schulz_dtype: Literal["fp32", "bf16"] = (
        "fp32"  # numbers of the iteration; bf16 is the author's, faster on a GPU
    )
    eps: float = 1e-8  # of AdamW
    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = True
    states: ClassVar[float] = 1.0  # momentum
    other_states: ClassVar[float] = 2.0

    # three times AdamW's: on made-up text, 400 steps, both a third and three times as much learn more slowly (BERT)
    shrinks: ClassVar[Shrinks] = merge_scales(
        Moments.shrinks, {"tiny": {"learning_rate": 1e-2}, "small": {"learning_rate": 3e-3}}
    )

    def __post_init__(self) -> None:
        Moments.__post_init__(self)
        require(0 <= self.momentum < 1, "optimizer.momentum", self.momentum, "a number from 0 up to 1")
        require(self.adamw_lr_ratio > 0, "optimizer.adamw_lr_ratio", self.adamw_lr_ratio, "a share above 0")

    def describe(self) -> str:
        return "Muon"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """The optimiser over parameter `groups`; the learning rate is set before each step."""
        from training.optimizers.steps import OrthogonalUpdates, split_groups

        single = split_groups(groups)
        for group in single:
            if not group["is_hidden"]:
                group["scale"] = self.adamw_lr_ratio * group.get("scale", 1.0)
        own = {"momentum": self.momentum, "scaling": self.adjust_lr_fn, "newton_schulz": self.newton_schulz_dtype}
        return OrthogonalUpdates(
            single, self.learning_rate, {"betas": (self.beta1, self.beta2), "eps": self.eps, **own}
        )
