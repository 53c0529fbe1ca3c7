"""The recipes, clusters, corpora and tasks that come with Sesame: their names and their YAML documents."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from orchestration.config import error_messages, glossary, strict_yaml
from preprocessing.errors import BadInput
from training.evaluation.tasks import TASKS, TEXT

HOME = Path(__file__).parents[1]
SCALES: Final = ("tiny", "small")  # on two cores a run takes minutes (tiny) or about an hour (small)
UNAVAILABLE = "unavailable"  # file in tasks/ with the reported results that have no task, and the reasons
_RECIPE: Final = "a name that `sesame recipes` lists, or a .yaml file"
Folder = Literal["recipes", "clusters", "corpora", "tasks"]
_OWN_KEYS: dict[Folder, frozenset[str]] = {  # keys that no other kind of file has
    "recipes": frozenset({"model", "objective", "losses", "masking", "phases"}),
    "corpora": frozenset({"sources", "mixture", "clean", "dedup", "decontaminate"}),
}


def find_recipe(model: str) -> str:
    """The recipe of a model on a hub, by its name with or without its owner; "" if there is none.

    >>> find_recipe("bert-base-uncased"), find_recipe("distilbert-base-uncased")
    ('bert_base', '')
    """
    return glossary.find_recipe(model, list_names("recipes"))


def list_names(folder: Folder) -> list[str]:
    """The names of the shipped files in a directory, which users write without a path: bert_base, gpt2, ..."""
    found = (name.removesuffix(".yaml") for name in os.listdir(HOME / folder) if name.endswith(".yaml"))
    return sorted(name for name in found if name != UNAVAILABLE)


@cache
def task_groups() -> Mapping[str, tuple[str, ...]]:
    """The groups of tasks (glue, ner, ...) with the names of their tasks. It does not parse the files, which takes a
    second."""
    groups: dict[str, tuple[str, ...]] = {}
    for name in list_names("tasks"):
        text = (HOME / "tasks" / f"{name}.yaml").read_text(encoding="utf-8")
        if found := re.search(r"^group: (\S+)$", text, re.MULTILINE):
            groups[found[1]] = (*groups.get(found[1], ()), name)
    return groups


def is_shipped_task(name: str) -> bool:
    """Whether a task or a group of tasks of Sesame has this name."""
    return name in TASKS or name in list_names("tasks") or name in task_groups() or bool(find_labeled_form(name))


def refuse_name(name: str, where: str, remedy: str) -> None:
    """BadInput if a user's own task has the name of a task of Sesame: their scores would have the same directory."""
    if is_shipped_task(name):
        expected = "a name that no task of Sesame has"
        raise BadInput(f"{where}: {error_messages.invalid('name', repr(name), expected, remedy)}")


def find_labeled_form(name: str) -> str:
    """The task whose text-to-text form is NAME_text; "" if NAME_text has its own file, or if no such task exists."""
    known, stem = list_names("tasks"), name.removesuffix(TEXT)
    if stem == name or name in known:
        return ""
    return next((one for one in (f"{stem}_tuned", stem) if one in known), "")


def find_unavailable() -> dict[str, str]:
    """Results that recipes report although Sesame has no task for them, each with the reason, e.g. `race.middle`."""
    where = f"tasks/{UNAVAILABLE}.yaml"
    return strict_yaml.read(HOME / where, where)


