"""Tables that map the keys of a model to those of config.json, and the conversion of their values."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from training.specs import Architecture

Config = Mapping[str, Any]


class Key(NamedTuple):
    """Keys of config.json that together have the value of one of our keys, and the conversions.

    Each function takes the values of one side, and returns those of the other. It raises ValueError for a value that
    the other side cannot express.
    """

    names: tuple[str, ...]
    to_theirs: Callable[..., Any]
    to_ours: Callable[..., Any]


Keys = Mapping[str | tuple[str, ...], str | Key]
"""Maps our keys, with dots for the keys of parts, to those of config.json, with dots for nested mappings. A tuple of
our keys has one value together."""

ACTIVATIONS: Final = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


def choice(name: str, ours: Mapping[Any, Any]) -> Key:
    """A key of config.json with some values; `ours` maps their values to ours. The first of equal ones is written.

    >>> choice("hidden_act", ACTIVATIONS).to_theirs("gelu_tanh"), choice("hidden_act", ACTIVATIONS).to_ours("relu")
    ('gelu_new', 'relu')
    """

    def to_theirs(value: Any) -> Any:
        for theirs, of_ours in ours.items():
            if of_ours == value:
                return theirs
        raise ValueError(f"invalid {name}: got no value for {value!r}, expected {_list_choices(ours.values())}")

    def to_ours(value: Any) -> Any:
        if value not in ours:
            raise ValueError(f"invalid {name}: got {value!r}, expected {_list_choices(ours)}")
        return ours[value]

    return Key((name,), to_theirs, to_ours)


def activation(name: str, ours: Mapping[str, str] = ACTIVATIONS) -> Key:
    """The key with the name of the activation."""
    return choice(name, ours)


def shift(name: str, by: int) -> Key:
    """A key of config.json whose value is lower by a constant.

    >>> shift("max_position_embeddings", 2).to_theirs(514)
    512
    """
    return Key((name,), lambda value: value - by, lambda value: value + by)


def at_least_one(name: str) -> Key:
    """A key of config.json for the rows of a table that the classes always have.

    >>> at_least_one("type_vocab_size").to_theirs(0)
    Traceback (most recent call last):
    ...
    ValueError: invalid type_vocab_size: got 0, expected at least 1
    """

    def require_rows(rows: int) -> int:
        if rows < 1:
            raise ValueError(f"invalid {name}: got {rows}, expected at least 1")
        return rows

    return Key((name,), require_rows, require_rows)


def alike(*names: str) -> Key:
    """Keys of config.json that must have the same value; those that are missing or null have it, too.

    >>> alike("encoder_layers", "decoder_layers").to_theirs(6)
    (6, 6)
    """

    def to_ours(first: Any, *others: Any) -> Any:
        for name, value in zip(names[1:], others, strict=True):
            if value is not None and value != first:
                raise ValueError(f"invalid {name}: got {value!r}, expected {first!r} as {names[0]}")
        return first

    return Key(names, lambda value: (value,) * len(names), to_ours)


def write_keys(trunk: Architecture, keys: Keys) -> dict[str, Any]:
    """The keys of config.json, with dots for nested mappings.

    Raises ValueError if they cannot express a value, or if the model has no such key.
    """
    config = dict[str, Any]()
    for ours, theirs in keys.items():
        value = tuple(get_key(trunk, key) for key in ours) if isinstance(ours, tuple) else get_key(trunk, ours)
        if isinstance(theirs, str):
            config[theirs] = value
            continue
        written = theirs.to_theirs(value)
        config |= dict(zip(theirs.names, written if len(theirs.names) > 1 else (written,), strict=True))
    return config


def read_keys(config: Config, keys: Keys) -> dict[str, Any]:
    """The values of config.json by our keys. Keys that are missing there are missing here."""
    values = dict[str, Any]()
    for ours, theirs in keys.items():
        names = (theirs,) if isinstance(theirs, str) else theirs.names
        given = [get_nested(config, name) for name in names]
        if given[0] is MISSING or (isinstance(theirs, str) and given[0] is None):
            continue
        value = given[0] if isinstance(theirs, str) else theirs.to_ours(*(None if x is MISSING else x for x in given))
        values |= dict(zip(ours, value, strict=True)) if isinstance(ours, tuple) else {ours: value}
    return values


def require_values(config: Config, supported: Config) -> None:
    """Raise ValueError if a key has another value than the only supported one.

    >>> require_values({"is_decoder": True}, {"is_decoder": False})
    Traceback (most recent call last):
    ...
    ValueError: invalid is_decoder: got True, expected False
    """
    for key, allowed in supported.items():
        if (given := get_nested(config, key)) is not MISSING and given != allowed:
            raise ValueError(f"invalid {key}: got {given!r}, expected {allowed!r}")


def get_key(part: Any, key: str) -> Any:
    """The value of a key, with dots for the keys of parts. Raises ValueError if the part has no such key."""
    for name in key.split("."):
        if not hasattr(part, name):
            raise ValueError(f"invalid {key}: got no such key, expected a part with it")
        part = getattr(part, name)
    return part


def nest(values: Config) -> dict[str, Any]:
    """Mappings inside mappings, from keys with dots.

    >>> nest({"kind": "decoder", "position_embedding.kind": "learned", "position_embedding.offset": 2})
    {'kind': 'decoder', 'position_embedding': {'kind': 'learned', 'offset': 2}}
    """
    found = dict[str, Any]()
    for key, value in values.items():
        *places, last = key.split(".")
        place = found
        for name in places:
            place = place.setdefault(name, {})
        place[last] = value
    return found


def merge(config: Config, other: Config) -> dict[str, Any]:
    """Both together, also the mappings in them. Values of `other` win; null does not replace a mapping.

    >>> merge({"rope": {"theta": 1.0, "type": "default"}, "bias": True}, {"rope": {"theta": 5.0}, "bias": None})
    {'rope': {'theta': 5.0, 'type': 'default'}, 'bias': None}
    """
    merged = dict(config)
    for key, value in other.items():
        before = merged.get(key)
        if isinstance(before, Mapping):
            merged[key] = merge(before, value) if isinstance(value, Mapping) else value or before
        else:
            merged[key] = value
    return merged


MISSING: Final = object()


def get_nested(config: Any, key: str) -> Any:
    """The value of a key with dots; MISSING if there is none."""
    for name in key.split("."):
        if not isinstance(config, Mapping) or name not in config:
            return MISSING
        config = config[name]
    return config


def _list_choices(values: Any) -> str:
    return " or ".join(dict.fromkeys(map(repr, values)))
