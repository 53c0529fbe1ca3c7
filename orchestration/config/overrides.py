"""Dotted keys, as `optim.peak` or `phases.0.steps`: list those of a document, set one, read one from a command line."""

from collections.abc import Iterator, Sequence
from typing import Any

from orchestration.config import strict_yaml
from preprocessing.errors import BadInput

CLUSTER = "cluster."  # what an override of the cluster begins with


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and plain values of nested mappings and sequences.

    >>> dict(flat({"optim": {"peak": 1e-4}, "phases": [{"steps": 5}]}))
    {'optim.peak': 0.0001, 'phases.0.steps': 5}
    """
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if items is None or not value:
        yield prefix, value
    else:
        for key, inner in items:
            yield from flat(inner, f"{prefix}.{key}" if prefix else str(key))


def split_overrides(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of the recipe, and those of the cluster.

    >>> split_overrides(["optim.peak=1e-3", "cluster.machine.zero=3"])
    (['optim.peak=1e-3'], ['cluster.machine.zero=3'])
    """
    of_cluster = [given for given in overrides if given.startswith(CLUSTER)]
    return [given for given in overrides if given not in of_cluster], of_cluster


def override(document: dict[str, Any], given: str) -> None:
    """Set what an override as people write it says: `optim.peak=2e-4`, `cluster.workers=2`; the value is YAML."""
    key, equals, value = given.removeprefix(CLUSTER).partition("=")
    if not equals or not key:
        raise BadInput(f"{given!r} is not an override; write key=value, as in optim.peak=2e-4")
    put(document, key, strict_yaml.parse(value, f"override {key}"), f"override {given}")


def put(document: Any, key: str, value: Any, where: str) -> None:
    """Set `phases.0.steps` and the like; the mapping or list around it must be there."""
    *parents, last = (int(step) if step.isdecimal() else step for step in key.split("."))
    for step in parents:
        if isinstance(document, dict) and isinstance(step, str):
            document = document.setdefault(step, {})
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            raise BadInput(f"{where}: there is no {step} to set {key} in")
    if isinstance(document, list) and (not isinstance(last, int) or last >= len(document)):
        raise BadInput(f"{where}: {key} is not in a list of {len(document)}, counted from 0")
    if not isinstance(document, dict | list):
        raise BadInput(f"{where}: {key} cannot be set inside the value {document!r}")
    document[last] = value  # type: ignore[index]
