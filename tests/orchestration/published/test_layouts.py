"""Validation reads the same sequences in the same streams on any number of workers, for every model family."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from preprocessing.schema import Batch
from tests import family
from tests.orchestration.published.shrunk import TOKENS, VOCAB, model, trunk_of
from training.loop import evaluate
from training.model import Model
from training.score import Score

NUM_ROWS = 21  # each stream has 16 sequences, so there are fewer streams than workers


def signature(name: str) -> str:
    """Return the properties that decide a model's sequences and random draws; one recipe per signature is tested."""
    one = family.recipe(name, "tiny")
    plain = family.recipe(name)
    kinds = [one.data.packing.kind, one.masking.kind, one.objective.kind, one.model.kind]
    losses = [f"{loss!r}" for loss in one.losses]
    draws = [str(getattr(plain.model, key, "")) for key in ("samples", "allow_correct", "shared")]
    return " ".join([*kinds, *losses, *draws, type(plain.model.position_embedding).__name__])


NAMES = list({signature(name): name for name in family.RECIPES}.values())


@dataclass
class Group:
    """Workers that run as threads."""

    world: int

    def __post_init__(self) -> None:
        self.barrier, self.given = Barrier(self.world, timeout=60), dict[int, Sequence[float]]()

    def reduce(self, rank: int, values: Sequence[float]) -> list[float]:
        self.given[rank] = values
        self.barrier.wait()
        sums = [float(sum(each)) for each in zip(*self.given.values(), strict=True)]
        self.barrier.wait()
        return sums


class Engine:
    """Engine of one worker, with its own copy of the model."""

    counts = True

    def __init__(self, net: Model, group: Group, rank: int) -> None:
        self.model, self.group, self.rank, self.world = net, group, rank, group.world
        self.data_rank, self.data_world = rank, group.world

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        return self.group.reduce(self.rank, values)

    def iterate_scores(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Mapping[str, Score]]]:
        for batch in batches:
            in_vocab = {key: array % VOCAB if key in TOKENS else array for key, array in batch.items()}
            yield batch, self.model({key: torch.from_numpy(np.asarray(array)) for key, array in in_vocab.items()})


def evaluate_on(name: str, world: int, **machine: Any) -> dict[str, float]:
    """Return the metrics of an evaluation with this many workers."""
    tiny, plain = family.recipe(name, "tiny"), family.recipe(name)
    losses = tiny.losses
    net = model(trunk_of(plain, tiny), losses)
    run = cast(Any, SimpleNamespace(losses=losses, seed=0, steps=1, eval_rows=NUM_ROWS))
    group, whole = Group(world), family.loader(tiny, steps=1)

    def run_worker(rank: int) -> dict[str, float]:
        loader = replace(whole, rank=rank, world=world, machine=replace(whole.machine, **machine))
        engine = cast(Any, Engine(deepcopy(net), group, rank))
        with torch.no_grad():
            return evaluate(run, engine, loader, whole.phases[0].seq_length)

    with ThreadPoolExecutor(world) as threads:
        found = list(threads.map(run_worker, range(world)))
    assert all(each == found[0] for each in found)
    return found[0]


LAYOUTS: list[tuple[int, dict[str, Any]]] = [(2, {}), (3, {}), (2, {"padding": "padded", "micro_batch_tokens": 64})]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", NAMES)
def test_evaluation_does_not_depend_on_the_number_of_workers(name: str) -> None:
    """ELECTRA's metrics once differed by 5e-3, because each worker sampled its own replacements."""
    alone = evaluate_on(name, 1)
    for world, machine in LAYOUTS:
        assert evaluate_on(name, world, **machine) == pytest.approx(alone, rel=2e-6, abs=1e-7), (world, machine)


@pytest.mark.parametrize("name", [name for name in NAMES if "electra" in name])
def test_evaluation_is_reproducible_but_training_draws_new_samples(name: str) -> None:
    assert evaluate_on(name, 1) == evaluate_on(name, 1)
    state: Callable[[], Any] = torch.get_rng_state
    torch.manual_seed(1)
    before = state()
    net = deepcopy(model(trunk_of(family.recipe(name), family.recipe(name, "tiny")), family.recipe(name).losses))
    loader = family.loader(family.recipe(name, "tiny"), steps=1)
    batch = {key: torch.from_numpy(np.asarray(a % VOCAB if key in TOKENS else a)) for key, a in loader.at(0)[0].items()}
    net.train()
    net(batch)
    assert not torch.equal(state(), before)
    net.eval()
    torch.manual_seed(1)
    net(batch)
    assert torch.equal(state(), before)
