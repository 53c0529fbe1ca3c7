"""Which workers read the same rows, and which hold the same share of the net.

Of `world` workers each `tensor` in a row share one net (arXiv:1909.08053, 3): they are near each other, since they talk
in every layer. Those with the same number in such a group hold the same share, and are to ZeRO all workers that
there are.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import distributed

from preprocessing.errors import BadInput
from training.trunks import WHOLE, Share


@dataclass(frozen=True)
class Mesh:
    """The groups of one worker; with these methods, `mpu` of DeepSpeed: what it asks for groups, sums and norms."""

    share: Share  # of the net
    data: Any  # group of torch.distributed: those with the same share
    data_rank: int
    data_world: int

    def get_model_parallel_group(self) -> Any:
        return self.share.group

    def get_model_parallel_rank(self) -> int:
        return self.share.number

    def get_model_parallel_world_size(self) -> int:
        return self.share.of

    def get_data_parallel_group(self) -> Any:
        return self.data

    def get_data_parallel_rank(self) -> int:
        return self.data_rank

    def get_data_parallel_world_size(self) -> int:
        return self.data_world

    def get_data_parallel_group_ranks(self) -> list[int]:
        return distributed.get_process_group_ranks(self.data)


@cache
def mesh_of(tensor: int) -> Mesh:
    """The groups of this worker where each `tensor` workers share a net. All workers call it, after `connect`."""
    rank, world = distributed.get_rank(), distributed.get_world_size()
    if tensor == 1:
        return Mesh(WHOLE, distributed.group.WORLD, rank, world)
    if world % tensor:
        raise BadInput(f"tensor_parallel is {tensor}, allowed is a divisor of the {world} workers")
    rows = [list(range(first, first + tensor)) for first in range(0, world, tensor)]
    columns = [list(range(first, world, tensor)) for first in range(tensor)]
    same_rows, _ = distributed.new_subgroups_by_enumeration(rows)
    same_share, _ = distributed.new_subgroups_by_enumeration(columns)
    share = Share(rank % tensor, tensor, same_rows)
    return Mesh(share, same_share, rank // tensor, world // tensor)
