"""The training sequences of each epoch of a corpus split: which tokens of the text they contain, and their order.

Three classes build on each other, and each has its own cache. `RowPlans` packs the text into sequences, `RowOrder`
shuffles the sequences, and `TokenPositions` finds the sequence that starts at a token of the text. Cached values can
always be computed again from the arguments of the class, so results never depend on the cache.
"""

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from preprocessing import rng
from preprocessing.errors import BadInput
from preprocessing.order import deal, shuffle, shuffle_windows, whole_shares
from preprocessing.packing import PackingPlan, lines_of, plans_of
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore

_FEW_SENTENCES: Final = 1.2  # sentences per document; with at most this many, the documents are probably single lines
_KEPT_EPOCHS: Final = 2  # because a batch may span two epochs
_SHUFFLED: Final = 4096  # places shuffled at once; a few places take as long as a thousand


@dataclass(frozen=True)
class EpochPlans:
    """The packing plans of one epoch of a group of the text; sequences are numbered across all plans."""

    plans: tuple[PackingPlan, ...]
    end_K: Ints  # number of sequences up to and including plan k

    @property
    def long_R(self) -> Ints:
        """The number of tokens of the text in each sequence."""
        return np.concatenate([(plan.stop_RP.astype(np.int64) - plan.start_RP).sum(axis=1) for plan in self.plans])


