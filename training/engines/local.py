"""The engine of a single process, without DeepSpeed: nothing is divided, so that nothing is copied or exchanged."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic

import torch
from torch import Tensor, nn

from preprocessing.schema import Batch
from training.architectures import DeviceBatch, set_recompute, trust_kernels, use_float8
from training.engines import local_shards
from training.engines.engine import M, StepResult, memory_of, score_micro_batches, set_rate
from training.engines.flat_parameters import FlatParameters
from training.engines.fragments import CheckpointFragment, Fragments
from training.engines.graphs import GraphedModel
from training.engines.local_shards import Copy
from training.engines.upload import Uploader
from training.model import Model, materialize, net_of, parameter_groups
from training.optimizers import Optimizer
from training.score import Score
from training.specs import EngineSettings

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class LocalEngine(Generic[M]):
    """One process in float32 or bf16. It is the reference of the parity tests.

    Without `groups`, it pretrains: the parameters are flat (flat_parameters.py), and an update does not wait for the
    device. With `groups` (parameter groups of the optimizer, for fine-tuning in float32), parameters may be frozen and
    thawed between updates.
    """

    def __init__(
        self, model: M, spec: Optimizer, machine: EngineSettings, groups: Sequence[dict[str, Any]] | None = None
    ) -> None:
        assert machine.precision in DTYPES, "fp16 needs a loss scale, which only DeepSpeed has"
        assert groups is None or machine.precision == "fp32", "bf16 needs master weights, which only pretraining has"
        self.device, dtype = torch.device(machine.device), DTYPES[machine.precision]
        if any(weight.is_meta for weight in model.parameters()):
            assert isinstance(model, Model)
            materialize(model, lambda value: nn.Parameter(value.to(self.device, dtype)))
        self.model, self.clip = model.to(self.device), spec.max_grad_norm or math.inf
        if dtype != torch.float32:  # else the model keeps its precision, which may be float64
            model.to(dtype)
        self.uploader = Uploader(self.device)
        self.call: Callable[[DeviceBatch], dict[str, Score]] = model
        if machine.cuda_graphs and self.device.type == "cuda":
            self.call = GraphedModel(model)
        trust_kernels(model, dtype, self.device)
        if groups is None:
            use_float8(model, machine.fp8_recipe, self.device)
        set_recompute(model, machine.activation_checkpointing)
        self.rank, self.world = self.data_rank, self.data_world = 0, 1
        self.counts = True
        self.zero: int | str = "none"
        self.flat: FlatParameters | None = None
        if groups is None:
            default = parameter_groups(model, spec.weight_decay, spec.weight_decay_params)
            self.flat = FlatParameters(model, default)
        self.optimizer = spec.build(self.flat.optimizer_groups if self.flat else groups or ())

    def forward(self, batch: Batch) -> dict[str, Score]:
        return self.call(self.uploader.take(batch))

    def iterate_scores(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, dict[str, Score]]]:
        return score_micro_batches(self.forward, self.uploader, batches)

    def backward(self, loss: Tensor) -> None:
        loss.backward()
        if self.flat:
            self.flat.collect()

    def step(self, rate: float) -> StepResult:
        set_rate(self.optimizer, rate)
        return self._step_flat(self.flat) if self.flat else self._step()

    @torch.no_grad()
    def _step_flat(self, flat: FlatParameters) -> StepResult:
        """Update the flat parameters. If the gradient is not finite, the optimizer changes nothing: the device decides
        it, and the host does not wait for that."""
        norm = torch.nn.utils.get_total_norm(flat.gradients)
        if self.clip < math.inf:
            factor = (self.clip / (norm + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
            for group in flat.groups:
                group.gradient.mul_(factor)
        if getattr(self.optimizer, "_step_supports_amp_scaling", False):  # as torch.amp.GradScaler
            self.optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif norm.isfinite():  # another optimizer: the host waits for the device
            self.optimizer.step()
        flat.publish()
        flat.clear()
        return StepResult(norm)

    def _step(self) -> StepResult:
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip))
        if math.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return StepResult(norm)

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]

    def part(self, copy: Copy) -> CheckpointFragment:
        part = local_shards.part_of(self.model, self._flats(), self.optimizer, copy, is_first=True)
        part.tensors.update(memory_of(self.model))
        return part

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        local_shards.load(self._flats(), self.optimizer, fragments)
        local_shards.load_buffers(self.model, fragments)
        if self.flat:
            self.flat.publish()
        net_of(self.model).load_memory_state(memory, self.device)

    def _flats(self) -> Iterator[local_shards.FlatParameter]:
        return self.flat.flats(self.optimizer) if self.flat else local_shards.parameters(self.model, self.optimizer)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        named = dict(self.flat.weights()) if self.flat else {}
        return ((name, named.get(name, weight).detach().cpu()) for name, weight in self.model.named_parameters())

    def full_state(self) -> dict[str, Tensor]:
        return dict(self.weights())
