"""The sequence that starts at a token of the text, for batches with a number of tokens (`batch_unit: token`)."""

from bisect import bisect_right

import numpy as np

from preprocessing.row_plans import KEPT_EPOCHS, RowOrder, RowPlans
from preprocessing.schema import Ints


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

    def tokens_before(self, position_N: Ints) -> Ints:
        """The number of tokens of the text before the sequence at each position, int64 [N]."""
        found_N = np.zeros(len(position_N), np.int64)
        stretch = self._stretch_at(int(position_N.min())) if len(position_N) else 0
        while (first := self._first_of(stretch)) <= position_N.max(initial=-1):
            start_R = np.append(0, self._row_ends(stretch))
            mine_N = (first <= position_N) & (position_N < first + len(start_R) - 1)
            found_N[mine_N] = self._tokens_before(stretch) + start_R[position_N[mine_N] - first]
            stretch += 1
        return found_N

    def _stretch_at(self, position: int) -> int:
        """The stretch with this position."""
        if self._plans.store.groups:
            return position // self._count(0)
        return self._order.row_sums(0).epoch_at(position)

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
            while len(self._cached_row_ends) >= KEPT_EPOCHS:
                self._cached_row_ends.pop(next(iter(self._cached_row_ends)))
            self._cached_row_ends[stretch] = np.cumsum(long_N)
        return self._cached_row_ends[stretch]
