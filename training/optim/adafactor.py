"""Adafactor."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from preprocessing.spec import Shrinks, require, shrunk, spec
from training.optim.updates import Updates

if TYPE_CHECKING:
    from torch.optim import Optimizer


@spec
class Adafactor(Updates):
    """Second moments by rows and columns, no first moment, updates clipped, rates relative to the weights
    (arXiv:1804.04235), as T5 has it, whose rate is 1 / sqrt(max(step, 10,000)). Grover's rates are not relative."""

    kind: Literal["adafactor"] = "adafactor"
    peak: float = 0.01
    warmup: int = 10_000
    schedule: str = "rsqrt"
    decay: float = 0.0
    clip: float = 0.0
    relative: bool = True  # rates are relative to the size of the weights
    square_decay: float = 0.0  # share of the squares that is kept at each step; 0: 1 - step^-0.8
    states: ClassVar[float] = 0.0
    other_states: ClassVar[float] = 1.0  # squares of what is no large matrix
    factored_from: ClassVar[int] = 128  # of T5 (mesh_tensorflow/optimize.py)

    takes_slices: ClassVar[bool] = True
    is_one_by_one: ClassVar[bool] = True
    # relative to the weights, as T5's, whose peaks these are; a third and three times as much learn more slowly
    shrinks: ClassVar[Shrinks] = shrunk(
        Updates.shrinks, {"tiny": {"peak": 3e-2, "relative": True}, "small": {"peak": 2e-2, "relative": True}}
    )

    def __post_init__(self) -> None:
        Updates.__post_init__(self)
        require(0 <= self.square_decay < 1, "optim.square_decay", self.square_decay, "a number from 0 up to 1")

    def describe(self) -> str:
        return "Adafactor"

    def build(self, groups: Iterable[dict[str, Any]]) -> "Optimizer":
        """The optimiser over parameter `groups`; the learning rate is set before each step."""
        from training.optim.steps import FactoredUpdates, one_by_one

        return FactoredUpdates(one_by_one(groups), self.peak, self.relative, self.square_decay, self.factored_from)
