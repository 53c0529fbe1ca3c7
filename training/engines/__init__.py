"""Engines: weights, their optimiser, and the other workers, behind one protocol.

Read engine.py (the protocol), then local.py (the plain one), then deepspeed.py (ZeRO 0 to 3) and mesh.py (which
workers share a net). DeepSpeed itself is imported when it is first used (lean.py).
"""

from training.engines.cuts import Slice, slices
from training.engines.deepspeed import DeepSpeedEngine, connect, saved_weights
from training.engines.engine import Engine, StepResult, to_tensors
from training.engines.local import LocalEngine
from training.engines.mesh import mesh_of

__all__ = [
    "DeepSpeedEngine",
    "Engine",
    "LocalEngine",
    "Slice",
    "StepResult",
    "connect",
    "mesh_of",
    "saved_weights",
    "slices",
    "to_tensors",
]
