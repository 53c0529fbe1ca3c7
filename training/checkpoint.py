"""Checkpoints that are whole or are not there: a folder `step-000000123` whose manifest was written last.

    step-000000123/
      manifest.json            step, topology, size and sha256 of every other file, and a checksum of itself
      state.json               what the loop needs to go on
      spec.json                the net, so that its weights can be read without the run
      rank-00000.safetensors   what each worker had of weights and optimiser (engines/fragments.py): it says of what it
      ...                      is, so that any number of workers with any ZeRO stage goes on from it
      index.jsonl              what is in which of these files, so that a worker opens only those that it needs

No format notices a flipped bit by itself: nothing is loaded before its hash agrees. Each worker hashes the file that it
writes, while it writes it (saver.py). When a run goes on, the workers share the files out among them, so that each is
hashed once, and all together take the newest checkpoint with which nobody found a fault.
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
from preprocessing.files import checked_json, from_checked_json, is_beside, parse_json, remove_tree
from training.engines import CheckpointFragment, Engine, Fragments, Seal, memory_in
from training.model import Model
from training.reshard_memory import MemoryLayout, reshard_memory
from training.run import Resume, step_of, steps
from training.specs import Phase
from training.workers import ALONE, Workers

Topology = dict[str, str | int]
"""What a run says of itself in its checkpoints: recipe and precision, which it must agree on with one that it goes on
from, and number of workers, ZeRO stage and what else says which rows a worker reads, which it need not."""

PART: Final = r"rank-\d+\.safetensors"  # the files of workers
MANIFEST, STATE, SPEC, INDEX, UNFINISHED = "manifest.json", "state.json", "spec.json", "index.jsonl", ".tmp-"
FORMAT: Final = 3  # of the files; the first was DeepSpeed's own, the second had no checksum of the manifest, no index
READABLE: Final = (2, FORMAT)
REFUSED: Final = ("recipe", "precision")  # where they differ, the numbers would be those of neither run
# where one of them differs, a worker's micro-batches have other rows than those that its memory is of
SAME_ROWS: Final = ("workers", "tensor_parallel", "sequence_parallel", "pipeline_parallel", "micro_tokens")
log = logging.getLogger(__name__)


def restore(
    engine: Engine[Model], folder: Path, topology: Topology, resume: Resume, phases: Sequence[Phase] = ()
) -> dict[str, Any] | None:
    """Load the newest whole checkpoint into `engine` and return its state; None: there is none, start from scratch.

    The `phases` of the run say which rows the memory of a net is of, so that other workers can go on with it. All
    workers call it. Raises BadInput where none is whole of those that are there, where there is none at all and
    `resume` is "must", and where it does not fit `topology`.
    """
    present = _present(engine, folder, resume)
    for at, step in enumerate(present):
        path = folder / name(step)
        if not _is_whole(engine, path):
            continue
        if engine.rank == 0:
            for broken in present[:at]:  # out of the way, so that `keep` counts whole ones
                os.replace(folder / name(broken), _free(folder / f"broken-{name(broken)}"))
        _check_topology(path, topology)
        _load(engine, path, topology, phases)
        return _state(path, step)
    if present:
        raise BadInput(
            f"{folder}: none of its {len(present)} checkpoints is whole; bring one back, or start again with "
            "--resume never"
        )
    if resume == "must":
        raise BadInput(f"{folder}: no checkpoint to resume from; start with --resume allow")
    return None


def _state(path: Path, step: int) -> dict[str, Any]:
    """What the loop needs to go on from a checkpoint that is whole; BadInput where it is another step's."""
    state = parse_json((path / STATE).read_bytes())
    if (found := state.get("step", step)) != step:
        raise BadInput(f"{path}: its {STATE} is of step {found}; remove the folder, older checkpoints are whole")
    return state


