"""What a word of a command line could become, for the shell: recipes, clusters, corpora, runs, keys.

The shell asks at each press of a key: names are those of files, and only keys need more than the standard library.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

HOME: Final = Path(__file__).parents[1]


def recipe(incomplete: str) -> list[str]:
    """Recipes; where there is none, the shell itself completes files."""
    return _beginning(incomplete, _names("recipes"))


def cluster(incomplete: str) -> list[str]:
    """Clusters."""
    return _beginning(incomplete, _names("clusters"))


def corpus(incomplete: str) -> list[str]:
    """Corpora."""
    return _beginning(incomplete, _names("corpora"))


def scale(incomplete: str) -> list[str]:
    """Scales."""
    return _beginning(incomplete, ("tiny", "small"))


def run(ctx: Any, incomplete: str) -> list[str]:
    """Runs in the folder of the command, then recipes."""
    folder = Path(ctx.params.get("output_dir") or "work") / "runs"
    runs = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []
    return _beginning(incomplete, [*runs, *_names("recipes")])


def table(incomplete: str) -> list[str]:
    """Tables of the literature."""
    from orchestration.reports.ablations import TABLES

    return _beginning(incomplete, TABLES)


def task(incomplete: str) -> list[str]:
    """Tasks that are files."""
    return _beginning(incomplete, [name for name in _names("tasks") if name != "unavailable"])


def part(incomplete: str) -> list[str]:
    """Parts and keys, as `sesame keys` takes them."""
    from orchestration.config import key_names

    return _beginning(incomplete, key_names())


def override(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """The keys of the recipe that the line names, and of a cluster; a whole key also with its value.

    The shell puts no blank behind what may go on in two ways, so that a value can be typed at once.
    """
    from orchestration.config import flatten, load, load_cluster
    from preprocessing.errors import BadInput

    try:
        found = load(str(ctx.params.get("recipe") or ctx.params.get("run")))
    except BadInput:
        return []
    written = dataclasses.asdict(found) | {"cluster": dataclasses.asdict(load_cluster("local"))}
    del written["reported_results"]  # what the paper says goes with the recipe as it is
    del written["cluster"]["sample_prompts"]  # texts with blanks
    values = {key: _typed(value) for key, value in flatten(written)}
    keys = _beginning(incomplete.partition("=")[0], values)
    said = [(f"{key}=", values[key]) for key in keys]
    return [*said, (f"{keys[0]}={values[keys[0]]}", "")] if len(keys) == 1 and values[keys[0]] else said


def _typed(value: object) -> str:
    """A value as an override writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{','.join(map(str, value))}]"
    return "{}" if value == {} else str(value)


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (HOME / folder).glob("*.yaml"))


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
