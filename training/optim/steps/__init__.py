"""The steps of the optimisers, on torch; DeepSpeed is given these objects, so that each ZeRO stage takes the same step.

Read pieces.py first, then lamb.py.
"""

from training.optim.steps.adafactor import FactoredUpdates
from training.optim.steps.adamw import UncorrectedAdamW
from training.optim.steps.lamb import ScaledAdamW
from training.optim.steps.pieces import one_by_one

__all__ = ["FactoredUpdates", "ScaledAdamW", "UncorrectedAdamW", "one_by_one"]
