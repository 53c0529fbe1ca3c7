"""Recipes, clusters, corpora and tasks: YAML -> frozen parts, checked. The only YAML and pydantic.

Read recipe.py first, then checks.py (what would go wrong later), scales.py (`--scale`), keys.py (what a key means) and
written.py (the way back). own_task.py makes a task of a user's own table.
"""

from orchestration.config.checks import check, remarks, without_effect
from orchestration.config.error_messages import nearest
from orchestration.config.glossary import key_of
from orchestration.config.keys import KeyGroup, find_keys, key_names, parts
from orchestration.config.overrides import flat, split_overrides
from orchestration.config.own_task import task_of_csv
from orchestration.config.recipe import (
    Cluster,
    Recipe,
    add_task,
    beside_first,
    digest,
    is_shipped_task,
    load,
    load_cluster,
    load_corpus,
    load_task,
    names,
    tasks_of,
    unavailable,
)
from orchestration.config.scales import SCALES
from orchestration.config.serialize import not_default, to_yaml

__all__ = [
    "SCALES",
    "Cluster",
    "KeyGroup",
    "Recipe",
    "add_task",
    "beside_first",
    "check",
    "digest",
    "find_keys",
    "flat",
    "is_shipped_task",
    "key_names",
    "key_of",
    "load",
    "load_cluster",
    "load_corpus",
    "load_task",
    "names",
    "nearest",
    "not_default",
    "parts",
    "remarks",
    "split_overrides",
    "task_of_csv",
    "tasks_of",
    "to_yaml",
    "unavailable",
    "without_effect",
]
