"""Compare the architecture of initial weights with that of a model, including values that no tensor shape shows."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from training.formats.round_trip import TRAINS_ONLY, normal_form
from training.specs import Architecture, Encoder, GeneratorDiscriminator

log = logging.getLogger(__name__)

FURTHER_SEGMENTS: Final = (0, 1, 0, 0, 0, 1)  # for each, the segment of BERT that initializes it, as in UniLM's code
# Keys that a run may change: they concern the training, the text that a token attends to, or longer sequences.
FREE: Final = TRAINS_ONLY | frozenset(
    {
        "norm_eps",
        "attention_mask",
        "attention_window",
        "sample_from",
        "allow_correct",
        "mem_len",
        "reuse_len",
        "clamp_len",
        "same_length",
        "eval_mem_len",
        "eval_clamp_len",
        "rope_theta",
        "rope_scaling",
        "local_rope_theta",
    }
)
_SPECIAL: Final = frozenset({"num_hidden_groups", "type_vocab_size"})  # compared only with other keys, or not equal


@dataclass(frozen=True)
class Difference:
    """A key of `model` that differs; `key` is its name in a recipe."""

    key: str
    ours: object
    theirs: object
    remedy: str = ""

    def describe(self, file: Path) -> str:
        """
        >>> Difference("model.hidden_size", 32, 64).describe(Path("hf/config.json"))
        'invalid model.hidden_size: got 32, expected 64 as in hf/config.json; set model.hidden_size=64'
        """
        remedy = self.remedy or f"set {self.key}={_yaml(self.theirs)}"
        return f"invalid {self.key}: got {_yaml(self.ours)}, expected {_yaml(self.theirs)} as in {file}; {remedy}"


def require_same_architecture(folder: Path, theirs: Architecture, ours: Architecture) -> None:
    """Raise BadInput, with one line per key, if a model of architecture `ours` cannot have the weights in `folder`.

    Differences that `fit_tensor` supports are allowed, and so are those of the keys in `FREE`.
    """
    if found := list(differences(theirs, ours)):
        raise BadInput("\n".join(each.describe(_file(folder)) for each in found))


def warn_of_other_epsilon(folder: Path, theirs: Architecture, ours: Architecture) -> None:
    """Log a warning if the norms had another epsilon when the weights in `folder` were trained."""
    if theirs.norm_eps != ours.norm_eps:
        log.warning(
            "model.norm_eps is %s, but %s in %s; to keep that value, set model.norm_eps=%s",
            *(ours.norm_eps, theirs.norm_eps, _file(folder), theirs.norm_eps),
        )


def _file(folder: Path) -> Path:
    """The file with the architecture of the weights in `folder`."""
    return folder / ("spec.json" if (folder / "spec.json").exists() else "config.json")


def differences(theirs: Architecture, ours: Architecture) -> Iterator[Difference]:
    """The keys of `model` in which `ours` must be changed to have weights of the architecture `theirs`."""
    copied = isinstance(ours, GeneratorDiscriminator) and isinstance(theirs, Encoder) and ours.sample_from == "frozen"
    if ours.kind != theirs.kind and not copied:
        remedy = f"use a recipe with model kind {theirs.kind}, or set init_checkpoint to a model of kind {ours.kind}"
        yield Difference("model.kind", ours.kind, theirs.kind, remedy)
        return
    own, usual = [field.name for field in fields(ours)], normal_form(theirs)
    for name in (field.name for field in fields(theirs)):
        if name in own and name not in FREE | _SPECIAL | {"kind"}:
            value = _resolve(theirs, name, getattr(ours, name))
            yield from _compare(f"model.{name}", getattr(usual, name), value)
    if isinstance(ours, Encoder | GeneratorDiscriminator):
        extended = theirs.type_vocab_size == 2 < ours.type_vocab_size <= len(FURTHER_SEGMENTS)
        if not extended:
            yield from _compare("model.type_vocab_size", theirs.type_vocab_size, ours.type_vocab_size)
    if isinstance(ours, Encoder) and isinstance(theirs, Encoder) and ours.parameter_sharing != "none":
        yield from _compare("model.num_hidden_groups", theirs.num_hidden_groups, ours.num_hidden_groups)


def _resolve(theirs: Any, name: str, value: Any) -> Any:
    """Our value of a key. If it stands for a value that follows from other keys, such as 0 for head_dim: from those of
    `theirs`, so that nothing is reported that follows from a key reported already."""
    try:
        return getattr(normal_form(replace(theirs, **{name: value})), name)
    except ValueError:  # with the other keys of `theirs`, it is not allowed
        return value


def _compare(key: str, theirs: object, ours: object) -> Iterator[Difference]:
    """Differences of a value, or of a part. More positions than `theirs` has are allowed, at any offset."""
    if not is_dataclass(ours) or not is_dataclass(theirs):
        if ours != theirs:
            yield Difference(key, ours, theirs)
        return
    kinds = [getattr(part, "kind") for part in (ours, theirs)]  # noqa: B009
    if kinds[0] != kinds[1]:
        yield Difference(f"{key}.kind", *kinds)
        return
    lengths = [getattr(part, "longest", 0) for part in (ours, theirs)]
    if lengths[0] < lengths[1]:
        needed = lengths[1] + getattr(ours, "offset", 0)
        yield Difference(f"{key}.max_position_embeddings", getattr(ours, "max_position_embeddings", 0), needed)
    free = FREE | {"kind", "max_position_embeddings", "offset"}
    for name in (field.name for field in fields(ours) if field.name not in free):
        yield from _compare(f"{key}.{name}", getattr(theirs, name), _resolve(theirs, name, getattr(ours, name)))


def _yaml(value: object) -> str:
    """A value as it is written in a recipe.

    >>> _yaml(True), _yaml((2, 4)), _yaml("gelu")
    ('true', '[2, 4]', 'gelu')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)
