"""Recipes, clusters, corpora and tasks: YAML -> frozen parts, checked. The only YAML and pydantic.

Read recipe.py first, then checks.py (what would go wrong later), scales.py (`--scale`), keys.py (what a key means) and
written.py (the way back). own_task.py makes a task of a user's own table.
"""

from orchestration.config.checks import check, find_ignored_keys, find_remarks
from orchestration.config.error_messages import find_nearest
from orchestration.config.glossary import key_of
from orchestration.config.keys import KeyGroup, find_keys, key_names, parts
from orchestration.config.overrides import flatten, split_overrides
from orchestration.config.own_task import task_of_csv
from orchestration.config.recipe import (
    Cluster,
    Recipe,
    add_task,
    beside_first,
    compute_digest,
    find_unavailable,
    is_shipped_task,
    list_names,
    load,
    load_cluster,
    load_corpus,
    load_task,
    tasks_of,
)
from orchestration.config.scales import SCALES
from orchestration.config.serialize import to_non_defaults, to_yaml

__all__ = [
    "SCALES",
    "Cluster",
    "KeyGroup",
    "Recipe",
    "add_task",
    "beside_first",
    "check",
    "compute_digest",
    "find_ignored_keys",
    "find_keys",
    "find_nearest",
    "find_remarks",
    "find_unavailable",
    "flatten",
    "is_shipped_task",
    "key_names",
    "key_of",
    "list_names",
    "load",
    "load_cluster",
    "load_corpus",
    "load_task",
    "parts",
    "split_overrides",
    "task_of_csv",
    "tasks_of",
    "to_non_defaults",
    "to_yaml",
]
