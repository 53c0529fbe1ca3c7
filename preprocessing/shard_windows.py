"""Which shards of a store a batch reads, so that they are fetched before, and those of the next batches meanwhile."""

import resource
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import Final

import numpy as np

from preprocessing import rng
from preprocessing.errors import BadInput
from preprocessing.open_shards import OpenShards
from preprocessing.remote_shard import RemoteShard, StoredShard
from preprocessing.row_plans import RowPlans
from preprocessing.schema import Ints
from preprocessing.shard import Shard
from preprocessing.shard_cache import GIGABYTE
from preprocessing.windowed_order import order_shards

_READERS: Final = count()
_OTHER_FILES: Final = 256  # files that a worker has open besides its shards
Window = tuple[int, int, int]
"""Group, epoch and number of a window of shards (windowed_order.py)."""


class ShardWindows:
    """Fetches the shards of a dataset in a store. Without windows, all of its shards stay in the cache.

    A window is fetched as a whole as soon as a batch reads one of its sequences. Then the next window follows in the
    background. Windows before it are released, so that the cache may remove their shards. `forget` must drop all views
    of shards that the reader keeps between batches; it is called before a shard is released.
    """

    def __init__(self, plans: RowPlans, key: rng.RandomKey, forget: Callable[[], None]) -> None:
        self._plans, self._key, self._forget = plans, key, forget
        self._reader = next(_READERS)
        self._current = frozenset[Window]()
        self._next: list[StoredShard] = []
        self._cached_windows: dict[tuple[int, int], Ints] = {}  # by group and epoch

    def prepare(self, address_B2: Ints) -> None:
        """Fetch the shards of the sequences at these addresses (epoch, sample), int64 [B, 2], and those that follow."""
        if not self._plans.window:
            self._fetch_lines(address_B2)
            return
        windows = frozenset(self._iterate_windows(address_B2))
        groups = {group for group, _, _ in windows}
        windows |= {window for window in self._current if window[0] not in groups}  # a rare group stays where it is
        if windows != self._current:
            self._forget()
            self._current = windows
            now = {shard.stored: shard for window in sorted(windows) for shard in self._list_shards(window)}
            self._opened.need(self._reader, frozenset(file.cached_name for file in now))
            self._opened.fetch(list(now))
            for shard in now.values():  # so that none of them makes room for the next ones
                shard.map()
            newest = {group: (group, epoch, number) for group, epoch, number in sorted(windows)}
            following = [self._find_next(window) for window in newest.values()]
            self._next = [shard.stored for window in following for shard in self._list_shards(window)]
            self._opened.touch(self._next)
        if self._next and (missing := self._opened.find_missing(self._next)):
            self._opened.prefetch(missing)
        else:
            self._next = []

    def release(self) -> None:
        """Release all shards that this process has mapped for the dataset."""
        self._forget()
        self._current, self._next = frozenset(), []
        self._opened.need(self._reader, frozenset())

    def _fetch_lines(self, address_B2: Ints) -> None:
        """Fetch the shards of these sequences. They are needed from now on, because any later batch may read them."""
        names = [shard.stored.cached_name for shard in self._plans.store.shards if isinstance(shard, RemoteShard)]
        self._opened.need(self._reader, frozenset(names))
        lines = sorted(
            {
                (group, plan % len(self._plans.lines[group]))
                for group, _, plan_N in self._iterate_plans(address_B2)
                for plan in np.unique(plan_N).tolist()
            }
        )
        shards = [shard for group, line in lines for shard in self._list_shards_of_line(group, line)]
        self._opened.fetch([shard.stored for shard in dict.fromkeys(shards)])

    def _iterate_plans(self, address_B2: Ints) -> Iterator[tuple[int, int, Ints]]:
        """Group, epoch and, for each sequence of these, the number of its plan."""
        epoch_B, sample_B = np.ascontiguousarray(address_B2.T)
        number_B, group_B = np.divmod(sample_B, len(self._plans.groups))
        for group in np.unique(group_B).tolist():
            of_group_B = group_B == group
            for epoch in np.unique(epoch_B[of_group_B]).tolist():
                number_N = number_B[of_group_B & (epoch_B == epoch)]
                yield group, epoch, np.searchsorted(self._plans.epoch(group, epoch).end_K, number_N, side="right")

    def _iterate_windows(self, address_B2: Ints) -> Iterator[Window]:
        for group, epoch, plan_N in self._iterate_plans(address_B2):
            for number in np.unique(self._window_of_plans(group, epoch)[plan_N]).tolist():
                yield group, epoch, number

    def _window_of_plans(self, group: int, epoch: int) -> Ints:
        """The number of the window of each plan of an epoch; that of the last two epochs of each group is cached."""
        if (group, epoch) not in self._cached_windows:
            while len(self._cached_windows) >= 2 * len(self._plans.groups):
                del self._cached_windows[next(iter(self._cached_windows))]
            place_K = np.argsort(self._order(group, epoch))
            self._cached_windows[group, epoch] = place_K // self._plans.window
        return self._cached_windows[group, epoch]

    def _list_shards(self, window: Window) -> list[RemoteShard]:
        group, epoch, number = window
        first = number * self._plans.window
        lines = self._order(group, epoch)[first : first + self._plans.window].tolist()
        return list(dict.fromkeys(shard for line in lines for shard in self._list_shards_of_line(group, line)))

    def _list_shards_of_line(self, group: int, line: int) -> list[RemoteShard]:
        return [shard for shard in shards_of(self._plans.lines[group][line]) if isinstance(shard, RemoteShard)]

    def _find_next(self, window: Window) -> Window:
        group, epoch, number = window
        is_last = (number + 1) * self._plans.window >= len(self._plans.lines[group])
        return (group, epoch + 1, 0) if is_last else (group, epoch, number + 1)

    def _order(self, group: int, epoch: int) -> Ints:
        return order_shards(len(self._plans.lines[group]), self._key, epoch)

    @cached_property
    def _opened(self) -> OpenShards:
        shard = self._plans.store.shards[0]
        assert isinstance(shard, RemoteShard)
        weakref.finalize(self, shard.opened.need, self._reader, frozenset())  # when nobody reads the dataset any more
        return shard.opened


