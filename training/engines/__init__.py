"""Engines, which manage weights, optimizer and the communication between workers behind one protocol.

Read engine.py (the protocol), then local.py (one process, the reference) with flat_parameters.py, then deepspeed.py
(ZeRO 0 to 3) and mesh.py (groups of workers that share a model). opening.py chooses the engine of a run, and upload.py
copies batches to a GPU. loopback.py connects the workers of one machine. fragments.py reads and writes checkpoint
files, and local_shards.py determines each worker's part of a checkpoint. deepspeed_import.py imports DeepSpeed at its
first use.
"""

from training.engines.deepspeed import DeepSpeedEngine, connect
from training.engines.deepspeed_import import deepspeed as load_deepspeed
from training.engines.engine import Engine, StepResult
from training.engines.fragments import CheckpointFragment, Fragments, Seal, TensorSlice, memory_in, write
from training.engines.local import LocalEngine
from training.engines.local_shards import Copy, tensor_shares_of
from training.engines.mesh import mesh_of
from training.engines.opening import open_engine
from training.engines.upload import to_tensors

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
    "load_deepspeed",
    "memory_in",
    "mesh_of",
    "open_engine",
    "tensor_shares_of",
    "to_tensors",
    "write",
]
