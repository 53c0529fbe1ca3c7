"""The flags of a command, and the file in the directory of a run that keeps those of its training."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from orchestration.config import list_names, split_overrides
from preprocessing.errors import BadInput
from preprocessing.files import of_kind, read_object, write_atomic
from preprocessing.folders import require_local_path

FLAGS: Final = "flags.json"  # file in the run directory
_KEPT: Final = ("recipe", "overrides", "scale", "cluster", "data", "seed", "holdout_ratio", "max_steps")


_SHORTENED: Final = ("check", "plan", "train", "run")  # verbs with --max-steps


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """The flags that several commands share, as the user typed them."""

    recipe: str
    overrides: Sequence[str] = ()
    scale: str = ""
    cluster: str = "local"
    data: Sequence[str] = ()
    output_dir: Path = Path("work")
    seed: int | None = None
    holdout_ratio: float | None = None  # held-out fraction of the text from --data
    max_steps: int | None = None  # shorten the recipe to this number of steps
    is_cluster_given: bool = False  # whether the user typed the cluster, which may be the default
    command_line: str = ""  # the command line as typed

    def __post_init__(self) -> None:
        require_local_path("--output-dir", self.output_dir)

    def command(self, verb: str, *more: str) -> str:
        """The command line of `verb` with these flags.

        >>> JobFlags(recipe="gpt2", scale="tiny", data=("my text",), cluster="one_gpu").command("train")
        "sesame train gpt2 --cluster one_gpu --scale tiny --data 'my text'"
        >>> JobFlags(recipe="gpt2", cluster="8xh100", overrides=("cluster.num_workers=4",)).command("check")
        'sesame check gpt2 cluster.num_workers=4 --cluster 8xh100'
        """
        of_recipe, _ = split_overrides(self.overrides)
        values = self.overrides if verb in ("check", "plan", "train", "run") else of_recipe
        words = ["sesame", verb, self.recipe, *(["DIR"] if verb == "export" else []), *values]
        if verb in ("check", "plan", "corpus", "train", "run", "eval") and self.cluster != "local":
            words += ["--cluster", self.cluster]
        words += ["--scale", self.scale] if self.scale else []
        words += [word for given in self.data for word in ("--data", given)]
        words += ["--holdout-ratio", str(self.holdout_ratio)] if self.holdout_ratio is not None else []
        words += ["--output-dir", str(self.output_dir)] if self.output_dir != Path("work") else []
        words += ["--seed", str(self.seed)] if self.seed is not None and verb != "corpus" else []
        words += ["--max-steps", str(self.max_steps)] if self.max_steps is not None and verb in _SHORTENED else []
        return shlex.join([*words, *more])


def save_flags(folder: Path, flags: JobFlags) -> None:
    """Store the flags of a training in the directory of its run, with absolute paths."""
    kept = {name: value for name, value in asdict(flags).items() if name in _KEPT}
    kept |= {"recipe": make_file_absolute(flags.recipe), "cluster": make_file_absolute(flags.cluster)}
    kept["data"] = [make_absolute(given) for given in flags.data]
    # those of the cluster may have credentials
    kept["overrides"] = [_with_absolute_start(given) for given in split_overrides(flags.overrides)[0]]
    write_atomic(folder / FLAGS, json.dumps(kept, indent=1).encode())


def _with_absolute_start(override: str) -> str:
    """The override, with an absolute path if its key is `init_checkpoint`. The paths of other keys are causes of the
    run, so that they stay as they were typed."""
    key, _, path = override.partition("=")
    return f"{key}={os.path.abspath(path)}" if key == "init_checkpoint" and path else override


def make_absolute(value: str) -> str:
    """The value of --data with an absolute path; names of corpora and URLs do not change.

    >>> given = ("demo", "gs://bucket/text", "jsonl:/a/b.jsonl#text", "/a/*.txt")
    >>> tuple(map(make_absolute, given))
    ('demo', 'gs://bucket/text', 'jsonl:/a/b.jsonl#text', '/a/*.txt')
    """
    if "://" in value or value in list_names("corpora"):
        return value
    if Path(value).exists():
        return os.path.abspath(value)
    before, path = re.fullmatch(r"((?:[\w.-]+=)?(?:\w+:)?)(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
    return before + (path if path in list_names("corpora") else os.path.abspath(path))


def make_file_absolute(value: str) -> str:
    """A recipe or cluster: its name, or the absolute path of its file."""
    return os.path.abspath(value) if "/" in value or value.endswith((".yaml", ".yml")) else value


def flags_of_run(folder: Path, given: JobFlags) -> JobFlags:
    """The flags of the training of a run, with the overrides of `given`, and its cluster if the user typed one.

    Raises BadInput if the directory does not have its flags.
    """
    file = folder / FLAGS
    if not file.is_file():
        raise BadInput(f"{folder}: has no {FLAGS}, so its command is not known; name its recipe, --scale and --data")
    remedy = f"delete it, and name the recipe of the run, --scale and --data instead of {folder.name}"
    kept = read_object(file, remedy, recipe=str, overrides=list, scale=str, cluster=str, data=list)
    with of_kind(file, remedy):
        values: dict[str, Any] = {name: kept[name] for name in _KEPT}
    if given.is_cluster_given or given.cluster != JobFlags(recipe="").cluster:
        del values["cluster"]
    values |= {"overrides": (*values["overrides"], *given.overrides), "data": tuple(values["data"])}
    return replace(given, output_dir=folder.resolve().parent.parent, **values)
