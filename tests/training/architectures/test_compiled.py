"""Blocks are compiled without a graph break, once for all layers, and learn the same."""

import logging
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from preprocessing.schema import Batch
from tests import family
from tests.training.test_fixed_shapes import DISTINCT
from training.architectures import BlockCompiler, compile_blocks, has_compiled_blocks
from training.architectures.recompute import RecomputedBlocks
from training.engines import to_tensors
from training.model import Model

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own access


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def graphs_of(name: str) -> tuple[int, int]:
    """The number of stacks of a tiny recipe, and of the graphs that two steps compile."""
    recipe, loader = family.recipe(name, "tiny"), family.fixed_loader(name, 2)
    model, compiled = family.model(recipe).train(), list[Any]()

    def count(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    compiler = BlockCompiler(backend=count, dynamic=not loader.shapes)
    compile_blocks(model, compiler)
    for step in range(2):
        for batch in loader.at(step):
            scores = model(to_tensors(batch, CPU))
            torch.stack([score.loss for score in scores.values()]).sum().backward()
    assert compiler.failure == ""
    stacks = [module for module in model.modules() if isinstance(module, RecomputedBlocks)]
    return len(stacks), len(compiled)


@pytest.mark.one_in(20)
@pytest.mark.parametrize("name", DISTINCT)
def test_the_blocks_of_a_recipe_compile_without_a_break_and_once(name: str) -> None:
    """With fullgraph=True, a break is an error. One graph for each stack, and one for each kind of loss."""
    stacks, graphs = graphs_of(name)
    assert graphs <= (8 if name.startswith(("xlnet", "transformer_xl")) else 2 * stacks + 2)


def losses_of(model: Model, batch: Batch, seed: int = 0) -> list[float]:
    torch.manual_seed(seed)
    return [float(score.loss.detach()) for score in model(to_tensors(batch, CPU)).values()]


def bert() -> tuple[Model, Batch]:
    return family.model(family.recipe("bert_base", "tiny")).train(), family.fixed_loader("bert_base", 1).at(0)[0]


def test_only_training_with_fixed_shapes_is_compiled() -> None:
    model, batch = bert()
    (plain,) = family.loader(family.recipe("bert_base", "tiny"), 1).at(0)
    compiled = list[Any]()
    compile_blocks(model, BlockCompiler(backend=lambda graph, inputs: compiled.append(graph) or graph.forward))
    assert has_compiled_blocks(model)
    losses_of(model, plain)
    with torch.no_grad():
        losses_of(model, batch)
    assert not compiled
    losses_of(model, batch)
    assert len(compiled) == 2  # a block and a loss


def test_a_compiler_that_fails_is_reported_once_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def fail(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    (model, batch), (other, _) = bert(), bert()
    compile_blocks(model, BlockCompiler(backend=fail))
    with caplog.at_level(logging.WARNING):
        assert losses_of(model, batch) == losses_of(other, batch)
        assert losses_of(model, batch) == losses_of(other, batch)
    (message,) = (record.getMessage() for record in caplog.records if "torch_compile" in record.getMessage())
    assert "no compiled blocks, because the compiler failed:" in message
    assert "no C++ compiler" in message


def test_an_error_of_the_model_is_raised() -> None:
    def refuse(part: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BlockCompiler(backend="eager").call(refuse, 1)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_compiled_blocks_and_losses_learn_the_same() -> None:
    (model, batch), (other, _) = bert(), bert()
    model.eval(), other.eval()  # dropout of compiled code has other random numbers
    compile_blocks(model, BlockCompiler())
    assert losses_of(model, batch) == pytest.approx(losses_of(other, batch), rel=1e-5)
    for net in (model, other):
        scores = net(to_tensors(batch, CPU))
        torch.stack([score.loss for score in scores.values()]).sum().backward()
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3, msg=name)
