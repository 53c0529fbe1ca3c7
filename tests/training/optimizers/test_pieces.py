"""Under ZeRO, a worker has one flat slice of a parameter; the updates of all slices equal the update of the whole."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from training.optimizers import Adafactor, Lamb, Lion, Muon, Optimizer
from training.optimizers.steps import optimizer_shard

STEPS = 3


def update(optim: Optimizer, shapes: list[optimizer_shard.Shape], weight: Tensor, gradients: list[Tensor]) -> Tensor:
    """The weight, or a slice of it, after one update per gradient; it consists of tensors of these shapes."""
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = optim.build([{"params": [parameter], "weight_decay": 0.1, "shapes": [shapes]}])
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def slice_of(whole: Tensor, rank: int, workers: int) -> Tensor:
    """A worker's slice in DeepSpeed: equal slices, of which the last ones are padded with zeros."""
    size = -(-whole.numel() // workers)
    flat = torch.zeros(size * workers, dtype=whole.dtype)
    flat[: whole.numel()] = whole.flatten()
    return flat[rank * size : (rank + 1) * size]


@pytest.mark.parametrize(
    "optim", [Lamb(learning_rate=0.1), Adafactor(), Adafactor(scale_parameter=False, beta2=0.9)], ids=str
)
@pytest.mark.parametrize(
    ("shapes", "workers"),
    [
        ([(5,)], 4),
        ([(4, 3)], 2),
        ([(4, 3)], 5),
        ([(130, 140)], 3),
        ([(128, 128)], 128),
        ([(128, 129)], 150),
        ([(5,)] * 3, 4),
        ([(2,), (7,), (1,)], 7),
        ([(4, 3)] * 3, 2),
        ([(4, 3)] * 2, 5),
        ([(128, 130)] * 3, 2),
        ([(128, 130)] * 3, 3),
        ([(130, 128)] * 2, 7),
        ([(64, 256)] * 2, 2),
        ([(4, 3), (5, 3), (4, 3)], 2),
    ],
    ids=str,
)
def test_updates_of_all_slices_equal_the_update_of_the_whole(
    optim: Optimizer, shapes: list[optimizer_shard.Shape], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (sum(length for length, *_ in shapes), *shapes[0][1:])
    weight, *gradients = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(1 + STEPS))
    wanted = update(optim, shapes, weight, gradients)
    group = Threads(workers)
    monkeypatch.setattr(optimizer_shard, "distributed", group)

    def moved(rank: int) -> Tensor:
        mine = [slice_of(gradient, rank, workers) for gradient in gradients]
        return update(optim, shapes, slice_of(weight, rank, workers), mine)

    found = torch.cat(group.run(moved))[: wanted.numel()].view(shape)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15)


class Threads:
    """Replaces torch.distributed for workers that exchange slices: each worker is a thread."""

    def __init__(self, world: int) -> None:
        self.world, self.own = world, threading.local()
        self.barrier, self.box = threading.Barrier(world, timeout=60), [[torch.empty(0)] * world] * world
        self.sent = [0] * world  # numbers of values

    def run(self, work: Callable[[int], Tensor]) -> list[Tensor]:
        def one(rank: int) -> Tensor:
            self.own.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.world) as pool:
            return list(pool.map(one, range(self.world)))

    def get_rank(self, group: Any = None) -> int:
        return self.own.rank

    def get_world_size(self, group: Any = None) -> int:
        return self.world

    def get_backend(self) -> str:
        return "gloo"

    def all_reduce(self, sums: Tensor, group: Any = None) -> None:
        self.box[self.get_rank()] = [sums.clone()]
        self.barrier.wait()
        sums.copy_(torch.stack([self.box[other][0] for other in range(self.world)]).sum(0))
        self.barrier.wait()

    def all_to_all_single(
        self, into: Tensor, given: Tensor, from_each: Sequence[int], to_each: Sequence[int], group: Any = None
    ) -> None:
        rank = self.own.rank
        self.box[rank] = [part.clone() for part in given.split(list(to_each))]
        self.sent[rank] += len(given)
        self.barrier.wait()
        mine = [self.box[other][rank] for other in range(self.world)]
        assert [len(part) for part in mine] == list(from_each)
        into.copy_(torch.cat(mine))
        self.barrier.wait()


