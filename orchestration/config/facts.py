"""Parts that lack a fact are refused when a recipe is loaded, not in the middle of a run."""

import inspect
import typing
from functools import cache
from typing import Any, Final

from pipeline.readers import Reader, Source
from preprocessing.choose import Choice, Choose
from preprocessing.errors import BadInput
from preprocessing.rewrite import Rewrite, Rewriting
from preprocessing.segment import Segment, Segmentation
from preprocessing.vocab import VocabKind, VocabSpec
from training.losses import Loss, LossPart
from training.optim import Optim, OptimPart
from training.specs import Trunk, TrunkPart
from training.tasks import TaskPart, Tasks

UNIONS: Final[tuple[tuple[Any, Any], ...]] = (
    (Source, Reader),
    (Segment, Segmentation),
    (Choose, Choice),
    (Rewrite, Rewriting),
    (VocabSpec, VocabKind),
    (Trunk, TrunkPart),
    (Loss, LossPart),
    (Optim, OptimPart),
    (Tasks, TaskPart),
)


@cache
def check_facts() -> None:
    """BadInput with one line for each class of a union that lacks facts of its Protocol."""
    found = (lacking(member, protocol) for union, protocol in UNIONS for member in typing.get_args(union))
    if lines := [line for line in found if line]:
        raise BadInput("\n".join(lines))


def lacking(member: Any, protocol: Any) -> str:
    """What to say of a class that lacks facts, in one line; "" where it has all of them."""
    keys = getattr(member, "__dataclass_fields__", {})
    if not keys:
        return f"{_file(member)}: {member.__name__} is no part; put @spec above the class"
    missing = [name for name in names(protocol) if name not in keys and not hasattr(member, name)]
    has_no = ", ".join(f"`{name}`" for name in missing)
    return (
        f"{_file(member)}: {member.__name__} has no {has_no}; {_file(protocol)} says what they mean" if missing else ""
    )


def names(protocol: Any) -> list[str]:
    """The names of all facts that a Protocol asks for.

    >>> names(TaskPart)
    ['shrinks', 'kind', 'describe', 'make']
    """
    found: dict[str, None] = {}
    for layer in reversed(protocol.__mro__):
        if getattr(layer, "_is_protocol", False):
            found |= dict.fromkeys((*inspect.get_annotations(layer), *vars(layer)))
    return [name for name in found if not name.startswith("_")]


def _file(member: Any) -> str:
    """Where a class stands, from the folder of the checkout."""
    return f"{member.__module__.replace('.', '/')}.py"
