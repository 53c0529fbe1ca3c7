"""Whether two models compute the same function of their weights. A format exports a model only if its config.json,
read again, has the same function."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from training.losses import Loss, has_token_bias, has_transform
from training.specs import Architecture

TRAINS_ONLY: Final = frozenset(
    {
        "attention_dropout",
        "hidden_dropout",
        "init_method",
        "init_std",
        "scale_residual_init",
        "weight",  # of a loss
    }
)
"""Keys of models and losses that change nothing in evaluations. All other keys must survive config.json."""

_RESOLVED: Final = {"head_dim": "width_of_head", "intermediate_size": "inner_width", "embedding_size": "table_width"}
"""Keys whose value 0 stands for the value of another attribute."""


def normal_form(trunk: Architecture) -> Architecture:
    """The same model without a value that stands for another one."""
    names = {field.name for field in fields(trunk)}
    values = {name: getattr(trunk, resolved) for name, resolved in _RESOLVED.items() if name in names}
    if "num_hidden_groups" in names and trunk.parameter_sharing == "none":  # type: ignore[union-attr]
        values["num_hidden_groups"] = 1
    return replace(trunk, **values)


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