class RowPlans:
    """The packing plans of a split for each group of its text and each epoch, computed on first use.

    The text of a mixture has several groups; any other text is one group. The cache holds the plans of the last two
    epochs of each group, and the number of sequences of each epoch.
    """

    def __init__(self, store: TokenStore, sampling: ExampleSpec, length: int) -> None:
        self.store, self._sampling, self._length = store, sampling, length
        self.groups = _groups(store)
        self.window = sampling.shuffle_window_shards  # shards that are shuffled together; 0: all
        self.is_ordered = sampling.packing.ordered  # the sequences continue each other
        self.lines = tuple(lines_of(sampling.packing, shards) for shards in self.groups)
        self._cached_plans: dict[tuple[int, int], EpochPlans] = {}  # by group and result of `_plan_turn`
        self._cached_counts: dict[tuple[int, int], int] = {}

    def turn(self, epoch: int) -> int:
        """The epoch whose random draws this epoch repeats: itself, unless masks are static."""
        static = self._sampling.static_masks
        return epoch % static if static else epoch

    def count(self, group: int, epoch: int) -> int:
        """The number of sequences of an epoch of a group."""
        key = group, self._plan_turn(epoch)
        if key not in self._cached_counts:
            self._cached_counts[key] = int(self.epoch(group, epoch).end_K[-1])
        return self._cached_counts[key]

    def tokens(self, group: int, epoch: int) -> int:
        """The number of tokens of the text in an epoch of a group, without the lookahead of each sequence."""
        long_R = self.epoch(group, epoch).long_R
        return int(long_R.sum()) - len(long_R) * self._sampling.objective.lookahead

    def epoch(self, group: int, epoch: int) -> EpochPlans:
        """The plans of an epoch of a group; BadInput if the text of the group is too short for one sequence."""
        key = group, self._plan_turn(epoch)
        if key not in self._cached_plans:
            plans = self._make(*key)
            of_group = [cached for cached in self._cached_plans if cached[0] == group]
            for oldest in of_group[: 1 - _KEPT_EPOCHS]:
                del self._cached_plans[oldest]
            self._cached_plans[key] = plans
        return self._cached_plans[key]

    def _plan_turn(self, epoch: int) -> int:
        """The epoch whose segment pairs this epoch repeats."""
        return self.turn(epoch) if self._sampling.packing.fresh else 0

    def _make(self, group: int, turn: int) -> EpochPlans:
        packing, objective = self._sampling.packing, self._sampling.objective
        key, lookahead = rng.key(self._sampling.seed, "segment"), objective.lookahead
        stride = objective.raw_length(self._length, self._sampling.masking) - lookahead
        first = sum(map(len, self.groups[:group]))
        plans = plans_of(packing, self.lines[group], stride, lookahead, lambda k: key.at(turn, first + k))
        if not any(len(plan) for plan in plans):
            of = f" of {', '.join(self.store.groups[group].shards)}" if self.store.groups else ""
            where = f"{self.store.split}{of}"
            raise BadInput(
                f"{self.store.folder}: {where} has no sequence for packing {packing.kind}; {_remedy(self.store)}"
            )
        return EpochPlans(plans, np.cumsum([len(plan) for plan in plans]))


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

    Each group of a mixture has its own order and its own epochs. The cache holds the ends of the epochs of each group.
    """

    def __init__(self, plans: RowPlans, key: rng.RandomKey) -> None:
        self._plans, self._key = plans, key
        self.shares = _shares(plans)
        self._cached_ends: dict[int, list[int]] = {}  # group -> the first place after each of its epochs
        self._cached_blocks: dict[int, tuple[int, int, Ints]] = {}  # group -> epoch, block and its sequences

    def addresses(self, start: int, stop: int) -> Ints:
        """Epoch and sample at the positions start ... stop - 1, int64 [N, 2]."""
        group_N, place_N = deal(np.arange(start, stop), self.shares)
        found_N2 = np.empty((len(group_N), 2), np.int64)
        for group in np.unique(group_N).tolist():
            mine_N = group_N == group
            first, count = int(place_N[mine_N][0]), int(mine_N.sum())
            found_N2[mine_N] = self._of_group(group, first, first + count)
        return found_N2

    def _of_group(self, group: int, start: int, stop: int) -> Ints:
        """Epoch and sample at the places start ... stop - 1 of the order of one group."""
        found = [np.zeros((0, 2), np.int64)]
        while start < stop:
            epoch, first, end = self._epoch_of(group, start)
            block, skipped = divmod(start - first, _SHUFFLED)
            taken = min(_SHUFFLED - skipped, min(stop, end) - start)
            sample_N = self._shuffle(group, epoch, block)[skipped : skipped + taken] * len(self._plans.groups) + group
            found.append(np.stack([np.full(taken, epoch), sample_N], axis=1))
            start += taken
        return np.concatenate(found)

    def _shuffle(self, group: int, epoch: int, block: int) -> Ints:
        """The numbers of the sequences at the places of a block of an epoch; the last block of each group is cached."""
        if self._cached_blocks.get(group, (-1, -1))[:2] != (epoch, block):
            count = self._plans.count(group, epoch)
            place_N = np.arange(block * _SHUFFLED, min((block + 1) * _SHUFFLED, count))
            if window := self._plans.window:
                sample_N = shuffle_windows(place_N, self._plans.epoch(group, epoch).end_K, window, self._key, epoch)
            else:
                sample_N = shuffle(place_N, count, self._key, epoch)
            self._cached_blocks[group] = epoch, block, sample_N
        return self._cached_blocks[group][2]

    def _epoch_of(self, group: int, place: int) -> tuple[int, int, int]:
        """The epoch of a place in the order of a group, the first place of the epoch, and the first place after it."""
        ends = self._cached_ends.setdefault(group, [])
        while not ends or ends[-1] <= place:
            epoch = len(ends)
            ends.append(self._plans.count(group, epoch) + (ends[-1] if epoch else 0))
        epoch = bisect_right(ends, place)
        return epoch, ends[epoch - 1] if epoch else 0, ends[epoch]


def _shares(plans: RowPlans) -> Ints:
    """The weight of each group for `deal`, proportional to its number of sequences."""
    if not plans.store.groups:
        return np.ones(1, np.int64)
    return whole_shares(
        [
            Fraction(str(group.weight)) * plans.count(number, 0) / plans.tokens(number, 0)
            for number, group in enumerate(plans.store.groups)
        ]
    )


class TokenPositions:
    """The positions of the sequences that contain given tokens of the text; special tokens do not count.

    Tokens are numbered across all epochs. The cache holds the number of tokens up to the end of each epoch, and up to
    the end of each sequence of the last two epochs.
    """

    def __init__(self, plans: RowPlans, order: RowOrder) -> None:
        self._plans, self._order = plans, order
        self._cached_epoch_ends: list[int] = []
        self._cached_row_ends: dict[int, Ints] = {}  # by epoch

    def first_row_from(self, token: int) -> int:
        """The position of the first sequence that starts at this token of the text or after it."""
        ends = self._cached_epoch_ends
        while not ends or ends[-1] <= token:
            ends.append(int(self._row_ends(len(ends))[-1]) + (ends[-1] if ends else 0))
        epoch = bisect_right(ends, token)
        token -= ends[epoch - 1] if epoch else 0
        place = int(np.searchsorted(self._row_ends(epoch), token)) + 1 if token else 0
        return self._first_of(epoch) + place

    def _first_of(self, epoch: int) -> int:
        """The first position of an epoch. For a mixture, an epoch is as long as the first epochs of all groups."""
        return epoch * self._count(0) if self._plans.store.groups else sum(map(self._count, range(epoch)))

    def _count(self, epoch: int) -> int:
        return sum(self._plans.count(group, epoch) for group in range(len(self._plans.groups)))

    def _row_ends(self, epoch: int) -> Ints:
        """The number of tokens of the text up to and including the sequence at each place of an epoch."""
        if epoch not in self._cached_row_ends:
            epoch_N, sample_N = self._order.addresses(self._first_of(epoch), self._first_of(epoch + 1)).T
            number_N, group_N = np.divmod(sample_N, len(self._plans.groups))
            long_N = np.empty(len(sample_N), np.int64)
            for group, its in np.unique(np.stack([group_N, epoch_N]), axis=1).T.tolist():
                mine_N = (group_N == group) & (epoch_N == its)
                long_N[mine_N] = self._plans.epoch(group, its).long_R[number_N[mine_N]]
            while len(self._cached_row_ends) >= _KEPT_EPOCHS:
                self._cached_row_ends.pop(next(iter(self._cached_row_ends)))
            self._cached_row_ends[epoch] = np.cumsum(long_N)
        return self._cached_row_ends[epoch]
