"""Update steps of the optimizers, in torch. DeepSpeed calls these classes, so all ZeRO stages have the same steps.

Read optimizer_shard.py first, then lamb.py.
"""

from training.optimizers.steps.adafactor import FactoredUpdates
from training.optimizers.steps.adamw import CorrectedAdamW, UncorrectedAdamW
from training.optimizers.steps.compiler_import import skip_compiler_import
from training.optimizers.steps.lamb import ScaledAdamW
from training.optimizers.steps.lion import SignUpdates
from training.optimizers.steps.muon import OrthogonalUpdates
from training.optimizers.steps.optimizer_shard import split_groups

skip_compiler_import()

__all__ = [
    "CorrectedAdamW",
    "FactoredUpdates",
    "OrthogonalUpdates",
    "ScaledAdamW",
    "SignUpdates",
    "UncorrectedAdamW",
    "split_groups",
]
