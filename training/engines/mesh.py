"""Which workers read the same rows, and which hold the same share of the net.

Of all workers each `tensor` in a row share one net (arXiv:1909.08053, 3), and each `sequence` of these in a row the
tokens of a batch (arXiv:2309.14509): they are near each other, since they talk in every layer. With a pipeline the
first workers have its first stage, and so on: stages are far from each other, since they exchange least. Those with the
same share of the net are to ZeRO all workers that there are, whether they read the same rows or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import distributed

from preprocessing.errors import BadInput
from training.architectures import PipelineStage, Share
from training.specs import EngineSettings


@dataclass(frozen=True)
class PipelineGroup:
    """The stages of a pipeline, each by one worker: those of other shares of a net have another one.

    What goes down and what comes back have groups of their own: the order of messages in one does not depend on the
    other's, so that neither side can wait for the other for ever.
    """

    stage: PipelineStage
    ranks: tuple[int, ...] = (0,)  # of the stages
    down: Any = None  # group of torch.distributed, for states
    up: Any = None  # for their gradients


@dataclass(frozen=True)
class Mesh:
    """The groups of one worker; with these methods, `mpu` of DeepSpeed: what it asks for groups, sums and norms."""

    share: Share  # of the net
    chunk: Share  # of the tokens of a batch
    line: PipelineGroup  # of stages
    same_net: Any  # group of those that have one net together, over which norms are added up
    same_share: Any  # group of torch.distributed: those over which ZeRO divides what they have of the net
    data_rank: int  # of those that read different rows
    data_world: int

    @property
    def divides(self) -> bool:
        """Whether no worker has a whole net."""
        return self.share.of * self.line.stage.of > 1

    def get_model_parallel_group(self) -> Any:
        return self.same_net

    def get_model_parallel_rank(self) -> int:
        """Among those that have the same layers: what they all have is counted at the first."""
        return self.share.number

    def get_model_parallel_world_size(self) -> int:
        return self.share.of * self.line.stage.of

    def get_data_parallel_group(self) -> Any:
        return self.same_share

    def get_data_parallel_rank(self) -> int:
        return distributed.get_rank(self.same_share)

    def get_data_parallel_world_size(self) -> int:
        return distributed.get_world_size(self.same_share)

    def get_data_parallel_group_ranks(self) -> list[int]:
        return distributed.get_process_group_ranks(self.same_share)


def mesh_of(machine: EngineSettings) -> Mesh:
    """The groups of this worker. All workers call it, after `connect`. BadInput where they are no whole groups."""
    return _mesh(machine.tensor_parallel_size, machine.sequence_parallel_size, machine.pipeline_parallel_size)


@cache
def _mesh(tensor: int, sequence: int, stages: int) -> Mesh:
    rank, world = distributed.get_rank(), distributed.get_world_size()
    if world % (tensor * sequence * stages):
        given = f"tensor_parallel x sequence_parallel x pipeline_parallel is {tensor} x {sequence} x {stages}"
        raise BadInput(f"{given}, allowed is a divisor of the {world} workers")
    together, each = tensor * sequence, world // stages  # workers of a stage that read the same rows, and all of it
    same_share: Any = distributed.group.WORLD
    same_layer = same_rows = None
    if tensor > 1:
        same_layer = _group([range(first, first + tensor) for first in range(0, world, tensor)])
    if tensor * stages > 1:
        firsts = [stage + number for stage in range(0, world, each) for number in range(tensor)]
        same_share = _group([range(first, first - first % each + each, tensor) for first in firsts])
    if sequence > 1:
        firsts = [first + number for first in range(0, world, together) for number in range(tensor)]
        same_rows = _group([range(first, first + together, tensor) for first in firsts])
    line, same_net = PipelineGroup(PipelineStage()), same_layer
    if stages > 1:
        lines = [range(first, world, each) for first in range(each)]
        line = PipelineGroup(
            PipelineStage(rank // each, stages), tuple(lines[rank % each]), _group(lines), _group(lines)
        )
        nets = [[r for r in range(world) if r % each // tensor == net] for net in range(each // tensor)]
        same_net = _group(nets)
    share, chunk = Share(rank % tensor, tensor, same_layer), Share(rank // tensor % sequence, sequence, same_rows)
    return Mesh(share, chunk, line, same_net, same_share, rank % each // together, each // together)


def _group(ranks: Sequence[Sequence[int]]) -> Any:
    """The group of this worker, of those that all workers make together."""
    mine, _ = distributed.new_subgroups_by_enumeration([list(each) for each in ranks])
    return mine
