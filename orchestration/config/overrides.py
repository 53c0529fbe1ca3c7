"""Dotted keys, e.g. `optimizer.learning_rate` or `phases.0.steps`: lists those of a document, and sets overrides."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from orchestration.config import error_messages, strict_yaml
from preprocessing.credentials import HIDDEN, LOGIN, has_credential
from preprocessing.errors import BadInput

CLUSTER = "cluster."  # prefix of the overrides of a cluster file


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and plain values of nested mappings and sequences.

    >>> dict(flatten({"optimizer": {"learning_rate": 1e-4}, "phases": [{"steps": 5}]}))
    {'optimizer.learning_rate': 0.0001, 'phases.0.steps': 5}
    """
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if items is None or not value:
        yield prefix, value
    else:
        for key, inner in items:
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))


def split_overrides(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides of the recipe, and those of the cluster.

    >>> split_overrides(["optimizer.learning_rate=1e-3", "cluster.engine.zero_stage=3"])
    (['optimizer.learning_rate=1e-3'], ['cluster.engine.zero_stage=3'])
    """
    of_cluster = [given for given in overrides if given.startswith(CLUSTER)]
    return [given for given in overrides if given not in of_cluster], of_cluster


def override(document: dict[str, Any], given: str, root: type) -> None:
    """Set the key of an override to its value, which is YAML: `optimizer.learning_rate=2e-4`, `cluster.num_workers=2`.

    `root` is the class of the document.
    """
    key, equals, value = given.removeprefix(CLUSTER).partition("=")
    if not equals or not key:
        example = "optimizer.learning_rate=2e-4"
        raise BadInput(
            error_messages.invalid("override", repr(redact_override(given)), "KEY=VALUE", f"write {example}")
        )
    shown = redact_override(given)
    if "[" in key:
        expected = "dots around the number of a list item"
        raise BadInput(f"override {shown}: {error_messages.invalid('key', key, expected, f'write {_add_dots(shown)}')}")
    *path, last = key.split(".")
    _fill(document, path, root, chooses_kind=last == "kind")
    set_value(document, key, strict_yaml.parse(value, f"override {key}"), f"override {shown}")


def redact_override(given: str) -> str:
    """An override for messages, without values that may be credentials.

    >>> redact_override("cluster.env.HF_TOKEN=hf_123"), redact_override("optimizer.learning_rate=1")
    ('cluster.env.HF_TOKEN=...', 'optimizer.learning_rate=1')
    """
    key, equals, value = given.partition("=")
    part = key.removeprefix(CLUSTER).split(".")[0]
    is_secret = part == "env" or (part == "beam" and has_credential({key: value}))
    return f"{key}=..." if equals and is_secret else LOGIN.sub(f"//{HIDDEN}@", given)


def origin(key: str, overrides: Sequence[str], where: str) -> str:
    """The override of an invalid key, of a part around it, or of a key inside it; `where` if there is none.

    >>> origin("num_workers", ["cluster.num_workers=0"], "local.yaml")
    'override cluster.num_workers=0'
    """
    keys = {given: given.removeprefix(CLUSTER).partition("=")[0] + "." for given in overrides}
    found = (given for given, other in keys.items() if f"{key}.".startswith(other) or other.startswith(f"{key}."))
    return next((f"override {redact_override(given)}" for given in found), where)


def _add_dots(given: str) -> str:
    """An override with dots around the numbers of list items.

    >>> _add_dots("phases[0].steps=9")
    'phases.0.steps=9'
    """
    key, _, value = given.partition("=")
    return re.sub(r"\[(.*?)\]", r".\1", key) + f"={value}"


def _fill(values: Any, path: Sequence[str], annotation: Any, *, chooses_kind: bool = False) -> None:
    """Add the missing parts at a path to a document, with their default values, so that their keys can be set.

    With `chooses_kind`, the last part gets its kind only: another kind has other keys.

    >>> from orchestration.config.recipe import Recipe
    >>> document = {"model": {"kind": "encoder"}}
    >>> _fill(document, ["model", "position_embedding"], Recipe)
    >>> document["model"]["position_embedding"]
    {'kind': 'learned', 'max_position_embeddings': 512, 'offset': 0, 'init_method': 'normal', 'init_std': 0.0}
    """
    part = error_messages.find_chosen_class(annotation, values)
    defaults = {field.name: field.default for field in dataclasses.fields(part)} if part else {}
    if not path or not isinstance(values, dict) or path[0] not in defaults or part is None:
        return
    name, *rest = path
    default = defaults[name]
    if name not in values and dataclasses.is_dataclass(default) and not isinstance(default, type):
        values[name] = dataclasses.asdict(default)
        if chooses_kind and not rest:
            values[name] = {"kind": values[name]["kind"]}
    if name not in values and isinstance(default, tuple):
        values[name] = list(default)
    _fill(values.get(name), rest, error_messages.annotations(part)[name], chooses_kind=chooses_kind)


def set_value(document: Any, key: str, value: Any, where: str) -> None:
    """Set a dotted key such as `phases.0.steps`. BadInput if a list or a list item on its path does not exist."""
    *parents, last = (int(step) if step.isdecimal() else step for step in key.split("."))
    for step in parents:
        if isinstance(document, dict) and isinstance(step, str):
            document = document.setdefault(step, {})
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            expected = "keys and list items that exist"
            raise BadInput(f"{where}: {error_messages.invalid('key', key, expected, f'correct the step {step}')}")
    if isinstance(document, list) and document and not isinstance(last, int):
        item = ".".join([*map(str, parents), "0", last])
        raise BadInput(f"{where}: {error_messages.invalid('key', key, 'a list item and its key', f'write {item}')}")
    if isinstance(document, list) and (not isinstance(last, int) or last >= len(document)):
        expected = f"an index from 0 to {len(document) - 1}" if document else "an item of a list that is not empty"
        raise BadInput(f"{where}: {error_messages.invalid('key', key, expected, 'count from 0')}")
    if not isinstance(document, dict | list):
        expected = f"a key inside a mapping or a list, not inside {document!r}"
        raise BadInput(f"{where}: {error_messages.invalid('key', key, expected, 'set the outer key to a mapping')}")
    document[last] = value  # type: ignore[index]
