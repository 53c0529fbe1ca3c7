"""Pipeline parallelism (GPipe, arXiv:1811.06965): each of several workers has some of the layers of a net.

The first stage has the tables, the last one the heads. The token table, with which these compare states, is the first
stage's: it lends it out at each step (training/engines/pipeline.py). Names are those of the whole net.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from torch import Tensor, nn

from training.architectures.linears import Table
from training.architectures.tensor_parallel import Share


@dataclass(frozen=True)
class PipelineStage:
    """Stage `number` of the `of` stages of a net, counted from 0."""

    number: int = 0
    of: int = 1

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number == self.of - 1


ONLY: Final = PipelineStage()


def stage_of_layer(layer: int, layers: int, stages: int) -> int:
    """The stage that has a layer: each has as many as the others, to within one; the last, with the heads, no more.

    >>> [stage_of_layer(layer, 6, 4) for layer in range(6)]
    [0, 0, 1, 2, 2, 3]
    """
    within = [Share(number, stages).within(layers) for number in range(stages)]
    upside_down = layers - 1 - layer
    return stages - 1 - next(n for n, each in enumerate(within) if each.start <= upside_down < each.stop)


class StageInputs(NamedTuple):
    """What a stage reads beside a batch; a tuple, as DeepSpeed's hooks want it."""

    states: Tensor | None  # of the stage before, [B, S, D] or [T, D]; None at the first
    table: Table | None  # the token table, at the last stage; None at the others


class RemoteLayer(nn.Module):
    """What another stage does to the states: here they stay as they are."""

    def forward(self, x: Tensor, *_: object) -> Tensor:
        return x


def cut_stages(model: nn.Module, owners: Mapping[str, int], stage: PipelineStage) -> dict[str, int]:
    """Leave of a model what this stage has; by the name of each parameter of the whole one, its stage.

    `owners` has the stages of modules, by name; a module without one is on the first stage.
    """
    names = [name for name, _ in model.named_parameters()]
    beginnings = {f"{module}.": owner for module, owner in owners.items()}
    found = {
        name: next((owner for beginning, owner in beginnings.items() if name.startswith(beginning)), 0)
        for name in names
    }
    for module, owner in owners.items():
        if owner != stage.number:
            model.set_submodule(module, RemoteLayer())
    return found
