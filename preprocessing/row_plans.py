"""The training sequences of each epoch of a corpus split: which tokens of the text they contain, and their order.

`RowPlans` packs the text into sequences, and `RowOrder` shuffles them; token_positions.py finds the sequence that
starts at a token of the text. Each class has its own cache. Cached values can always be computed again from the
arguments of the class, so results never depend on the cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np

from preprocessing import rng
from preprocessing.blends import Blend, BlendedTurns
from preprocessing.epoch_record import EpochRecord, EpochSizes
from preprocessing.epoch_sums import EpochSums
from preprocessing.errors import BadInput
from preprocessing.manifest import MixtureGroupStats
from preprocessing.order import shuffle, unshuffle, whole_shares
from preprocessing.packing import PackingPlan, count_rows, lines_of, plans_of
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore
from preprocessing.windowed_order import WindowedOrder

_FEW_SENTENCES: Final = 1.2  # sentences per document; with at most this many, the documents are probably single lines
KEPT_EPOCHS: Final = 2  # because a batch may span two epochs
FRESH_EPOCHS: Final = 64  # number of epochs with different segment pairs; BERT and ALBERT repeat theirs after 10 and 40
_WORTH_KERNELS: Final = 400_000_000  # tokens of a group in all epochs that differ: plans take as long as loading numba
_SHUFFLED: Final = 4096  # places shuffled at once; a few places take as long as a thousand


@dataclass(frozen=True)
class EpochPlans:
    """The packing plans of one epoch of a group of the text; sequences are numbered across all plans."""

    plans: tuple[PackingPlan, ...]
    end_K: Ints  # number of sequences up to and including plan k

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the text in all sequences."""
        return sum(int(plan.stop_RP.sum(dtype=np.int64) - plan.start_RP.sum(dtype=np.int64)) for plan in self.plans)

    @property
    def long_R(self) -> Ints:
        """The number of tokens of the text in each sequence."""
        return np.concatenate([(plan.stop_RP.astype(np.int64) - plan.start_RP).sum(axis=1) for plan in self.plans])


