"""A single GPU never waits for the host and never compiles twice: held on a CPU, for every recipe."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.fixed_shapes import MicroBatchShape, RowSizes, choose_shape, make_batches, real_lengths
from preprocessing.schema import IGNORE, Batch, Row
from tests import family
from tests.golden import record
from training.architectures import DeviceBatch
from training.batch_shapes import fixes_shapes
from training.engines import LocalEngine, to_tensors
from training.engines.upload import Uploader
from training.optimizers import schedule
from training.specs import EngineSettings

DISTINCT = sorted(set(record.alike(family.RECIPES).values()))
READS = ("_local_scalar_dense", "nonzero", "masked_select", "unique")  # the host waits for these


class FailOnReads(TorchDispatchMode):
    """Fails if the host reads a number from the device, or a shape that depends on numbers there.

    With `no_constants`, also if a tensor is made from numbers of the host, whose copy to a device the host waits for.
    """

    def __init__(self, *, no_constants: bool) -> None:
        super().__init__()
        self.no_constants = no_constants

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name.startswith(READS) and name != "nonzero_static":
            raise AssertionError(f"{name} waits for the device")
        if self.no_constants and name.startswith("lift_fresh"):
            raise AssertionError(f"a tensor of numbers of the host, {args[0].shape}, is a copy")
        return func(*args, **(kwargs or {}))


class _Uploader(Uploader):
    """The copy of the batch itself is permitted."""

    def take(self, batch: Batch) -> DeviceBatch:
        with _disable_current_modes():
            return super().take(batch)


def shapes_of(batch: Batch) -> dict[str, tuple[int, ...]]:
    return {name: column.shape for name, column in batch.items()}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", DISTINCT)
def test_all_micro_batches_of_fifty_steps_have_one_shape(name: str) -> None:
    loader = family.fixed_loader(name, steps=50)
    batches = [batch for step in range(50) for batch in loader.at(step)]
    shapes = Counter(str(shapes_of(batch)) for batch in batches)
    (_, most), *others = shapes.most_common()
    assert most >= 50
    assert len(batches) - most <= len(batches) // 50, f"{most} of {len(batches)}, then {others[:2]}"


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", DISTINCT)
def test_filler_changes_no_loss_and_no_gradient(name: str) -> None:
    recipe = family.recipe(name, "tiny")
    loader, model = family.fixed_loader(name, steps=1), family.model(recipe).eval()
    if not loader.shapes:
        return
    plain = replace(loader, shapes={}, machine=EngineSettings()).at(0)
    found = [sums(model, recipe.losses, batches) for batches in (plain, loader.at(0))]
    for (loss, count, gradient), (fixed_loss, fixed_count, fixed_gradient) in zip(*found, strict=True):
        assert fixed_count == count
        torch.testing.assert_close(fixed_loss, loss, rtol=2e-5, atol=1e-4)
        torch.testing.assert_close(fixed_gradient, gradient, rtol=1e-3, atol=1e-3 * float(gradient.abs().max()))


def sums(model: Any, losses: Any, batches: list[Batch]) -> list[tuple[Tensor, int, Tensor]]:
    """Loss, number of targets and the norms of the gradients, for each kind of loss."""
    scores = [model(to_tensors(batch, torch.device("cpu"))) for batch in batches]
    found = []
    for loss in losses:
        total = torch.stack([score[loss.kind].loss for score in scores]).sum()
        count = sum(int(score[loss.kind].count) for score in scores)
        assert count == sum(loss.count(batch) for batch in batches)
        gradients = torch.autograd.grad(total, list(model.parameters()), retain_graph=True, allow_unused=True)
        norms = torch.stack([g.norm() for g in gradients if g is not None])
        found.append((total.detach(), count, norms))
    return found


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", DISTINCT)
def test_no_micro_step_and_no_step_waits_for_the_device(name: str) -> None:
    recipe, loader = family.recipe(name, "tiny"), family.fixed_loader(name, steps=2)
    engine = LocalEngine(family.model(recipe), recipe.optimizer, EngineSettings())
    engine.uploader = _Uploader(engine.device)
    copies_indices = name.startswith(("transformer_xl", "xlnet"))  # of rare tokens, directions: nobody waits
    results = []
    for step in range(2):  # the first step creates the states of the optimizer, and constants
        batches = loader.at(step)
        counts = {loss.kind: max(1, sum(loss.count(batch) for batch in batches)) for loss in recipe.losses}
        with FailOnReads(no_constants=step > 0 and not copies_indices):
            for _, scores in engine.iterate_scores(batches):
                parts = [loss.weight * scores[loss.kind].loss / counts[loss.kind] for loss in recipe.losses]
                engine.backward(torch.stack(parts).sum())
            results.append(engine.step(schedule.rate(recipe.optimizer, step, 2)))
    assert all(np.isfinite(result.grad_norm) for result in results)


def rows_of(sizes: list[int]) -> list[Row]:
    """Sequences of these lengths, each with a target at its first token."""
    return [
        {
            "input_ids": np.arange(size, dtype=np.int32) + 5,
            "token_type_ids": np.zeros(size, np.int8),
            "labels": np.where(np.arange(size) == 0, 9, IGNORE).astype(np.int32),
        }
        for size in sizes
    ]


def test_filler_has_sequences_of_one_to_the_longest_length() -> None:
    rng = np.random.default_rng(0)
    rows = rows_of(rng.integers(3, 33, 400).tolist())
    shape = choose_shape(RowSizes.of(collate_unpadded(rows)), rows=50, length=32, most_tokens=512)
    batches = make_batches(collate_unpadded(rows), shape, pad=0)
    assert [len(batch["input_ids"]) for batch in batches] == [shape.tokens] * len(batches)
    for batch in batches:
        assert batch["lengths"].sum() == shape.tokens
        assert batch["lengths"].min() >= 1
        assert batch["lengths"].max() <= 32
        assert set(batch["input_ids"][int(batch["real_tokens"]) :].tolist()) == {0}
        assert batch["targets"][batch["targets"] == IGNORE].size == (batch["targets_at"] == shape.tokens - 1).sum()
    lengths = np.concatenate([real_lengths(batch) for batch in batches])
    assert lengths.tolist() == [len(row["input_ids"]) for row in rows]


@pytest.mark.parametrize("rows", [64, 256, 1_000])
def test_most_of_a_step_of_pairs_is_text(rows: int) -> None:
    """Lengths as of BERT's pairs at 512: 90 % fill the sequence, the others are short."""
    rng = np.random.default_rng(1)
    sizes = np.where(rng.random(20_000) < 0.9, rng.integers(380, 513, 20_000), rng.integers(8, 512, 20_000))
    targets = np.ceil(0.15 * sizes).astype(np.int64)
    shape = choose_shape(RowSizes(sizes[:2_048], 0 * sizes[:2_048], targets[:2_048]), rows, 512, 65_536)
    text, micro_batches = 0, 0
    for first in range(0, len(sizes) - rows, rows):
        used = np.zeros(3, np.int64)
        micro_batches += 1
        for size, target in zip(sizes[first : first + rows], targets[first : first + rows], strict=True):
            more = used + np.array([1, size, target])
            if not shape.fits(int(more[0]), int(more[1]), 0, int(more[2])):
                micro_batches, more = micro_batches + 1, np.array([1, size, target])
            used, text = more, text + int(size)
    assert text / (micro_batches * shape.tokens) > 0.9


