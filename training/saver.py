"""Checkpoints are written while training goes on.

A step waits only until the fragment of this worker is copied to the memory of the host. A thread then writes and hashes
it. The workers exchange sums before each step; `votes` are among these sums, so that no thread makes a collective call.
When all workers have written their fragments, the first worker merges the seals and renames the directory. Until then,
only the older checkpoint exists. The next save, and the end of the run, wait for this checkpoint.

When training ends or fails, it closes the saver. The saver then finishes the checkpoint if all workers have written
their fragments. Some workers may have ended by then, so the saver looks at their files and makes no collective call.

The copy is as large as the fragment: with Adam, 12 bytes per weight, divided by the number of workers. The thread
allocates its memory after the first update, and reuses it for each checkpoint.
"""

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import remove_tree
from training import checkpoint
from training.engines import CheckpointFragment, Engine, write
from training.model import Model

log = logging.getLogger(__name__)

QUIET_S: Final = 2.0  # without a change in the files of the others, or as long as the own one took: they are gone
POLL_S: Final = 0.02


class Staging:
    """Copies of tensors in the host's memory, each in the memory of the copy before it of the same name."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._wanted: dict[str, tuple[torch.Size, torch.dtype, bool]] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[name] = buffer
        return buffer.copy_(tensor, non_blocking=True)

    def want(self, name: str, tensor: Tensor) -> Tensor:
        """Have `take` take the memory for the copy of this tensor, which stays where it is."""
        self._wanted[name] = tensor.shape, tensor.dtype, tensor.is_cuda
        return tensor

    def take(self) -> None:
        """Take what is wanted, in whole: memory that is new costs more when it is first written to than the copy."""
        for name, (shape, dtype, pinned) in self._wanted.items():
            self._buffers[name] = torch.zeros(shape, dtype=dtype, pin_memory=pinned).fill_(1)  # zeros may be lazy
        self._wanted.clear()


def in_place(name: str, tensor: Tensor) -> Tensor:
    """The tensor where it is, or on the host: for a save that training waits for."""
    return tensor.cpu()


class SaverVotes(NamedTuple):
    """Progress of a checkpoint on one worker, or the sums over all workers."""

    written: int = 0  # workers that have written their files
    failed: int = 0  # workers that could not write their files
    error_number: int = 0  # errno of the failure, or 0
    published: int = 0  # 1: the first worker has published the checkpoint


class Saver:
    """Writes the checkpoints of a run; all workers make the same calls.

    `about` goes into each manifest, and `spec` says what the net is. With `background` False a save waits until its
    checkpoint is whole.
    """

    def __init__(
        self,
        engine: Engine[Model],
        folder: Path,
        about: checkpoint.Topology,
        spec: Mapping[str, Any],
        *,
        keep: int,
        keep_every: int = 0,
        background: bool = True,
    ) -> None:
        self.engine, self.folder, self.about, self.spec = engine, folder, about, spec
        self.keep, self.keep_every, self.background = keep, keep_every, background
        self._copy = Staging() if background else in_place
        self._taken: Future[None] | None = None  # the memory of the copies
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._phase: Literal["idle", "writing", "publishing"] = "idle"
        self._work: Future[None] | None = None  # of this worker in this phase
        self._step, self._state = 0, ""
        self._wrote_s = 0.0  # how long this worker took for its file
        self._attempt = ""  # in the names of unfinished checkpoints: those of another attempt are not these
        self._lock = threading.RLock()  # of phase and work: `finish_alone` is another thread's, too
        _open.add(self)

    def prepare(self) -> None:
        """Take the memory of the copies while training goes on. All workers call it, after an update has been made:
        before, an optimiser may have no states."""
        if isinstance(self._copy, Staging) and self._taken is None:
            self.engine.part(self._copy.want)
            self._taken = self._thread.submit(self._copy.take)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Begin to write the checkpoint of a step, when the one before is whole. Raises BadInput where that failed."""
        self.finish()
        if self._taken:
            self._taken.result()
        if not self._attempt:
            number = secrets.randbits(32) if self.engine.rank == 0 else 0
            self._attempt = f"{int(self.engine.reduce_sums([number])[0]):08x}"
        part = self.engine.part(self._copy)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the copies are made
        self._step, self._state, self._phase = step, json.dumps(state, indent=1), "writing"
        self._work = self._thread.submit(self._write, part)
        if not self.background:
            self.finish()

    def votes(self) -> SaverVotes:
        """The progress of this worker, for the sums over all workers."""
        if self._phase == "idle" or self._work is None or not self._work.done():
            return SaverVotes()
        if error := self._work.exception():
            return SaverVotes(failed=1, error_number=getattr(error, "errno", None) or 0)
        return SaverVotes(written=int(self._phase == "writing"), published=int(self._phase == "publishing"))

    def apply_votes(self, total: SaverVotes) -> None:
        """Act on the sums of all workers' votes. Raises BadInput if a worker could not write its part."""
        with self._lock:
            if total.failed:
                self._fail(round(total.error_number / total.failed))
            elif self._phase == "writing" and total.written == self.engine.world:
                self._phase = "publishing"
                self._work = self._thread.submit(self._publish) if self.engine.rank == 0 else None
            elif total.published:
                self._phase, self._work = "idle", None

    def finish(self) -> None:
        """Wait until nothing is left to do."""
        while self._phase != "idle":
            if self._work:
                wait([self._work])
            sums = self.engine.reduce_sums(self.votes())
            self.apply_votes(SaverVotes(*(int(value) for value in sums)))

    def finish_alone(self) -> None:
        """The same without a collective call, where training cannot go on; another thread may call it. The checkpoint
        is whole then, if all workers have written theirs, and it is none if one of them is gone."""
        with self._lock:
            if self._phase == "idle" or self._work is None:
                return
            wait([self._work])
            fault: BaseException | str | None = self._work.exception()
            if not fault and self._phase == "writing" and self.engine.rank == 0:
                fault = self._published()
            self._phase = "idle"
            if fault:
                log.warning("%s: the checkpoint of step %d is not whole: %s", self.folder, self._step, fault)
            if self.engine.rank == 0:
                remove_tree(self._unfinished)

    def close(self) -> None:
        """End the thread; what is being written is finished before."""
        try:
            self.finish_alone()
        except OSError as error:  # what is left of it is removed at the next start
            log.warning("%s: the checkpoint of step %d is not whole: %s", self.folder, self._step, error)
        finally:
            self._thread.shutdown()
            _open.discard(self)

    def _published(self) -> BaseException | str | None:
        """Publish what all workers have written; why that cannot be."""
        if lacking := self._unwritten():
            return f"{lacking} of {self.engine.world} workers ended before they had written their part"
        self._work = self._thread.submit(self._publish)
        return self._work.exception()

    def _unwritten(self) -> int:
        """How many workers do not say that their file is whole: waits for those that are still at it, as long as this
        one took, for while a disk takes in what was written, files do not grow."""
        seals = [checkpoint.seal_of(self._unfinished / checkpoint.part_name(rank)) for rank in range(self.engine.world)]
        seen, since_s = self._sizes(), time.monotonic()
        while lacking := sum(not seal.is_file() for seal in seals):
            sizes = self._sizes()
            if sizes != seen:
                seen, since_s = sizes, time.monotonic()
            if time.monotonic() - since_s > max(QUIET_S, self._wrote_s):
                return lacking
            time.sleep(POLL_S)
        return 0

    def _sizes(self) -> dict[str, int]:
        """Bytes of the files of the unfinished checkpoint, so far."""
        try:
            return {entry.name: entry.stat().st_size for entry in os.scandir(self._unfinished)}
        except FileNotFoundError:  # a seal has just got its name
            return {}

    @property
    def _unfinished(self) -> Path:
        return self.folder / f"{checkpoint.UNFINISHED}{checkpoint.name(self._step)}-{self._attempt}"

    def _write(self, part: CheckpointFragment) -> None:
        begun_s = time.monotonic()
        self._unfinished.mkdir(parents=True, exist_ok=True)
        file = self._unfinished / checkpoint.part_name(self.engine.rank)
        seal = write(part, file)
        self._wrote_s = time.monotonic() - begun_s
        checkpoint.write_seal(part, seal, file)

    def _publish(self) -> None:
        texts = {checkpoint.STATE: self._state, checkpoint.SPEC: json.dumps({"spec": self.spec}, indent=1)}
        parts = [checkpoint.part_name(rank) for rank in range(self.engine.world)]
        final = self.folder / checkpoint.name(self._step)
        checkpoint.publish(self._unfinished, final, {"step": self._step, **self.about}, texts, parts)
        try:
            checkpoint.remove_old(self.folder, self.keep, self.keep_every)
        except OSError as error:  # this one is written
            log.warning("%s: an old checkpoint cannot be removed (%s); remove it by hand", self.folder, error)

    def _fail(self, number: int) -> None:
        error = self._work.exception() if self._work and self._work.done() else None
        self._phase = "idle"
        if self.engine.rank == 0:
            with suppress(OSError):
                remove_tree(self._unfinished)
        if error and not isinstance(error, OSError):
            raise error
        reason = os.strerror(number) if number else "see the log of the other workers"
        raise BadInput(
            f"{self.folder}: the checkpoint of step {self._step} cannot be written ({reason}); make room or mend the "
            "folder, then go on with the same command: older checkpoints are whole"
        ) from error


_open = WeakSet[Saver]()


def finish_all() -> None:
    """Finish the checkpoints that this process is writing, while its training waits for workers that do not come."""
    for saver in list(_open):
        saver.finish_alone()
