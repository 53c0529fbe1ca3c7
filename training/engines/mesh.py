"""Process groups for tensor, sequence, pipeline and data parallelism.

`tensor` consecutive workers share the layers of a model (arXiv:1909.08053, 3). `sequence` consecutive groups of them
share the tokens of a batch (arXiv:2309.14509). These workers have neighboring ranks, because they communicate in every
layer. With a pipeline, the first workers have the first stage, the next workers the second stage, and so on: stages
have distant ranks, because they communicate least. ZeRO divides its state over all workers with the same slice of the
model, whether they read the same data or not.
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
    """The workers of one pipeline, one for each stage. Workers with another slice of a layer form another pipeline.

    States and gradients use separate process groups, so that the order of messages in one group does not depend on the
    other group. This prevents deadlocks.
    """

    stage: PipelineStage
    ranks: tuple[int, ...] = (0,)  # rank of the worker of each stage
    down: Any = None  # group of torch.distributed for states
    up: Any = None  # group of torch.distributed for gradients


@dataclass(frozen=True)
class Mesh:
    """The process groups of one worker. Its methods are the interface of DeepSpeed's `mpu` (model parallel unit)."""

    share: Share  # this worker's slice of the layers
    chunk: Share  # this worker's chunk of the tokens
    line: PipelineGroup  # this worker's pipeline
    same_net: Any  # group of the workers that together have one model, over which gradient norms are summed
    same_share: Any  # group of the workers with the same slice of the model, over which ZeRO divides its state
    data_rank: int  # rank among the groups that read different data
    data_world: int  # number of groups that read different data

    @property
    def divides(self) -> bool:
        """Whether the model is divided over workers by tensor or pipeline parallelism."""
        return self.share.of * self.line.stage.of > 1

    def get_model_parallel_group(self) -> Any:
        return self.same_net

    def get_model_parallel_rank(self) -> int:
        """Rank among the workers with the same layers. Norms count the parameters that are not split only at rank 0."""
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
    """Create the process groups of this worker. All workers call it after `connect`.

    Raises BadInput if the parallel sizes do not divide the number of workers.
    """
    return _mesh(machine.tensor_parallel_size, machine.sequence_parallel_size, machine.pipeline_parallel_size)


@cache
def _mesh(tensor: int, sequence: int, stages: int) -> Mesh:
    rank, world = distributed.get_rank(), distributed.get_world_size()
    if world % (tensor * sequence * stages):
        keys = "engine.tensor_parallel_size x sequence_parallel_size x pipeline_parallel_size"
        raise BadInput(
            f"invalid {keys}: got {tensor} x {sequence} x {stages}, expected a divisor of {world}, the number of "
            "workers; change one of these keys or the number of workers"
        )
    together = tensor * sequence  # number of workers of a stage that read the same data
    each = world // stages  # number of workers of a stage
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
    """Create groups with these ranks, together with all workers, and return the group of this worker."""
    local, _ = distributed.new_subgroups_by_enumeration([list(each) for each in ranks])
    return local
