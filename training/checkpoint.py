"""Checkpoints, which are either complete or absent: directories `step-000000123` whose manifest is written last.

    step-000000123/
      manifest.json            step, topology, size and sha256 of every other file, and a checksum of itself
      state.json               state of the training loop
      spec.json                specification of the model, so that its weights can be read without the run
      rank-00000.safetensors   the fragments of weights and optimizer states of each worker (engines/fragments.py). Each
      ...                      fragment names its tensor and slice, so that any number of workers can resume from it
      index.jsonl              the tensors in each of these files, so that a worker opens only the files that it needs

File formats do not detect flipped bits, so nothing is loaded before its hash is verified. Each worker hashes its file
while it writes it (saver.py). When a run resumes, each worker verifies some of the files, so that each file is hashed
once. All workers then load the newest checkpoint in which no worker found a fault.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, is_beside, parse_json, remove_tree, to_checked_json
from training.engines import CheckpointFragment, Engine, Fragments, Seal, memory_in
from training.model import Model
from training.reshard_memory import MemoryLayout, reshard_memory
from training.run import Resume, step_of, steps
from training.specs import Phase
from training.workers import ALONE, Workers

Topology = dict[str, str | int]
"""Properties of a run that its checkpoints record. Recipe and precision must be equal when a run resumes. The number of
workers, the ZeRO stage and the other properties, which decide what sequences a worker reads, may differ."""

PART: Final = r"rank-\d+\.safetensors"  # files of the workers
MANIFEST, STATE, SPEC, INDEX, UNFINISHED = "manifest.json", "state.json", "spec.json", "index.jsonl", ".tmp-"
FORMAT: Final = 3  # format 1 was DeepSpeed's format; format 2 had no index and no checksum of the manifest
READABLE: Final = (2, FORMAT)
REFUSED: Final = ("recipe", "precision")  # if they differ, the results would belong to neither run
# if one of them differs, the micro-batches of a worker do not continue the sequences in its memory
SAME_ROWS: Final = (
    "workers",
    "tensor_parallel_size",
    "sequence_parallel_size",
    "pipeline_parallel_size",
    "micro_batch_tokens",
)
log = logging.getLogger(__name__)


def restore(
    engine: Engine[Model], folder: Path, topology: Topology, resume: Resume, phases: Sequence[Phase] = ()
) -> dict[str, Any] | None:
    """Load the newest complete checkpoint into `engine` and return its state; None if there is no checkpoint.

    All workers must call it. The `phases` of the run determine the sequences in the memory of the model, so that
    another number of workers can use it. Raises BadInput if checkpoints exist but none is complete, if
    none exists and `resume` is "must", and if the checkpoint does not fit `topology`.
    """
    present = _prepare_folder(engine, folder, resume)
    for at, step in enumerate(present):
        path = folder / name(step)
        if not _is_complete(engine, path):
            continue
        if engine.rank == 0:
            for broken in present[:at]:  # `keep` must count complete checkpoints only
                os.replace(folder / name(broken), _free(folder / f"broken-{name(broken)}"))
        _check_topology(path, topology)
        _load(engine, path, topology, phases)
        return _state(path, step)
    if present:
        raise BadInput(
            f"{folder}: none of its {len(present)} checkpoints is complete; restore one, or start again with "
            "--resume never"
        )
    if resume == "must":
        raise BadInput(f"{folder}: no checkpoint to resume from; start with --resume allow")
    return None


def _state(path: Path, step: int) -> dict[str, Any]:
    """The state of the loop in a complete checkpoint; BadInput if the state belongs to another step."""
    state = parse_json((path / STATE).read_bytes())
    if (found := state.get("step", step)) != step:
        raise BadInput(
            f"{path}: invalid {STATE}: got step {found}, expected step {step}; remove this directory to resume from an "
            "older checkpoint"
        )
    return state


def forget_after(engine: Engine[Model], folder: Path, step: int) -> bool:
    """Remove the checkpoints after `step`. Return False, and remove nothing, if no earlier checkpoint is complete."""
    earlier = (each for each in _steps_on_first_worker(engine, folder) if each <= step)
    if not any(_is_complete(engine, folder / name(each)) for each in earlier):
        return False
    if engine.rank == 0:
        for path in steps(folder):
            if step_of(path) > step:
                shutil.rmtree(path)
    engine.reduce_sums([0.0])  # all workers wait for the first worker
    return True


def set_aside(engine: Engine[Model], folder: Path, step: int) -> None:
    """Rename the checkpoints after `step`, so that no run resumes from them. All workers must call it.

    No checkpoint may be in progress.
    """
    if engine.rank == 0:
        for path in steps(folder):
            if step_of(path) > step:
                os.replace(path, _free(path.with_name(f"broken-{path.name}")))
    engine.reduce_sums([0.0])  # all workers wait for the first worker


def find_newest(folder: Path) -> Path | None:
    """The newest complete checkpoint in `folder`, or None. The faults of newer checkpoints are logged."""
    for path in steps(folder):
        fault = find_fault(path)
        if fault is None:
            return path
        log.warning("%s; looking for an older checkpoint", fault)
    return None


class StoredWeights(Mapping[str, Tensor]):
    """Float32 weights and buffers in a checkpoint, by name. Each access reads the tensor again; nothing is cached."""

    def __init__(self, fragments: Fragments) -> None:
        self._fragments = fragments
        self._buffers = dict.fromkeys(fragments.buffers())
        self.shapes = {name: fragments.shape(name) for name in fragments.names()}

    def __getitem__(self, name: str) -> Tensor:
        if name in self._buffers:
            return self._fragments.buffer(name)
        if name not in self.shapes:
            raise KeyError(name)
        return self._fragments.full(name)

    def __iter__(self) -> Iterator[str]:
        return chain(self.shapes, self._buffers)

    def __len__(self) -> int:
        return len(self.shapes) + len(self._buffers)


def weights_of(path: Path, workers: Workers = ALONE) -> StoredWeights:
    """The weights in a checkpoint of any number of workers; BadInput if it is not complete.

    All `workers` must call it: each verifies some of the files.
    """
    if fault := _find_fault_together(workers, path):
        raise BadInput(fault)
    _check_format(path)
    return StoredWeights(_fragments(path))


def will_resume(folder: Path, resume: Resume) -> bool:
    """Whether `restore` loads the weights of a run from a checkpoint in `folder`, or raises BadInput."""
    return resume != "never" and bool(steps(folder))


def is_checkpoint(path: Path) -> bool:
    """Whether a directory is a checkpoint, complete or not."""
    return (path / MANIFEST).is_file()


def find_fault(path: Path) -> str | None:
    """The fault of a checkpoint, in one line; None if no file has changed since it was written."""
    return _find_fault_together(ALONE, path)


def name(step: int) -> str:
    """The name of the directory of a step.

    >>> name(123)
    'step-000000123'
    """
    return f"step-{step:09d}"


def part_name(rank: int) -> str:
    """The name of the file of a worker.

    >>> part_name(7)
    'rank-00007.safetensors'
    """
    return f"rank-{rank:05d}.safetensors"


# Reading


def _prepare_folder(engine: Engine[Model], folder: Path, resume: Resume) -> list[int]:
    """Prepare the directory for `resume`: the first worker removes unfinished checkpoints, and renames the directory if
    `resume` is "never". Returns the steps of the checkpoints that it sees then, the newest first."""
    if engine.rank == 0:
        for unfinished in folder.glob(f"{UNFINISHED}*"):
            remove_tree(unfinished)
        if resume == "never" and steps(folder):
            os.replace(folder, _free(folder.with_name(f"{folder.name}-old")))
    return _steps_on_first_worker(engine, folder)


def _steps_on_first_worker(engine: Engine[Model], folder: Path) -> list[int]:
    """The steps of the checkpoints that the first worker sees, the newest first.

    Other workers may see new directories of a shared file system later.
    """
    found = [float(step_of(path)) for path in steps(folder)] if engine.rank == 0 else []
    (count,) = engine.reduce_sums([len(found)])
    return [int(step) for step in engine.reduce_sums(found or [0.0] * int(count))]


def _is_complete(workers: Workers, path: Path) -> bool:
    """Whether no worker finds a fault in its part of the files. All workers must call it; all get the same result."""
    fault = _find_fault_together(workers, path)
    if fault and workers.rank == 0:
        log.warning("%s; looking for an older checkpoint", fault)
    return not fault


def _find_fault_together(workers: Workers, path: Path) -> str | None:
    """The fault of a checkpoint, or None. All workers must call it: each verifies some of the files, and all of them
    return a fault if one worker finds one."""
    seals = _seals(path)
    files = [] if isinstance(seals, str) else list(seals.items())
    num_files, cannot_read = workers.reduce_sums([len(files), not files])
    if cannot_read or num_files != workers.world * len(files):
        return seals if isinstance(seals, str) else f"{path}: not all workers see the {MANIFEST} of the first worker"
    marks = [0.0] * len(files)
    for number in range(workers.rank, len(files), workers.world):
        marks[number] = bool(_fault_of(path, *files[number]))
    faulty = [file for file, mark in zip(files, workers.reduce_sums(marks), strict=True) if mark]
    if not faulty:
        return None
    local_fault = _fault_of(path, *faulty[0])
    return local_fault or f"{path}: {faulty[0][0]} differs between the machines of the workers"


def _load(engine: Engine[Model], path: Path, topology: Topology, phases: Sequence[Phase]) -> None:
    """Load weights, optimizer states and memory. A worker reads its own file first.

    With the same number of workers, this file has all that the worker needs.
    """
    written = _manifest(path)
    own = path / part_name(engine.rank)
    # older checkpoints have fewer keys, so that the sequences of their memories are unknown
    changed = [key for key in SAME_ROWS if written.get(key) != topology.get(key)]
    memory = _reshard_memory(engine, path, topology, phases) if changed else memory_in(own)
    engine.load(_fragments(path, own if written["workers"] == engine.world else None), memory or {})
    if memory is None and engine.rank == 0:
        log.warning(
            "%s: was written with %s, but this run has %s; the memory of the model starts empty, as at the start of an "
            "epoch",
            path,
            ", ".join(f"{key} {written.get(key, 'unknown')}" for key in changed),
            ", ".join(f"{key} {topology[key]}" for key in changed),
        )


def _reshard_memory(
    engine: Engine[Model], path: Path, topology: Topology, phases: Sequence[Phase]
) -> Mapping[str, Tensor] | None:
    """The memory of this worker, from a checkpoint with another layout of workers.

    It is empty if the model has no memory, and None on all workers if one of them cannot restore its memory.
    """
    (has_memory,) = engine.reduce_sums([engine.rank == 0 and bool(memory_in(path / part_name(0)))])
    if not has_memory:
        return {}
    memory, written = None, _manifest(path)
    if phase := _phase_of(phases, written["step"]):
        old, new = MemoryLayout.of(written, phase), MemoryLayout.of(topology, phase)
        if old and new:
            with suppress(LookupError, ValueError):  # sequences of another phase, or an invalid layout
                files = dict(enumerate(_parts(path)))
                memory = reshard_memory(lambda rank: memory_in(files[rank]), old, new, engine.data_rank)
    return memory if engine.reduce_sums([memory is None]) == [0] else None


def _phase_of(phases: Sequence[Phase], step: int) -> Phase | None:
    """The phase of an update; updates are counted from 1."""
    for phase in phases:
        if step <= phase.steps:
            return phase
        step -= phase.steps
    return None


def _parts(path: Path) -> list[Path]:
    """The files of the workers, by rank. Only files in the manifest count, because only these are verified."""
    return [path / file for file in sorted(_manifest(path)["files"]) if re.fullmatch(PART, file)]


def _fragments(path: Path, own: Path | None = None) -> Fragments:
    """The fragments in the files of all workers."""
    return Fragments(_parts(path), own, path / INDEX if INDEX in _manifest(path)["files"] else None)


def _manifest(path: Path) -> dict[str, Any]:
    """The content of the manifest; ValueError if its checksum is wrong. Earlier formats have no checksum."""
    content = (path / MANIFEST).read_bytes()
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    if "checksum" not in value and value.get("format", 1) < FORMAT:
        return value
    return from_checked_json(content)


def _seals(path: Path) -> dict[str, Seal] | str:
    """Size and hash of each file according to the manifest, or the fault of the manifest."""
    try:
        manifest = _manifest(path)
        files, step = manifest["files"], manifest.get("step")
        if step is not None and path in steps(path.parent) and step_of(path) != step:
            return f"{path}: {MANIFEST} names step {step}; rename the directory to {name(step)}"
        if files == {}:
            return f"{path}: {MANIFEST} lists no files"
        if outside := [file for file in files if not is_beside(file)]:
            return f"{path}: {MANIFEST} lists {outside[0]!r}, which is outside of this directory"
        return {file: Seal(seal["bytes"], seal["sha256"]) for file, seal in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{path}: cannot read {MANIFEST} ({type(error).__name__}: {error})"


def _fault_of(path: Path, file: str, seal: Seal) -> str | None:
    """The fault of one file, or None."""
    if not (path / file).is_file():
        return f"{path}: {file} is missing"
    if (found := (path / file).stat().st_size) != seal.bytes:
        return f"{path}: {file} has {found} bytes instead of the {seal.bytes} bytes in {MANIFEST}"
    if _sha256(path / file) != seal.sha256:
        return f"{path}: {file} is damaged: its sha256 differs from the one in {MANIFEST}"
    return None


def _check_format(path: Path) -> None:
    if (found := _manifest(path).get("format", 1)) > FORMAT:
        raise BadInput(f"{path}: invalid format: got {found}, expected at most {FORMAT}; use the version that wrote it")
    if found not in READABLE:
        raise BadInput(
            f"{path}: was written by an earlier version of Sesame, in DeepSpeed's format; finish the run with that "
            "version, start a new run with init_checkpoint=DIRECTORY/weights-STEP, or start again with --resume never"
        )


def _check_topology(path: Path, topology: Topology) -> None:
    _check_format(path)
    written = _manifest(path)
    if written.get("corpus", topology.get("corpus")) != topology.get(
        "corpus"
    ):  # earlier versions do not record the corpus
        raise BadInput(
            f"{path}: the corpus has changed since this checkpoint was written; restore the old corpus, or start again "
            "with --resume never"
        )
    for key in REFUSED:
        if written.get(key) != topology[key]:
            raise BadInput(
                f"{path}: was written with {key} {written.get(key)}, but this run has {key} {topology[key]}; "
                f"resume with {key} {written.get(key)}, or start again with --resume never"
            )


# Writing


def publish(unfinished: Path, final: Path, about: Topology, texts: Mapping[str, str], parts: Sequence[str]) -> None:
    """Complete a checkpoint: merge the seals of the workers, write the manifest, and rename the directory.

    `texts` are the contents of further files, by name. All files are synchronized to the disk before the directory is
    renamed. Raises OSError, for example if the disk is full.
    """
    seals, index = {}, ""
    for file in parts:
        seal_file = seal_of(unfinished / file)
        seal, line = seal_file.read_text(encoding="utf-8").splitlines()
        seal_file.unlink()
        seals[file], index = parse_json(seal), f"{index}{line}\n"
    for file, text in {**texts, INDEX: index}.items():
        content = text.encode()
        (unfinished / file).write_bytes(content)
        sync(unfinished / file)
        seals[file] = asdict(Seal(len(content), hashlib.sha256(content).hexdigest()))
    (unfinished / MANIFEST).write_bytes(to_checked_json({"format": FORMAT, **about, "files": seals}))
    sync(unfinished / MANIFEST)
    sync(unfinished)
    shutil.rmtree(final, ignore_errors=True)  # an older checkpoint of the same step
    os.replace(unfinished, final)
    sync(final.parent)


def write_seal(part: CheckpointFragment, seal: Seal, file: Path) -> None:
    """Write the seal of a worker's file, which `publish` reads: size, hash and index entry.

    If the seal exists, the file is complete. Raises OSError.
    """
    unfinished = file.with_name(f"{file.name}.seal.new")
    unfinished.write_text(f"{json.dumps(asdict(seal))}\n{part.line(file.name)}\n")
    os.replace(unfinished, seal_of(file))


def seal_of(file: Path) -> Path:
    """The path of the seal, which a worker writes when its file is complete."""
    return file.with_name(f"{file.name}.seal")


def remove_old(folder: Path, keep: int, keep_every: int, best: int | None = None) -> None:
    """Remove all checkpoints except the newest `keep`, those at multiples of `keep_every` steps (0: none), and that of
    step `best`."""
    for old in steps(folder)[keep:]:
        if (not keep_every or step_of(old) % keep_every) and step_of(old) != best:
            shutil.rmtree(old)


def sync(path: Path) -> None:
    """Synchronize a file or a directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _free(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... that does not exist."""
    taken = (path.with_name(f"{path.name}-{number}") for number in range(2, 1_000_000))
    return path if not path.exists() else next(other for other in taken if not other.exists())


def _sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
