"""Checkpoints that are whole or are not there: a folder `step-000000123` whose manifest was written last.

    step-000000123/
      manifest.json   step, topology, and size and sha256 of every other file
      state.json      what the loop needs to go on
      ...             the engine's own files, one part per worker

No format notices a flipped bit by itself, and DeepSpeed's files are pickles: nothing is loaded before its hash agrees.
Every function that takes an engine is called by all workers; only the first one looks at folders and moves them.
"""

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from preprocessing.errors import BadInput
from training.engines import Engine, saved_weights
from training.model import Model
from training.run import Resume

Topology = dict[str, str | int]
"""What a run and a checkpoint must agree on: recipe, number of workers, ZeRO stage, precision."""

MANIFEST, STATE, UNFINISHED = "manifest.json", "state.json", ".tmp-"
log = logging.getLogger(__name__)


def save(
    engine: Engine[Model], folder: Path, step: int, state: dict[str, Any], topology: Topology, *, keep: int
) -> None:
    """Write `folder`/step-...: it appears at once or not at all. Then remove all but the newest `keep`.

    Workers on several machines need a folder that they share. Raises OSError, among others when the disk is full.
    """
    unfinished = folder / f"{UNFINISHED}{name(step)}"
    try:
        if engine.rank == 0:
            unfinished.mkdir(parents=True)
        _wait_for_all(engine)
        engine.save(unfinished)
        _wait_for_all(engine)
        if engine.rank == 0:
            (unfinished / STATE).write_text(json.dumps(state, indent=1))
            _publish(unfinished, folder / name(step), {"step": step, **topology})
            for old in steps(folder)[keep:]:
                shutil.rmtree(old)
        _wait_for_all(engine)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def restore(engine: Engine[Model], folder: Path, topology: Topology, resume: Resume) -> dict[str, Any] | None:
    """Load the newest whole checkpoint into `engine` and return its state; None: there is none, start from scratch.

    Raises BadInput where none is whole of those that are there, where there is none at all and `resume` is "must", and
    where it does not fit `topology`.
    """
    present, step = _find(folder, resume) if engine.rank == 0 else (0, 0)
    present, step = (int(value) for value in engine.reduce_sums([present, step]))
    if step:
        path = folder / name(step)
        _check_topology(path, topology)
        engine.load(path)
        return json.loads((path / STATE).read_text())
    if present:
        raise BadInput(
            f"{folder}: none of its {present} checkpoints is whole; bring one back, or start again with --resume never"
        )
    if resume == "must":
        raise BadInput(f"{folder}: no checkpoint to resume from; start with --resume allow")
    return None


def forget_after(engine: Engine[Model], folder: Path, step: int) -> bool:
    """Remove the checkpoints of steps after this one; False, and nothing removed, where there is no other."""
    earlier = [path for path in steps(folder) if path.name <= name(step)] if engine.rank == 0 else []
    any_earlier = engine.reduce_sums([len(earlier)])[0] > 0
    if engine.rank == 0 and any_earlier:
        for path in steps(folder):
            if path.name > name(step):
                shutil.rmtree(path)
    _wait_for_all(engine)
    return any_earlier


def newest(folder: Path) -> Path | None:
    """The newest checkpoint in `folder` that is whole; says in the log what is wrong with each newer one."""
    for path in steps(folder):
        fault = find_fault(path)
        if fault is None:
            return path
        log.warning("%s; looking for an older checkpoint", fault)
    return None


def weights_of(path: Path) -> dict[str, Tensor]:
    """The float32 weights by name, and buffers, in a checkpoint of DeepSpeedEngine. BadInput where it is not whole."""
    if fault := find_fault(path):
        raise BadInput(fault)
    return saved_weights(path)


def steps(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, whole or not, the newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def find_fault(path: Path) -> str | None:
    """What is wrong with a checkpoint, in one line; None where every file is as it was written."""
    try:
        files = json.loads((path / MANIFEST).read_text())["files"]
        seals = [(file, seal["bytes"], seal["sha256"]) for file, seal in files.items()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{path}: its {MANIFEST} cannot be read ({type(error).__name__}: {error})"
    for file, size, digest in seals:
        if not (path / file).is_file():
            return f"{path}: {file} is missing"
        if (found := (path / file).stat().st_size) != size:
            return f"{path}: {file} has {found} bytes, {MANIFEST} says {size}"
        if _sha256(path / file) != digest:
            return f"{path}: {file} is damaged, its sha256 is not the one in {MANIFEST}"
    return None


def name(step: int) -> str:
    """The folder of a step.

    >>> name(123)
    'step-000000123'
    """
    return f"step-{step:09d}"


def _find(folder: Path, resume: Resume) -> tuple[int, int]:
    """How many checkpoints there are, and the step of the newest whole one or 0; clears what is in the way."""
    for unfinished in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(unfinished)
    if resume == "never" and steps(folder):
        os.replace(folder, _free(folder.with_name(f"{folder.name}-old")))
    present, path = steps(folder), newest(folder)
    if path is None:
        return len(present), 0
    for broken in present[: present.index(path)]:  # out of the way, so that `keep` counts whole ones
        os.replace(broken, _free(folder / f"broken-{broken.name}"))
    return len(present), int(path.name.removeprefix("step-"))


def _publish(unfinished: Path, final: Path, about: Topology) -> None:
    """Write the manifest, make all of it durable, and give the folder its name."""
    files = [file for file in sorted(unfinished.rglob("*")) if file.is_file()]
    seals = {
        file.relative_to(unfinished).as_posix(): {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        for file in files
    }
    (unfinished / MANIFEST).write_text(json.dumps({**about, "files": seals}, indent=1))
    for path in (*files, unfinished / MANIFEST, *{file.parent for file in files}):
        _sync(path)
    shutil.rmtree(final, ignore_errors=True)  # an older save of the same step
    os.replace(unfinished, final)
    _sync(final.parent)


def _check_topology(path: Path, topology: Topology) -> None:
    written = json.loads((path / MANIFEST).read_text())
    for key, wanted in topology.items():
        if written.get(key) != wanted:
            raise BadInput(
                f"{path}: was written with {key} {written.get(key)}, this run has {key} {wanted}; "
                f"resume with {key} {written.get(key)}, or start again with --resume never"
            )


def _wait_for_all(engine: Engine[Model]) -> None:
    engine.reduce_sums([0.0])


def _free(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... that does not exist."""
    taken = (path.with_name(f"{path.name}-{number}") for number in range(2, 1_000_000))
    return path if not path.exists() else next(other for other in taken if not other.exists())


def _sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
