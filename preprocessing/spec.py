"""A part of a recipe: a frozen, keyword-only dataclass that forbids unknown keys."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache, wraps
from typing import Any, Final, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints, overload

T = TypeVar("T")
ScaleOverrides = Mapping[str, Mapping[str, object]]
"""Values that `--scale` sets in a part: scale (tiny, small) -> key -> value; `AtMost` values only lower a value."""


@dataclass(frozen=True)
class AtMost:
    """A value of a scale that is set only if the recipe has a larger value."""

    value: Any


@overload
def key(*, choices: Iterable[str] = (), doc: str) -> Any: ...
@overload
def key(*, default: T, choices: Iterable[str] = (), doc: str) -> T: ...
@overload
def key(*, default_factory: Callable[[], T], choices: Iterable[str] = (), doc: str) -> T: ...
def key(*, default: Any = MISSING, default_factory: Any = MISSING, choices: Iterable[str] = (), doc: str) -> Any:
    """A field of a part, with the sentence `doc` that `sesame keys` prints. Without a default, the key is required.

    `choices` are the allowed values for `sesame keys`, if the type does not list them; the part itself checks them.
    The sentence is the metadata "description" of the field, which pydantic also writes into a JSON schema.
    Constructors, `dataclasses.fields`, `replace` and `asdict` do not use it, so hashes do not depend on it. A part with
    a mapping can be hashed: `hash` leaves the mapping out, and `==` compares it.
    """
    metadata = {"description": doc, "choices": tuple(choices)}
    in_hash = False if default_factory is dict else None
    return dataclasses.field(default=default, default_factory=default_factory, metadata=metadata, hash=in_hash)


def doc_of(part: type, name: str) -> str:
    """The sentence for a key of a part; "" if there is none. A subclass that only changes a default inherits it.

    >>> @spec
    ... class Tokens:
    ...     rate: float = key(default=0.15, doc="Fraction of tokens to select.")
    >>> @spec
    ... class Words(Tokens):
    ...     rate: float = 0.3
    >>> Words().rate, doc_of(Words, "rate")
    (0.3, 'Fraction of tokens to select.')
    """
    return str(_metadata(part, name).get("description", ""))


def choices_of(part: type, name: str) -> tuple[str, ...]:
    """The allowed values of a key of a part, if its field lists them; otherwise ()."""
    return tuple(_metadata(part, name).get("choices", ()))


def _metadata(part: type, name: str) -> Mapping[str, Any]:
    """The metadata that `key` stored in a field of a part, or in the same field of its base class."""
    fields = (base.__dataclass_fields__.get(name) for base in part.__mro__ if is_dataclass(base))
    return next((field.metadata for field in fields if field and field.metadata), {})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
def spec(cls: type[T]) -> type[T]:
    """Make `cls` a part: frozen, keyword-only, with slots. The recipe loader rejects unknown keys.

    A value that a Literal does not list raises InvalidValue, also in Python code that no recipe loader reads.

    >>> @spec
    ... class Tokens:
    ...     rate: float = 0.15
    ...     unit: Literal["token", "word"] = "token"
    >>> Tokens(rate=0.3)
    Tokens(rate=0.3, unit='token')
    >>> Tokens(unit="letter")
    Traceback (most recent call last):
    ...
    preprocessing.spec.InvalidValue: invalid unit: got 'letter', expected token or word
    """
    cls.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]  # pydantic is imported by orchestration only
    made = dataclass(frozen=True, kw_only=True, slots=True)(cls)
    fill = made.__init__

    @wraps(fill)
    def fill_and_check(self: Any, **values: Any) -> None:
        fill(self, **values)
        kind: Any = type(self)
        choices = choices_by_key(kind)
        for name in values.keys() & choices.keys():
            _require_choice(name, values[name], choices[name])

    made.__init__ = fill_and_check  # type: ignore[method-assign]
    return made


@cache
def choices_by_key(part: type) -> dict[str, tuple[Any, ...]]:
    """The values that the Literal of each key lists, for a single value or for the elements of a tuple."""
    found = {name: _literals(annotation) for name, annotation in get_type_hints(part).items()}
    return {name: choices for name, choices in found.items() if choices}


def _literals(annotation: Any) -> tuple[Any, ...]:
    origin, options = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return options
    if origin is tuple and options[1:] == (...,):
        return _literals(options[0])
    return ()


def _require_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    values = value if isinstance(value, tuple) else (value,)
    require(all(one in choices for one in values), name, value, " or ".join(map(str, choices)))


class InvalidValue(ValueError):
    """A value that a key of a part does not allow. The recipe loader makes its message from the attributes.

    `got` is the value as a message shows it; it never contains a credential.
    """

    def __init__(self, key: str, got: str, expected: str, value: object = None) -> None:
        super().__init__(key, got, expected, value)
        self.key, self.got, self.expected, self.value = key, got, expected, value

    def __str__(self) -> str:
        return f"invalid {self.key}: got {self.got}, expected {self.expected}"


def require(holds: bool, where: str, given: object, expected: str) -> None:
    """Raise InvalidValue unless `holds`, with one line that has the key, the value and the allowed values.

    >>> require(False, "masking.rate", 1.5, "a fraction from 0 to 1")
    Traceback (most recent call last):
    ...
    preprocessing.spec.InvalidValue: invalid masking.rate: got 1.5, expected a fraction from 0 to 1
    """
    if not holds:
        raise InvalidValue(where, repr(given), expected, given)


def require_name(name: str) -> None:
    """Raise ValueError if a name is not suitable for a directory; letters of all scripts are allowed.

    >>> require_name("bert_base"), require_name("../evil")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    preprocessing.spec.InvalidValue: invalid name: got '../evil', expected 1 to 100 letters, digits, _ . + and -...
    """
    allowed = "1 to 100 letters, digits, _ . + and -, with a letter or digit first"
    require(re.fullmatch(r"[^\W_][\w.+-]{0,99}", name) is not None, "name", name, allowed)


class ByKind:
    """Marks a union of parts inside a part: `Annotated[A | B, BY_KIND]`; the key `kind` selects the class."""

    def __get_pydantic_core_schema__(self, union: Any, handler: Any) -> Any:
        """The schema by which the recipe loader validates the union; only orchestration imports pydantic."""
        choices = {kind_of(member): handler.generate_schema(member) for member in get_args(union)}
        return {"type": "tagged-union", "discriminator": "kind", "choices": choices}


BY_KIND: Final = ByKind()


def kind_of(member: Any) -> str:
    """The `kind` of a class of parts."""
    return member.__dataclass_fields__["kind"].default


def part(union: Any, values: Mapping[str, Any]) -> Any:
    """Build the part of a union that `values["kind"]` names from `values`. A union of one class is the class itself.

    A list becomes a tuple, because JSON has no tuples. A mapping becomes the part in the annotation of its key.

    >>> @spec
    ... class Nothing:
    ...     kind: str = "nothing"
    >>> part(Nothing, {"kind": "nothing"})
    Nothing(kind='nothing')
    """
    for member in get_args(union) or (union,):
        if kind_of(member) == values["kind"]:
            hints = get_type_hints(member)
            return member(**{key: _value(hints.get(key), value) for key, value in values.items()})
    kinds = ", ".join(kind_of(member) for member in get_args(union) or (union,))
    raise ValueError(f"invalid kind: got {values['kind']!r}, expected one of {kinds}")


def _value(annotation: Any, value: Any) -> Any:
    """Convert a JSON value to the type of its annotation."""
    if isinstance(value, Mapping) and is_dataclass((get_args(annotation) or (annotation,))[0]):
        return part(annotation, value)
    return tuple(value) if isinstance(value, list) else value


def merge_scales(*layers: ScaleOverrides) -> ScaleOverrides:
    """Merge the scales of a part that builds on other parts; the last value of a key wins.

    >>> merge_scales({"tiny": {"width": 64, "heads": 2}}, {"tiny": {"width": 32}})
    {'tiny': {'width': 32, 'heads': 2}}
    """
    scales = dict.fromkeys(scale for layer in layers for scale in layer)
    return {scale: {key: value for layer in layers for key, value in layer.get(scale, {}).items()} for scale in scales}
