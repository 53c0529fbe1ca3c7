"""Micro-batches of a step. The only state is the step, so that resuming and replaying are the same call."""

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from torch.utils.data import DataLoader

from preprocessing.collate import pad_batch, split_batch
from preprocessing.epoch_record import EpochRecord
from preprocessing.errors import BadInput
from preprocessing.fixed_shapes import MicroBatchShape, make_batches
from preprocessing.manifest import Manifest
from preprocessing.order import rank_slice
from preprocessing.rows import ExampleDataset
from preprocessing.schema import Batch
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.batch_shapes import choose_shapes, fixes_shapes
from training.run import EPOCHS, Run
from training.specs import EngineSettings, Phase, list_blends

log = logging.getLogger(__name__)

WORTH_KERNELS: Final = 50_000  # sequences of a worker: numpy makes them in three to ten seconds
_MIN_SEQUENCES: Final = 16  # minimum number of sequences per stream in an evaluation, if there are enough


@dataclass(frozen=True)
class Loader:
    """The batches of one of `world` workers; no call depends on an earlier call.

    The sequences of a step are the same for any number of workers. Every worker gets the same number of micro-batches,
    because with ZeRO all workers must take part in each forward and backward pass.
    """

    rows_by_length: Mapping[int, ExampleDataset]
    phases: Sequence[Phase]
    machine: EngineSettings
    pad: int  # ID of the padding token
    rank: int
    world: int
    shapes: Mapping[int, MicroBatchShape] = field(default_factory=dict)  # of fixed micro-batches, by sequence length

    def at(self, step: int) -> list[Batch]:
        """This worker's micro-batches of a step; steps are counted from 0 over all phases."""
        phase = self.phase_of(step)
        for length, rows in self.rows_by_length.items():
            if length != phase.seq_length:
                rows.release_shards()
        positions = self.positions(step)
        if phase.batch_unit == "token" or not self.is_ordered:
            return self.batches(phase.seq_length, positions)
        batches = self._stream_batches(phase.seq_length, positions, phase.global_batch_size)
        before = self.phase_of(step - 1) if step else phase
        is_same_shape = (before.seq_length, before.global_batch_size) == (phase.seq_length, phase.global_batch_size)
        for slot, batch in enumerate(batches):
            batch["slot"] = np.array(slot)
            batch["fresh"] |= not is_same_shape  # the memory has states of other sequences
        return batches

    def positions(self, step: int) -> range:
        """The positions of the sequences of a step, over all workers."""
        phase, first = self.place_of(step)
        if phase.batch_unit == "token":
            whole, start = phase.global_batch_size * phase.seq_length, first * phase.seq_length
            return self.rows_by_length[phase.seq_length].rows_in_token_range(start, start + whole)
        return range(first, first + phase.global_batch_size)

    def addresses(self, step: int) -> list[tuple[int, int]]:
        """(epoch, sample) of each sequence of a step, over all workers."""
        phase, positions = self.phase_of(step), self.positions(step)
        rows = self.rows_by_length[phase.seq_length]
        if phase.batch_unit == "token" or not self.is_ordered:
            return rows.addresses(positions.start, positions.stop)
        found = rows.stream_rows(positions.start, positions.stop, phase.global_batch_size)
        return [(epoch, sample) for epoch, sample, _ in found]

    def __getitem__(self, step: int) -> list[Batch]:
        return self.at(step)  # torch's DataLoader calls this method

    @property
    def num_bytes(self) -> int:
        """Total bytes of the shards of this split."""
        store = next(iter(self.rows_by_length.values())).store
        return sum(info.bytes for info in store.manifest.shards if info.split == store.split)

    def require_unchanged(self, rank: int = 0, world: int = 1, *, only_stamps: bool = False) -> None:
        """Raise BadInput if corpus or vocabulary have changed since they were opened (shards.py).

        Each of `world` workers hashes some of the shards; with `only_stamps`, it hashes only shards with a new size or
        time.
        """
        rows = next(iter(self.rows_by_length.values()))
        rows.store.require_unchanged(rank, world, only_stamps=only_stamps)
        if not only_stamps:
            Vocab.load(rows.store.vocab_dir, wanted=rows.vocab.hash)

    def prepare(self, start: int, stop: int) -> None:
        """Load the kernels that make batches, if these steps have enough sequences; forked processes have them, too."""
        sequences = dict.fromkeys(self.rows_by_length, 0)
        positions = dict[int, int]()  # of the first sequence of each length
        first = 0
        for phase in self.phases:
            steps = range(max(start, first), min(stop, first + phase.steps))
            if steps:
                positions.setdefault(phase.seq_length, self.place_of(steps[0])[1])
            sequences[phase.seq_length] += len(steps) * phase.global_batch_size // self.world
            first += phase.steps
        for length, count in sequences.items():
            if count >= WORTH_KERNELS:
                self.rows_by_length[length].load_kernels(positions[length])
        if self.machine.dataloader_num_workers:  # only these processes read shards from here on
            for rows in self.rows_by_length.values():
                rows.release_shards()

    def phase_of(self, step: int) -> Phase:
        return self.place_of(step)[0]

    def batches(self, length: int, positions: range) -> list[Batch]:
        """This worker's part of the sequences of `length` tokens at `positions`, in micro-batches.

        If sequences continue each other, this method selects the first sequences of each stream. It uses as many
        streams as a training batch, or fewer, so that most sequences have a predecessor. Their memory slots are
        negative.

        Sequences and streams do not depend on the number of workers. A worker without sequences of its own (`has_some`
        is False) reads those of another worker.
        """
        if not self.is_ordered:
            rows, mine = self.rows_by_length[length], self._mine(positions)
            return self._micro(rows.batch_at(mine.start, mine.stop), length, len(positions))
        streams = self._streams(length, len(positions))
        batches: list[Batch] = []
        for first in range(0, len(positions) - streams + 1, streams):
            next_batches = self._stream_batches(length, range(first, first + streams), streams)
            batches += [batch | {"slot": np.array(-1 - slot)} for slot, batch in enumerate(next_batches)]
        return batches

    def has_some(self, length: int, num_rows: int) -> bool:
        """Whether this worker has some of `num_rows` sequences. Otherwise it repeats a sequence of another worker."""
        return self.rank < (self._streams(length, num_rows) if self.is_ordered else num_rows)

    def _streams(self, length: int, num_rows: int) -> int:
        """Number of streams in an evaluation of `num_rows` sequences."""
        batch = next(phase.global_batch_size for phase in self.phases if phase.seq_length == length)
        return max(1, min(batch, num_rows // _MIN_SEQUENCES))

    @property
    def is_ordered(self) -> bool:
        """Whether sequences continue each other."""
        return any(rows.sampling.packing.ordered for rows in self.rows_by_length.values())

    def _stream_batches(self, length: int, positions: range, streams: int) -> list[Batch]:
        """This worker's part of sequences that continue each other, with the column `fresh`."""
        rows, mine = self.rows_by_length[length], self._mine(positions)
        addresses = rows.stream_rows(mine.start, mine.stop, streams)
        batches = self._micro(rows.batch([(epoch, sample) for epoch, sample, _ in addresses]), length, len(positions))
        for part, batch in enumerate(batches):
            of_batch = addresses[rank_slice(len(addresses), part, len(batches))]
            batch["fresh"] = np.array([fresh for *_, fresh in of_batch])
        return batches

    def _mine(self, positions: range) -> range:
        if self.world > len(positions):  # in an evaluation: see `has_some`
            return positions[self.rank : self.rank + 1] or positions[:1]
        return positions[rank_slice(len(positions), self.rank, self.world)]

    def _micro(self, batch: Batch, length: int, num_rows: int) -> list[Batch]:
        """Micro-batches of this worker's sequences; `num_rows` is the number of sequences over all workers."""
        if length in self.shapes:
            return make_batches(batch, self.shapes[length], self.pad)
        tokens = 2 * length if "source_input_ids" in batch else length  # source and target each have at most `length`
        count = num_micro(max(num_rows, self.world), max(1, self.machine.micro_tokens // tokens), self.world)
        mine = len(batch["lengths"])
        parts = split_batch(batch, [0, *(rank_slice(mine, part, count).stop for part in range(count))])
        if self.machine.padding == "padded":
            return [pad_batch(part, length, self.pad) for part in parts]
        return parts

    def place_of(self, step: int) -> tuple[Phase, int]:
        """Phase of a step, and position of its first sequence.

        A phase starts at the position where the previous phase with the same sequence length ended. If sequences
        continue each other, the batch size must be the same, too. If tokens fill a batch, positions count full
        sequences.
        """
        first_by_shape = dict[tuple[int, int, str], int]()
        for phase in self.phases:
            shape = (phase.seq_length, phase.global_batch_size if self.is_ordered else 0, phase.batch_unit)
            first = first_by_shape.get(shape, 0)
            if step < phase.steps:
                return phase, first + step * phase.global_batch_size
            first_by_shape[shape] = first + phase.steps * phase.global_batch_size
            step -= phase.steps
        raise IndexError("step is after the last phase")


def num_micro(num_rows: int, micro_rows: int, world: int) -> int:
    """Number of micro-batches of each worker for a batch of `num_rows` sequences.

    Each micro-batch has at most `micro_rows` sequences, and none is empty. If workers have different numbers of
    sequences, both may be impossible; then one micro-batch has one sequence more.

    >>> num_micro(256, micro_rows=32, world=2), num_micro(3, micro_rows=1, world=2)
    (4, 1)
    """
    most, fewest = -(-num_rows // world), num_rows // world
    return min(-(-most // micro_rows), fewest)


def prefetch(loader: Loader, start: int, stop: int) -> Generator[tuple[int, list[Batch]]]:
    """(step, micro-batches) from `start` up to `stop`, in order.

    `dataloader_num_workers` processes make the batches ahead of time; they end with the generator.
    """
    loader.prepare(start, stop)
    batches: DataLoader[list[Batch]] = DataLoader(
        loader,  # type: ignore[arg-type]  # it has all methods that a DataLoader calls
        batch_size=None,
        sampler=range(start, stop),
        collate_fn=_return_unchanged,  # arrays use a pipe; tensors would use /dev/shm, which is small in containers
        num_workers=loader.machine.dataloader_num_workers,
    )
    iterator = iter(batches)
    try:
        yield from enumerate(iterator, start)
    finally:
        if loader.machine.dataloader_num_workers:  # a traceback may keep the iterator and its processes alive
            iterator._shutdown_workers()  # type: ignore[attr-defined]


class Batches:
    """(step, micro-batches) of a run, in order and made ahead of time. `back` changes the next step."""

    def __init__(self, loader: Loader, start: int, stop: int) -> None:
        self._loader, self._next, self._stop = loader, start, stop

    def back(self, step: int) -> None:
        """Continue the iteration from this step."""
        self._next = step

    def __iter__(self) -> Iterator[tuple[int, list[Batch]]]:
        while self._next < self._stop:
            for step, batches in prefetch(self._loader, self._next, self._stop):
                self._next = step + 1
                yield step, batches
                if self._next != step + 1:
                    break


def _return_unchanged(batches: list[Batch]) -> list[Batch]:
    return batches


def open_loader(run: Run, rank: int, world: int, *, trains: bool = True) -> Loader:
    """The training data of a run. Raises BadInput if corpus, vocabulary, model and workers do not fit together.

    Without `trains`, a command only looks at some sequences: nothing is written, and a small shard cache suffices.
    """
    smallest = min(phase.global_batch_size for phase in run.phases)
    if world > smallest:
        raise BadInput(
            f"phases: {world} workers cannot share a batch of {smallest} sequences; use at most {smallest} workers"
        )
    return _open(run, "train", rank, world, trains)


def open_validation(run: Run, rank: int, world: int) -> Loader | None:
    """The validation data of a run; None if the corpus has no validation split or `eval_every` is 0."""
    if not run.eval_every:
        return None
    if "validation" not in Manifest.load(run.corpus).splits:
        log.warning("%s: no validation split; training runs without evaluation", run.corpus)
        return None
    return _open(run, "validation", rank, world)


def _open(run: Run, split: str, rank: int, world: int, trains: bool = True) -> Loader:
    store = TokenStore.open(run.corpus, split, cache=run.engine.shard_cache)
    vocab = Vocab.load(store.vocab_dir, wanted=store.manifest.vocab["hash"])
    if vocab.size > run.vocab_size:
        raise BadInput(
            f"{run.corpus}: its vocabulary has {vocab.size} tokens, but the token table has {run.vocab_size} rows; set "
            f"data.tokenizer.vocab_size to {vocab.size} or more, or prepare a corpus with a smaller vocabulary"
        )
    lengths = {phase.seq_length for phase in run.phases}
    if split == "train":
        names = sorted(store.manifest.mixture)
        blends = {length: list_blends(names, run.phases, length) for length in lengths}
        record = EpochRecord(
            Path(run.folder) / EPOCHS, store.manifest.digest, run.sampling, writes=rank == 0 and trains
        )
        rows_by_length = {
            length: ExampleDataset(store, vocab, run.sampling, length, blends[length], record) for length in lengths
        }
    else:
        rows_by_length = {length: ExampleDataset(store, vocab, run.sampling, length) for length in lengths}
    if store.is_remote and trains:
        _require_room(run, split, rows_by_length, world)
    shapes = dict[int, MicroBatchShape]()
    if fixes_shapes(run.engine, world):
        shapes = choose_shapes(run.phases, rows_by_length, run.engine.micro_tokens)
    return Loader(rows_by_length, run.phases, run.engine, vocab.pad or 0, rank, world, shapes)


def _require_room(run: Run, split: str, rows_by_length: Mapping[int, ExampleDataset], world: int) -> None:
    """Raise BadInput if the shard cache cannot hold what the batches of a split read at a time, and what validation
    reads."""
    limit = run.engine.shard_cache.limit_bytes
    infos = Manifest.load(run.corpus).shards
    others = sum(info.bytes for info in infos if info.split == "validation" and split == "train" and run.eval_every)
    for phase in run.phases:
        rows_by_length[phase.seq_length].require_room(count_tokens_in_use(run, phase, world), limit, others)


def count_tokens_in_use(run: Run, phase: Phase, world: int) -> int:
    """The tokens of all steps whose batches may be in the making at once, on one machine.

    A process of a loader makes two batches ahead, and may still have mapped the shards of its last batch. Without such
    processes, a worker may begin a step while others finish the step before.
    """
    processes = run.engine.dataloader_num_workers
    steps = 3 * processes + 1 if processes else min(world, 2)
    return steps * phase.global_batch_size * phase.seq_length
