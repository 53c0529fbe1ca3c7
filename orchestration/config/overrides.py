"""Dotted keys, as `optimizer.learning_rate` or `phases.0.steps`: list those of a document, set one, read one from a
command line.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from orchestration.config import error_messages, strict_yaml
from preprocessing.credentials import HIDDEN, LOGIN, has_credential
from preprocessing.errors import BadInput

CLUSTER = "cluster."  # what an override of the cluster begins with


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
    """Those of the recipe, and those of the cluster.

    >>> split_overrides(["optimizer.learning_rate=1e-3", "cluster.engine.zero_stage=3"])
    (['optimizer.learning_rate=1e-3'], ['cluster.engine.zero_stage=3'])
    """
    of_cluster = [given for given in overrides if given.startswith(CLUSTER)]
    return [given for given in overrides if given not in of_cluster], of_cluster


def override(document: dict[str, Any], given: str, root: type) -> None:
    """Set what an override as people write it says: `optimizer.learning_rate=2e-4`, `cluster.num_workers=2`; the value
    is YAML.

    `root` is what the document is to be read as.
    """
    key, equals, value = given.removeprefix(CLUSTER).partition("=")
    if not equals or not key:
        raise BadInput(
            f"{redact_override(given)!r} is not an override; write key=value, as in optimizer.learning_rate=2e-4"
        )
    said = redact_override(given)
    if "[" in key:
        raise BadInput(f"override {said}: numbers of a list stand between dots; write {_dotted(said)}")
    _fill(document, key.split(".")[:-1], root)
    set_value(document, key, strict_yaml.parse(value, f"override {key}"), f"override {said}")


def redact_override(given: str) -> str:
    """An override as a message has it: without what may be a credential.

    >>> redact_override("cluster.env.HF_TOKEN=hf_123"), redact_override("optimizer.learning_rate=1")
    ('cluster.env.HF_TOKEN=...', 'optimizer.learning_rate=1')
    """
    key, equals, value = given.partition("=")
    part = key.removeprefix(CLUSTER).split(".")[0]
    is_secret = part == "env" or (part == "beam" and has_credential({key: value}))
    return f"{key}=..." if equals and is_secret else LOGIN.sub(f"//{HIDDEN}@", given)


def origin(line: str, overrides: Sequence[str], where: str) -> str:
    """The override that the message of an error is about; `where` if it is about none.

    >>> origin("num_workers is 0, allowed is ...", ["cluster.num_workers=0"], "local.yaml")
    'override cluster.num_workers=0'
    """
    key = re.split("[ :=]", line)[0] + "."
    keys = {given: given.removeprefix(CLUSTER).partition("=")[0] + "." for given in overrides}
    found = (given for given, other in keys.items() if key.startswith(other) or other.startswith(key))
    return next((f"override {redact_override(given)}" for given in found), where)


def _dotted(given: str) -> str:
    """An override with the numbers of lists between dots.

    >>> _dotted("phases[0].steps=9")
    'phases.0.steps=9'
    """
    key, _, value = given.partition("=")
    return re.sub(r"\[(.*?)\]", r".\1", key) + f"={value}"


def _fill(values: Any, path: Sequence[str], annotation: Any) -> None:
    """Put in, with their default values, the parts at a path that a document leaves out: a key inside can then be set.

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
    _fill(values.get(name), rest, error_messages.annotations(part)[name])


def set_value(document: Any, key: str, value: Any, where: str) -> None:
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