class RowPlans:
    """The packing plans of a split for each group of its text and each epoch, computed on first use.

    The text of a mixture has several groups; any other text is one group. The cache holds the plans of the last two
    epochs of each group, and the numbers of sequences and tokens of each epoch; `record` keeps these on disk.
    """

    def __init__(
        self, store: TokenStore, sampling: ExampleSpec, length: int, record: EpochRecord | None = None
    ) -> None:
        self.store, self._sampling, self._length, self._record = store, sampling, length, record
        self.groups = _groups(store)
        self.window = sampling.shuffle_window_shards  # shards that are shuffled together; 0: all
        self.is_ordered = sampling.packing.ordered  # the sequences continue each other
        self.lines = tuple(lines_of(sampling.packing, shards) for shards in self.groups)
        self._cached_plans: dict[tuple[int, int], EpochPlans] = {}  # by group and result of `plan_turn`
        self._cached_sizes: dict[tuple[int, int], EpochSizes] = {}

    def turn(self, epoch: int) -> int:
        """The epoch whose random draws this epoch repeats: itself, unless masks are static."""
        static = self._sampling.static_masks
        return epoch % static if static else epoch

    def count(self, group: int, epoch: int) -> int:
        """The number of sequences of an epoch of a group."""
        turn = self.plan_turn(epoch)
        sizes = self._find_sizes(group, turn)
        rows = self._count_without_plans(group, turn) if sizes is None and turn else None  # the first one is planned
        if rows:
            sizes = self._add_sizes(group, turn, EpochSizes(rows))
        return (sizes or self._count_in_plans(group, turn)).rows

    def tokens(self, group: int, epoch: int) -> int:
        """The number of tokens of the text in an epoch of a group, without the lookahead of each sequence."""
        return self.all_tokens(group, epoch) - self.count(group, epoch) * self._sampling.objective.lookahead

    def all_tokens(self, group: int, epoch: int) -> int:
        """The number of tokens of the text in an epoch of a group, with the lookahead of each sequence."""
        turn = self.plan_turn(epoch)
        sizes = self._find_sizes(group, turn)
        if sizes is None or sizes.tokens is None:
            sizes = self._count_in_plans(group, turn)
        assert sizes.tokens is not None
        return sizes.tokens

    def _find_sizes(self, group: int, turn: int) -> EpochSizes | None:
        """The sizes of an epoch from the cache or the record; None if they have none."""
        if (group, turn) in self._cached_plans:
            return self._count_in_plans(group, turn)
        recorded = self._record.get(self._length, group, turn) if self._record else None
        return self._cached_sizes.get((group, turn)) or recorded

    def _count_in_plans(self, group: int, turn: int) -> EpochSizes:
        """The sizes of an epoch from its plans."""
        if (known := self._cached_sizes.get((group, turn))) and known.tokens is not None:
            return known
        planned = self.epoch(group, turn)
        return self._add_sizes(group, turn, EpochSizes(int(planned.end_K[-1]), planned.num_tokens))

    def _add_sizes(self, group: int, turn: int, sizes: EpochSizes) -> EpochSizes:
        self._cached_sizes[group, turn] = sizes
        if self._record and self._record.get(self._length, group, turn) != sizes:
            self._record.put(self._length, group, turn, sizes)
        return sizes

    def _count_without_plans(self, group: int, turn: int) -> int | None:
        """The number of sequences of an epoch, if kernels count them faster than plans."""
        if self.period * sum(int(line.offset_N1[-1]) for line in self.groups[group]) < _WORTH_KERNELS:
            return None
        stride, lookahead, draws = self._plan_arguments(group, turn)
        return count_rows(self._sampling.packing, self.lines[group], stride, lookahead, draws)

    def epoch(self, group: int, epoch: int) -> EpochPlans:
        """The plans of an epoch of a group; BadInput if the text of the group is too short for one sequence."""
        key = group, self.plan_turn(epoch)
        if key not in self._cached_plans:
            plans = self._make(*key)
            self._require_sizes(*key, plans)
            of_group = [cached for cached in self._cached_plans if cached[0] == group]
            for oldest in of_group[: 1 - KEPT_EPOCHS]:
                del self._cached_plans[oldest]
            self._cached_plans[key] = plans
        return self._cached_plans[key]

    def _require_sizes(self, group: int, turn: int, plans: EpochPlans) -> None:
        """Raise BadInput if these plans have another number of sequences than positions were computed with."""
        recorded = self._record.get(self._length, group, turn) if self._record else None
        known, rows = self._cached_sizes.get((group, turn)) or recorded, int(plans.end_K[-1])
        if known is not None and known.rows != rows:
            where = self._record.path if self._record and recorded else self.store.folder
            raise BadInput(
                f"{where}: epoch {turn} was counted with {known.rows:,} sequences of {self._length} tokens, but has "
                f"{rows:,}; another version of Sesame probably wrote it: delete it, or resume with that version"
            )

    @property
    def period(self) -> int:
        """The number of epochs after which the plans repeat."""
        if not self._sampling.packing.fresh:
            return 1
        return self._sampling.static_masks or FRESH_EPOCHS

    def plan_turn(self, epoch: int) -> int:
        """The epoch whose segment pairs this epoch repeats."""
        return epoch % self.period

    def _make(self, group: int, turn: int) -> EpochPlans:
        packing = self._sampling.packing
        plans = plans_of(packing, self.lines[group], *self._plan_arguments(group, turn))
        if not any(len(plan) for plan in plans):
            of = f" of {', '.join(self.store.groups[group].shards)}" if self.store.groups else ""
            where = f"{self.store.split}{of}"
            raise BadInput(
                f"{self.store.folder}: {where} has no sequence for packing {packing.kind}; {_remedy(self.store)}"
            )
        return EpochPlans(plans, np.cumsum([len(plan) for plan in plans]))

    def _plan_arguments(self, group: int, turn: int) -> tuple[int, int, Callable[[int], np.random.Generator]]:
        """The length of sequences without lookahead, the lookahead, and the generator of the k-th plan."""
        key, objective = rng.key(self._sampling.seed, "segment"), self._sampling.objective
        stride = objective.raw_length(self._length, self._sampling.masking) - objective.lookahead
        first = sum(map(len, self.groups[:group]))
        return stride, objective.lookahead, lambda k: key.at(turn, first + k)


