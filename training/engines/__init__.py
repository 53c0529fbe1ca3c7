"""Engines: weights, their optimiser, and the other workers, behind one protocol.

Read engine.py (the protocol), then local.py (the plain one), then deepspeed.py (ZeRO 0 to 3) and mesh.py (which
workers share a net), loopback.py where workers of one machine meet. fragments.py are the files of a checkpoint,
local_shards.py what of them each worker has.
DeepSpeed itself is imported when it is first used (deepspeed_import.py).
"""

from training.engines.deepspeed import DeepSpeedEngine, connect
from training.engines.engine import Engine, StepResult, to_tensors
from training.engines.fragments import CheckpointFragment, Fragments, Seal, TensorSlice, memory_in, write
from training.engines.local import LocalEngine
from training.engines.local_shards import Copy, tensor_shares_of
from training.engines.mesh import mesh_of

__all__ = [
    "CheckpointFragment",
    "Copy",
    "DeepSpeedEngine",
    "Engine",
    "Fragments",
    "LocalEngine",
    "Seal",
    "StepResult",
    "TensorSlice",
    "connect",
    "memory_in",
    "mesh_of",
    "tensor_shares_of",
    "to_tensors",
    "write",
]
