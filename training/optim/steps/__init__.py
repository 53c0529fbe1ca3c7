"""The steps of the optimisers, on torch; DeepSpeed is given these objects, so that each ZeRO stage takes the same step.

Read pieces.py first, then lamb.py.
"""

from training.optim.steps.adafactor import FactoredUpdates
from training.optim.steps.adamw import UncorrectedAdamW
from training.optim.steps.lamb import ScaledAdamW
from training.optim.steps.lion import SignUpdates
from training.optim.steps.muon import OrthogonalUpdates
from training.optim.steps.pieces import one_by_one

__all__ = [
    "FactoredUpdates",
    "OrthogonalUpdates",
    "ScaledAdamW",
    "SignUpdates",
    "UncorrectedAdamW",
    "one_by_one",
]
