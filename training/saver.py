"""Writing checkpoints in the background, while training continues.

A step waits only until the fragment of this worker is copied to the memory of the host. A thread then writes and hashes
it. The workers exchange sums before each step; `votes` are among these sums, so that no thread makes a collective call.
When all workers have written their fragments, the first worker merges the seals and renames the directory. Until then,
only the older checkpoint exists. The next save, and the end of the run, wait for this checkpoint.

When training ends or fails, it closes the saver, which finishes the checkpoint if all workers have written their
fragments. Some workers may have ended by then, so the saver reads their files instead of making a collective call.

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

QUIET_S: Final = 2.0  # other workers count as ended if their files do not change for at least this time
POLL_S: Final = 0.02


class Staging:
    """Copies of tensors in the memory of the host.

    Each copy reuses the memory of the previous copy with the same name.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._reserved: dict[str, tuple[torch.Size, torch.dtype, bool]] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[name] = buffer
        return buffer.copy_(tensor, non_blocking=True)

    def reserve(self, name: str, tensor: Tensor) -> Tensor:
        """Make `allocate` allocate memory for the copy of this tensor. Returns the tensor itself."""
        self._reserved[name] = tensor.shape, tensor.dtype, tensor.is_cuda
        return tensor

    def allocate(self) -> None:
        """Allocate the reserved memory and write to it: the first write to new memory takes longer than a copy."""
        for name, (shape, dtype, pinned) in self._reserved.items():
            # torch.zeros may allocate without writing
            self._buffers[name] = torch.zeros(shape, dtype=dtype, pin_memory=pinned).fill_(1)
        self._reserved.clear()


def in_place(name: str, tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy on the host if it is on a GPU: for a checkpoint that training waits for."""
    return tensor.cpu()


class SaverVotes(NamedTuple):
    """Progress of a checkpoint on one worker, or the sums over all workers."""

    written: int = 0  # workers that have written their files
    failed: int = 0  # workers that could not write their files
    error_number: int = 0  # errno of the failure, or 0
    published: int = 0  # 1: the first worker has published the checkpoint


class Saver:
    """Writes the checkpoints of a run; all workers make the same calls.

    `about` is written into each manifest; `spec` is the specification of the model. If `background` is False, `save`
    waits until its checkpoint is complete.
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
        keep_best: bool = False,
        background: bool = True,
    ) -> None:
        self.engine, self.folder, self.about, self.spec = engine, folder, about, spec
        self.keep, self.keep_every, self.keep_best, self.background = keep, keep_every, keep_best, background
        self._best: int | None = None  # step of the best checkpoint
        self._copy = Staging() if background else in_place
        self._allocation: Future[None] | None = None  # allocation of the memory of the copies
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._phase: Literal["idle", "writing", "publishing"] = "idle"
        self._work: Future[None] | None = None  # work of this worker in this phase
        self._step, self._state = 0, ""
        self._wrote_s = 0.0  # duration of writing the file of this worker
        self._attempt = ""  # part of the names of unfinished checkpoints, which differ between attempts
        self._lock = threading.RLock()  # for phase and work, because another thread may call `finish_alone`
        _open.add(self)

    def prepare(self) -> None:
        """Allocate the memory of the copies in the background. All workers must call it after the first update, because
        an optimizer may have no states before."""
        if isinstance(self._copy, Staging) and self._allocation is None:
            self.engine.part(self._copy.reserve)
            self._allocation = self._thread.submit(self._copy.allocate)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Finish the previous checkpoint, then start to write the checkpoint of a step.

        Raises BadInput if the previous checkpoint failed.
        """
        self.finish()
        if self._allocation:
            self._allocation.result()
        if not self._attempt:
            number = secrets.randbits(32) if self.engine.rank == 0 else 0
            self._attempt = f"{int(self.engine.reduce_sums([number])[0]):08x}"
        part = self.engine.part(self._copy)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the copies are complete now
        self._best = state.get("best", {}).get("step") if self.keep_best else None
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
        """Act on the sums of all workers' votes. Raises BadInput if a worker could not write its fragment."""
        with self._lock:
            if total.failed:
                self._fail(round(total.error_number / total.failed))
            elif self._phase == "writing" and total.written == self.engine.world:
                self._phase = "publishing"
                self._work = self._thread.submit(self._publish) if self.engine.rank == 0 else None
            elif total.published:
                self._phase, self._work = "idle", None

    def finish(self) -> None:
        """Wait until the checkpoint is complete. All workers must call it."""
        while self._phase != "idle":
            if self._work:
                wait([self._work])
            sums = self.engine.reduce_sums(self.votes())
            self.apply_votes(SaverVotes(*(int(value) for value in sums)))

    def finish_alone(self) -> None:
        """Finish the checkpoint without a collective call, when training cannot continue.

        Another thread may call it. The checkpoint is completed if all workers have written their fragments, and removed
        if one of them has ended before.
        """
        with self._lock:
            if self._phase == "idle" or self._work is None:
                return
            wait([self._work])
            fault: BaseException | str | None = self._work.exception()
            if not fault and self._phase == "writing" and self.engine.rank == 0:
                fault = self._try_publish()
            self._phase = "idle"
            if fault:
                log.warning("%s: the checkpoint of step %d is incomplete: %s", self.folder, self._step, fault)
            if self.engine.rank == 0:
                remove_tree(self._unfinished)

    def close(self) -> None:
        """Finish the checkpoint in progress, then end the thread."""
        try:
            self.finish_alone()
        except OSError as error:  # the next start removes the unfinished checkpoint
            log.warning("%s: the checkpoint of step %d is incomplete: %s", self.folder, self._step, error)
        finally:
            self._thread.shutdown()
            _open.discard(self)

    def _try_publish(self) -> BaseException | str | None:
        """Publish the checkpoint if all workers have written their fragments. Return the fault, or None."""
        if num_missing := self._wait_for_files():
            return f"{num_missing} of {self.engine.world} workers ended before they had written their fragments"
        self._work = self._thread.submit(self._publish)
        return self._work.exception()

    def _wait_for_files(self) -> int:
        """Wait for the files of the other workers. Return how many workers ended before their file was complete.

        While the disk writes data, a file can keep the same size. Therefore the wait ends only if no file has changed
        for the time that this worker needed for its own file.
        """
        seals = [checkpoint.seal_of(self._unfinished / checkpoint.part_name(rank)) for rank in range(self.engine.world)]
        last_sizes, since_s = self._sizes(), time.monotonic()
        while num_missing := sum(not seal.is_file() for seal in seals):
            sizes = self._sizes()
            if sizes != last_sizes:
                last_sizes, since_s = sizes, time.monotonic()
            if time.monotonic() - since_s > max(QUIET_S, self._wrote_s):
                return num_missing
            time.sleep(POLL_S)
        return 0

    def _sizes(self) -> dict[str, int]:
        """Current sizes in bytes of the files of the unfinished checkpoint."""
        try:
            return {entry.name: entry.stat().st_size for entry in os.scandir(self._unfinished)}
        except FileNotFoundError:  # a seal has just been renamed
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
            checkpoint.remove_old(self.folder, self.keep, self.keep_every, self._best)
        except OSError as error:  # the new checkpoint is complete
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
            f"{self.folder}: the checkpoint of step {self._step} cannot be written ({reason}); free space or repair "
            "the directory, then resume with the same command: older checkpoints are complete"
        ) from error


_open = WeakSet[Saver]()


def finish_all() -> None:
    """Finish the checkpoints of this process while its training waits for workers that have ended."""
    for saver in list(_open):
        saver.finish_alone()