def shards_of(line: Shard) -> Sequence[Shard]:
    """The shards of a token line: one, or those of a pool (packing/pool.py)."""
    members: Sequence[Shard] = line.__dict__.get("shards", (line,))
    return members


def require_room(plans: RowPlans, num_tokens: int, limit: int, others: int, reads_first: bool) -> int:
    """The bytes that a cache must hold for batches of `num_tokens` tokens, so that each shard is fetched once a window.

    `others` are the bytes of other datasets. `reads_first`: the first shard is always mapped, because examples draw
    random tokens from it. Raises BadInput if the bytes are more than `limit`, or if they are in more files than a
    process may open.
    """
    infos = {shard.info.name: shard.info for shard in plans.store.shards if isinstance(shard, RemoteShard)}
    index = sum(4 * (info.rows + 2) + -(-info.tokens // 8) for info in infos.values())
    total = index + sum(info.bytes for info in infos.values())
    needed, at_once = index, 0
    for lines in plans.lines:
        of_lines = sorted(sum(infos[shard.path.name].bytes for shard in shards_of(line)) for line in lines)
        most = max(len(shards_of(line)) for line in lines)
        # a batch reads the end of a window, the start of another one, and whole shards between them
        fewest_tokens = min(shards_of(line)[0].num_tokens for line in lines)
        num_lines = 2 * plans.window + num_tokens // fewest_tokens if plans.window else len(lines)
        needed += sum(of_lines[-num_lines:])
        at_once += min(len(infos), num_lines * most)
    if reads_first:
        needed += max(info.bytes for info in infos.values())
    needed = min(needed, total) + others
    where, most_files = plans.store.folder, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if needed > limit:
        fewer = ", or data.shuffle_window_shards to less" if plans.window else ", or set data.shuffle_window_shards"
        remedy = "" if plans.window == 1 or plans.is_ordered else fewer
        raise BadInput(
            f"{where}: the shard cache may hold {limit / GIGABYTE:.4g} GB, but training reads from "
            f"{_round_up(needed)} GB at a time; set engine.shard_cache_gb to {_round_up(needed)} or more{remedy}"
        )
    if at_once > most_files - _OTHER_FILES:
        raise BadInput(
            f"{where}: training reads from {at_once:,} shards at a time, but a process may open {most_files:,} files; "
            f"raise the limit with `ulimit -n {at_once + _OTHER_FILES}`, or set data.shuffle_window_shards to fewer"
        )
    return needed


def _round_up(num_bytes: int) -> str:
    """Gigabytes with four digits, rounded up.

    >>> _round_up(1_234_512_345), _round_up(40_000_000_000)
    ('1.235', '40')
    """
    unit = 10 ** max(0, len(str(num_bytes)) - 4)
    return f"{-(-num_bytes // unit) * unit / GIGABYTE:.4g}"
