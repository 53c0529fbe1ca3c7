"""Applies `--scale` to a recipe.

Each part states in `scale_overrides` which of its values a scale replaces, so this module names no part.
"""

import copy
import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np

from orchestration.config import error_messages
from orchestration.config.library import SCALES
from preprocessing.errors import BadInput
from preprocessing.masking import Masking
from preprocessing.packing import Packing
from preprocessing.spec import AtMost, part
from training.losses import Loss


def shrink(document: dict[str, Any], scale: str, root: type) -> None:
    """Apply a scale to the document of a recipe, whose class is `root`. BadInput if there is no such scale.

    >>> from orchestration.config.recipe import Recipe
    >>> document = {"model": {"kind": "decoder", "num_hidden_layers": 96}, "optimizer": {"kind": "lamb"}}
    >>> shrink(document, "tiny", Recipe)
    >>> document["model"]["num_hidden_layers"], "bias_correction" in document["optimizer"]
    (2, False)
    """
    if scale not in SCALES:
        nearest = error_messages.find_nearest(scale, SCALES)
        remedy = f"did you mean {nearest}?" if nearest else "use one of them"
        raise BadInput(error_messages.invalid("--scale", repr(scale), f"one of {', '.join(SCALES)}", remedy))
    written = document.get("phases")
    for kind, values, given in _parts(root, document):
        for key, value in kind.scale_overrides.get(scale, {}).items():
            if not isinstance(value, AtMost):
                values[key] = copy.deepcopy(value)
            elif key in given and _is_more(values[key], value.value):
                values[key] = copy.deepcopy(value.value)
    phases = _phases(document, scale) or document.get("phases")
    if isinstance(phases, list) and phases is not written:
        document["phases"] = _keep_mixtures(phases, written)
    if isinstance(document.get("data"), dict):
        document["data"]["corpus"] = _demo(document)


def _phases(document: dict[str, Any], scale: str) -> list[dict[str, int]]:
    """The phases that a loss of the recipe defines for a scale; [] if none does, or if the packing reuses tokens."""
    losses, packing = document.get("losses"), _value(document, "data", "packing")
    kinds: list[Any] = [
        error_messages.find_chosen_class(Loss, loss) for loss in (losses if isinstance(losses, list) else ())
    ]
    defined = [kind.phases[scale] for kind in kinds if kind is not None and scale in kind.phases]
    reuse_len = getattr(error_messages.find_chosen_class(Packing, packing), "reuse_len", 0)
    return [dict(phase) for phase in defined[-1]] if defined and not reuse_len else []


def _keep_mixtures(phases: list[dict[str, Any]], written: Any) -> list[dict[str, Any]]:
    """The phases of a scale, divided where the `written` phases change their mixture, at the same fraction of steps.

    >>> web, wiki = {"steps": 900_000, "mixture": {"web": 1}}, {"steps": 100_000, "mixture": {"wiki": 1}}
    >>> _keep_mixtures([{"seq_length": 64, "steps": 50}], [web, wiki])
    [{'seq_length': 64, 'steps': 45, 'mixture': {'web': 1}}, {'seq_length': 64, 'steps': 5, 'mixture': {'wiki': 1}}]
    """
    of_recipe = [one for one in written if isinstance(one, dict)] if isinstance(written, list) else []
    sizes = [one.get("steps") or one.get("epochs") or 1 for one in of_recipe]
    if not any(one.get("mixture") for one in of_recipe) or not all(_is_more(size, 0.0) for size in sizes):
        return phases
    total, ends = sum(phase["steps"] for phase in phases), np.cumsum(sizes) / sum(sizes)
    result, step = list[dict[str, Any]](), 0
    for phase in phases:
        left = phase["steps"]
        while left:
            number = min(int(np.searchsorted(ends, step / total, side="right")), len(sizes) - 1)
            steps = min(left, max(1, round(ends[number] * total) - step))
            mixture = copy.deepcopy(of_recipe[number].get("mixture"))
            result.append(phase | {"steps": steps} | ({"mixture": mixture} if mixture else {}))
            step, left = step + steps, left - steps
    return result


def _value(document: dict[str, Any], place: str, key: str) -> Any:
    """The value of a key of a part in a document; None if the key or the part is missing or invalid."""
    inner = document.get(place)
    return inner.get(key) if isinstance(inner, dict) else None


def _is_more(value: Any, limit: Any) -> bool:
    """Whether a value of a document has the type of `limit` and exceeds it; lists are compared as in Python.

    An integer also fits a limit that is a fraction.

    >>> _is_more(500, 0.2), _is_more(9.5, 5), _is_more([1, 9], (1, 5)), _is_more("9", 5)
    (True, False, True, False)
    """
    limit = list(limit) if isinstance(limit, tuple) else limit
    types = (int, float) if isinstance(limit, float) else (type(limit),)
    return isinstance(value, types) and not isinstance(value, bool) and value > limit


def _demo(document: dict[str, Any]) -> str:
    """The name of the shipped demo corpus with the annotations that the recipe requires."""
    annotations: frozenset[str] = frozenset()
    parts: tuple[tuple[Any, Any], ...]
    parts = (Packing, _value(document, "data", "packing")), (Masking, document.get("masking"))
    for union, values in parts:
        try:
            annotations |= part(union, values).required_annotations
        except (KeyError, TypeError, ValueError):  # the loader reports the error
            continue
    return "demo_parallel" if "translations" in annotations else "demo_phrases" if "phrases" in annotations else "demo"


def _parts(annotation: Any, values: Any, given: bool = True) -> Iterator[tuple[Any, dict[str, Any], set[str]]]:
    """For each mapping in a document: its class, the mapping, and the keys that the user wrote in it.

    A missing part is added to the document with its default values, so that a scale can change them.
    """
    if isinstance(values, list):
        for one in values:
            yield from _parts(next(iter(typing.get_args(annotation)), None), one, given)
    kind = error_messages.find_chosen_class(annotation, values)
    if kind is None or not isinstance(values, dict):
        return
    for field in dataclasses.fields(kind):
        if field.name not in values and dataclasses.is_dataclass(field.default):
            values[field.name] = dataclasses.asdict(field.default)  # type: ignore[arg-type]  # an instance
            yield from _parts(error_messages.annotations(kind)[field.name], values[field.name], given=False)
        else:
            yield from _parts(error_messages.annotations(kind)[field.name], values.get(field.name), given)
    yield kind, values, set(values) if given else set()
