"""Fine-tuning: a trunk with a fresh classifier on a few labelled rows, from pretrained weights and from random ones.

Both runs have the same budget: the same labelled rows in the same order, the same steps, rates, dropout and classifier
at the start; they differ in the pretrained weights alone. Another seed draws other rows, order and classifier.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.collate import unpadded
from preprocessing.rng import key
from preprocessing.spec import require, spec
from training.model import ModelSpec, build, initialise, parameter_groups
from training.optim import AdamW, rate
from training.specs import Trunk
from training.tasks import Examples, Task

Start = Literal["pretrained", "random"]
POOLER: Final = re.compile(r"heads\.\w+\.(pooler\..+)")  # a weight of it, in a head of pretraining


@spec
class Budget:
    """What one fine-tuning may spend."""

    labels: int = 200  # labelled rows
    steps: int = 200
    batch: int = 16  # rows
    peak: float = 1e-3  # learning rate; linear warm-up over a tenth of the steps, then linear to 0

    def __post_init__(self) -> None:
        for name in ("labels", "steps", "batch"):
            require(getattr(self, name) >= 1, f"budget.{name}", getattr(self, name), "a whole number from 1 up")

    @property
    def optim(self) -> AdamW:
        return AdamW(peak=self.peak, warmup=self.steps // 10, schedule="linear_from_peak", decay=0.01)


@dataclass(frozen=True)
class Outcome:
    """The score of one fine-tuning on the test rows of its task."""

    task: str
    chance: float  # what a guess gets
    start: Start
    seed: int
    accuracy: float
    loss: float  # nats per row


class Classifier(nn.Module):
    """A trunk, a pooler (linear and tanh) over the state that sums up a row, and a linear classifier (BERT 4.1)."""

    def __init__(self, trunk: Trunk, vocab_size: int, num_classes: int, seed: int) -> None:
        super().__init__()
        self.trunk = build(trunk, vocab_size)
        self.pooler = nn.Linear(trunk.width, trunk.width)
        self.classify = nn.Linear(trunk.width, num_classes)
        initialise(self, trunk, seed)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores [B, classes] of an unpadded batch."""
        return self.classify(torch.tanh(self.pooler(self.trunk.summary(batch))))


def nobody(done: int) -> None:
    """The `on_step` of a fine-tuning that nobody looks at."""


def finetune(
    spec: ModelSpec,
    weights: Mapping[str, Tensor] | None,
    task: Task,
    budget: Budget,
    *,
    seed: int,
    on_step: Callable[[int], None] = nobody,
) -> Outcome:
    """Train a classifier from `weights` (as save_weights names them; None: random) and score it on the test rows.

    `on_step` is told how many steps are done, before each.
    Raises DataError where the task has fewer labelled rows than the budget asks for.
    """
    examples = task.labelled(budget.labels, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # dropout
        model = Classifier(spec.trunk, spec.vocab_size, len(task.classes), seed)
        if weights is not None:
            load_trunk(model, weights)
        _train(model, examples, budget, seed, on_step)
    logits = _logits(model, task.test)
    label_N = torch.from_numpy(task.test.label_N)
    return Outcome(
        task=task.name,
        chance=task.chance,
        start="random" if weights is None else "pretrained",
        seed=seed,
        accuracy=float((logits.argmax(-1) == label_N).float().mean()),
        loss=float(F.cross_entropy(logits, label_N)),
    )


def load_trunk(model: Classifier, weights: Mapping[str, Tensor]) -> None:
    """Put pretrained weights into the trunk, and into the pooler where a head of pretraining has one."""
    mine = {name: weight for name, weight in weights.items() if name.startswith("trunk.")}
    for name, weight in weights.items():
        if found := POOLER.fullmatch(name):
            mine[found[1]] = weight
    loaded = model.load_state_dict(mine, strict=False)
    assert not loaded.unexpected_keys, loaded
    wanted = {name for name, _ in model.named_parameters() if name.startswith("trunk.")}  # what is shared has one name
    assert wanted <= mine.keys(), wanted - mine.keys()


def _train(model: Classifier, examples: Examples, budget: Budget, seed: int, on_step: Callable[[int], None]) -> None:
    optimizer = budget.optim.build(parameter_groups(model, budget.optim.decay))
    rng = key(seed, "task").at(epoch=2, sample=0)
    order_N = np.concatenate(
        [rng.permutation(len(examples)) for _ in range(-(-budget.steps * budget.batch // len(examples)))]
    )
    model.train()
    for step in range(budget.steps):
        on_step(step)
        batch = examples.take(order_N[step * budget.batch : (step + 1) * budget.batch])
        loss = F.cross_entropy(model(tensors(batch)), torch.from_numpy(batch.label_N))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), budget.optim.clip)
        for group in optimizer.param_groups:
            group["lr"] = rate(budget.optim, step, budget.steps)
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def _logits(model: Classifier, examples: Examples) -> Tensor:
    model.eval()
    parts = [examples.take(np.arange(start, min(start + 64, len(examples)))) for start in range(0, len(examples), 64)]
    return torch.cat([model(tensors(part)) for part in parts])


def tensors(examples: Examples) -> dict[str, Tensor]:
    """The rows as an unpadded batch."""
    return {name: torch.from_numpy(array) for name, array in unpadded(examples.rows).items()}


# The outcomes, compared


@dataclass(frozen=True)
class Comparison:
    """Pretrained against random initialisation on one task, over the seeds."""

    task: str
    chance: float
    pretrained: tuple[float, ...]  # accuracy of each seed
    random: tuple[float, ...]

    @property
    def margin(self) -> float:
        return mean(self.pretrained) - mean(self.random)

    @property
    def spread(self) -> float:
        """The larger of the two standard deviations over the seeds."""
        return max(stdev(scores) if len(scores) > 1 else 0.0 for scores in (self.pretrained, self.random))

    @property
    def wins(self) -> bool:
        """Whether pretraining is better by more than the seeds differ."""
        return self.margin > self.spread


def compare(outcomes: Sequence[Outcome]) -> list[Comparison]:
    """One comparison per task, in the order of the outcomes."""

    def scores(task: str, start: Start) -> tuple[float, ...]:
        return tuple(outcome.accuracy for outcome in outcomes if (outcome.task, outcome.start) == (task, start))

    chances = {outcome.task: outcome.chance for outcome in outcomes}
    return [
        Comparison(task, chance, scores(task, "pretrained"), scores(task, "random")) for task, chance in chances.items()
    ]


def table(comparisons: Sequence[Comparison]) -> list[dict[str, str]]:
    """The comparisons as rows of text, for a terminal or a report.

    >>> table([Comparison("source", 0.125, (0.55, 0.57), (0.46, 0.48))])[0]["pretrained"]
    '0.560 +- 0.014'
    """

    def shown(scores: tuple[float, ...]) -> str:
        return f"{mean(scores):.3f} +- {stdev(scores) if len(scores) > 1 else 0:.3f}"

    return [
        {
            "task": each.task,
            "chance": f"{each.chance:.3f}",
            "random": shown(each.random),
            "pretrained": shown(each.pretrained),
            "gain": f"{each.margin:+.3f}",
            "beyond the seeds": "yes" if each.wins else "no",
        }
        for each in comparisons
    ]
