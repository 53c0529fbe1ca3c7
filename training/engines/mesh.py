"""Which workers read the same rows, and which hold the same share of the net.

Of all workers each `tensor` in a row share one net (arXiv:1909.08053, 3), and each `sequence` of these in a row the
tokens of a batch (arXiv:2309.14509): they are near each other, since they talk in every layer. Those with the same
share of the net are to ZeRO all workers that there are, whether they read the same rows or not.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import distributed

from preprocessing.errors import BadInput
from training.specs import Machine
from training.trunks import Share


@dataclass(frozen=True)
class Mesh:
    """The groups of one worker; with these methods, `mpu` of DeepSpeed: what it asks for groups, sums and norms."""

    share: Share  # of the net
    chunk: Share  # of the tokens of a batch
    same_share: Any  # group of torch.distributed: those over which ZeRO divides what they have of the net
    data_rank: int  # of those that read different rows
    data_world: int

    def get_model_parallel_group(self) -> Any:
        return self.share.group

    def get_model_parallel_rank(self) -> int:
        return self.share.number

    def get_model_parallel_world_size(self) -> int:
        return self.share.of

    def get_data_parallel_group(self) -> Any:
        return self.same_share

    def get_data_parallel_rank(self) -> int:
        return distributed.get_rank(self.same_share)

    def get_data_parallel_world_size(self) -> int:
        return distributed.get_world_size(self.same_share)

    def get_data_parallel_group_ranks(self) -> list[int]:
        return distributed.get_process_group_ranks(self.same_share)


def mesh_of(machine: Machine) -> Mesh:
    """The groups of this worker. All workers call it, after `connect`. BadInput where they are no whole groups."""
    return _mesh(machine.tensor_parallel, machine.sequence_parallel)


@cache
def _mesh(tensor: int, sequence: int) -> Mesh:
    rank, world = distributed.get_rank(), distributed.get_world_size()
    if world % (tensor * sequence):
        given = f"tensor_parallel x sequence_parallel is {tensor} x {sequence}"
        raise BadInput(f"{given}, allowed is a divisor of the {world} workers")
    together = tensor * sequence
    same_share: Any = distributed.group.WORLD
    same_net = same_rows = None
    if tensor > 1:
        same_net = _group([range(first, first + tensor) for first in range(0, world, tensor)])
        same_share = _group([range(first, world, tensor) for first in range(tensor)])
    if sequence > 1:
        firsts = [first + number for first in range(0, world, together) for number in range(tensor)]
        same_rows = _group([range(first, first + together, tensor) for first in firsts])
    share, chunk = Share(rank % tensor, tensor, same_net), Share(rank // tensor % sequence, sequence, same_rows)
    return Mesh(share, chunk, same_share, rank // together, world // together)


def _group(ranks: list[range]) -> Any:
    """The group of this worker, of those that all workers make together."""
    mine, _ = distributed.new_subgroups_by_enumeration([list(each) for each in ranks])
    return mine
