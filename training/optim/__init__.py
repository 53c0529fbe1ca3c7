"""Optimisers and schedules: their keys in a recipe, and the step that each takes.

Read part.py (the facts that each optimiser has), updates.py (the keys that all share), adamw.py, then schedule.py. The
union is the registry: an optimiser is a file here, with its step in steps/, and one line in the union.
"""

from training.optim.adafactor import Adafactor
from training.optim.adamw import AdamW
from training.optim.lamb import Lamb
from training.optim.lion import Lion
from training.optim.muon import Muon
from training.optim.part import OptimPart
from training.optim.schedule import SCHEDULES, Cycle, cycles, rate, rate_at
from training.optim.stretches import Stretch, Stretches
from training.optim.updates import Decays, Moments, Updates

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
    "Optim",
    "OptimPart",
    "Stretch",
    "Stretches",
    "Updates",
    "cycles",
    "rate",
    "rate_at",
]

Optim = AdamW | Lamb | Adafactor | Lion | Muon


def _has_every_fact(optim: Optim) -> OptimPart:
    return optim  # a member without a fact is a type error here