def open_document(folder: Folder, name_or_path: str) -> tuple[dict[str, Any], str]:
    """The document of a shipped file or of a path to a .yaml file, and the name of the file for messages."""
    known = list_names(folder)
    if name_or_path in known:
        where = f"{folder}/{name_or_path}.yaml"
        return strict_yaml.read(HOME / where, where), where
    if folder == "recipes" and (Path(name_or_path) / "config.json").is_file():
        remedy = f"to start from its weights, use RECIPE init_checkpoint={name_or_path}"
        raise BadInput(
            error_messages.invalid(
                "recipe", f"{name_or_path}, a directory of transformers", "a name or a .yaml file", remedy
            )
        )
    is_yaml = name_or_path.endswith((".yaml", ".yml"))
    if folder == "recipes" and name_or_path and not is_yaml and (found := _no_recipe(name_or_path)):
        got, remedy = found
        raise BadInput(error_messages.invalid("recipe", got, _RECIPE, remedy))
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        if (stem := Path(name_or_path).stem) in known and not Path(name_or_path).exists():
            raise BadInput(
                f"{name_or_path}: no such file; for the {error_messages.noun_of(folder)} of Sesame, write {stem}"
            )
        document = strict_yaml.read(Path(name_or_path), name_or_path)
        _refuse_other_kind(document, folder, name_or_path)
        return document, name_or_path
    recipe, _, scale = name_or_path.lower().rpartition("_")
    meant = error_messages.find_nearest(scale, SCALES, cutoff=0.75)
    if folder == "recipes" and recipe in known and meant and (meant == "tiny" or "_" in recipe):  # gpt2_small is gpt2
        raise BadInput(error_messages.invalid("recipe", name_or_path, _RECIPE, f"use {recipe} --scale {meant}"))
    groups = frozenset(task_groups()) if folder == "tasks" else frozenset[str]()
    raise BadInput(error_messages.explain_unknown_name(name_or_path, folder, known, groups))


def names_corpus(name_or_path: str) -> bool:
    """Whether an argument names a corpus and not a recipe: a file with the keys of a corpus, or a corpus of Sesame.

    >>> names_corpus("demo"), names_corpus("bert_base"), names_corpus("missing.yaml")
    (True, False, False)
    """
    if name_or_path in list_names("recipes"):
        return False
    if name_or_path.endswith((".yaml", ".yml")) and Path(name_or_path).is_file():
        return _has_keys_of(strict_yaml.read(Path(name_or_path), name_or_path), "corpora")
    return name_or_path in list_names("corpora")


def _has_keys_of(document: Mapping[str, Any], folder: Folder) -> bool:
    """Whether a document has keys that only this kind of file has."""
    own = {name: _OWN_KEYS[name].intersection(document) for name in _OWN_KEYS}
    return bool(own.get(folder)) and not any(own[name] for name in own if name != folder)


def _refuse_other_kind(document: Mapping[str, Any], folder: Folder, where: str) -> None:
    """Raise BadInput if a file is a corpus where a recipe is needed, or the other way round."""
    other = next((name for name in _OWN_KEYS if name != folder and _has_keys_of(document, name)), None)
    if folder not in _OWN_KEYS or other is None:
        return
    got = f"a {error_messages.noun_of(other)} (it has {', '.join(sorted(_OWN_KEYS[other].intersection(document)))})"
    remedies = {
        "recipes": f"use RECIPE --data {where}, or `sesame corpus {where} --tokenizer TOKENIZER`",
        "corpora": f"use {where} as the recipe, and name text with --data",
    }
    noun = error_messages.noun_of(folder)
    raise BadInput(f"{where}: {error_messages.invalid('file', got, f'a {noun}', remedies[folder])}")


def _no_recipe(given: str) -> tuple[str, str] | None:
    """What an argument is that names no recipe, and the remedy: text, or a model of a hub; None if it is unknown."""
    path = Path(given)
    if path.is_dir():
        return f"{given}, a directory", f"use RECIPE --data {given} if it contains your text"
    if path.is_file() and path.suffix:
        return f"{given}, a file", f"use RECIPE --data {given} if it contains your text"
    if re.fullmatch(r"[\w.-]*\w/\w[\w.-]*", given):
        recipe = find_recipe(given)
        remedy = "download the model, because names on a hub are not read, and use RECIPE init_checkpoint=DIR"
        if recipe:
            remedy = f"use the recipe {recipe}; for these weights, download them and add init_checkpoint=DIR"
        return f"{given}, which is not a file", remedy
    return None
