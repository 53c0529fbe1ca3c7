"""A trunk with task heads; engines train it like a pretraining model."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Self

import torch
from torch import Tensor, nn

from training.finetuning.features import FeatureReader
from training.finetuning.heads import TaskHead
from training.finetuning.targets import Target
from training.finetuning.tuning import Features
from training.model import allocate, build, initialize
from training.score import Score
from training.specs import Architecture

_POOLER: Final = re.compile(
    r"heads\.\w+\.(?:summary\.)?(pooler\..+)"
)  # a pooler weight, in a pretraining or a task head
_TABLE: Final = "trunk.tokens.weight"
_NEW_ROWS: Final = 0.02  # standard deviation of new embedding rows (GPT-1 4.1)


class TaskModel(nn.Module):
    """A trunk and one head per target. `seed` initializes the weights that are not loaded.

    `features` selects the inputs of the heads from a frozen trunk; with "none", the trunk is trained too. The
    embedding table has `rows` rows; the last `new_rows` are for this task only.
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
        with torch.device("meta"):  # avoids initialization by torch's constructors from the global generator
            self.trunk = build(trunk, rows)
            self.reading = FeatureReader(features, trunk.num_hidden_layers, trunk.hidden_size)
            width = self.reading.width
            self.heads = nn.ModuleDict({target.kind: target.head(trunk, width, rows) for target in self.targets})
        allocate(self, device)
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
        """The depth of the heads: two above the top layer (google-research/electra, model/optimization.py)."""
        return len(self.trunk.layers) + 2

    def depths(self) -> dict[str, int]:
        """The depth of each parameter by name: 0 for embeddings, i + 1 for layer i, `top` for the heads."""
        of = {f"trunk.{name}": depth for name, depth in self.trunk.depths().items()}
        return {name: of.get(name, self.top) for name, _ in self.named_parameters()}

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; a frozen trunk stays in evaluation mode, without dropout."""
        super().train(mode)
        if self.frozen:
            self.trunk.eval()
        return self

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Score]:
        """The Score of each target, by kind."""
        if not any(isinstance(head, TaskHead) for head in self.heads.values()):  # predicts tokens, as in pretraining
            hidden, table = self.trunk(batch), self.trunk.table
            return {kind: head(hidden, batch, table) for kind, head in self.heads.items()}
        hidden, batch = self._states(batch)
        return {kind: head(hidden, batch, self.trunk.table) for kind, head in self.heads.items()}

    @torch.no_grad()
    def outputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The predictions of each head for a batch, by kind of target."""
        hidden, batch = self._states(batch)
        return {kind: head.outputs(hidden, batch) for kind, head in self.heads.items() if isinstance(head, TaskHead)}

    def _states(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self.reading(self.trunk, batch), {**batch, "summary_at": self.trunk.summary_at(batch)}

    def take_over(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Load trained weights (named as by `Model.named_parameters`); return the names of weights that stay random.

        The trunk is loaded, and a pooler of any head, and token-predicting heads of the same kind. A larger
        embedding table keeps its additional rows.
        """
        parameters = dict(self.named_parameters())
        task_heads = {f"heads.{kind}" for kind, head in self.heads.items() if isinstance(head, TaskHead)}
        heads = {
            name for name in parameters if name.startswith("heads.") and ".".join(name.split(".")[:2]) not in task_heads
        }
        loaded = {name: weight for name, weight in weights.items() if name in heads or name.startswith("trunk.")}
        for name, weight in weights.items():
            if match := _POOLER.fullmatch(name):
                poolers = {f"heads.{kind}.summary.{match[1]}" for kind in self.heads} & parameters.keys()
                loaded |= {pooler: weight for pooler in poolers if parameters[pooler].shape == weight.shape}
        with torch.no_grad():
            for name, weight in loaded.items():
                parameters[name][: len(weight)].copy_(weight)
        missing = [name for name in parameters if name not in loaded]
        assert not [name for name in missing if name.startswith("trunk.")], missing
        return missing
