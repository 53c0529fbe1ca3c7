"""Make training examples: apply packing, masking and objective at an address (epoch, sample).

The data loader and the pipeline that materializes examples both call `ExampleDataset.row`, so their examples are equal.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from preprocessing import rng
from preprocessing.blends import Blend
from preprocessing.collate import collate_unpadded
from preprocessing.compiled import CheckedBatches, CompiledBatches, explain_gap, open_batches
from preprocessing.epoch_record import EpochRecord
from preprocessing.errors import BadInput
from preprocessing.find_rows import (
    DocumentPlace,
    DocumentRows,
    DocumentSpan,
    find_places,
    find_rows,
    find_stream_rows,
    list_documents,
)
from preprocessing.masking import require_hits
from preprocessing.packing import PackingPlan
from preprocessing.part_combinations import join_choices
from preprocessing.row_plans import RowOrder, RowPlans
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import OPTIONAL, Batch, Ints, Row
from preprocessing.shard_windows import ShardWindows, require_room
from preprocessing.shards import Shard, TokenStore
from preprocessing.token_positions import TokenPositions
from preprocessing.tokenization import KINDS, Vocab

log = logging.getLogger(__name__)

UNMIXED: Final = "use a corpus file without `mixture`, or give --data PATH without GROUP="
_CHECKED: Final = 16  # the values of `hits` are validated in one of 16 rows, because this takes microseconds
_OF_STREAM: Final = {"stream", "counts"}  # columns that are made of the tokens of the first shard


@dataclass(frozen=True)
class RealizedShare:
    """The sequences, tokens and epochs of one group of a mixture in a range of positions, without special tokens."""

    rows: int
    tokens: int
    epochs: float


@dataclass(frozen=True)
class ExampleDataset:
    """All training examples of one corpus split, made on demand from their addresses (epoch, sample).

    `length` is the largest number of tokens that the model reads of a sequence.

    In a mixture, each group has its own order and epochs, and order.deal interleaves the sequences of the groups. The
    number of sequences of a group is proportional to its fraction of the tokens, divided by the mean length of its
    sequences in its first epoch. Before any position, the number differs from this proportion by at most two. Within a
    group, each sequence is used once before any is used again. Sequence i of group g of G groups has the sample number
    i * G + g. `blends` replace the weights of the corpus from some positions on.

    The examples do not depend on `record`, which keeps the sizes of past epochs on disk.
    """

    store: TokenStore
    vocab: Vocab
    sampling: ExampleSpec
    length: int
    blends: tuple[Blend, ...] = ()
    record: EpochRecord | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        masking = self.sampling.masking
        for part in (self.sampling.packing, self.sampling.objective):
            for role in part.specials:
                if getattr(self.vocab, role) is None:
                    raise BadInput(
                        f"{part.kind!r} needs the special token {role!r}, which the tokenizer does not have; "
                        f"use a tokenizer of kind {join_choices(_kinds_with(role))}"
                    )
        if self.store.groups and (reason := self.sampling.unmixable):
            raise BadInput(f"{self.store.folder}: is a mixture, but {reason}; {UNMIXED}")
        if masking.required_columns & OPTIONAL and not all(shard.has_units for shard in self.store.shards):
            raise BadInput(
                f"{self.store.folder}: masking {masking.kind!r} needs phrases, which this corpus does not have; "
                "set `phrases` in the corpus file and make the corpus again, or use another masking kind"
            )

    def count(self, epoch: int) -> int:
        """The number of sequences of an epoch, in all groups that are read; BadInput if a group has none."""
        return sum(self._plans.count(group, epoch) for group in self._order.groups)

    def count_pass(self) -> float:
        """The number of sequences in which training reads its text once, or each group as often as requested."""
        if not self.blends and self.store.groups and self.store.groups[0].requested_epochs:
            return sum(group.requested_epochs * self._plans.count(k, 0) for k, group in enumerate(self.store.groups))
        return self.count(0)

    def each(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The addresses (epoch, sample) of all sequences of an epoch, in the order of the text."""
        for group in self._order.groups:
            for i in range(self._plans.count(group, epoch)):
                yield epoch, i * self._num_groups + group

    def row(self, epoch: int, sample: int) -> Row:
        """One training example: the columns of schema.py with labels. The result is the same in every process."""
        plan, i, shard = self._locate(epoch, sample)
        row = self.sampling.packing.row(plan, i, shard, self.vocab, self._required_columns)
        if "counts" in self._required_columns:
            row["counts"] = self._counts_V[row["input_ids"]]
        if "stream" in self._required_columns:
            row["stream"] = self._stream_T
        draws = self._masking.at(self._plans.turn(epoch), sample)
        hits = self.sampling.masking(row, draws)
        require_hits(self.sampling.masking, hits, row["special_tokens_mask"], values=sample % _CHECKED == 0)
        return self.sampling.objective(row | {"hits": hits}, self.vocab, draws)

    def _locate(self, epoch: int, sample: int) -> tuple[PackingPlan, int, Shard]:
        """The plan of a sequence, its index in the plan, and the line of tokens of the plan."""
        number, group = divmod(sample, self._num_groups)
        planned, lines = self._plans.epoch(group, epoch), self._plans.lines[group]
        k = int(np.searchsorted(planned.end_K, number, side="right"))
        plan = planned.plans[k]
        return plan, number - int(planned.end_K[k]) + len(plan), lines[k % len(lines)]

    def documents_of(self, epoch: int, sample: int) -> tuple[list[DocumentSpan], Ints]:
        """The documents of a sequence as packed, and for each token the index of its own, -1 at special tokens."""
        plan, i, line = self._locate(epoch, sample)
        return list_documents(line, find_places(self.sampling.packing, plan, i, self.vocab))

    def find_documents(
        self,
        documents: Sequence[DocumentPlace],
        positions: range,
        streams: int = 0,
        report: Callable[[float], None] = lambda share: None,
    ) -> list[DocumentRows]:
        """For each document of the store, the sequences at `positions` that contain tokens of it.

        `streams`: the number of streams, if sequences continue each other. `report` is called with the share of the
        positions that are done.
        """
        if not streams:
            return find_rows(self._plans, self._order, documents, positions, report)
        self.stream_rows(0, 1, streams)  # BadInput if there are too few sequences
        return find_stream_rows(self._plans, documents, positions, streams, report)

    def count_tokens_before(self, position_N: Ints) -> Ints:
        """The number of tokens of the text before the sequence at each position, int64 [N], without special tokens."""
        return self._positions.tokens_before(position_N)

    def batch_at(self, start: int, stop: int) -> Batch:
        """The sequences at the positions start ... stop - 1, as `batch` returns them."""
        return self.batch(self._order.addresses(start, stop))

    def batch(self, addresses: Sequence[tuple[int, int]] | Ints) -> Batch:
        """The sequences at these addresses, concatenated as by collate_unpadded.

        Compiled code makes them after `load_kernels`, otherwise `row`; both give the same bytes.
        """
        address_B2 = np.array(addresses, np.int64).reshape(-1, 2)
        if self.store.is_remote and len(address_B2):
            self._windows.prepare(address_B2)
        kernels = self._kernels[0] if self._kernels else None
        compiled = None if kernels is None else kernels.make(address_B2)
        return self._batch_of_rows(address_B2) if compiled is None else compiled

    def load_kernels(self, position: int = 0) -> None:
        """Make all further batches with compiled code (preprocessing/compiled), if it has kernels for these examples.

        This takes a second, or ten if nobody has compiled them on this machine. The sequence at `position` is made.
        """
        if self._kernels:
            return
        if gap := explain_gap(self.sampling):
            log.info("numpy makes the batches: %s", gap)
            return
        self._kernels.append(CheckedBatches(self._open_kernels, self._batch_of_rows))
        self.batch(self._order.addresses(position, position + 1))

    def _batch_of_rows(self, address_B2: Ints) -> Batch:
        return collate_unpadded([self.row(epoch, sample) for epoch, sample in address_B2.tolist()])

    def at(self, position: int) -> tuple[int, int]:
        """(epoch, sample) at a position; positions are numbered across all epochs.

        In a mixture, the epoch is that of the group of the sequence.
        """
        return self.addresses(position, position + 1)[0]

    def addresses(self, start: int, stop: int) -> list[tuple[int, int]]:
        """(epoch, sample) at the positions start ... stop - 1; faster than calling `at` for each position."""
        return [(epoch, sample) for epoch, sample in self._order.addresses(start, stop).tolist()]

    def count_realized_shares(self, stop: int) -> list[RealizedShare]:
        """The sequences, tokens and epochs of each group at the positions before `stop`, in the order of the store.

        Text without groups counts as one group. The number of sequences is exact. The tokens and epochs assume
        that all epochs have the number and the mean length of the sequences of the first epoch.
        """
        return [
            RealizedShare(
                rows=rows,
                tokens=rows * self._plans.tokens(group, 0) // self._plans.count(group, 0) if rows else 0,
                epochs=rows / self._plans.count(group, 0) if rows else 0.0,
            )
            for group, rows in enumerate(self._order.turns(stop).tolist())
        ]

    def rows_in_token_range(self, start: int, stop: int) -> range:
        """The positions of the sequences that start at the tokens start ... stop - 1 of the text.

        Special tokens do not count. Tokens are numbered across all epochs, in the order of positions.
        """
        return range(self._positions.first_row_from(start), self._positions.first_row_from(stop))

    def stream_rows(self, start: int, stop: int, streams: int) -> list[tuple[int, int, bool]]:
        """(epoch, sample, fresh) at the positions start ... stop - 1 of sequences that continue each other.

        Position p is sequence p // streams of stream p % streams. So in a batch of `streams` sequences, each sequence
        continues the sequence at the same place in the batch before. Only `fresh` sequences do not: the first one of an
        epoch or of a shard. Every epoch is split into `streams` equal parts, and the few remaining sequences are left
        out. If the text is read in both directions, the first half of the streams reads it forward, except for a few
        sequences.
        """
        rows = self._plans.count(0, 0)
        each = rows // streams
        if not each:
            raise BadInput(
                f"{self.store.folder}: {self.store.split} has only {rows} sequences of {self.length} tokens for "
                f"{streams} streams; give more text, or lower phases.global_batch_size"
            )
        turn_N, stream_N = np.divmod(np.arange(start, stop), streams)
        epoch_N, place_N = np.divmod(turn_N, each)
        sample_N = stream_N * each + place_N
        fresh_N = (place_N == 0) | np.isin(sample_N, self._plans.epoch(0, 0).end_K)  # all epochs have the same plans
        return list(zip(epoch_N.tolist(), sample_N.tolist(), fresh_N.tolist(), strict=True))

    def stats(self) -> dict[str, int]:
        """Counts of the first epoch over all shards, such as rows, documents, short documents and cut sentences."""
        plans = [plan for group in self._order.groups for plan in self._plans.epoch(group, 0).plans]
        return {name: sum(plan.counts[name] for plan in plans) for name in plans[0].counts}

    @cached_property
    def _plans(self) -> RowPlans:
        return RowPlans(self.store, self.sampling, self.length, self.record)

    @cached_property
    def _order(self) -> RowOrder:
        return RowOrder(self._plans, rng.key(self.sampling.seed, "order"), self.blends)

    @cached_property
    def _positions(self) -> TokenPositions:
        return TokenPositions(self._plans, self._order)

    @cached_property
    def _kernels(self) -> list[CheckedBatches]:
        """Compiled batches, after `load_kernels`."""
        return []

    def _open_kernels(self) -> CompiledBatches:
        return open_batches(self._plans, self.sampling, self.vocab, self.length, lambda: self._stream_T)

    @cached_property
    def _windows(self) -> ShardWindows:
        """The shards in use, if they are in a store."""
        return ShardWindows(self._plans, rng.key(self.sampling.seed, "order"), self._forget_tables)

    def release_shards(self) -> None:
        """Release the shards of a store that this process has mapped; later batches fetch and map them again."""
        if self.store.is_remote:
            self._windows.release()

    def require_room(self, num_tokens: int, limit_bytes: int, others: int = 0) -> int:
        """The bytes that the cache must hold for batches of `num_tokens` tokens, and `others` of other datasets.

        0 if the shards are on this machine. Raises BadInput if the bytes are more than the limit (shard_windows.py).
        """
        if not self.store.is_remote:
            return 0
        return require_room(self._plans, num_tokens, limit_bytes, others, bool(_OF_STREAM & self._required_columns))

    def _forget_tables(self) -> None:
        for kernels in self._kernels:
            kernels.close()

    @property
    def _num_groups(self) -> int:
        return len(self._plans.groups)

    @cached_property
    def _required_columns(self) -> frozenset[str]:
        return self.sampling.masking.required_columns | self.sampling.objective.required_columns

    @cached_property
    def _stream_T(self) -> Ints:
        """The tokens of the first shard: a random sample of the corpus, because a hash assigns documents to shards.

        For a mixture, it contains tokens of each group in proportion to the first weights; a small group is repeated.
        """
        first, groups = self.store.shards[0].ids_T, self.store.groups
        if not groups:
            return first
        shares = [group.share for group in groups]
        if self.blends and (weights := self.blends[0].weight_by_group):
            shares = [weight / sum(weights) for weight in weights]
        shards = [shards[0].ids_T for shards in self._plans.groups]
        return np.concatenate(
            [np.resize(ids_T, round(share * len(first))) for ids_T, share in zip(shards, shares, strict=True)]
        )

    @cached_property
    def _counts_V(self) -> Ints:
        """The number of occurrences of each token in `_stream_T`."""
        ids_T = self._stream_T
        return np.bincount(ids_T, minlength=max(self.vocab.size, int(ids_T.max(initial=0)) + 1))

    @cached_property
    def _masking(self) -> rng.RandomKey:
        return rng.key(self.sampling.seed, "masking")


def _kinds_with(role: str) -> list[str]:
    """The kinds of tokenizers that can have a special token of this role, each with the keys to set."""
    return [f"{kind} with {one.roles[role]}".removesuffix(" with ") for kind, one in KINDS.items() if role in one.roles]
