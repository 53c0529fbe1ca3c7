"""The training sequences of each epoch of a corpus split: which tokens of the text they contain, and their order.

Three classes build on each other, and each has its own cache. `RowPlans` packs the text into sequences, `RowOrder`
shuffles the sequences, and `TokenPositions` finds the sequence that starts at a token of the text. Cached values can
always be computed again from the arguments of the class, so results never depend on the cache.
"""

from bisect import bisect_right
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
from preprocessing.order import shuffle, whole_shares
from preprocessing.packing import PackingPlan, lines_of, plans_of
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Ints
from preprocessing.shards import Shard, TokenStore

_FEW_SENTENCES: Final = 1.2  # sentences per document; with at most this many, the documents are probably single lines
_KEPT_EPOCHS: Final = 2  # because a batch may span two epochs
FRESH_EPOCHS: Final = 64  # number of epochs with different segment pairs; BERT and ALBERT repeat theirs after 10 and 40
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
        self.lines = tuple(lines_of(sampling.packing, shards) for shards in self.groups)
        self._cached_plans: dict[tuple[int, int], EpochPlans] = {}  # by group and result of `_plan_turn`
        self._cached_sizes: dict[tuple[int, int], EpochSizes] = {}

    def turn(self, epoch: int) -> int:
        """The epoch whose random draws this epoch repeats: itself, unless masks are static."""
        static = self._sampling.static_masks
        return epoch % static if static else epoch

    def count(self, group: int, epoch: int) -> int:
        """The number of sequences of an epoch of a group."""
        return self._sizes_of(group, epoch).rows

    def tokens(self, group: int, epoch: int) -> int:
        """The number of tokens of the text in an epoch of a group, without the lookahead of each sequence."""
        return self.all_tokens(group, epoch) - self.count(group, epoch) * self._sampling.objective.lookahead

    def all_tokens(self, group: int, epoch: int) -> int:
        """The number of tokens of the text in an epoch of a group, with the lookahead of each sequence."""
        return self._sizes_of(group, epoch).tokens

    def _sizes_of(self, group: int, epoch: int) -> EpochSizes:
        """The numbers of sequences and tokens of an epoch, from the cache or the record, or else from its plans."""
        key = group, self._plan_turn(epoch)
        if key not in self._cached_sizes:
            recorded = self._record.get(self._length, *key) if self._record else None
            if recorded is None:
                planned = self.epoch(group, epoch)
                recorded = EpochSizes(int(planned.end_K[-1]), planned.num_tokens)
                if self._record:
                    self._record.put(self._length, *key, recorded)
            self._cached_sizes[key] = recorded
        return self._cached_sizes[key]

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

    @property
    def period(self) -> int:
        """The number of epochs after which the plans repeat."""
        if not self._sampling.packing.fresh:
            return 1
        return self._sampling.static_masks or FRESH_EPOCHS

    def _plan_turn(self, epoch: int) -> int:
        """The epoch whose segment pairs this epoch repeats."""
        return epoch % self.period

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
            count = self._plans.count(group, epoch)
            place_N = np.arange(block * _SHUFFLED, min((block + 1) * _SHUFFLED, count))
            self._cached_blocks[group] = epoch, block, shuffle(place_N, count, self._key, epoch)
        return self._cached_blocks[group][2]

    def _count_tokens_of(self, group: int, place: int) -> int:
        """The number of tokens of the text in the sequences of one group before a place."""
        if not place:
            return 0
        epoch = self.row_sums(group).epoch_at(place)
        whole, rest = self.token_sums(group).before(epoch), place - self.row_sums(group).before(epoch)
        long_R = self._plans.epoch(group, epoch).long_R if rest else np.zeros(0, np.int64)
        place_N = np.arange(rest)
        return whole + int(long_R[shuffle(place_N, len(long_R), self._key, epoch)].sum()) if rest else whole

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


class TokenPositions:
    """The positions of the sequences that contain given tokens of the text; special tokens do not count.

    Tokens are numbered across all epochs, in the order of positions. Positions are divided into stretches: an epoch,
    or for a mixture as many positions as the first epochs of all groups have. The cache holds the number of tokens
    before some of the stretches, and up to the end of each sequence of the last two.
    """

    def __init__(self, plans: RowPlans, order: RowOrder) -> None:
        self._plans, self._order = plans, order
        self._cached_starts: dict[int, int] = {}  # stretch -> the number of tokens before it
        self._cached_row_ends: dict[int, Ints] = {}  # by stretch

    def first_row_from(self, token: int) -> int:
        """The position of the first sequence that starts at this token of the text or after it."""
        stretch = self._stretch_of(token)
        token -= self._tokens_before(stretch)
        place = int(np.searchsorted(self._row_ends(stretch), token)) + 1 if token else 0
        return self._first_of(stretch) + place

    def _stretch_of(self, token: int) -> int:
        """The stretch with this token."""
        for cached in self._cached_row_ends:
            if 0 <= token - self._tokens_before(cached) < int(self._row_ends(cached)[-1]):
                return cached
        if not self._plans.store.groups:
            return self._order.token_sums(0).epoch_at(token)
        low = high = token // max(1, self._tokens_before(1))  # all stretches have about as many tokens as the first one
        step = 1
        while self._tokens_before(low) > token:
            low, step = max(0, low - step), 2 * step
        while self._tokens_before(high + 1) <= token:
            high, step = high + step, 2 * step
        return low + bisect_right(range(low, high), token, key=lambda number: self._tokens_before(number + 1))

    def _tokens_before(self, stretch: int) -> int:
        """The number of tokens before the first position of a stretch."""
        if stretch not in self._cached_starts:
            self._cached_starts[stretch] = self._order.count_tokens(self._first_of(stretch))
        return self._cached_starts[stretch]

    def _first_of(self, stretch: int) -> int:
        """The first position of a stretch."""
        return stretch * self._count(0) if self._plans.store.groups else self._order.row_sums(0).before(stretch)

    def _count(self, epoch: int) -> int:
        return sum(self._plans.count(group, epoch) for group in self._order.groups)

    def _row_ends(self, stretch: int) -> Ints:
        """The number of tokens of the text up to and including the sequence at each position of a stretch."""
        if stretch not in self._cached_row_ends:
            epoch_N, sample_N = self._order.addresses(self._first_of(stretch), self._first_of(stretch + 1)).T
            number_N, group_N = np.divmod(sample_N, len(self._plans.groups))
            long_N = np.empty(len(sample_N), np.int64)
            for group, its in np.unique(np.stack([group_N, epoch_N]), axis=1).T.tolist():
                mine_N = (group_N == group) & (epoch_N == its)
                long_N[mine_N] = self._plans.epoch(group, its).long_R[number_N[mine_N]]
            while len(self._cached_row_ends) >= _KEPT_EPOCHS:
                self._cached_row_ends.pop(next(iter(self._cached_row_ends)))
            self._cached_row_ends[stretch] = np.cumsum(long_N)
        return self._cached_row_ends[stretch]
