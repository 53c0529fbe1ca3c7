"""Optimizers and learning rate schedules: their keys in a recipe, and their update steps.

Read part.py (the facts of an optimizer), updates.py (the common keys), adamw.py, then schedule.py. To add an optimizer,
write one file here and one in steps/, and add its class to the union below, which is the registry.
"""

from training.optimizers.adafactor import Adafactor
from training.optimizers.adamw import AdamW
from training.optimizers.lamb import Lamb
from training.optimizers.lion import Lion
from training.optimizers.muon import Muon
from training.optimizers.part import OptimizerPart
from training.optimizers.schedule import SCHEDULES, Cycle, count_decay_steps, cycles, has_stable_phase, rate, rate_at
from training.optimizers.sharded_state import ShardedState, ShardedStateOptimizer
from training.optimizers.updates import Decays, Moments, Updates

__all__ = [
    "SCHEDULES",
    "Adafactor",
    "AdamW",
    "Cycle",
    "Decays",
    "Lamb",
    "Lion",
    "Moments",
    "Muon",
    "Optimizer",
    "OptimizerPart",
    "ShardedState",
    "ShardedStateOptimizer",
    "Updates",
    "count_decay_steps",
    "cycles",
    "has_stable_phase",
    "rate",
    "rate_at",
]

Optimizer = AdamW | Lamb | Adafactor | Lion | Muon


def _has_every_fact(optim: Optimizer) -> OptimizerPart:
    return optim  # the type checker reports a member that lacks a fact