def forget_after(engine: Engine[Model], folder: Path, step: int) -> bool:
    """Remove the checkpoints of steps after this one; False, and nothing removed, where no other one is whole."""
    earlier = (each for each in _seen_by_the_first(engine, folder) if each <= step)
    if not any(_is_whole(engine, folder / name(each)) for each in earlier):
        return False
    if engine.rank == 0:
        for path in steps(folder):
            if step_of(path) > step:
                shutil.rmtree(path)
    engine.reduce_sums([0.0])  # nobody looks before it is done
    return True


def set_aside(engine: Engine[Model], folder: Path, step: int) -> None:
    """Have no run go on from the checkpoints of steps after this one; all workers call it, when none is written."""
    if engine.rank == 0:
        for path in steps(folder):
            if step_of(path) > step:
                os.replace(path, _free(path.with_name(f"broken-{path.name}")))
    engine.reduce_sums([0.0])  # nobody looks before it is done


def find_newest(folder: Path) -> Path | None:
    """The newest checkpoint in `folder` that is whole; says in the log what is wrong with each newer one."""
    for path in steps(folder):
        fault = find_fault(path)
        if fault is None:
            return path
        log.warning("%s; looking for an older checkpoint", fault)
    return None


class StoredWeights(Mapping[str, Tensor]):
    """Float32 weights by name, and buffers, in a checkpoint: each is read whenever it is asked for, and not kept."""

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
    """The weights in a checkpoint of any workers. BadInput where it is not whole, for which `workers` share it out."""
    if fault := _fault_seen_by(workers, path):
        raise BadInput(fault)
    _check_format(path)
    return StoredWeights(_fragments(path))


def will_resume(folder: Path, resume: Resume) -> bool:
    """Whether `restore` takes the weights of a run from a checkpoint in `folder`, or ends it."""
    return resume != "never" and bool(steps(folder))


def is_checkpoint(path: Path) -> bool:
    """Whether a folder is a checkpoint, whole or not."""
    return (path / MANIFEST).is_file()


def find_fault(path: Path) -> str | None:
    """What is wrong with a checkpoint, in one line; None where every file is as it was written."""
    return _fault_seen_by(ALONE, path)


def name(step: int) -> str:
    """The folder of a step.

    >>> name(123)
    'step-000000123'
    """
    return f"step-{step:09d}"


def part_name(rank: int) -> str:
    """The file of a worker.

    >>> part_name(7)
    'rank-00007.safetensors'
    """
    return f"rank-{rank:05d}.safetensors"


# Reading


def _present(engine: Engine[Model], folder: Path, resume: Resume) -> list[int]:
    """The steps of the checkpoints that the first worker sees, the newest first; it clears what is in the way."""
    if engine.rank == 0:
        for unfinished in folder.glob(f"{UNFINISHED}*"):
            remove_tree(unfinished)
        if resume == "never" and steps(folder):
            os.replace(folder, _free(folder.with_name(f"{folder.name}-old")))
    return _seen_by_the_first(engine, folder)


def _seen_by_the_first(engine: Engine[Model], folder: Path) -> list[int]:
    """The steps of the checkpoints that the first worker sees, the newest first: others may not see them yet."""
    found = [float(step_of(path)) for path in steps(folder)] if engine.rank == 0 else []
    (count,) = engine.reduce_sums([len(found)])
    return [int(step) for step in engine.reduce_sums(found or [0.0] * int(count))]


def _is_whole(workers: Workers, path: Path) -> bool:
    """Whether no worker finds a fault in its share of the files; all workers call it, and say the same."""
    fault = _fault_seen_by(workers, path)
    if fault and workers.rank == 0:
        log.warning("%s; looking for an older checkpoint", fault)
    return not fault


