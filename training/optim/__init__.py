"""Optimisers and schedules: what a recipe says of them, and how a step is made.

Read updates.py (what all share), then adamw.py, then schedule.py. The union is the registry.
"""

from training.optim.adafactor import Adafactor
from training.optim.adamw import AdamW
from training.optim.lamb import Lamb
from training.optim.schedule import rate
from training.optim.updates import Moments, Schedule, Updates

__all__ = ["Adafactor", "AdamW", "Lamb", "Moments", "Optim", "Schedule", "Updates", "rate"]

Optim = AdamW | Lamb | Adafactor