def _groups(store: TokenStore) -> tuple[tuple[Shard, ...], ...]:
    """The shards of each group; without groups, all shards as one group."""
    if not store.groups:
        return (store.shards,)
    by_name = {shard.path.name: shard for shard in store.shards}
    return tuple(tuple(by_name[name] for name in group.shards) for group in store.groups)


def _remedy(store: TokenStore) -> str:
    """The remedy for a text without a sequence: more text, or documents of more than one sentence."""
    documents = sum(len(shard.offset_N1) - 1 for shard in store.shards)
    sentences = sum(len(shard.sentence_at_M) for shard in store.shards)
    if sentences > _FEW_SENTENCES * documents:
        return "give more text"
    return (
        f"its {documents:,} documents have only {sentences:,} sentences: give whole documents instead of single lines "
        "(paragraphs:PATH reads a file in which blank lines separate documents)"
    )


class RowOrder:
    """The sequence at each position; positions are numbered across all epochs.

    Each group of a mixture has its own order and its own epochs. `blends` replace the weights of the groups; without
    them, the weights of the store apply everywhere. Places are positions in the order of one group.
    """

    def __init__(self, plans: RowPlans, key: rng.RandomKey, blends: Sequence[Blend] = ()) -> None:
        self._plans, self._key = plans, key
        self._turns = BlendedTurns(_shares(plans, blends))
        self._sums: dict[tuple[str, int], EpochSums] = {}
        self._cached_blocks: dict[int, tuple[int, int, Ints]] = {}  # group -> epoch, block and its sequences

    @property
    def groups(self) -> list[int]:
        """The groups that are read."""
        return self._turns.groups

    def turns(self, position: int) -> Ints:
        """The number of sequences of each group before a position, int64 [G]."""
        return self._turns.turns(position)

    def row_sums(self, group: int) -> EpochSums:
        """Numbers of sequences in the epochs of a group."""
        return self._sums_of("sequences", group, self._plans.count)

    def token_sums(self, group: int) -> EpochSums:
        """Numbers of tokens of the text in the epochs of a group, with the lookahead of each sequence."""
        return self._sums_of("tokens", group, self._plans.all_tokens)

    def count_tokens(self, position: int) -> int:
        """The number of tokens of the text, with the lookahead of each sequence, before a position."""
        return sum(self._count_tokens_of(group, place) for group, place in enumerate(self.turns(position).tolist()))

    def addresses(self, start: int, stop: int) -> Ints:
        """Epoch and sample at the positions start ... stop - 1, int64 [N, 2]."""
        group_N, place_N = self._turns.deal(start, stop)
        found_N2 = np.empty((len(group_N), 2), np.int64)
        for group in np.unique(group_N).tolist():
            mine_N = group_N == group
            first, count = int(place_N[mine_N][0]), int(mine_N.sum())
            found_N2[mine_N] = self._of_group(group, first, first + count)
        return found_N2

    def positions(self, group: int, epoch: int, number_N: Ints) -> Ints:
        """The positions of these sequences of an epoch of a group, int64 [N]: the inverse of `addresses`.

        It is -1 for a sequence that is not read, because blends from its place on have no weight for the group.
        """
        if self._plans.window:
            place_N = self._make_windows(group, epoch).positions(number_N)
        else:
            place_N = unshuffle(number_N, self._plans.count(group, epoch), self._key, epoch)
        return self._turns.positions(group, self.row_sums(group).before(epoch) + place_N)

    def _of_group(self, group: int, start: int, stop: int) -> Ints:
        """Epoch and sample at the places start ... stop - 1 of the order of one group."""
        found = [np.zeros((0, 2), np.int64)]
        rows = self.row_sums(group)
        while start < stop:
            epoch = rows.epoch_at(start)
            block, skipped = divmod(start - rows.before(epoch), _SHUFFLED)
            taken = min(_SHUFFLED - skipped, min(stop, rows.before(epoch + 1)) - start)
            sample_N = self._shuffle(group, epoch, block)[skipped : skipped + taken] * len(self._plans.groups) + group
            found.append(np.stack([np.full(taken, epoch), sample_N], axis=1))
            start += taken
        return np.concatenate(found)

    def _shuffle(self, group: int, epoch: int, block: int) -> Ints:
        """The numbers of the sequences at the places of a block of an epoch; the last block of each group is cached."""
        if self._cached_blocks.get(group, (-1, -1))[:2] != (epoch, block):
            place_N = np.arange(block * _SHUFFLED, min((block + 1) * _SHUFFLED, self._plans.count(group, epoch)))
            self._cached_blocks[group] = epoch, block, self._numbers(group, epoch, place_N)
        return self._cached_blocks[group][2]

    def _numbers(self, group: int, epoch: int, place_N: Ints) -> Ints:
        """The numbers of the sequences at these places of an epoch."""
        if self._plans.window:
            return self._make_windows(group, epoch).samples(place_N)
        return shuffle(place_N, self._plans.count(group, epoch), self._key, epoch)

    def _make_windows(self, group: int, epoch: int) -> WindowedOrder:
        return WindowedOrder(self._plans.epoch(group, epoch).end_K, self._plans.window, self._key, epoch)

    def _count_tokens_of(self, group: int, place: int) -> int:
        """The number of tokens of the text in the sequences of one group before a place."""
        if not place:
            return 0
        epoch = self.row_sums(group).epoch_at(place)
        whole, rest = self.token_sums(group).before(epoch), place - self.row_sums(group).before(epoch)
        long_R = self._plans.epoch(group, epoch).long_R if rest else np.zeros(0, np.int64)
        return whole + int(long_R[self._numbers(group, epoch, np.arange(rest))].sum()) if rest else whole

    def _sums_of(self, what: str, group: int, number: Callable[[int, int], int]) -> EpochSums:
        if (what, group) not in self._sums:
            self._sums[what, group] = EpochSums(partial(number, group), self._plans.period, what)
        return self._sums[what, group]


