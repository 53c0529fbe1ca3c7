"""What a loss is to the loop: a sum and a count."""

from typing import NamedTuple

from torch import Tensor


class Score(NamedTuple):
    """What a head says of a batch; a tuple, since DeepSpeed's ZeRO-3 hooks find tensors in tuples and dicts only."""

    loss: Tensor  # float32 []: cross-entropy in nats, summed over the targets
    count: int  # type: ignore[assignment]  # number of targets; hides tuple.count
    correct: Tensor  # int64 []: targets that got the highest score
