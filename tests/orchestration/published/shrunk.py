"""Models of the recipes at width 128 with the published initialization and optimizer, and their separate tensors."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchestration.config import Recipe
from tests import family
from tests.orchestration.published.plain import Array, names_of
from training.losses import Loss
from training.model import Model
from training.specs import Architecture

LAYERS, WIDTH, HEADS, INNER, VOCAB, POSITIONS = 2, 128, 2, 192, 200, 130
# columns of a batch whose token IDs are taken modulo the vocabulary size
TOKENS = ("input_ids", "source_input_ids", "targets")
CUTOFFS = (60, 110, 160)


def trunk_of(recipe: Recipe, tiny: Recipe, layers: int = LAYERS) -> Architecture:
    """Return the architecture of a recipe with fewer, narrower layers and without dropout; nothing else changes.

    Models with a memory get the position embedding of the tiny recipe.
    """
    trunk, positions = recipe.model, recipe.model.position_embedding
    has = {field.name for field in fields(trunk)}
    changes: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "head_dim": 0,
        "intermediate_size": INNER,
    }
    changes |= {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    if hasattr(positions, "max_position_embeddings"):
        most = min(positions.max_position_embeddings, POSITIONS + getattr(positions, "offset", 0))
        changes["position_embedding"] = replace(positions, max_position_embeddings=most)  # type: ignore[type-var]
    elif positions.mem_len:
        changes["position_embedding"] = tiny.model.position_embedding
    if getattr(trunk, "num_key_value_heads", 0):
        changes["num_key_value_heads"] = HEADS // 2
    if "embedding_size" in has:
        changes["embedding_size"] = WIDTH // 2 if trunk.table_width != trunk.hidden_size else 0
    if trunk.cutoffs:
        changes["token_embedding"] = replace(trunk.token_embedding, cutoffs=CUTOFFS)  # type: ignore[type-var]
    return replace(trunk, **changes)


@cache
def model(trunk: Architecture, losses: tuple[Loss, ...]) -> Model:
    """Return the model in float64 with its initial weights. Copy it before changing it."""
    return Model(trunk, losses, VOCAB, seed=0).double()


@cache
def gradients(
    trunk: Architecture, losses: tuple[Loss, ...], name: str, count: int = 3
) -> tuple[dict[str, Tensor], ...]:
    """Return gradients on batches of a recipe, by Sesame's parameter names; unused parameters are omitted."""
    net = deepcopy(model(trunk, losses))
    found = []
    torch.manual_seed(0)
    for (rows,) in (family.loader(family.recipe(name, "tiny"), count, rows=2).at(step) for step in range(count)):
        net.zero_grad()
        batch = {key: array % VOCAB if key in TOKENS else array for key, array in rows.items()}
        scores = net({key: torch.from_numpy(array) for key, array in batch.items()})
        counts = {loss.kind: max(1, loss.count(batch)) for loss in losses}
        torch.stack([loss.weight * scores[loss.kind].loss / counts[loss.kind] for loss in losses]).sum().backward()
        found.append({name: weight.grad.clone() for name, weight in net.named_parameters() if weight.grad is not None})
    return tuple(found)


def separate_tensors(parameters: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return the separate tensors of Sesame parameters in float64, by the names of the authors' code.

    Tensors of float64 parameters share their memory.
    """
    found = {}
    for name, parameter in parameters.items():
        is_gated = name.endswith(("feed_forward.up.weight", "feed_forward.up.bias")) and len(parameter) == 2 * INNER
        names = names_of(name.replace("feed_forward.up", "feed_forward.gate_and_up") if is_gated else name)
        has_groups = len(names) == 3 and len(parameter) == 2 * WIDTH  # a head of keys for each two of queries
        cuts: list[int] | int = [WIDTH, WIDTH + WIDTH // 2] if has_groups else len(names)
        found |= dict(zip(names, np.split(parameter.detach().double().numpy(), cuts), strict=True))
    return found
