"""Activation checkpointing keeps less memory for the backward pass of every trunk, and changes no gradient."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from preprocessing.schema import Batch
from tests.training.architectures.test_memory import transformer_xl, xlnet
from tests.training.corpora import deberta, electra, gpt, mini_run, two_sided, two_stages
from tests.training.test_loop import losses, train
from training.architectures import NETS, set_recompute
from training.data import open_loader
from training.engines import to_tensors
from training.formats import build_model
from training.model import Model
from training.run import Run
from training.specs import (
    ActivationCheckpointing,
    AlternatingWindow,
    EngineSettings,
    LearnedPositions,
    Seq2SeqSinusoidalPositions,
    SinusoidalPositions,
    SlidingWindow,
)

MODES: tuple[ActivationCheckpointing, ...] = ("none", "full", "selective")
LAYERS = 6


def bert(run: Run) -> Run:
    return run


def albert(run: Run) -> Run:
    return replace(
        run,
        model=replace(run.model, parameter_sharing="all", embedding_size=16, position_embedding=SinusoidalPositions()),
    )


def longformer(run: Run) -> Run:
    return replace(run, model=replace(run.model, attention_window=SlidingWindow(size=4, global_tokens="first")))


def gpt_with_bands(run: Run) -> Run:
    run = gpt(run)
    return replace(
        run,
        model=replace(
            run.model,
            norm_position="pre",
            position_embedding=LearnedPositions(max_position_embeddings=48),
            attention_window=AlternatingWindow(size=3),
        ),
    )


def bart(run: Run) -> Run:
    run = two_sided(run)
    plain = {
        "norm_position": "post",
        "norm_type": "layernorm",
        "bias": True,
        "scale_attention": True,
        "scale_decoder_outputs": False,
    }
    return replace(run, model=replace(run.model, **plain, position_embedding=Seq2SeqSinusoidalPositions()))


NETS_OF: tuple[Callable[[Run], Run], ...] = (
    *(bert, albert, longformer, gpt, gpt_with_bands, transformer_xl, xlnet),
    *(electra, deberta, two_stages, two_sided, bart),
)
every_net = pytest.mark.parametrize("make", NETS_OF, ids=lambda make: make.__name__)


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return mini_run(corpus, tmp_path)


def with_dropout(make: Callable[[Run], Run], run: Run, layers: int = 2) -> Run:
    """The run with dropout in all layers."""
    run = make(run)
    return replace(run, model=replace(run.model, num_hidden_layers=layers, hidden_dropout=0.2, attention_dropout=0.2))


def step_of(model: Model, batch: Batch, seed: int = 3) -> Tensor:
    """The loss of a batch, with the random numbers of a seed."""
    torch.manual_seed(seed)
    scores = model(to_tensors(batch, torch.device("cpu")))
    return torch.stack([score.loss / max(1, score.count) for score in scores.values()]).sum()


def after_two_batches(run: Run, mode: ActivationCheckpointing) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and gradients of two batches; the second batch continues with the memory of the first."""
    model, loader = build_model(run), open_loader(run, 0, 1)
    set_recompute(model, mode)
    losses = []
    for step in range(2):
        for batch in loader.at(step):
            loss = step_of(model, batch, seed=step)
            loss.backward()
            losses.append(loss.item())
    return losses, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def test_every_class_of_models_is_tested(run: Run) -> None:
    assert {type(build_model(make(run)).trunk) for make in NETS_OF} == set(NETS)


@every_net
def test_gradients_equal_those_without_recomputation(make: Callable[[Run], Run], run: Run) -> None:
    wanted_losses, wanted = after_two_batches(with_dropout(make, run), "none")
    for mode in MODES[1:]:
        losses, found = after_two_batches(with_dropout(make, run), mode)
        assert losses == wanted_losses
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-6, msg=f"{name}, {mode}")


class AllocationRecorder(TorchDispatchMode):
    """Records the storage of each new tensor without keeping it alive."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.storages[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        return made

    def kept(self) -> int:
        """Bytes of the storages that are still alive."""
        return sum(size for ref, size in self.storages.values() if not ref.expired())


@contextmanager
def saved(numbers: list[int]) -> Iterator[None]:
    """Collect the sizes of the tensors that autograd saves inside the block."""

    def pack(tensor: Tensor) -> Tensor:
        numbers.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def kept_bytes(run: Run, mode: ActivationCheckpointing) -> int:
    """Bytes in memory between the forward and the backward pass of one batch."""
    model, (batch, *_) = build_model(run), open_loader(run, 0, 1).at(0)
    set_recompute(model, mode)
    with AllocationRecorder() as made:
        loss = step_of(model, batch)
    gc.collect()
    assert loss.requires_grad
    return made.kept()


@pytest.mark.one_in(3)
@every_net
def test_every_model_keeps_less_memory(make: Callable[[Run], Run], run: Run) -> None:
    run = with_dropout(make, run, LAYERS)
    full, selective, all_of_it = (kept_bytes(run, mode) for mode in ("full", "selective", "none"))
    assert full < 0.6 * all_of_it
    assert selective < 0.98 * all_of_it
    assert full < selective


def test_autograd_saves_only_the_inputs_of_a_block(run: Run) -> None:
    counts: dict[str, int] = {}
    for mode in MODES:
        model, (batch,) = build_model(with_dropout(bert, run, LAYERS)), open_loader(run, 0, 1).at(0)
        set_recompute(model, mode)
        with saved(numbers := []):
            step_of(model, batch)
        counts[mode] = len(numbers)
    assert counts["full"] < counts["selective"] < counts["none"]
    # linear layers, norms, dropout, attention and GELU of a block
    assert (counts["none"] - counts["full"]) / LAYERS > 10


def test_evaluation_computes_each_block_once(run: Run) -> None:
    model, (batch,) = build_model(run), open_loader(run, 0, 1).at(0)
    set_recompute(model, "full")
    called: list[int] = []
    for block in model.trunk.layers:
        block.register_forward_hook(lambda *_: called.append(1))
    with torch.no_grad():
        step_of(model, batch)
    assert len(called) == run.model.num_hidden_layers
    step_of(model, batch).backward()
    assert len(called) > run.model.num_hidden_layers


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_run_with_dropout_and_memory_logs_the_same_losses(run: Run, mode: ActivationCheckpointing) -> None:
    wanted, found = (
        train(
            replace(
                with_dropout(xlnet, run),
                folder=f"{run.folder}/{which}",
                engine=EngineSettings(activation_checkpointing=which),
            )
        )
        for which in ("none", mode)
    )
    assert losses(found[1]) == losses(wanted[1])
