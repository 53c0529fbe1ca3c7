"""A part of a recipe: a frozen, keyword-only dataclass that forbids unknown keys."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def knob(cls: type[T]) -> type[T]:
    """Make `cls` a part: frozen, keyword-only, slotted; the recipe loader refuses keys it does not have.

    >>> @knob
    ... class Tokens:
    ...     rate: float = 0.15
    >>> Tokens(rate=0.3)
    Tokens(rate=0.3)
    """
    cls.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]  # read by the loader; pydantic stays upstairs
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)


def require(holds: bool, where: str, given: object, allowed: str) -> None:
    """Raise ValueError with one line that names the place, the value and what is allowed.

    >>> require(False, "choose.rate", 1.5, "a share between 0 and 1")
    Traceback (most recent call last):
    ...
    ValueError: choose.rate is 1.5, allowed is a share between 0 and 1
    """
    if not holds:
        raise ValueError(f"{where} is {given!r}, allowed is {allowed}")
