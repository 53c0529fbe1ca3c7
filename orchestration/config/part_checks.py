"""Checks, when a recipe is loaded, that each part has all facts (class variables) of its Protocol."""

import inspect
import sys
import traceback
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pipeline.readers import Reader, Source
from preprocessing.errors import BadInput
from preprocessing.masking import Masking, MaskingPart
from preprocessing.objectives import Objective, ObjectivePart
from preprocessing.packing import Packing, PackingPart
from preprocessing.spec import kind_of
from preprocessing.tokenization import TokenizerPart, TokenizerSpec
from training.evaluation.tasks import (
    GenerationTask,
    Kinds,
    LabeledTask,
    Scored,
    ScoredTask,
    TaskKind,
    TaskPart,
    Tasks,
    Tuned,
    Written,
)
from training.losses import Loss, LossPart
from training.optimizers import Optimizer, OptimizerPart
from training.specs import (
    POSITIONS,
    TABLES,
    WINDOWS,
    Architecture,
    ArchitecturePart,
    AttentionKind,
    AttentionPart,
    AttentionWindow,
    FeedForwardKind,
    FeedForwardPart,
    PositionEmbedding,
    TokenEmbedding,
)

UNIONS: Final[tuple[tuple[Any, Any], ...]] = (
    (Source, Reader),
    (Packing, PackingPart),
    (Masking, MaskingPart),
    (Objective, ObjectivePart),
    (TokenizerSpec, TokenizerPart),
    (Architecture, ArchitecturePart),
    (AttentionKind, AttentionPart),
    (FeedForwardKind, FeedForwardPart),
    (Loss, LossPart),
    (Optimizer, OptimizerPart),
    (Tasks, TaskPart),
    (Kinds, TaskKind),
    (Tuned, LabeledTask),
    (Scored, ScoredTask),
    (Written, GenerationTask),
)

INNER: Final[Mapping[Any, tuple[Any, ...]]] = {
    PositionEmbedding: POSITIONS,
    AttentionWindow: WINDOWS,
    TokenEmbedding: TABLES,
}
"""Protocol -> its classes, for the parts inside a model."""


def describe_failure(error: Exception, what: str) -> str:
    """The message for a part whose code fails on its values, e.g. because it divides by a key that is 0."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{type(error).__name__}: {error}, in {place.name} ({place.filename}:{place.lineno})"
    return f"{what} fails ({reason}); change the values, and check them with `require` in __post_init__ of the class"


@cache
def check_facts() -> None:
    """BadInput with one line for each class that lacks a fact of its Protocol or has the `kind` of another class."""
    found = [find_missing_facts(member, protocol) for union, protocol in UNIONS for member in typing.get_args(union)]
    found += [find_missing_facts(member, protocol) for protocol, members in INNER.items() for member in members]
    found += [find_duplicate_kind(union) for union, _ in UNIONS]
    if lines := [line for line in found if line]:
        raise BadInput("\n".join(lines))


def find_missing_facts(member: Any, protocol: Any) -> str:
    """The message for a class that lacks facts of its Protocol; "" if it has all of them."""
    keys = getattr(member, "__dataclass_fields__", {})
    if not keys:
        remedy = "put @spec above the class"
        return f"{_file(member)}: invalid part {member.__name__}: got a plain class, expected a spec; {remedy}"
    missing = [name for name in names(protocol) if name not in keys and not hasattr(member, name)]
    has_no = ", ".join(f"`{name}`" for name in missing)
    return (
        f"{_file(member)}: invalid part {member.__name__}: got no {has_no}, expected all facts of its Protocol; add "
        f"them as {_file(protocol)} describes"
        if missing
        else ""
    )


def find_duplicate_kind(union: Any) -> str:
    """The message for a union in which two parts have the same `kind`; "" if there are none."""
    first: dict[str, Any] = {}
    for member in typing.get_args(union):
        kind = getattr(member, "__dataclass_fields__", {}).get("kind")
        if kind is None:
            continue  # find_missing_facts reports it
        if (other := first.setdefault(kind.default, member)) is not member:
            return (
                f"{_file(member)}: invalid part {member.__name__}: got kind {kind.default!r}, expected another kind "
                f"than in {_file(other)}; rename the kind"
            )
    return ""


def find_unlisted_part(members: Sequence[Any], kind: str) -> str:
    """How to register a part of this kind that the union of these members lacks; "" if there is no such part."""
    for union, protocol in UNIONS:
        if set(typing.get_args(union)) == set(members):
            door = sys.modules[members[0].__module__.rpartition(".")[0]]
            name = next(name for name, value in vars(door).items() if value == union)
            files, folder = sorted(Path(str(door.__file__)).parent.glob("*.py")), door.__name__.replace(".", "/")
            listed = next((file.name for file in files if f"\n{name} = " in file.read_text(encoding="utf-8")), "")
            for file in files:
                if _defines(file, f"{door.__name__}.{file.stem}", kind, protocol):
                    return f"add the class in {folder}/{file.name} to the union {name} in {folder}/{listed}"
    return ""


def _defines(file: Path, module: str, kind: str, protocol: Any) -> bool:
    if loaded := sys.modules.get(module):
        classes = [each for each in vars(loaded).values() if hasattr(each, "__dataclass_fields__")]
        own = [each for each in classes if each.__module__ == module and "kind" in each.__dataclass_fields__]
        return any(kind_of(each) == kind and not find_missing_facts(each, protocol) for each in own)
    return f'kind: Literal["{kind}"]' in file.read_text(encoding="utf-8")


def names(protocol: Any) -> list[str]:
    """The names of all facts of a Protocol.

    >>> names(TaskPart)
    ['scale_overrides', 'way', 'is_by_document', 'kind', 'describe', 'make']
    """
    found: dict[str, None] = {}
    for layer in reversed(protocol.__mro__):
        if getattr(layer, "_is_protocol", False):
            found |= dict.fromkeys((*inspect.get_annotations(layer), *vars(layer)))
    return [name for name in found if not name.startswith("_")]


def _file(member: Any) -> str:
    """The file of a class, relative to the checkout."""
    return f"{member.__module__.replace('.', '/')}.py"
