"""Rows -> the micro-batches of a step. The state is one integer, the step: resume and replay are the same call."""

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from torch.utils.data import DataLoader

from preprocessing.collate import padded, unpadded
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.order import rank_slice
from preprocessing.rows import ExampleDataset
from preprocessing.schema import Batch, Row
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.run import Run
from training.specs import EngineSettings, Phase

log = logging.getLogger(__name__)

_TURNS: Final = 16  # rows of a stream in an evaluation, at least, where there are enough


@dataclass(frozen=True)
class Loader:
    """The batches of one of `world` workers; no call depends on an earlier one.

    The rows of a step are the same for any number of workers, and every worker gets the same number of micro-batches:
    under ZeRO each forward and backward pass is a meeting of all workers.
    """

    rows_by_length: Mapping[int, ExampleDataset]
    phases: Sequence[Phase]
    machine: EngineSettings
    pad: int  # token that fills up padded batches
    rank: int
    world: int

    def at(self, step: int) -> list[Batch]:
        """This worker's micro-batches of a step, steps counted from 0 over all phases."""
        phase, first = self._place(step)
        if phase.batch_unit == "token":
            whole = phase.global_batch_size * phase.seq_length
            start = first * phase.seq_length
            positions = self.rows_by_length[phase.seq_length].rows_in_token_range(start, start + whole)
            return self.batches(phase.seq_length, positions)
        positions = range(first, first + phase.global_batch_size)
        if not self._is_ordered:
            return self.batches(phase.seq_length, positions)
        batches = self._stream_batches(phase.seq_length, positions, phase.global_batch_size)
        before = self.phase_of(step - 1) if step else phase
        goes_on = (before.seq_length, before.global_batch_size) == (phase.seq_length, phase.global_batch_size)
        for slot, batch in enumerate(batches):
            batch["slot"] = np.array(slot)
            batch["fresh"] |= not goes_on  # other rows were in its memory
        return batches

    def __getitem__(self, step: int) -> list[Batch]:
        return self.at(step)  # the face that torch's DataLoader knows

    @property
    def num_bytes(self) -> int:
        """Bytes of the shards that are read."""
        store = next(iter(self.rows_by_length.values())).store
        return sum(info.bytes for info in store.manifest.shards if info.split == store.split)

    def require_unchanged(self, rank: int = 0, world: int = 1, *, only_stamps: bool = False) -> None:
        """BadInput where corpus or vocabulary are not as they were when this was opened (shards.py); each of `world`
        workers hashes its share of the shards, with `only_stamps` what has another size or time."""
        rows = next(iter(self.rows_by_length.values()))
        rows.store.require_unchanged(rank, world, only_stamps=only_stamps)
        if not only_stamps:
            Vocab.load(rows.store.vocab_dir, wanted=rows.vocab.hash)

    def phase_of(self, step: int) -> Phase:
        return self._place(step)[0]

    def batches(self, length: int, positions: range) -> list[Batch]:
        """This worker's share of the rows at `positions` in the order of the rows of `length`, in micro-batches.

        Of rows that go on from each other it is the first so many in all of as many streams as a training batch has, or
        fewer, so that most rows have others before them; their memories have slots below 0. Which rows these are, and
        in which streams, no number of workers decides: a worker that has none of them (`has_some`) reads another's.
        """
        if not self._is_ordered:
            rows, mine = self.rows_by_length[length], self._mine(positions)
            addresses = rows.addresses(mine.start, mine.stop)
            return self._micro([rows.row(*address) for address in addresses], length, len(positions))
        streams = self._streams(length, len(positions))
        found: list[Batch] = []
        for first in range(0, len(positions) - streams + 1, streams):
            turn = self._stream_batches(length, range(first, first + streams), streams)
            found += [batch | {"slot": np.array(-1 - slot)} for slot, batch in enumerate(turn)]
        return found

    def has_some(self, length: int, num_rows: int) -> bool:
        """Whether some of so many rows are this worker's; where not, its batches of them have a row of another's."""
        return self.rank < (self._streams(length, num_rows) if self._is_ordered else num_rows)

    def _streams(self, length: int, num_rows: int) -> int:
        """Streams of an evaluation of so many rows."""
        batch = next(phase.global_batch_size for phase in self.phases if phase.seq_length == length)
        return max(1, min(batch, num_rows // _TURNS))

    @property
    def _is_ordered(self) -> bool:
        """Whether rows go on from each other."""
        return any(rows.sampling.packing.ordered for rows in self.rows_by_length.values())

    def _stream_batches(self, length: int, positions: range, streams: int) -> list[Batch]:
        """This worker's share of rows that go on from each other, with `fresh`."""
        rows, mine = self.rows_by_length[length], self._mine(positions)
        found = rows.stream_rows(mine.start, mine.stop, streams)
        batches = self._micro([rows.row(epoch, sample) for epoch, sample, _ in found], length, len(positions))
        for part, batch in enumerate(batches):
            share = found[rank_slice(len(found), part, len(batches))]
            batch["fresh"] = np.array([fresh for *_, fresh in share])
        return batches

    def _mine(self, positions: range) -> range:
        if self.world > len(positions):  # of an evaluation: `has_some` says whose they are
            return positions[self.rank : self.rank + 1] or positions[:1]
        return positions[rank_slice(len(positions), self.rank, self.world)]

    def _micro(self, samples: Sequence[Row], length: int, num_rows: int) -> list[Batch]:
        """This worker's rows, of `num_rows` in all, as micro-batches."""
        tokens = 2 * length if "source_input_ids" in samples[0] else length  # neither side is longer than `length`
        count = num_micro(max(num_rows, self.world), max(1, self.machine.micro_batch_tokens // tokens), self.world)
        parts = [samples[rank_slice(len(samples), part, count)] for part in range(count)]
        if self.machine.padding == "padded":
            return [padded(part, length, self.pad) for part in parts]
        return [unpadded(part) for part in parts]

    def _place(self, step: int) -> tuple[Phase, int]:
        """Phase of a step and position of its first row; phases of one length go on where the one before stopped.

        Where rows go on from each other, those of one length and batch do. Where tokens fill a batch, the position is
        counted in full rows.
        """
        first_by_shape = dict[tuple[int, int, str], int]()
        for phase in self.phases:
            shape = (phase.seq_length, phase.global_batch_size if self._is_ordered else 0, phase.batch_unit)
            first = first_by_shape.get(shape, 0)
            if step < phase.steps:
                return phase, first + step * phase.global_batch_size
            first_by_shape[shape] = first + phase.steps * phase.global_batch_size
            step -= phase.steps
        raise IndexError("there is no step after the last phase")


def num_micro(num_rows: int, micro_rows: int, world: int) -> int:
    """Micro-batches of each worker for a batch of `num_rows`: at most `micro_rows` rows each, and none of them empty.

    Where the two contradict each other (one row each, and a worker with a row less), one micro-batch has a row more.

    >>> num_micro(256, micro_rows=32, world=2), num_micro(3, micro_rows=1, world=2)
    (4, 1)
    """
    most, fewest = -(-num_rows // world), num_rows // world
    return min(-(-most // micro_rows), fewest)


def prefetch(loader: Loader, start: int, stop: int) -> Generator[tuple[int, list[Batch]]]:
    """(step, micro-batches) from `start` up to `stop`, in order, made ahead of time by `loader_workers` processes,
    which end with the generator."""
    batches: DataLoader[list[Batch]] = DataLoader(
        loader,  # type: ignore[arg-type]  # what a DataLoader asks of a Dataset
        batch_size=None,
        sampler=range(start, stop),
        collate_fn=_as_it_is,  # arrays go through a pipe; tensors would need /dev/shm, which is small in containers
        num_workers=loader.machine.dataloader_num_workers,
    )
    iterator = iter(batches)
    try:
        yield from enumerate(iterator, start)
    finally:
        if (
            loader.machine.dataloader_num_workers
        ):  # a traceback may hold the iterator, and by itself it ends them when it goes
            iterator._shutdown_workers()  # type: ignore[attr-defined]


class Batches:
    """(step, micro-batches) of a run, in order, made ahead of time; while it is read it can be sent `back`."""

    def __init__(self, loader: Loader, start: int, stop: int) -> None:
        self._loader, self._next, self._stop = loader, start, stop

    def back(self, step: int) -> None:
        """Go on from this step."""
        self._next = step

    def __iter__(self) -> Iterator[tuple[int, list[Batch]]]:
        while self._next < self._stop:
            for step, batches in prefetch(self._loader, self._next, self._stop):
                self._next = step + 1
                yield step, batches
                if self._next != step + 1:
                    break


def _as_it_is(batches: list[Batch]) -> list[Batch]:
    return batches


def open_loader(run: Run, rank: int, world: int) -> Loader:
    """The training data of a run. BadInput where corpus, vocabulary, model and workers do not fit together."""
    smallest = min(phase.global_batch_size for phase in run.phases)
    if world > smallest:
        raise BadInput(
            f"phases: a batch of {smallest} rows cannot be shared by {world} workers; use at most {smallest} workers"
        )
    return _open(run, "train", rank, world)


def open_validation(run: Run, rank: int, world: int) -> Loader | None:
    """The validation data of a run; None where it has none, or wants no evaluation."""
    if not run.eval_every:
        return None
    if "validation" not in Manifest.load(run.corpus).splits:
        log.warning("%s: has no validation split, so there will be no evaluation", run.corpus)
        return None
    return _open(run, "validation", rank, world)


def _open(run: Run, split: str, rank: int, world: int) -> Loader:
    store = TokenStore.open(run.corpus, split)
    vocab = Vocab.load(store.vocab_dir, wanted=store.manifest.vocab["hash"])
    if vocab.size > run.vocab_size:
        raise BadInput(
            f"{run.corpus}: its vocabulary has {vocab.size} pieces, the model's table {run.vocab_size}; "
            f"set data.tokenizer.vocab_size to {vocab.size} or more, or make the corpus with a smaller vocabulary"
        )
    rows_by_length = {
        length: ExampleDataset(store, vocab, run.sampling, length)
        for length in {phase.seq_length for phase in run.phases}
    }
    return Loader(rows_by_length, run.phases, run.engine, vocab.pad or 0, rank, world)
