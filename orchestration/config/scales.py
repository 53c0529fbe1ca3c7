"""What `--scale` changes in a recipe.

Each part states in `scale_overrides` which of its values a scale replaces, so no part is named here.
"""

import copy
import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Final

from orchestration.config import error_messages
from preprocessing.errors import BadInput
from preprocessing.masking import Masking
from preprocessing.packing import Packing
from preprocessing.spec import AtMost, part
from training.losses import Loss

SCALES: Final = ("tiny", "small")  # minutes, and about an hour, on two cores


def shrink(document: dict[str, Any], scale: str, root: type) -> None:
    """Put a scale over a document that is to be read as `root`; BadInput where there is no such scale.

    >>> from orchestration.config.recipe import Recipe
    >>> document = {"model": {"kind": "decoder", "num_hidden_layers": 96}, "optimizer": {"kind": "lamb"}}
    >>> shrink(document, "tiny", Recipe)
    >>> document["model"]["num_hidden_layers"], "bias_correction" in document["optimizer"]
    (2, False)
    """
    if scale not in SCALES:
        raise BadInput(f"--scale is {scale!r}, allowed are {', '.join(SCALES)}")
    for kind, values, given in _parts(root, document):
        for key, value in kind.scale_overrides.get(scale, {}).items():
            if not isinstance(value, AtMost):
                values[key] = copy.deepcopy(value)
            elif key in given and _is_more(values[key], value.value):
                values[key] = copy.deepcopy(value.value)
    if phases := _phases(document, scale):
        document["phases"] = phases
    if isinstance(document.get("data"), dict):
        document["data"]["corpus"] = _demo(document)


def _phases(document: dict[str, Any], scale: str) -> list[dict[str, int]]:
    """The phases that the losses of a recipe say; [] where they say none, or rows go on from those before them."""
    losses, segment = document.get("losses"), _value(document, "data", "packing")
    kinds: list[Any] = [
        error_messages.find_chosen_class(Loss, loss) for loss in (losses if isinstance(losses, list) else ())
    ]
    said = [kind.phases[scale] for kind in kinds if kind is not None and scale in kind.phases]
    goes_on = getattr(error_messages.find_chosen_class(Packing, segment), "reuse_len", 0)
    return [dict(phase) for phase in said[-1]] if said and not goes_on else []


def _value(document: dict[str, Any], place: str, key: str) -> Any:
    """What a document says there; None where it says nothing, or is not what it should be."""
    inner = document.get(place)
    return inner.get(key) if isinstance(inner, dict) else None


def _is_more(given: Any, most: Any) -> bool:
    """Whether a value of a document is above another one of its type; lists are compared as Python does."""
    most = list(most) if isinstance(most, tuple) else most
    return isinstance(given, type(most)) and given > most


def _demo(document: dict[str, Any]) -> str:
    """The text that is on every machine and has what the rows of a recipe want of a corpus."""
    annotations: frozenset[str] = frozenset()
    parts: tuple[tuple[Any, Any], ...]
    parts = (Packing, _value(document, "data", "packing")), (Masking, document.get("masking"))
    for union, values in parts:
        try:
            annotations |= part(union, values).required_annotations
        except (KeyError, TypeError, ValueError):  # the loader says what is wrong with it
            continue
    return "demo_parallel" if "translations" in annotations else "demo_phrases" if "phrases" in annotations else "demo"


def _parts(annotation: Any, values: Any, given: bool = True) -> Iterator[tuple[Any, dict[str, Any], set[str]]]:
    """The classes that mappings of a document are read as, the mappings, and which of their keys a person wrote.

    A part that is left out has its default values; it is put into the document, so that a scale can change them.
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