@pytest.mark.parametrize(
    "optim",
    [Lion(learning_rate=0.1), Muon(learning_rate=0.1), Muon(learning_rate=0.1, newton_schulz_dtype="bf16")],
    ids=str,
)
@pytest.mark.parametrize(
    ("tensors", "workers"),
    [
        ([[(5,)], [(4, 3)]], 2),
        ([[(4, 3)], [(5, 2)] * 3, [(7, 7)], [(3,)]], 2),
        ([[(4, 3)], [(5, 2)] * 3, [(7, 7)], [(3,)]], 3),
        ([[(4, 3)] * 2, [(30, 20)]], 5),
        ([[(2, 2)]], 7),
    ],
    ids=str,
)
def test_workers_that_share_the_matrices_make_the_same_update(
    optim: Optimizer, tensors: list[list[optimizer_shard.Shape]], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(sum(length for length, *_ in parts), *parts[0][1:]) for parts in tensors]
    starts = [torch.randn(shape, generator=generator) for shape in shapes]
    gradients = [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(STEPS)]

    def moved(cut: Callable[[Tensor], Tensor]) -> Tensor:
        weights = [torch.nn.Parameter(cut(start).clone()) for start in starts]
        hidden = [len(shape) == 2 for shape in shapes]
        built = optim.build([{"params": weights, "weight_decay": 0.1, "shapes": tensors, "hidden": hidden}])
        for of_step in gradients:
            for weight, gradient in zip(weights, of_step, strict=True):
                weight.grad = cut(gradient).clone()
            built.step()
        return torch.cat([weight.detach().flatten() for weight in weights])

    wanted = moved(lambda whole: whole).split([start.numel() for start in starts])
    group = Threads(workers)
    monkeypatch.setattr(optimizer_shard, "distributed", group)
    held = group.run(lambda rank: moved(lambda whole: slice_of(whole, rank, workers)))
    sizes = [-(-start.numel() // workers) for start in starts]
    for whole, parts in zip(wanted, zip(*(each.split(sizes) for each in held), strict=True), strict=True):
        assert torch.equal(
            torch.cat(parts)[: len(whole)], whole
        )  # bit for bit: each matrix is whole when its update is computed
    numbers = sum(start.numel() for start in starts if start.ndim == 2)
    assert sum(group.sent) == (2 * STEPS * numbers if isinstance(optim, Muon) else 0)


class Halves:
    """A tensor of which two workers have a slice each; the current thread is the worker."""

    def __init__(self, shape: optimizer_shard.Shape, axis: int, group: "Threads") -> None:
        self.shape, self.axis, self.group, self.split = shape, axis, group, shape[axis] // 2

    @property
    def start(self) -> int:
        return self.split * self.group.get_rank()

    def of(self, whole: Tensor) -> Tensor:
        return whole.tensor_split([self.split], self.axis)[self.group.get_rank()]

    def add(self, sums: Tensor) -> Tensor:
        self.group.all_reduce(sums)
        return sums

    def join(self, mine: Tensor) -> Tensor:
        whole = mine.new_zeros(self.shape)
        self.of(whole).copy_(mine)
        return self.add(whole)


@pytest.mark.parametrize("optim", [Lamb(learning_rate=0.1), Adafactor(), Muon(learning_rate=0.1)], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 0), ((6, 8), 1), ((129, 130), 0), ((128, 131), 1), ((5,), 0)])
def test_updates_of_tensor_parallel_slices_equal_the_update_of_the_whole(
    optim: Optimizer, shape: optimizer_shard.Shape, axis: int, monkeypatch
) -> None:
    """If cut by rows, the parameter is two fused tensors, one below the other."""
    generator, count = torch.Generator().manual_seed(0), 2 if axis == 0 else 1
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(count * (1 + STEPS))]
    wholes = [torch.cat(parts[number : number + count]) for number in range(0, len(parts), count)]
    wanted = update(optim, [shape] * count, wholes[0], wholes[1:])
    group = Threads(2)
    monkeypatch.setattr(optimizer_shard, "distributed", group)

    def moved(rank: int) -> Tensor:
        each = Halves(shape, axis, group)
        start, *gradients = (torch.cat([each.of(part) for part in whole.split(shape[0])]) for whole in wholes)
        mine = tuple(each.of(torch.empty(shape)).shape)
        parameter = torch.nn.Parameter(start.clone())
        given = {"params": [parameter], "weight_decay": 0.1, "shapes": [[mine] * count], "slices": [[each] * count]}
        built = optim.build([given])
        for gradient in gradients:
            parameter.grad = gradient.clone()
            built.step()
        return parameter.detach()

    found = group.run(moved)
    lengths = [len(each) // count for each in found] if axis == 0 else []
    if axis == 0:
        by_tensor = zip(*(each.split(length) for each, length in zip(found, lengths, strict=True)), strict=True)
        whole = torch.cat([part for parts in by_tensor for part in parts])
    else:
        whole = torch.cat(found, axis)
    torch.testing.assert_close(whole, wanted, rtol=1e-9, atol=1e-12)


class OnGPU(Tensor):
    """Replaces a tensor on a GPU: results computed from it are also on the GPU until they are moved to the CPU."""

    def to(self, where: Any, *given: Any, **named: Any) -> Tensor:  # type: ignore[override]
        return self.as_subclass(Tensor) if isinstance(where, torch.device) else super().to(where, *given, **named)


class Nccl(Threads):
    """Workers that can exchange only tensors on a GPU."""

    def get_backend(self) -> str:
        return "nccl"

    def all_reduce(self, sums: Tensor, group: Any = None) -> None:
        assert isinstance(sums, OnGPU)
        super().all_reduce(sums)

    def all_to_all_single(self, into: Tensor, given: Tensor, *lengths: Any, group: Any = None) -> None:
        assert isinstance(into, OnGPU)
        assert isinstance(given, OnGPU)
        super().all_to_all_single(into, given, *lengths)


@pytest.mark.parametrize("cut", ["flat pieces", "slices"])
@pytest.mark.parametrize("optim", [Lamb(learning_rate=0.1), Adafactor(), Muon(learning_rate=0.1)], ids=str)
def test_with_nccl_a_cpu_optimizer_exchanges_through_gpus(
    optim: Optimizer, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, shape = torch.Generator().manual_seed(0), (4, 6)
    weight, *gradients = (torch.randn(shape, generator=generator) for _ in range(1 + STEPS))
    wanted = update(optim, [shape], weight, gradients)
    group = Nccl(2)
    monkeypatch.setattr(optimizer_shard, "distributed", group)
    monkeypatch.setattr(Tensor, "cuda", lambda tensor: tensor.clone().as_subclass(OnGPU))

    def moved(rank: int) -> Tensor:
        each = Halves(shape, 0, group)
        mine = each.of if cut == "slices" else (lambda whole: slice_of(whole, rank, 2))
        parameter = torch.nn.Parameter(mine(weight).clone())
        about = {"weight_decay": 0.1, "hidden": [True], "shapes": [[shape]]}
        if cut == "slices":
            about |= {"shapes": [[tuple(parameter.shape)]], "slices": [[each]]}
        built = optim.build([{"params": [parameter], **about}])
        for gradient in gradients:
            parameter.grad = mine(gradient).clone()
            built.step()
        return parameter.detach()

    found = group.run(moved)
    assert [type(each) for each in found] == [Tensor, Tensor]
    torch.testing.assert_close(torch.cat([each.flatten() for each in found]).view(shape), wanted)


def test_a_tensor_may_span_two_workers_and_a_worker_may_have_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Threads(2)
    monkeypatch.setattr(optimizer_shard, "distributed", group)
    whole, group_of = torch.arange(12), {"shapes": [(2, 2)] * 3}
    layouts = []
    for rank in range(2):
        group.own.rank = rank
        mine = slice_of(whole, rank, 2)
        layouts.append(optimizer_shard.layout_of(mine, group_of))
        assert [piece.of(mine).tolist() for piece in layouts[-1].pieces] == [
            shard.tolist() for shard in layouts[-1].split(mine)
        ]
    assert [
        [shard.tolist() for shard in layout.split(slice_of(whole, rank, 2))] for rank, layout in enumerate(layouts)
    ] == [
        [[0, 1, 2, 3], [4, 5], []],
        [[], [6, 7], [8, 9, 10, 11]],
    ]
    assert [piece.start for piece in layouts[1].pieces] == [4, 2, 0]
    assert [layout.batches for layout in layouts] == [((0,), (1,), (2,))] * 2
    alone = optimizer_shard.layout_of(whole, group_of)
    assert [shard.tolist() for shard in alone.split(whole)] == whole.view(3, 4).tolist()
    assert alone.batches == ((0, 1, 2),)