def _shares(plans: RowPlans, blends: Sequence[Blend]) -> list[tuple[int, Ints]]:
    """The first position of each blend, and the weight of each group for `deal`, in sequences."""
    groups = plans.store.groups
    if not groups:
        return [(0, np.ones(1, np.int64))]
    shares = list[tuple[int, Ints]]()
    for blend in blends or [Blend(0, ())]:
        rows = (
            [_rows_of_weight(plans, k, weight) for k, weight in enumerate(blend.weight_by_group)]
            or [_rows_of_group(plans, k, group) for k, group in enumerate(groups)]
        )  # fmt: skip
        shares.append((blend.start, _whole(rows)))
    return shares


def _rows_of_group(plans: RowPlans, number: int, group: MixtureGroupStats) -> Fraction:
    """The weight of a group of the manifest as a fraction of the sequences; a number of epochs is exact."""
    if group.requested_epochs:
        return Fraction(str(group.requested_epochs)) * plans.count(number, 0)
    return _rows_of_weight(plans, number, group.weight)


def _rows_of_weight(plans: RowPlans, group: int, weight: float) -> Fraction:
    """A fraction of the tokens as a fraction of the sequences, by their mean length in the first epoch of the group."""
    return Fraction(str(weight)) * plans.count(group, 0) / plans.tokens(group, 0) if weight else Fraction(0)


def _whole(weights: Sequence[Fraction]) -> Ints:
    """`whole_shares` of the positive weights, and 0 for the others, int64 [G]."""
    share_G = np.zeros(len(weights), np.int64)
    read = [group for group, weight in enumerate(weights) if weight]
    share_G[read] = whole_shares([weights[group] for group in read])
    return share_G