def test_a_short_last_sequence_is_a_batch_of_its_own() -> None:
    shape = MicroBatchShape(tokens=32, rows=4, targets=4, length=8)
    batches = make_batches(collate_unpadded(rows_of([8] * 4 + [5] + [8] * 4)), shape, pad=0)
    assert [len(batch["lengths"]) for batch in batches] == [4, 1, 4]
    assert ["longest" in batch for batch in batches] == [True, False, True]


def test_only_a_single_gpu_has_fixed_shapes_by_itself() -> None:
    def fixes(world: int, **keys: Any) -> bool:
        return fixes_shapes(EngineSettings(**keys), world)

    assert [fixes(1, device="cuda"), fixes(2, device="cuda"), fixes(1), fixes(1, padding="fixed")] == [
        True,
        False,
        False,
        True,
    ]
    with pytest.raises(BadInput, match=r"invalid engine.padding: got fixed, expected unpadded with 2 workers"):
        fixes(2, padding="fixed")


def test_a_batch_counts_its_text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = family.fixed_loader("bert_base", steps=1)
    plain: Mapping[str, Any] = replace(loader, shapes={}, machine=EngineSettings()).at(0)[0]
    assert sum(real_lengths(batch).sum() for batch in loader.at(0)) == plain["lengths"].sum()
