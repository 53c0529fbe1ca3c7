"""Whether two models compute the same function of their weights. A format exports a model only if its config.json,
read again, has the same function."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

from training.losses import Loss, has_token_bias, has_transform
from training.specs import Architecture, GatedFeedForward, RotaryPositions

TRAINS_ONLY: Final = frozenset(
    {
        "attention_dropout",
        "hidden_dropout",
        "init_method",
        "init_std",
        "scale_residual_init",
        "weight",  # of a loss
        "z_loss",
    }
)
"""Keys of models and losses that change nothing in evaluations. All other keys must survive config.json."""

_RESOLVED: Final = {
    "head_dim": "width_of_head",
    "intermediate_size": "inner_width",
    "embedding_size": "table_width",
    "num_key_value_heads": "groups",
    "attention_bias": "bias",
    "mlp_bias": "bias",
    "norm_bias": "bias",
    "embedding_norm": "normalizes_embeddings",
    "local_rope_theta": "rope_theta",
}
"""Keys whose value 0 or null stands for the value of another attribute."""

Part = TypeVar("Part")


def normal_form(part: Part) -> Part:
    """The same model, or part of one, without values that stand for others."""
    names = {field.name for field in fields(part)}  # type: ignore[arg-type]
    inside = {name: normal_form(value) for name in names if is_dataclass(value := getattr(part, name))}
    resolved = {name: getattr(part, _RESOLVED[name]) for name in names & _RESOLVED.keys() if _is_unset(part, name)}
    if isinstance(gated := inside.get("feed_forward"), GatedFeedForward) and gated.up_bias is None:
        inside["feed_forward"] = replace(gated, up_bias=resolved.get("mlp_bias", getattr(part, "mlp_bias")))  # noqa: B009
    if isinstance(part, RotaryPositions) and part.rope_scaling.kind != "none":  # local layers with a theta have none
        resolved.pop("local_rope_theta", None)
    if "num_hidden_groups" in names and getattr(part, "parameter_sharing") == "none":  # noqa: B009
        resolved["num_hidden_groups"] = 1
    return replace(part, **inside, **resolved)  # type: ignore[type-var]


def _is_unset(part: object, name: str) -> bool:
    value = getattr(part, name)
    return value is None or (value == 0 and value is not False)


def is_same_function(one: Architecture, other: Architecture) -> bool:
    """Whether two models with the same weights compute the same in evaluations."""
    return _without_training(normal_form(one)) == _without_training(normal_form(other))


def is_same_head(one: Loss, other: Loss, trunk: Architecture) -> bool:
    """Whether two losses have heads that compute the same.

    Losses of different kinds, such as those of users, are compared by the facts of their heads.
    """
    if type(one) is type(other):
        return _without_training(one) == _without_training(other)
    return _facts_of_head(one, trunk) == _facts_of_head(other, trunk)


def _facts_of_head(loss: Loss, trunk: Architecture) -> tuple[object, ...]:
    return loss.head_name, loss.logits_for, has_transform(loss, trunk), has_token_bias(loss, trunk)


def _without_training(part: Any) -> tuple[type, dict[str, Any]]:
    """The class and the keys of a part, and those of parts inside it, without TRAINS_ONLY."""
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.name not in TRAINS_ONLY}
    inside = {name: _without_training(value) for name, value in values.items() if is_dataclass(value)}
    return type(part), values | inside
