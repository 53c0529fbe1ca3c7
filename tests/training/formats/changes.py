"""All models that differ from a given one in a single key, for tests that hold for each key of a spec."""

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from training.losses import Loss
from training.model_spec import ModelSpec

REQUIRED = {  # keys of nested parts without a default
    "max_position_embeddings": 64,
    "size": 4,
    "cutoffs": (100, 200),
    "factor": 2.0,
    "original_max_position_embeddings": 16,
}


def changed_specs(spec: ModelSpec) -> Iterator[tuple[str, ModelSpec]]:
    """Each legal model with another value of one key of its architecture or of a loss, and the key with the value."""
    for name, trunk in changed_parts(spec.model):
        if (changed := _legal(spec, model=trunk)) is not None:
            yield f"model.{name}", changed
    for number, loss in enumerate(spec.losses):
        for name, other in changed_parts(loss):
            losses = (*spec.losses[:number], other, *spec.losses[number + 1 :])
            if (changed := _legal(spec, losses=losses)) is not None:
                yield f"losses.{loss.kind}.{name}", changed
    for other in _members(Loss):
        if (changed := _legal(spec, losses=(other(),))) is not None and (other(),) != spec.losses:
            yield f"losses={other().kind}", changed


def changed_parts(part: Any) -> Iterator[tuple[str, Any]]:
    """Each legal part with another value of one key, also of a part inside it."""
    hints = get_type_hints(type(part), include_extras=True)
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            nested = [(f"{field.name}.{name}", other) for name, other in changed_parts(value)]
            nested += [(f"{field.name}.kind={made.kind}", made) for made in _siblings(hints[field.name], value)]
        else:
            nested = [(f"{field.name}={other}", other) for other in _other_values(hints[field.name], value)]
        for name, other in nested:
            if (changed := _legal(part, **{field.name: other})) is not None:
                yield name, changed


def _other_values(annotation: Any, value: Any) -> list[Any]:
    """Values of the same type: all of a Literal, both of a bool, and near numbers."""
    options = [choice for member in _members(annotation) for choice in get_args(member) if _is_literal(member)]
    if options:
        return [choice for choice in options if choice != value]
    if isinstance(value, bool) or value is None:
        return [choice for choice in (True, False, None) if choice != value and _allows(annotation, choice)]
    if isinstance(value, int):
        return [number for number in (0, 1, 2, 3, value + 1, 2 * value) if number != value]
    if isinstance(value, float):
        return [number for number in (0.0, value / 2, value + 0.25) if number != value]
    return []


def _allows(annotation: Any, value: object) -> bool:
    return any(member is type(value) for member in _members(annotation))


def _siblings(annotation: Any, value: Any) -> Iterator[Any]:
    """Parts of the other kinds of a union."""
    for member in _members(annotation):
        if is_dataclass(member) and member is not type(value):
            needed = {field.name for field in fields(member)} & REQUIRED.keys()
            made = {name: getattr(value, name, None) or REQUIRED[name] for name in needed}
            yield member(**made)  # type: ignore[operator]


def _members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(inner for member in get_args(annotation) for inner in _members(member))
    return (annotation,)


def _is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def _legal(part: Any, **values: Any) -> Any:
    """The part with other values; None if they are not allowed."""
    try:
        return replace(part, **values)
    except ValueError:
        return None