def _fault_seen_by(workers: Workers, path: Path) -> str | None:
    """What is wrong with a checkpoint, of which each worker looks at its share of the files; all workers call it, and
    hear of it."""
    seals = _seals(path)
    files = [] if isinstance(seals, str) else list(seals.items())
    num_files, cannot_read = workers.reduce_sums([len(files), not files])
    if cannot_read or num_files != workers.world * len(files):
        return seals if isinstance(seals, str) else f"{path}: not all workers see the {MANIFEST} of the first one"
    marks = [0.0] * len(files)
    for number in range(workers.rank, len(files), workers.world):
        marks[number] = bool(_fault_of(path, *files[number]))
    faulty = [file for file, mark in zip(files, workers.reduce_sums(marks), strict=True) if mark]
    if not faulty:
        return None
    own = _fault_of(path, *faulty[0])
    return own or f"{path}: {faulty[0][0]} is not the same on all machines of the workers"


def _load(engine: Engine[Model], path: Path, topology: Topology, phases: Sequence[Phase]) -> None:
    """Each worker reads what it needs; its own file comes first, which with the same layout has all of it."""
    written = _manifest(path)
    own = path / part_name(engine.rank)
    # checkpoints of before have fewer keys: of what rows their memories are is not known
    others = [key for key in SAME_ROWS if written.get(key) != topology.get(key)]
    memory = _recut_memory(engine, path, topology, phases) if others else memory_in(own)
    engine.load(_fragments(path, own if written["workers"] == engine.world else None), memory or {})
    if memory is None and engine.rank == 0:
        log.warning(
            "%s: was written with %s, this run has %s: what the net remembers of the rows before is forgotten, as at "
            "the start of an epoch",
            path,
            ", ".join(f"{key} {written.get(key, 'unknown')}" for key in others),
            ", ".join(f"{key} {topology[key]}" for key in others),
        )


def _recut_memory(
    engine: Engine[Model], path: Path, topology: Topology, phases: Sequence[Phase]
) -> Mapping[str, Tensor] | None:
    """The memory of this worker from those of another layout; empty where the net has none, None where not all workers
    find theirs."""
    (has_memory,) = engine.reduce_sums([engine.rank == 0 and bool(memory_in(path / part_name(0)))])
    if not has_memory:
        return {}
    memory, written = None, _manifest(path)
    if phase := _phase_of(phases, written["step"]):
        theirs, ours = MemoryLayout.of(written, phase), MemoryLayout.of(topology, phase)
        if theirs and ours:
            with suppress(LookupError, ValueError):  # rows of another phase, or of a layout that is none
                files = dict(enumerate(_parts(path)))
                memory = reshard_memory(lambda rank: memory_in(files[rank]), theirs, ours, engine.data_rank)
    return memory if engine.reduce_sums([memory is None]) == [0] else None


def _phase_of(phases: Sequence[Phase], step: int) -> Phase | None:
    """The phase of an update, counted from 1."""
    for phase in phases:
        if step <= phase.steps:
            return phase
        step -= phase.steps
    return None


def _parts(path: Path) -> list[Path]:
    """The files of the workers, by rank: those of the manifest, as nothing else was verified."""
    return [path / file for file in sorted(_manifest(path)["files"]) if re.fullmatch(PART, file)]


def _fragments(path: Path, own: Path | None = None) -> Fragments:
    """What the workers' files have."""
    return Fragments(_parts(path), own, path / INDEX if INDEX in _manifest(path)["files"] else None)


def _manifest(path: Path) -> dict[str, Any]:
    """What the manifest says; ValueError where it is not as it was written. Former formats have no checksum."""
    content = (path / MANIFEST).read_bytes()
    value = parse_json(content)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    if "checksum" not in value and value.get("format", 1) < FORMAT:
        return value
    return from_checked_json(content)


