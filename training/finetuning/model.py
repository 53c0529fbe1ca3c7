"""A trunk with heads of a task; to the engines what a model of pretraining is."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Self

import torch
from torch import Tensor, nn

from training.finetuning.features import FeatureReader
from training.finetuning.heads import TaskHead
from training.finetuning.targets import Target
from training.finetuning.tuning import Features
from training.model import build, initialize
from training.score import Score
from training.specs import Architecture

_POOLER: Final = re.compile(r"heads\.\w+\.(?:summary\.)?(pooler\..+)")  # a weight of it, in a head of either training
_TABLE: Final = "trunk.tokens.weight"
_NEW_ROWS: Final = 0.02  # deviation of rows that a table gets for a task (GPT-1 4.1)


class TaskModel(nn.Module):
    """A trunk and one head for each target. `seed` is that of the weights that are not taken over.

    `features`: what the heads read of a frozen trunk; "none", the trunk learns too. Of `rows` of the token table the
    last `new_rows` are of this task alone.
    """

    def __init__(
        self,
        trunk: Architecture,
        targets: Sequence[Target],
        rows: int,
        seed: int,
        *,
        features: Features = "none",
        new_rows: int = 0,
    ) -> None:
        super().__init__()
        self.targets = tuple(targets)
        device = torch.get_default_device()
        with torch.device("meta"):  # torch's constructors would fill the tensors from the global generator first
            self.trunk = build(trunk, rows)
            self.reading = FeatureReader(features, trunk.num_hidden_layers, trunk.hidden_size)
            width = self.reading.width
            self.heads = nn.ModuleDict({target.kind: target.head(trunk, width, rows) for target in self.targets})
        self.to_empty(device=device)
        initialize(self, trunk, seed)
        self.reading.begin()
        if new_rows:
            table = self.get_parameter(_TABLE)
            generator = torch.Generator(table.device).manual_seed(seed)
            with torch.no_grad():
                table[-new_rows:].normal_(0, _NEW_ROWS, generator=generator)
        self.frozen = features != "none"
        self.trunk.requires_grad_(not self.frozen)

    @property
    def top(self) -> int:
        """Depth of the heads, two above the highest layer (google-research/electra, model/optimization.py)."""
        return len(self.trunk.layers) + 2

    def depths(self) -> dict[str, int]:
        """Depth of each parameter by its name: 0 of the tables, i + 1 of layer i, `top` of the heads."""
        of = {f"trunk.{name}": depth for name, depth in self.trunk.depths().items()}
        return {name: of.get(name, self.top) for name, _ in self.named_parameters()}

    def train(self, mode: bool = True) -> Self:
        """A frozen trunk has no dropout."""
        super().train(mode)
        if self.frozen:
            self.trunk.eval()
        return self

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
        return self.reading(self.trunk, batch), {**batch, "summary_at": self.trunk.summary_at(batch)}

    def take_over(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Take over the trunk of trained weights (names of `Model.named_parameters`), a pooler of one of its heads, and
        heads of its own kinds that name tokens; the names of the weights that stay random. A larger token table keeps
        its further rows."""
        wanted = dict(self.named_parameters())
        fresh = {f"heads.{kind}" for kind, head in self.heads.items() if isinstance(head, TaskHead)}
        heads = {name for name in wanted if name.startswith("heads.") and ".".join(name.split(".")[:2]) not in fresh}
        mine = {name: weight for name, weight in weights.items() if name in heads or name.startswith("trunk.")}
        for name, weight in weights.items():
            if found := _POOLER.fullmatch(name):
                poolers = {f"heads.{kind}.summary.{found[1]}" for kind in self.heads} & wanted.keys()
                mine |= {pooler: weight for pooler in poolers if wanted[pooler].shape == weight.shape}
        with torch.no_grad():
            for name, weight in mine.items():
                wanted[name][: len(weight)].copy_(weight)
        missing = [name for name in wanted if name not in mine]
        assert not [name for name in missing if name.startswith("trunk.")], missing
        return missing
