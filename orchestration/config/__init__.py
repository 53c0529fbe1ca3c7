"""Recipes, clusters, corpora and tasks: reads YAML files and checks them. No other package imports PyYAML or pydantic.

Read recipe.py (the schema) first, then library.py (names and files), loading.py (YAML -> recipe, cluster, corpus) and
task_files.py (tasks). checks.py finds problems of a recipe on a cluster, and part_checks.py parts that are incomplete.
hardware.py counts the workers that fit on this machine. scales.py is `--scale`, overrides.py `KEY=VALUE`, and keys.py
the meaning of each key. glossary.py has the names of other libraries, error_messages.py the messages for invalid files.
serialize.py writes a recipe as YAML. epochs.py converts epochs to steps, and shortening.py is `--max-steps`.
own_task.py makes a task from a table of the user.
"""

from orchestration.config.checks import check, check_schedules, find_ignored_keys, find_remarks
from orchestration.config.epochs import describe_epochs, has_epochs, resolve_epochs, without_epochs
from orchestration.config.error_messages import explain_option, find_nearest, invalid
from orchestration.config.keys import (
    Entry,
    KeyGroup,
    entries,
    entries_at,
    find_keys,
    find_override,
    find_parts,
    key_names,
    parts,
    translate,
)
from orchestration.config.library import (
    SCALES,
    find_recipe,
    find_unavailable,
    is_shipped_task,
    list_names,
    names_corpus,
)
from orchestration.config.loading import load, load_cluster, load_corpus, parse_tokenizer, validate
from orchestration.config.overrides import flatten, split_overrides
from orchestration.config.own_task import task_of_csv
from orchestration.config.recipe import Cluster, Recipe, compute_digest
from orchestration.config.serialize import to_non_defaults, to_yaml
from orchestration.config.shortening import describe_shortening, fit_warmup, shorten
from orchestration.config.task_files import add_task, beside_first, load_task, tasks_from_words, tasks_of

__all__ = [
    "SCALES",
    "Cluster",
    "Entry",
    "KeyGroup",
    "Recipe",
    "add_task",
    "beside_first",
    "check",
    "check_schedules",
    "compute_digest",
    "describe_epochs",
    "describe_shortening",
    "entries",
    "entries_at",
    "explain_option",
    "find_ignored_keys",
    "find_keys",
    "find_nearest",
    "find_override",
    "find_parts",
    "find_recipe",
    "find_remarks",
    "find_unavailable",
    "fit_warmup",
    "flatten",
    "has_epochs",
    "invalid",
    "is_shipped_task",
    "key_names",
    "list_names",
    "load",
    "load_cluster",
    "load_corpus",
    "load_task",
    "names_corpus",
    "parse_tokenizer",
    "parts",
    "resolve_epochs",
    "shorten",
    "split_overrides",
    "task_of_csv",
    "tasks_from_words",
    "tasks_of",
    "to_non_defaults",
    "to_yaml",
    "translate",
    "validate",
    "without_epochs",
]
