"""The plain engine: one process, float32, no DeepSpeed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic

import torch
from torch import Tensor, nn

from preprocessing.schema import Batch
from training.architectures import set_recompute
from training.engines import local_shards
from training.engines.engine import M, StepResult, memory_of, score_micro_batches, set_rate, to_tensors
from training.engines.fragments import CheckpointFragment, Fragments
from training.engines.local_shards import Copy
from training.model import Model, materialize, net_of, parameter_groups
from training.optimizers import Optimizer
from training.score import Score
from training.specs import EngineSettings


class LocalEngine(Generic[M]):
    """One process in float32, for fine-tuning and debugging. It is the reference of the parity tests.

    `groups` are the parameter groups of the optimizer; the default is the result of `parameter_groups`.
    """

    def __init__(
        self, model: M, spec: Optimizer, machine: EngineSettings, groups: Sequence[dict[str, Any]] | None = None
    ) -> None:
        assert machine.precision == "fp32", "bf16 needs float32 master weights, which only DeepSpeed has"
        self.device = torch.device(machine.device)
        if any(weight.is_meta for weight in model.parameters()):
            assert isinstance(model, Model)
            materialize(model, lambda value: nn.Parameter(value.to(self.device)))
        self.model, self.clip = model.to(self.device), spec.max_grad_norm
        set_recompute(model, machine.activation_checkpointing)
        self.rank, self.world = self.data_rank, self.data_world = 0, 1
        self.counts = True
        self.zero: int | str = "none"
        self.optimizer = spec.build(groups or parameter_groups(model, spec.weight_decay, spec.weight_decay_params))

    def forward(self, batch: Batch) -> dict[str, Score]:
        return self.model(to_tensors(batch, self.device))

    def iterate_scores(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        return score_micro_batches(self.forward, batches)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self, rate: float) -> StepResult:
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip or math.inf))
        if math.isfinite(norm):
            set_rate(self.optimizer, rate)
            self.optimizer.step()
        self.optimizer.zero_grad()
        return StepResult(norm, skipped=not math.isfinite(norm))

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]

    def part(self, copy: Copy) -> CheckpointFragment:
        part = local_shards.part_of(self.model, self._flats(), self.optimizer, copy, is_first=True)
        part.tensors.update(memory_of(self.model))
        return part

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        local_shards.load(self._flats(), self.optimizer, fragments)
        local_shards.load_buffers(self.model, fragments)
        net_of(self.model).load_memory_state(memory, self.device)

    def _flats(self) -> Iterator[local_shards.FlatParameter]:
        return local_shards.parameters(self.model, self.optimizer)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, weight.detach().cpu()) for name, weight in self.model.named_parameters())

    def full_state(self) -> dict[str, Tensor]:
        return dict(self.weights())
