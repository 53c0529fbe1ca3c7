"""Layer-wise learning rates: parameter groups by depth for an optimizer, and gradual unfreezing."""

from collections.abc import Iterator
from typing import Any

from training.finetuning.model import TaskModel
from training.finetuning.tuning import Tuning
from training.model import parameter_groups


def groups(model: TaskModel, tuning: Tuning) -> list[dict[str, Any]]:
    """The trained parameters in groups for an optimizer; `scale` multiplies the learning rate of a group.

    The scale is 1 for the heads, and `tuning.scale(d)` for a layer that is d levels below them: see
    Tuning.layerwise_lr_decay.
    """
    named = dict(model.named_parameters())
    scales = {id(named[name]): tuning.scale(model.top - depth) for name, depth in model.depths().items()}
    whole = parameter_groups(model, tuning.weight_decay)
    return [part for group in whole for part in _by_scale(group, scales) if part["params"]]


def _by_scale(group: dict[str, Any], scales: dict[int, float]) -> Iterator[dict[str, Any]]:
    """Split a group into one group per scale."""
    learning = {at: scales[id(weight)] for at, weight in enumerate(group["params"]) if weight.requires_grad}
    for scale in sorted(set(learning.values()), reverse=True):
        chosen = [at for at, own in learning.items() if own == scale]
        of_each = {key: [group[key][at] for at in chosen] for key in ("params", "shapes", "hidden", "slices")}
        yield group | of_each | {"scale": scale}


def thaw(model: TaskModel, epoch: int) -> None:
    """Unfreeze the heads in epoch 0, and one more layer in each later epoch, from the top down; the embeddings are
    last.

    This is gradual unfreezing (ULMFiT, arXiv:1801.06146, 3.3).
    """
    lowest = len(model.trunk.layers) + 1 - epoch
    depths = model.depths()
    for name, weight in model.named_parameters():
        depth = depths[name]
        weight.requires_grad_(depth == model.top or (epoch > 0 and depth >= lowest))