def _seals(path: Path) -> dict[str, Seal] | str:
    """What each file of a checkpoint must be like, or why that is not known."""
    try:
        manifest = _manifest(path)
        files, step = manifest["files"], manifest.get("step")
        if step is not None and path in steps(path.parent) and step_of(path) != step:
            return f"{path}: is the checkpoint of step {step}, by its {MANIFEST}; rename it to {name(step)}"
        if files == {}:
            return f"{path}: its {MANIFEST} names no files"
        if outside := [file for file in files if not is_beside(file)]:
            return f"{path}: its {MANIFEST} names {outside[0]!r}, which is no file of its own"
        return {file: Seal(seal["bytes"], seal["sha256"]) for file, seal in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{path}: its {MANIFEST} cannot be read ({type(error).__name__}: {error})"


def _fault_of(path: Path, file: str, seal: Seal) -> str | None:
    """What is wrong with one file."""
    if not (path / file).is_file():
        return f"{path}: {file} is missing"
    if (found := (path / file).stat().st_size) != seal.bytes:
        return f"{path}: {file} has {found} bytes, {MANIFEST} says {seal.bytes}"
    if _sha256(path / file) != seal.sha256:
        return f"{path}: {file} is damaged, its sha256 is not the one in {MANIFEST}"
    return None


def _check_format(path: Path) -> None:
    if (found := _manifest(path).get("format", 1)) > FORMAT:
        raise BadInput(f"{path}: is of format {found}, allowed is up to {FORMAT}; use the version that wrote it")
    if found not in READABLE:
        raise BadInput(
            f"{path}: was written by an earlier version of Sesame, in DeepSpeed's format; finish the run with that "
            "version, start another one from its weights with start=FOLDER/weights-STEP, or start again with "
            "--resume never"
        )


def _check_topology(path: Path, topology: Topology) -> None:
    _check_format(path)
    written = _manifest(path)
    if written.get("corpus", topology.get("corpus")) != topology.get("corpus"):  # earlier versions do not say it
        raise BadInput(
            f"{path}: was written with another corpus than the one that is there now; bring that back, or start again "
            "with --resume never"
        )
    for key in REFUSED:
        if written.get(key) != topology[key]:
            raise BadInput(
                f"{path}: was written with {key} {written.get(key)}, this run has {key} {topology[key]}; "
                f"resume with {key} {written.get(key)}, or start again with --resume never"
            )


# Writing


def publish(unfinished: Path, final: Path, about: Topology, texts: Mapping[str, str], parts: Sequence[str]) -> None:
    """Merge what the workers say of their files, write the manifest, make all durable, and give the folder its name.

    `texts` are further files, by name. Raises OSError, among others when the disk is full.
    """
    seals, index = {}, ""
    for file in parts:
        told = seal_of(unfinished / file)
        seal, line = told.read_text(encoding="utf-8").splitlines()
        told.unlink()
        seals[file], index = parse_json(seal), f"{index}{line}\n"
    for file, text in {**texts, INDEX: index}.items():
        content = text.encode()
        (unfinished / file).write_bytes(content)
        sync(unfinished / file)
        seals[file] = asdict(Seal(len(content), hashlib.sha256(content).hexdigest()))
    (unfinished / MANIFEST).write_bytes(checked_json({"format": FORMAT, **about, "files": seals}))
    sync(unfinished / MANIFEST)
    sync(unfinished)
    shutil.rmtree(final, ignore_errors=True)  # an older save of the same step
    os.replace(unfinished, final)
    sync(final.parent)


def write_seal(part: CheckpointFragment, seal: Seal, file: Path) -> None:
    """Say beside a worker's file what `publish` wants to know of it: where that is said, the file is whole. Raises
    OSError."""
    unfinished = file.with_name(f"{file.name}.seal.new")
    unfinished.write_text(f"{json.dumps(asdict(seal))}\n{part.line(file.name)}\n")
    os.replace(unfinished, seal_of(file))


def seal_of(file: Path) -> Path:
    """Where a worker says that its file is whole."""
    return file.with_name(f"{file.name}.seal")


def remove_old(folder: Path, keep: int, keep_every: int) -> None:
    """Remove all checkpoints but the newest `keep`, and those at multiples of `keep_every` steps (0: of none)."""
    for old in steps(folder)[keep:]:
        if not keep_every or step_of(old) % keep_every:
            shutil.rmtree(old)


def sync(path: Path) -> None:
    """Make a file or a folder durable."""
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
