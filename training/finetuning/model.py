"""A trunk with heads of a task; to the engines what a model of pretraining is."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from training.finetuning.heads import TaskHead
from training.finetuning.targets import Target
from training.model import build, initialise
from training.score import Score
from training.specs import Trunk

_POOLER: Final = re.compile(r"heads\.\w+\.(pooler\..+)")  # a weight of it, in a head of pretraining


class TaskModel(nn.Module):
    """A trunk and one head for each target. `seed` is that of the weights that are not taken over."""

    def __init__(self, trunk: Trunk, targets: Sequence[Target], vocab_size: int, seed: int) -> None:
        super().__init__()
        self.targets = tuple(targets)
        device = torch.get_default_device()
        with torch.device("meta"):  # torch's constructors would fill the tensors from the global generator first
            self.trunk = build(trunk, vocab_size)
            self.heads = nn.ModuleDict({target.kind: target.head(trunk, vocab_size) for target in self.targets})
        self.to_empty(device=device)
        initialise(self, trunk, seed)

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Score]:
        """Score of each target, by its kind."""
        if not any(isinstance(head, TaskHead) for head in self.heads.values()):  # it names tokens, as in pretraining
            hidden, table = self.trunk(batch), self.trunk.table
            return {kind: head(hidden, batch, table) for kind, head in self.heads.items()}
        hidden, batch = self._states(batch)
        return {kind: head(hidden, batch, self.trunk.table) for kind, head in self.heads.items()}

    @torch.no_grad()
    def outputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What each head says of a batch, by the kind of its target."""
        hidden, batch = self._states(batch)
        return {kind: head.outputs(hidden, batch) for kind, head in self.heads.items() if isinstance(head, TaskHead)}

    def _states(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self.trunk.states(batch), {**batch, "summary_at": self.trunk.summary_at(batch)}

    def take_over(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Take over the trunk of pretrained weights (names of `Model.named_parameters`), a pooler of one of its heads,
        and heads of its own kinds, which name tokens; the names of the weights that stay random. A larger token table
        keeps its further rows."""
        mine = dict(weights)
        for name, weight in weights.items():
            if found := _POOLER.fullmatch(name):
                mine |= {f"heads.{kind}.summary.{found[1]}": weight for kind in self.heads}
        wanted = dict(self.named_parameters())
        mine = {name: weight for name, weight in mine.items() if name in wanted or name.startswith("trunk.")}
        with torch.no_grad():
            for name, weight in mine.items():
                wanted[name][: len(weight)].copy_(weight)
        missing = [name for name in wanted if name not in mine]
        assert not [name for name in missing if name.startswith("trunk.")], missing
        return missing
