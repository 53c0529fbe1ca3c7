"""The passes of a micro-batch as CUDA graphs: the host launches two graphs instead of hundreds of kernels.

A graph repeats the same kernels at the same addresses, so that all batches must have one shape (fixed_shapes.py), and
nothing in the model may depend on numbers that only the host knows. Dropout in a graph draws from torch's generator.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from training.architectures import DeviceBatch
from training.engines.upload import ON_HOST
from training.score import UNCOUNTED, Score

log = logging.getLogger(__name__)

TOLERANCE: Final = 1e-2  # largest relative difference of losses and of gradient norms from the pass without a graph
MOST_SHAPES: Final = 4  # shapes with a graph each; a run has one for each sequence length

MakeGraphed = Callable[..., Callable[..., Any]]
"""torch.cuda.make_graphed_callables, or a replacement in tests."""


class _Flat(nn.Module):
    """A model whose inputs and outputs are tensors only, in a fixed order."""

    def __init__(self, model: nn.Module, example: DeviceBatch) -> None:
        super().__init__()
        self.model, self.host = model, example.host
        self.names = [name for name in example if name not in ON_HOST]
        self.on_host = {name: example[name] for name in ON_HOST & example.keys()}
        self.outputs: list[tuple[str, str]] = []  # kind of a loss, and name of a tensor of its score

    def forward(self, *columns: Tensor) -> tuple[Tensor, ...]:
        batch = DeviceBatch(dict(zip(self.names, columns, strict=True)) | self.on_host, self.host)
        scores: dict[str, Score] = self.model(batch)
        named = {(kind, name): tensor for kind, score in scores.items() for name, tensor in _tensors_of(score)}
        self.outputs = list(named)
        return tuple(named.values())

    def gather(self, outputs: Sequence[Tensor]) -> dict[str, Score]:
        """The scores with these tensors."""
        of_kind: dict[str, dict[str, Tensor]] = {}
        for (kind, name), tensor in zip(self.outputs, outputs, strict=True):
            of_kind.setdefault(kind, {})[name] = tensor
        return {kind: _score_of(tensors) for kind, tensors in of_kind.items()}


class GraphedModel:
    """Calls a model in training through CUDA graphs, one for each shape of a batch.

    Before it uses a graph, it compares its losses and gradients with those of the model, with the same random numbers.
    If they differ, or if a graph cannot be made, it says so once, and calls the model from then on.
    """

    def __init__(self, model: nn.Module, make: MakeGraphed | None = None) -> None:
        self.model, self.failure = model, ""
        self._make = make or torch.cuda.make_graphed_callables
        self._graphs = dict[tuple[Any, ...], tuple[_Flat, Callable[..., Any]]]()

    def __call__(self, batch: DeviceBatch) -> dict[str, Score]:
        """The scores of a batch. They are valid until the next call."""
        fits = "longest" in batch and self.model.training and torch.is_grad_enabled()
        if self.failure or not fits:
            return self._call_model(batch)
        shape = tuple((name, column.shape) for name, column in batch.items())
        if shape not in self._graphs:
            if len(self._graphs) == MOST_SHAPES:
                return self._call_model(batch)
            made = self._make_graph(batch)
            if made is None:
                return self._call_model(batch)
            self._graphs[shape] = made
        flat, graphed = self._graphs[shape]
        return flat.gather(graphed(*(batch[name] for name in flat.names)))

    def _call_model(self, batch: DeviceBatch) -> dict[str, Score]:
        scores: dict[str, Score] = self.model(batch)
        return scores

    def _make_graph(self, batch: DeviceBatch) -> tuple[_Flat, Callable[..., Any]] | None:
        flat = _Flat(self.model, batch)
        devices = [batch["input_ids"].device] if batch["input_ids"].is_cuda else []
        with torch.random.fork_rng(devices=devices):
            try:
                wanted = self._measure(flat, batch, flat)
                example = tuple(batch[name].clone() for name in flat.names)
                graphed = self._make(flat, example, allow_unused_input=True)
                found = self._measure(flat, batch, graphed)
            except Exception as error:  # whatever fails, the model itself replaces the graph
                first_line = str(error).strip().partition("\n")[0]
                self._give_up(f"it failed ({first_line or type(error).__name__})")
                return None
        for name, ours, theirs in zip(("losses", "gradients"), found, wanted, strict=True):
            difference = float(((ours - theirs).abs() / theirs.abs().clamp(min=1e-6)).max())
            if not difference <= TOLERANCE:
                self._give_up(f"its {name} differ by {difference:.1%}")
                return None
        return flat, graphed

    def _measure(self, flat: _Flat, batch: DeviceBatch, call: Callable[..., Any]) -> tuple[Tensor, Tensor]:
        """The losses of a batch, and the norms of the gradients of all parameters."""
        torch.manual_seed(0)
        scores = flat.gather(call(*(batch[name] for name in flat.names)))
        losses = torch.stack([score.loss for score in scores.values()])
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
        norms = torch.stack([gradient.float().norm() for gradient in gradients if gradient is not None])
        return losses.detach().float(), norms.norm()[None]

    def _give_up(self, reason: str) -> None:
        self.failure = reason
        log.warning("engine.cuda_graphs: no graph of a micro-batch, because %s; kernels are launched alone", reason)


def _tensors_of(score: Score) -> list[tuple[str, Tensor]]:
    """The tensors of a score, by their names; the loss first."""
    named: list[tuple[str, Tensor | None]] = [("loss", score.loss), ("correct", score.correct)]
    named += [("count", score.count if isinstance(score.count, Tensor) else None)]  # else the host counts
    named += [("z_loss", score.z_loss), *((f"metrics.{name}", tensor) for name, tensor in score.metrics.items())]
    return [(name, tensor) for name, tensor in named if tensor is not None]


def _score_of(tensors: dict[str, Tensor]) -> Score:
    metrics = {name.removeprefix("metrics."): x for name, x in tensors.items() if name.startswith("metrics.")}
    count = tensors.get("count", UNCOUNTED)
    return Score(tensors["loss"], count, tensors["correct"], metrics, tensors.get("z_loss"))
