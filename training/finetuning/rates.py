"""Which parameters learn how fast: groups by depth for an optimiser, and layers that learn one after the other."""

from collections.abc import Iterator
from typing import Any

from training.finetuning.model import TaskModel
from training.finetuning.tuning import Tuning
from training.model import parameter_groups


def groups(model: TaskModel, tuning: Tuning) -> list[dict[str, Any]]:
    """The parameters that learn, in groups for an optimiser; `scale` is what the rate is multiplied by in each.

    The heads have 1, and what is d below them `tuning.scale(d)`: see Tuning.layerwise_lr_decay.
    """
    named = dict(model.named_parameters())
    scales = {id(named[name]): tuning.scale(model.top - depth) for name, depth in model.depths().items()}
    whole = parameter_groups(model, tuning.weight_decay)
    return [made for group in whole for made in _by_scale(group, scales) if made["params"]]


def _by_scale(group: dict[str, Any], scales: dict[int, float]) -> Iterator[dict[str, Any]]:
    """A group as one for each scale."""
    learning = {at: scales[id(weight)] for at, weight in enumerate(group["params"]) if weight.requires_grad}
    for scale in sorted(set(learning.values()), reverse=True):
        chosen = [at for at, own in learning.items() if own == scale]
        of_each = {key: [group[key][at] for at in chosen] for key in ("params", "shapes", "hidden", "slices")}
        yield group | of_each | {"scale": scale}


def thaw(model: TaskModel, epoch: int) -> None:
    """Let the heads learn in epoch 0, and in each further one a layer more, from the highest down; the tables last
    (gradual unfreezing, ULMFiT, arXiv:1801.06146, 3.3)."""
    lowest = len(model.trunk.layers) + 1 - epoch
    depths = model.depths()
    for name, weight in model.named_parameters():
        depth = depths[name]
        weight.requires_grad_(depth == model.top or (epoch > 0 and depth >= lowest))
