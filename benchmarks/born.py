"""Host memory of two workers during the initialization of a model with a billion parameters under ZeRO-3.

    python -m benchmarks.born [--layers 18] [--precision bf16]

Each worker should need memory only for its partition of the parameters and for one whole parameter. The peak of a
worker is its highest memory use (VmHWM) minus its memory use after the start of its process group. The same numbers are
computed for GPT-3 175B from the shapes of its parameters. Writes benchmarks/results/born.json.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "born.json"
BYTES = {"fp32": 4, "bf16": 2}


def gpt(layers: int, width: int, heads: int, length: int) -> Any:
    """A decoder on the meta device: its parameters have shapes but no memory."""
    import torch

    from training.losses import NextToken
    from training.model import Model
    from training.specs import Decoder, LearnedPositions

    trunk = Decoder(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        position_embedding=LearnedPositions(max_position_embeddings=length),
    )
    with torch.device("meta"):
        return Model(trunk, (NextToken(),), 50_257, seed=0)


def sizes(model: Any, precision: str, workers: int) -> dict[str, float]:
    """Sizes in GB that bound the memory of a worker: its partition of the parameters, and the largest parameter."""
    weights = [weight.numel() for weight in model.parameters()]
    layers = [sum(weight.numel() for weight in layer.parameters()) for layer in model.trunk.layers]
    return {
        "parameters": sum(weights),
        "share_GB": sum(weights) * BYTES[precision] / workers / 1e9,
        "largest_layer_float32_GB": max(layers) * 4 / 1e9,
        "largest_weight_float32_GB": max(weights) * 4 / 1e9,
        "whole_float32_GB": sum(weights) * 4 / 1e9,
    }


def memory(field: str) -> float:
    """A field of /proc/self/status, in GB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / 1e9


def worker(rank: int, world: int, port: int, layers: int, precision: str) -> None:
    """Initialize the model as one of the workers, and print memory and time."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": str(port)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "DS_ACCELERATOR": "cpu"}
    from training.engines import connect, mesh_of
    from training.engines.deepspeed import deepspeed_config, peers_of, placement
    from training.model import materialize
    from training.optimizers import AdamW
    from training.specs import EngineSettings

    machine = EngineSettings(zero_stage=3, precision=precision)  # type: ignore[arg-type]  # argparse has checked it
    connect(machine)
    model, mesh = gpt(layers, 2_048, 16, 1_024), mesh_of(machine)
    settle = placement(machine, deepspeed_config(machine, AdamW(learning_rate=1e-4)), mesh)
    before, started = memory("VmRSS"), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets VmHWM
    materialize(model, settle, peers_of(mesh))
    memory_used = {"peak_GB": memory("VmHWM") - before, "held_GB": memory("VmRSS") - before}
    print(json.dumps(memory_used | {"seconds": time.perf_counter() - started}), flush=True)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--precision", choices=BYTES, default="bf16")
    parser.add_argument("--rank", type=int, default=-1, help="rank of a worker; this program starts the workers")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    if given.rank >= 0:
        worker(given.rank, 2, given.port, given.layers, given.precision)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.born", "--layers", str(given.layers), "--precision", given.precision]
    workers = [
        subprocess.Popen([*command, "--port", str(port), "--rank", str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    printed = [process.communicate()[0].splitlines()[-1] for process in workers]
    measured: dict[str, Any] = sizes(gpt(given.layers, 2_048, 16, 1_024), given.precision, 2)
    measured |= {"workers": 2, "zero": 3, "precision": given.precision, "measured": [json.loads(x) for x in printed]}
    computed = {f"{world} workers": sizes(gpt(96, 12_288, 96, 2_048), "bf16", world) for world in (64, 1_024)}
    result = {"measured": measured, "computed for GPT-3 175B": computed}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
