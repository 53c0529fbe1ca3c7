"""The plain engine: one process, float32, no DeepSpeed."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from preprocessing.schema import Batch
from training.engines.engine import M, StepResult, load_memory, save_memory, set_rate, to_tensors
from training.model import parameter_groups
from training.optim import Optim
from training.score import Score
from training.specs import Machine


class LocalEngine(Generic[M]):
    """One plain process in float32: the oracle of the parity tests, what to debug with, and to fine-tune with.

    `groups` are the parameters for the optimiser, where they are not those of `parameter_groups`.
    """

    def __init__(self, model: M, spec: Optim, machine: Machine, groups: Sequence[dict[str, Any]] | None = None) -> None:
        assert machine.precision == "fp32", "bf16 needs float32 masters, which DeepSpeed keeps"
        self.device = torch.device(machine.device)
        self.model, self.clip = model.to(self.device), spec.clip
        self.rank, self.world = self.data_rank, self.data_world = 0, 1
        self.counts = True
        self.zero: int | str = "none"
        self.optimizer = spec.build(groups or parameter_groups(model, spec.decay, spec.decays))

    def forward(self, batch: Batch) -> dict[str, Score]:
        return self.model(to_tensors(batch, self.device))

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

    def save(self, folder: Path) -> None:
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, folder / "local.pt")
        save_memory(self.model, folder, self.rank)

    def load(self, folder: Path) -> None:
        state = torch.load(folder / "local.pt", map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        load_memory(self.model, folder, self.rank, self.device)

    def full_state(self) -> dict[str, Tensor]:
        return {name: weight.detach().cpu() for name, weight in self.model.named_parameters()}
