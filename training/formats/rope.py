"""Rotary positions in config.json: the key rope_parameters of transformers 5, and the keys of older files."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from preprocessing.spec import kind_of
from training.formats.keys import Key, Keys
from training.specs import LinearScaling, Llama3Scaling, NoScaling, RopeScaling, YarnScaling

SCALINGS: Final[Mapping[str, type[RopeScaling]]] = {
    "default": NoScaling,
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "yarn": YarnScaling,
}
OLD_KEYS: Final = {
    "rope_theta": "rope_parameters.rope_theta",
    "partial_rotary_factor": "rope_parameters.partial_rotary_factor",
    "rope_scaling.type": "rope_parameters.rope_type",
    "rope_scaling": "rope_parameters",
}
DEFAULTS: Final = {"rope_parameters.rope_theta": 10_000.0, "rope_parameters.rope_type": "default"}
_OTHERS: Final = frozenset({"rope_type", "rope_theta", "partial_rotary_factor", "type", "finetuned"})


def write_scaling(theta: float, scaling: RopeScaling) -> dict[str, Any]:
    """
    >>> write_scaling(10000.0, LinearScaling(factor=4.0))
    {'rope_theta': 10000.0, 'rope_type': 'linear', 'factor': 4.0}
    """
    name = next(name for name, kind in SCALINGS.items() if type(scaling) is kind)
    own = {one.name: getattr(scaling, one.name) for one in fields(scaling) if one.name != "kind"}
    return {"rope_theta": theta, "rope_type": name, **own}


def read_scaling(given: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """The keys of model.position_embedding.rope_scaling. Raises ValueError for a value that Sesame does not have.

    >>> read_scaling({"rope_type": "yarn", "factor": 4.0, "beta_fast": None}, 2048)
    {'kind': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 2048}
    """
    kind = SCALINGS.get(given["rope_type"])
    if kind is None:
        raise ValueError(f"invalid rope_type: got {given['rope_type']!r}, expected one of {', '.join(SCALINGS)}")
    values = {name: value for name, value in given.items() if value is not None and name not in _OTHERS}
    own = {one.name for one in fields(kind)}
    if "original_max_position_embeddings" in own:
        values.setdefault("original_max_position_embeddings", longest)
    scaling = {name: value for name, value in values.items() if name in own}
    built_in: dict[str, Any] = {"truncate": True, "attention_factor": kind(**scaling).attention_factor}
    for name in values.keys() - own:
        if values[name] != built_in.get(name):
            supported = repr(built_in[name]) if name in built_in else "no such key"
            raise ValueError(f"invalid rope_parameters.{name}: got {values[name]!r}, expected {supported}")
    return {"kind": kind_of(kind), **scaling}


def rotary(*, partial: bool = False) -> Keys:
    """The keys of rotary positions, whose frequencies are those of all layers. `partial`: a part of a head can be
    rotated."""

    def to_theirs(values: tuple[float, float, RopeScaling, int]) -> tuple[dict[str, Any], int]:
        theta, part, scaling, longest = values
        require_part(part)
        more = {"partial_rotary_factor": part} if partial else {}
        return write_scaling(theta, scaling) | more, longest

    def to_ours(given: Mapping[str, Any], longest: int) -> tuple[float, float, dict[str, Any], int]:
        part = given.get("partial_rotary_factor") or 1.0
        require_part(part)
        return given["rope_theta"], part, read_scaling(given, longest), longest

    def require_part(part: float) -> None:
        if part != 1 and not partial:
            raise ValueError(f"invalid partial_rotary_factor: got {part}, expected 1.0")

    ours = ("rope_theta", "partial_rotary_factor", "rope_scaling", "max_position_embeddings")
    theirs = ("rope_parameters", "max_position_embeddings")
    return {tuple(f"position_embedding.{name}" for name in ours): Key(theirs, to_theirs, to_ours)}
