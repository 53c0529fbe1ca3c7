"""Writes recipes and clusters: the values that differ from the defaults, and all values as YAML."""

import dataclasses
import json
from typing import Any

import yaml


def to_non_defaults(part: Any) -> dict[str, Any]:
    """The values of a part, and of the parts inside it, that differ from the defaults; and the kinds of these parts.

    >>> from orchestration.config.loading import load
    >>> to_non_defaults(load("bert_base").optimizer)
    {'learning_rate': 0.0001, 'warmup_steps': 10000, 'kind': 'adamw', 'bias_correction': False}
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if value != _default(field) or field.name == "kind":
            values[field.name] = _plain(value)
    return values


def _default(field: "dataclasses.Field[Any]") -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return to_non_defaults(value) if dataclasses.is_dataclass(value) else value


def to_yaml(part: Any) -> str:
    """A recipe or a cluster with all its values as YAML; `load` or `load_cluster` reads an equal one from it.

    >>> from orchestration.config.loading import load_cluster
    >>> to_yaml(load_cluster("local")).splitlines()[:2]
    ['name: local', 'num_workers: 0']
    """
    plain = json.loads(json.dumps(dataclasses.asdict(part)))  # without tuples
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)
