"""Checks that all parts of a union have the facts (class variables and methods) that its Protocol requires."""

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from inspect import isfunction
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from preprocessing.spec import AtMost, kind_of

LONGEST_LINE = 120


def facts_of(protocol: Any) -> dict[str, Any]:
    """The facts that a Protocol requires: name -> type, None for a method."""
    found: dict[str, Any] = {}
    for layer in reversed(protocol.__mro__):
        if not getattr(layer, "_is_protocol", False):
            continue
        for name, hint in get_type_hints(layer).items():
            found[name] = get_args(hint)[0] if get_origin(hint) is ClassVar else hint
        for name, member in vars(layer).items():
            if isinstance(member, property):
                found[name] = get_type_hints(member.fget)["return"]
            elif (isfunction(member) or isinstance(member, staticmethod)) and not _is_inner(name):
                found[name] = None
    return {name: hint for name, hint in found.items() if not _is_inner(name)}


def _is_inner(name: str) -> bool:
    return name.startswith("_") and name != "__call__"


def parts_of(union: Any, *more: Any) -> list[Any]:
    """One part of each class in a union whose keys all have defaults, and `more`; new classes are thus tested too.

    >>> from preprocessing.masking import Masking, TokenMasking
    >>> [part.kind for part in parts_of(Masking, TokenMasking(sample_alpha=0.5))][:2]
    ['none', 'token']
    """
    members = get_args(union) or (union,)
    return [member() for member in members if not any(_is_required(field) for field in fields(member))] + list(more)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def assert_covers(parts: Iterable[Any], union: Any) -> None:
    """Assert that the parts include every class of the union."""
    assert {type(part) for part in parts} == set(get_args(union) or (union,))


def assert_every_fact(part: Any, protocol: Any) -> None:
    """Assert that the part has each fact of the Protocol, with a value of the required type."""
    for name, hint in facts_of(protocol).items():
        assert hasattr(part, name), f"{type(part).__name__} has no {name}"
        if hint is None:
            assert callable(getattr(part, name)), f"{type(part).__name__}.{name} is not a method"
        elif getattr(hint, "_is_protocol", False):
            assert_every_fact(getattr(part, name), hint)
        else:
            TypeAdapter(hint).validate_python(getattr(part, name), strict=True)


def assert_shrinks_its_keys(part: Any) -> None:
    """Assert that `--scale` only sets keys that the part has, to values that it accepts."""
    member = type(part)
    keys = {field.name for field in fields(member)}
    for scale, values in part.scale_overrides.items():
        assert scale in ("tiny", "small")
        assert values.keys() <= keys, f"{member.__name__} has no {values.keys() - keys}"
        for name, value in values.items():
            plain = value.value if isinstance(value, AtMost) else value
            TypeAdapter(get_type_hints(member)[name]).validate_python(plain)


def assert_described(parts: Iterable[Any], *context: Any) -> None:
    """Assert that each part describes itself in one line of ASCII, and that different kinds have different lines."""
    kinds: dict[str, str] = {}
    for part in parts:
        line = part.describe(*context)
        assert line
        assert line.isascii()
        assert line == line.strip()
        assert "\n" not in line
        assert len(line) < LONGEST_LINE, line
        assert kinds.setdefault(line, kind_of(type(part))) == kind_of(type(part)), line
