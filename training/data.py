"""Rows -> the micro-batches of a step. The state is one integer, the step: resume and replay are the same call."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch.utils.data import DataLoader

from preprocessing.collate import padded, unpadded
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.order import rank_slice
from preprocessing.rows import Rows
from preprocessing.schema import Batch
from preprocessing.shards import Store
from preprocessing.vocab import Vocab
from training.run import Run
from training.spec import Machine, Phase

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loader:
    """The batches of one of `world` workers; no call depends on an earlier one.

    The rows of a step are the same for any number of workers, and every worker gets the same number of micro-batches:
    under ZeRO each forward and backward pass is a meeting of all workers.
    """

    rows_by_length: Mapping[int, Rows]
    phases: Sequence[Phase]
    machine: Machine
    pad: int  # token that fills up padded batches
    rank: int
    world: int

    def at(self, step: int) -> list[Batch]:
        """This worker's micro-batches of a step, steps counted from 0 over all phases."""
        phase, first = self._place(step)
        return self.batches(phase.length, range(first, first + phase.batch))

    def __getitem__(self, step: int) -> list[Batch]:
        return self.at(step)  # the face that torch's DataLoader knows

    def phase_of(self, step: int) -> Phase:
        return self._place(step)[0]

    def batches(self, length: int, positions: range) -> list[Batch]:
        """This worker's share of the rows at `positions` in the order of the rows of `length`, in micro-batches."""
        rows = self.rows_by_length[length]
        mine = positions[rank_slice(len(positions), self.rank, self.world)]
        samples = [rows.row(epoch, sample) for epoch, sample in rows.addresses(mine.start, mine.stop)]
        count = num_micro(len(positions), max(1, self.machine.micro_tokens // length), self.world)
        parts = [samples[rank_slice(len(samples), part, count)] for part in range(count)]
        if self.machine.layout == "padded":
            return [padded(part, length, self.pad) for part in parts]
        return [unpadded(part) for part in parts]

    def _place(self, step: int) -> tuple[Phase, int]:
        """Phase of a step and position of its first row; phases of one length go on where the one before stopped."""
        first_by_length = dict.fromkeys(self.rows_by_length, 0)
        for phase in self.phases:
            if step < phase.steps:
                return phase, first_by_length[phase.length] + step * phase.batch
            first_by_length[phase.length] += phase.steps * phase.batch
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


def ahead(loader: Loader, start: int, stop: int) -> Iterator[tuple[int, list[Batch]]]:
    """(step, micro-batches) from `start` up to `stop`, in order, made ahead of time by `loader_workers` processes."""
    batches: DataLoader[list[Batch]] = DataLoader(
        loader,  # type: ignore[arg-type]  # has the face of a Dataset
        batch_size=None,
        sampler=range(start, stop),
        collate_fn=_as_it_is,  # arrays go through a pipe; tensors would need /dev/shm, which is small in containers
        num_workers=loader.machine.loader_workers,
    )
    return enumerate(batches, start)


def _as_it_is(batches: list[Batch]) -> list[Batch]:
    return batches


def open_loader(run: Run, rank: int, world: int) -> Loader:
    """The training data of a run. BadInput where corpus, vocabulary, model and workers do not fit together."""
    smallest = min(phase.batch for phase in run.phases)
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
    store = Store.open(run.corpus, split)
    vocab = Vocab.load(store.vocab_dir, wanted=store.manifest.vocab["hash"])
    if vocab.size > run.vocab_size:
        raise BadInput(
            f"{run.corpus}: its vocabulary has {vocab.size} pieces, the model's table {run.vocab_size}; "
            f"set data.vocab.size to {vocab.size} or more, or make the corpus with a smaller vocabulary"
        )
    rows_by_length = {
        length: Rows(
            store,
            vocab,
            segment=run.segment,
            choose=run.choose,
            rewrite=run.rewrite,
            length=length,
            seed=run.seed,
            duplicates=run.duplicates,
            semantics=run.semantics,
        )
        for length in {phase.length for phase in run.phases}
    }
    return Loader(rows_by_length, run.phases, run.machine, vocab.pad or 0, rank, world)
