"""Completions of a word on the command line, for the shell: recipes, clusters, corpora, runs, keys.

The shell calls a function at each press of the Tab key, so they must be fast. Most names are file names; only tables
and keys import more than the standard library.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

HOME: Final = Path(__file__).parents[1]


def recipe(incomplete: str) -> list[str]:
    """Names of recipes; if none matches, the shell completes file names."""
    return _match(incomplete, _names("recipes"))


def cluster(incomplete: str) -> list[str]:
    """Names of clusters."""
    return _match(incomplete, _names("clusters"))


def corpus(incomplete: str) -> list[str]:
    """Names of corpora."""
    return _match(incomplete, _names("corpora"))


def scale(incomplete: str) -> list[str]:
    """Values of --scale."""
    return _match(incomplete, ("tiny", "small"))


def run(ctx: Any, incomplete: str) -> list[str]:
    """Runs in the output directory of the command, then recipes."""
    folder = Path(ctx.params.get("output_dir") or "work") / "runs"
    runs = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []
    return _match(incomplete, [*runs, *_names("recipes")])


def table(incomplete: str) -> list[str]:
    """Names of ablation tables."""
    from orchestration.reports.ablations import TABLES

    return _match(incomplete, TABLES)


def task(incomplete: str) -> list[str]:
    """Names of tasks that have a file."""
    return _match(incomplete, [name for name in _names("tasks") if name != "unavailable"])


def part(incomplete: str) -> list[str]:
    """Names of parts and keys that `sesame keys` accepts."""
    from orchestration.config import key_names

    return _match(incomplete, key_names())


def override(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """The keys of the recipe on the command line and of a cluster, each with its value as the description.

    If one key is left, `key=value` is a second completion. With two completions the shell adds no space after `key=`,
    so that the user can type a value at once.
    """
    from orchestration.config import flatten, load, load_cluster
    from preprocessing.errors import BadInput

    try:
        one = load(str(ctx.params.get("recipe") or ctx.params.get("run")))
    except BadInput:
        return []
    settings = dataclasses.asdict(one) | {"cluster": dataclasses.asdict(load_cluster("local"))}
    del settings["reported_results"]  # results of the paper are not a setting
    del settings["cluster"]["sample_prompts"]  # the shell would split these texts at their spaces
    values = {key: _format_value(value) for key, value in flatten(settings)}
    keys = _match(incomplete.partition("=")[0], values)
    completions = [(f"{key}=", values[key]) for key in keys]
    if len(keys) == 1 and values[keys[0]]:
        completions.append((f"{keys[0]}={values[keys[0]]}", ""))
    return completions


def _format_value(value: object) -> str:
    """A value in the syntax of an override."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, tuple | list):
        return f"[{','.join(map(str, value))}]"
    return "{}" if value == {} else str(value)


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (HOME / folder).glob("*.yaml"))


def _match(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
