"""Pipeline parallelism (GPipe, arXiv:1811.06965): each worker has some of the layers of a model.

The first stage has the tables, and the last stage has the heads. If the heads need the token table, the first stage
sends it to the last one in each step (training/engines/pipeline.py). Parameters keep their names in the whole model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from torch import Tensor, nn

from training.architectures.linears import Table
from training.architectures.tensor_parallel import Share


@dataclass(frozen=True)
class PipelineStage:
    """A pipeline stage: its `number`, counted from 0, and `of`, the number of stages of the model."""

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
    """The stage of a layer. Some stages can have one layer more than the others, but not the last stage.

    >>> [stage_of_layer(layer, 6, 4) for layer in range(6)]
    [0, 0, 1, 2, 2, 3]
    """
    within = [Share(number, stages).within(layers) for number in range(stages)]
    from_top = layers - 1 - layer
    return stages - 1 - next(n for n, each in enumerate(within) if each.start <= from_top < each.stop)


class StageInputs(NamedTuple):
    """Inputs of a stage, in addition to a batch. DeepSpeed's hooks find tensors only in tuples, so this is a tuple."""

    states: Tensor | None  # states of the previous stage, [B, S, D] or [T, D]; None at the first stage
    table: Table | None  # the token table, if the last stage borrows it; None at other stages


class RemoteLayer(nn.Module):
    """Placeholder for a layer of another stage; it returns the states unchanged."""

    def forward(self, x: Tensor, *_: object) -> Tensor:
        return x


def cut_stages(model: nn.Module, owners: Mapping[str, int], stage: PipelineStage) -> dict[str, int]:
    """Remove the modules of other stages from a model; return the stage of each parameter of the whole model, by name.

    `owners` gives the stage of each module by name; a module that is missing there is on the first stage.
    """
    names = [name for name, _ in model.named_parameters()]
    owner_of_prefix = {f"{module}.": owner for module, owner in owners.items()}
    stages = {
        name: next((owner for prefix, owner in owner_of_prefix.items() if name.startswith(prefix)), 0) for name in names
    }
    for module, owner in owners.items():
        if owner != stage.number:
            model.set_submodule(module, RemoteLayer())
    return stages
