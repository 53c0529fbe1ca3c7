"""The directory of a run, from what a user types: its path, its name, or its ID in MLflow."""

import glob
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestration.config import SCALES, find_nearest, find_recipe, list_names, split_overrides
from orchestration.jobs.job_flags import JobFlags
from preprocessing.errors import BadInput
from preprocessing.files import parse_json
from training.run import RUN

_NAME = re.compile(r"[^/]+-[0-9a-f]{8}|[^/]+-[0-9a-f]{4}")  # whole, or as in MLflow
_MLFLOW_ID = re.compile(r"[0-9a-f]{8,32}")
_MOST_NAMED = 6


def run_folders(out: Path) -> Iterator[Path]:
    """The directories of the runs below the output directory `out`, in order of their names."""
    return (file.parent for file in sorted((out / "runs").glob(f"*/{RUN}")))


def match_run(flags: JobFlags) -> Path | None:
    """The run that the flags name by its directory, its name below runs/, or its name or ID in MLflow; None otherwise.

    Raises BadInput if flags change the run, or if several runs begin with a short name or ID.
    """
    given, runs = flags.recipe, flags.output_dir / "runs"
    folders = [Path(given), runs / given]
    if re.fullmatch(r"[^/]+-[0-9a-f]{4}", given):
        folders += sorted(runs.glob(f"{glob.escape(given)}????"))
    if _MLFLOW_ID.fullmatch(given) and not os.path.exists(given):
        folders += _with_mlflow_id(flags.output_dir, given)
    found = [folder for folder in folders if os.path.isfile(folder / RUN)]
    if len({os.path.realpath(folder) for folder in found}) > 1 and not _is_exact(given, found[0]):
        raise BadInput(
            f"invalid RUN: got {given}, the beginning of {len(found)} runs in {runs}, expected one of them"
            f"{list_names_of(found)}; use a whole name or ID"
        )
    if found:
        refuse_another_run(flags, found[0])
    return found[0] if found else None


def _is_exact(given: str, folder: Path) -> bool:
    """Whether a user typed the directory or the whole name of a run, and not the beginning of its name or ID."""
    return given in (str(folder), folder.name) or os.path.exists(given)


def find_named_run(flags: JobFlags) -> Path | None:
    """Do the same as `match_run`, and raise BadInput for a directory that is no run, and for a name in the form of a
    run's that no run has."""
    if found := match_run(flags):
        return found
    given = flags.recipe
    if "/" in given and Path(given).is_dir():
        raise BadInput(f"{given}: has no {RUN}, so it is not a run; use the directory or name of a run, or a recipe")
    require_run_name(flags)
    return None


def require_run_name(flags: JobFlags) -> None:
    """Raise BadInput if the name that the flags give has the form of a run's, which no recipe has."""
    given = flags.recipe
    if (_NAME.fullmatch(given) or _MLFLOW_ID.fullmatch(given)) and not Path(given).exists():
        raise _explain_unknown_run(flags)


def require_recipe_name(flags: JobFlags) -> None:
    """Raise BadInput if the flags, which name no run, name no recipe either."""
    if _may_be_recipe(flags.recipe):
        return
    names = [folder.name for folder in run_folders(flags.output_dir)]
    nearest = find_recipe(flags.recipe) or find_nearest(flags.recipe, [*names, *list_names("recipes")], cutoff=0.75)
    raise _explain_unknown_run(flags, ", or a recipe", f"did you mean {nearest}?" if nearest else "")


def refuse_lost_run(flags: JobFlags) -> None:
    """Raise BadInput if the name that the flags give for a recipe is that of a run which does not exist."""
    require_run_name(flags)
    if not _may_be_recipe(flags.recipe) and _has_label_of_run(flags.recipe, flags.output_dir):
        raise _explain_unknown_run(flags)


def _may_be_recipe(given: str) -> bool:
    """Whether this is a recipe of Sesame or a path, which need not exist."""
    is_path = "/" in given or given.endswith((".yaml", ".yml")) or os.path.exists(given)
    return is_path or given in list_names("recipes")


def _has_label_of_run(given: str, out: Path) -> bool:
    """Whether a name that no recipe has begins like a run: with a recipe and its scale, or like a run that exists."""
    label, dash, _ = given.rpartition("-")
    if not dash or find_recipe(given):
        return False
    scaled = (label.removesuffix(f"_{scale}") for scale in SCALES if label.endswith(f"_{scale}"))
    is_scaled = any(name in list_names("recipes") for name in scaled)
    return is_scaled or label in {folder.name.rpartition("-")[0] for folder in run_folders(out)}


def _explain_unknown_run(flags: JobFlags, more: str = "", remedy: str = "") -> BadInput:
    """The error for a name that no run has; `more` is what else it may name."""
    return BadInput(
        f"invalid RUN: got {flags.recipe}, expected the name or the MLflow ID of a run in {flags.output_dir / 'runs'}"
        f"{list_names_of(list(run_folders(flags.output_dir)))}{more}; "
        f"{remedy or 'name the directory of its results with --output-dir'}"
    )


def _with_mlflow_id(out: Path, given: str) -> list[Path]:
    """The directories of the runs below `out` whose ID in MLflow begins with `given`.

    An ID that no directory has may be that of an evaluation or a trial: its run in the store names the directory.
    """
    from orchestration import tracking  # it imports slowly

    found = [folder for folder in run_folders(out) if _read_id(folder / tracking.RUN_FILE).startswith(given)]
    return found or tracking.find_run_directories(tracking.tracking_store(out), given)


def _read_id(file: Path) -> str:
    """The ID in the file of a run's MLflow run; "" if there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(parse_json(file.read_bytes())["run_id"])
    return ""


def list_names_of(folders: list[Path]) -> str:
    """The names of runs for a message, the newest first; "" if there are none."""
    newest = sorted(folders, key=lambda folder: (-(folder / RUN).stat().st_mtime, folder.name))
    names = [folder.name for folder in newest]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f": {', '.join(names[:_MOST_NAMED])}{more}" if names else ""


def changes_of(flags: JobFlags) -> list[str]:
    """The keys and options of the flags that select another run of the recipe."""
    options = {
        "--scale": flags.scale,
        "--data": flags.data,
        "--holdout-ratio": flags.holdout_ratio,
        "--seed": flags.seed,
        "--max-steps": flags.max_steps,
    }
    given = [name for name, value in options.items() if value not in ("", (), [], None)]
    return [*split_overrides(flags.overrides)[0], *given]


def refuse_another_run(flags: JobFlags, trained: Path) -> None:
    """Raises BadInput if flags change the recipe, the text or the seed of a run that is already trained."""
    if changes := changes_of(flags):
        kind = "option" if changes[0].startswith("--") else "key"
        raise BadInput(
            f"{changes[0]}: {trained} is already trained, and its recipe cannot change; leave this {kind} out"
        )
