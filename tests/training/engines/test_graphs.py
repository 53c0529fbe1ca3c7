"""CUDA graphs of a micro-batch, with a replacement that repeats the passes at fixed addresses on a CPU."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from preprocessing.schema import Batch
from tests import family
from training.engines import to_tensors
from training.engines.graphs import GraphedModel
from training.model import Model
from training.score import Score

CPU = torch.device("cpu")


class Graphs:
    """Replaces torch.cuda.make_graphed_callables: inputs are copied to fixed addresses, and outputs have some, too."""

    def __init__(self, change: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        self.made, self.replayed, self.change = 0, 0, change

    def make(self, module: nn.Module, example: tuple[Tensor, ...], **_: Any) -> Callable[..., Any]:
        self.made += 1

        def replay(*columns: Tensor) -> tuple[Tensor, ...]:
            self.replayed += 1
            for held, column in zip(example, columns, strict=True):
                held.copy_(column)  # raises an error for another shape
            outputs = module(*example)
            return (self.change(outputs[0]), *outputs[1:])

        return replay


def bert() -> tuple[Model, list[Batch]]:
    return family.model(family.recipe("bert_base", "tiny")).train(), family.fixed_loader("bert_base", 2).at(0)


def numbers(scores: dict[str, Score]) -> list[tuple[str, float, int]]:
    return [(kind, float(score.loss.detach()), int(score.correct)) for kind, score in scores.items()]


def passes(call: Callable[..., dict[str, Score]], batches: list[Batch]) -> list[list[tuple[str, float, int]]]:
    """Losses of each batch with the same random numbers."""
    torch.manual_seed(7)
    return [numbers(call(to_tensors(batch, CPU))) for batch in batches]


def test_a_graph_gives_the_scores_of_its_model_and_is_made_once() -> None:
    (model, batches), graphs = bert(), Graphs()
    graphed = GraphedModel(model, graphs.make)
    before = torch.get_rng_state()
    assert passes(graphed, batches) == passes(model, batches)
    assert (graphs.made, graphs.replayed, graphed.failure) == (1, 1 + len(batches), "")
    assert passes(graphed, batches) == passes(model, batches)
    assert graphs.made == 1
    assert before.shape == torch.get_rng_state().shape


def test_gradients_pass_through_a_graph() -> None:
    (model, (batch, *_)), graphs = bert(), Graphs()
    graphed = GraphedModel(model, graphs.make)
    for call in (model, graphed):
        torch.manual_seed(3)
        torch.stack([score.loss for score in call(to_tensors(batch, CPU)).values()]).sum().backward()
    doubled = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    torch.manual_seed(3)
    torch.stack([score.loss for score in model(to_tensors(batch, CPU)).values()]).sum().backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(2 * weight.grad, doubled[name])


def test_evaluation_and_odd_batches_use_no_graph() -> None:
    (model, (batch, *_)), graphs = bert(), Graphs()
    graphed = GraphedModel(model, graphs.make)
    (plain,) = family.loader(family.recipe("bert_base", "tiny"), 1).at(0)
    graphed(to_tensors(plain, CPU))
    with torch.no_grad():
        graphed(to_tensors(batch, CPU))
    model.eval()
    graphed(to_tensors(batch, CPU))
    assert graphs.made == 0


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Graphs(lambda x: 1.1 * x).make, "its losses differ by 10"),
        (lambda *_, **__: 1 / 0, "it failed (division by zero)"),
    ],
)
def test_a_graph_that_differs_or_fails_is_not_used_which_is_said_once(
    make: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, batches = bert()
    graphed = GraphedModel(model, make)
    with caplog.at_level(logging.WARNING):
        assert passes(graphed, batches) == passes(model, batches)
    (message,) = (record.getMessage() for record in caplog.records if "cuda_graphs" in record.getMessage())
    assert f"no graph of a micro-batch, because {reason}" in message
