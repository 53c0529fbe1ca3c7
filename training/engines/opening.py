"""The choice between the engines: a process that divides nothing with others needs no DeepSpeed."""

from collections.abc import Callable
from typing import Protocol

import torch

from training.architectures import ONLY, WHOLE, PipelineStage, Share
from training.engines.deepspeed import DeepSpeedEngine, connect
from training.engines.engine import Engine
from training.engines.local import LocalEngine
from training.engines.mesh import mesh_of
from training.model import Model
from training.optimizers import Optimizer
from training.specs import EngineSettings


class DescribeModel(Protocol):
    """A function that builds a worker's part of a model on the meta device."""

    def __call__(self, share: Share = WHOLE, stage: PipelineStage = ONLY) -> Model:
        """Build the part with this slice of each layer and with the layers of this stage."""


def open_engine(
    describe: DescribeModel,
    spec: Optimizer,
    machine: EngineSettings,
    world: int,
    report: Callable[[str], None] = lambda stage: None,
) -> Engine[Model]:
    """Build the model and the engine of a worker, after it has met the `world` workers of the run.

    `report` takes the name of each stage that begins.
    """
    if machine.is_alone(world):
        torch.set_num_threads(machine.cpu_threads)
        report("building the model")
        return LocalEngine(describe(), spec, machine)
    connect(machine)
    report("building the model")
    mesh = mesh_of(machine)
    return DeepSpeedEngine(describe(mesh.share, mesh.line.stage), spec, machine)
