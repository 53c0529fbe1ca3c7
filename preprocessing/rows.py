"""The one place where a training sample is made: segment, choose and rewrite at an address (epoch, sample).

The loader and the materialising pipeline both call `Rows.row`, so a row on disk and a row from the loader are the same.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, get_args

import numpy as np

from preprocessing import compat, rng
from preprocessing.choose import Choose
from preprocessing.errors import BadInput
from preprocessing.order import shuffled
from preprocessing.rewrite import Rewrite
from preprocessing.sampling import Sampling
from preprocessing.schema import ON_DEMAND, OPTIONAL, Ints, Row
from preprocessing.segment import Plan, Segment, plans_of
from preprocessing.shards import Store
from preprocessing.spec import kind_of
from preprocessing.vocab import KINDS, Vocab

_KEPT_COPIES: Final = 2  # a batch may reach from one epoch into the next
_UNIONS: Final[dict[str, Any]] = {"segment": Segment, "choose": Choose, "rewrite": Rewrite}


@dataclass(frozen=True)
class _Copy:
    """The plans of one pass over the text (segment.plans_of); row numbers run on from plan to plan."""

    plans: tuple[Plan, ...]
    end_K: Ints  # rows up to and with plan k


@dataclass(frozen=True)
class Rows:
    """Every training sample of one corpus split, made on demand from its address.

    `length` is the most tokens of a row that the model reads.
    """

    store: Store
    vocab: Vocab
    sampling: Sampling
    length: int
    # Caches, no part of the identity: plans and numbers of rows by turn; the first position after each epoch; for an
    # epoch, the tokens up to each of its places; the tokens up to the end of each epoch.
    _copies: dict[int, _Copy] = field(default_factory=dict, init=False, repr=False, compare=False)
    _counts: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _ends: list[int] = field(default_factory=list, init=False, repr=False, compare=False)
    _read: dict[int, Ints] = field(default_factory=dict, init=False, repr=False, compare=False)
    _texts: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        choose = self.sampling.choose
        for part in (self.sampling.segment, self.sampling.rewrite):
            for role in part.specials:
                if getattr(self.vocab, role) is None:
                    raise BadInput(
                        f"{part.kind!r} needs a special token {role!r} and the vocabulary has none: "
                        f"use a vocabulary of kind {_one_of(_kinds_with(role))}"
                    )
        if choose.needs & OPTIONAL and not all(shard.has_units for shard in self.store.shards):
            raise BadInput(
                f"{self.store.folder}: choose {choose.kind!r} needs phrases and this corpus has none: "
                "set `units` in the corpus file and make the corpus again, or use another choose kind"
            )

    def count(self, epoch: int) -> int:
        """Rows of this epoch; BadInput when the text does not give a single one."""
        if self.sampling.semantics == "compat":
            return len(self._of_epoch(epoch))
        turn = self._plan_turn(epoch)
        if turn not in self._counts:
            self._counts[turn] = int(self._copy(epoch).end_K[-1])
        return self._counts[turn]

    def row(self, epoch: int, sample: int) -> Row:
        """One training sample: the columns of schema.py with labels; the same bytes in any process, at any time."""
        if self.sampling.semantics == "compat":
            return compat.row(self._instances[self._of_epoch(epoch)[sample]], self.vocab)
        copy = self._copy(epoch)
        k = int(np.searchsorted(copy.end_K, sample, side="right"))
        plan, shard = copy.plans[k], self.store.shards[k % len(self.store.shards)]
        i = sample - int(copy.end_K[k]) + len(plan)
        row = self.sampling.segment.row(plan, i, shard, self.vocab, self._wanted)
        if "counts" in self._wanted:
            row["counts"] = self._counts_V[row["ids"]]
        if "stream" in self._wanted:
            row["stream"] = self._stream_T
        draws = self._masking.at(self._turn(epoch), sample)
        return self.sampling.rewrite(row | {"hits": self.sampling.choose(row, draws)}, self.vocab, draws)

    def at(self, position: int) -> tuple[int, int]:
        """(epoch, sample) that stands at this position; positions run on from epoch to epoch without end."""
        return self.addresses(position, position + 1)[0]

    def addresses(self, start: int, stop: int) -> list[tuple[int, int]]:
        """(epoch, sample) at the positions start ... stop - 1; faster than `at` for each."""
        found: list[tuple[int, int]] = []
        while start < stop:
            epoch, first = self._epoch_of(start)
            position_N = np.arange(start, min(stop, self._ends[epoch])) - first
            sample_N = shuffled(position_N, self.count(epoch), self._order, epoch)
            found += [(epoch, sample) for sample in sample_N.tolist()]
            start += len(position_N)
        return found

    def rows_in_token_range(self, start: int, stop: int) -> range:
        """Positions of the rows that begin at the tokens start ... stop - 1 of the text, in the order of positions.

        Special tokens do not count; the tokens of the text run on from epoch to epoch without end.
        """
        return range(self._first_from(start), self._first_from(stop))

    def stream_rows(self, start: int, stop: int, streams: int) -> list[tuple[int, int, bool]]:
        """(epoch, sample, fresh) at the positions start ... stop - 1 of rows that go on from each other.

        Position p is row p // streams of stream p % streams: in a batch of so many rows each goes on from the one at
        its place in the batch before, unless it is `fresh`: the first of its epoch, or of a shard. Every epoch is cut
        into as many stretches as there are streams; the few rows that are left over are left out. Where the text is
        read both ways, the first half of the streams reads it forward, but for as few rows.
        """
        rows = self.count(0)
        each = rows // streams
        if not each:
            raise BadInput(
                f"{self.store.folder}: {rows} rows of {self.length} tokens in {self.store.split} cannot be shared by "
                f"{streams} streams: give more text, or lower phases.batch"
            )
        turn_N, stream_N = np.divmod(np.arange(start, stop), streams)
        epoch_N, place_N = np.divmod(turn_N, each)
        sample_N = stream_N * each + place_N
        fresh_N = (place_N == 0) | np.isin(sample_N, self._end_K)
        return list(zip(epoch_N.tolist(), sample_N.tolist(), fresh_N.tolist(), strict=True))

    def stats(self) -> dict[str, int]:
        """Counts of the first epoch over all shards: rows, documents, documents too short for a pair, cut sentences."""
        if self.sampling.semantics == "compat":
            made = self._instances
            documents = sum(len(shard.offset_N1) - 1 for shard in self.store.shards)
            return {"documents": documents, "rows": len(made), "negatives": sum(one.label for one in made)}
        plans = self._copy(0).plans
        return {name: sum(plan.counts[name] for plan in plans) for name in plans[0].counts}

    def _first_from(self, token: int) -> int:
        """Position of the first row that begins at this token of the text or behind it."""
        while not self._texts or self._texts[-1] <= token:
            self._texts.append(int(self._text(len(self._texts))[-1]) + (self._texts[-1] if self._texts else 0))
        epoch = bisect_right(self._texts, token)
        token -= self._texts[epoch - 1] if epoch else 0
        begun = int(np.searchsorted(self._text(epoch), token)) + 1 if token else 0
        return sum(self.count(before) for before in range(epoch)) + begun

    def _text(self, epoch: int) -> Ints:
        """Tokens of the text up to and with the row at each place of an epoch; only the latest few stay in memory."""
        if epoch not in self._read:
            rows = [plan.stop_RP.astype(np.int64) - plan.start_RP for plan in self._copy(epoch).plans]
            long_R = np.concatenate([long_RP.sum(axis=1) for long_RP in rows])
            order = shuffled(np.arange(len(long_R)), len(long_R), self._order, epoch)
            while len(self._read) >= _KEPT_COPIES:
                self._read.pop(next(iter(self._read)))
            self._read[epoch] = np.cumsum(long_R[order])
        return self._read[epoch]

    def _of_epoch(self, epoch: int) -> range:
        """Numbers of the instances of this epoch; the copies are shuffled together, and each epoch gets its share."""
        made, copies = len(self._instances), max(self.sampling.duplicates, 1)
        turn = epoch % copies
        return range(turn * made // copies, (turn + 1) * made // copies)

    @cached_property
    def _instances(self) -> list[compat.Instance]:
        """Made once and kept; BadInput where the parts stand for no reference, or the text is empty."""
        documents = compat.documents_of(self.store.shards)
        made = compat.instances(documents, self.vocab, self.sampling, self.length)
        if not made:
            raise BadInput(f"{self.store.folder}: not one row in {self.store.split}: give more text")
        return made

    @cached_property
    def _wanted(self) -> frozenset[str]:
        return self.sampling.choose.needs | self.sampling.rewrite.needs

    @cached_property
    def _end_K(self) -> Ints:
        """Rows up to and with plan k, where rows go on from each other: the same in every epoch."""
        return self._copy(0).end_K

    @property
    def _stream_T(self) -> Ints:
        """The tokens of the first shard, a fair sample of the corpus: documents were dealt to shards by a hash."""
        return self.store.shards[0].ids_T

    @cached_property
    def _counts_V(self) -> Ints:
        """How often each token is in the stream."""
        ids_T = self._stream_T
        return np.bincount(ids_T, minlength=max(self.vocab.size, int(ids_T.max(initial=0)) + 1))

    @cached_property
    def _masking(self) -> rng.Key:
        return rng.key(self.sampling.seed, "masking")

    @cached_property
    def _order(self) -> rng.Key:
        return rng.key(self.sampling.seed, "order")

    def _turn(self, epoch: int) -> int:
        """The epoch whose draws this epoch uses."""
        return epoch % self.sampling.duplicates if self.sampling.duplicates else epoch

    def _epoch_of(self, position: int) -> tuple[int, int]:
        """Epoch of a position, and the epoch's first position."""
        while not self._ends or self._ends[-1] <= position:
            epoch = len(self._ends)
            self._ends.append(self.count(epoch) + (self._ends[-1] if epoch else 0))
        epoch = bisect_right(self._ends, position)
        return epoch, self._ends[epoch - 1] if epoch else 0

    def _plan_turn(self, epoch: int) -> int:
        """The epoch whose pairs this epoch uses."""
        return self._turn(epoch) if self.sampling.segment.fresh else 0

    def _copy(self, epoch: int) -> _Copy:
        """Plans of the epoch, made on first use; only the latest few stay in memory."""
        turn = self._plan_turn(epoch)
        if turn not in self._copies:
            segment, rewrite = self.sampling.segment, self.sampling.rewrite
            key, lookahead = rng.key(self.sampling.seed, "segment"), rewrite.lookahead
            stride = rewrite.raw_length(self.length, self.sampling.choose) - lookahead
            plans = plans_of(segment, self.store.shards, stride, lookahead, lambda k: key.at(turn, k))
            if not any(len(plan) for plan in plans):
                raise BadInput(f"{self.store.folder}: not one {segment.kind} row in {self.store.split}: give more text")
            while len(self._copies) >= _KEPT_COPIES:
                self._copies.pop(next(iter(self._copies)))
            self._copies[turn] = _Copy(plans, np.cumsum([len(plan) for plan in plans]))
        return self._copies[turn]


def impossible(
    segment: Segment, choose: Choose, rewrite: Rewrite, losses_needs: Mapping[str, frozenset[str]]
) -> str | None:
    """Why these parts cannot work together (which lacks which column, and what to do), or None when they can.

    `losses_needs`: for the kind of each loss the columns that it needs.

    >>> from preprocessing.choose import Nothing
    >>> from preprocessing.rewrite import Cloze, Shift
    >>> from preprocessing.segment import Packed
    >>> impossible(Packed(fill="tokens"), Nothing(), Shift(), {"next_token": frozenset({"labels"})})
    >>> impossible(Packed(fill="tokens"), Nothing(), Cloze(), {"masked_tokens": frozenset({"labels"})})
    "rewrite 'cloze' needs column 'hits', which choose 'nothing' does not emit: use choose kind 'tokens', 'words',
    'entities', 'spans', 'ngrams', 'noise_spans', 'fragment' or 'partial'"
    """
    parts = {"segment": segment, "choose": choose, "rewrite": rewrite}
    # Whether the corpus has the optional columns is known when it is opened
    emitted = segment.emits | choose.emits | ON_DEMAND | OPTIONAL
    for reader, needs in (("choose", choose.needs), ("rewrite", rewrite.needs)):
        for column in sorted(needs - emitted):
            return f"{reader} {parts[reader].kind!r} needs column {column!r}, {_lacking(column, parts)}"
    if rewrite.reads_segments not in (1, segment.segments):
        kinds = [kind_of(member) for member in get_args(Segment) if member.segments == rewrite.reads_segments]
        return (
            f"rewrite {rewrite.kind!r} needs rows of {rewrite.reads_segments} segments, segment {segment.kind!r} has "
            f"{segment.segments}: use segment kind {_one_of(map(repr, kinds))}"
        )
    if unread := choose.emits - rewrite.needs:
        reason = f"rewrite {rewrite.kind!r} does not read {min(unread)!r}"
        none = [kind_of(member) for member in get_args(Choose) if not member.can_emit]
        return f"choose {choose.kind!r} has no effect, {reason}: use choose kind {_one_of(map(repr, none))}"
    for loss, needs in losses_needs.items():
        if scarce := needs & (ON_DEMAND | OPTIONAL):
            return f"loss {loss!r} needs column {min(scarce)!r}, which only choose and rewrite can have: leave it out"
        for column in sorted(needs - emitted - rewrite.emits):
            return f"loss {loss!r} needs column {column!r}, {_lacking(column, parts)}, or drop that loss"
    return None


def _lacking(column: str, parts: Mapping[str, Segment | Choose | Rewrite]) -> str:
    """Which part could emit a column that none of a recipe emits, and of which kind it would have to be."""
    for room, union in _UNIONS.items():
        if kinds := [kind_of(member) for member in get_args(union) if column in member.can_emit]:
            return f"which {room} {parts[room].kind!r} does not emit: use {room} kind {_one_of(map(repr, kinds))}"
    raise ValueError(f"no part emits column {column!r}")


def _kinds_with(role: str) -> list[str]:
    """Kinds of vocabularies that can have a special token of this role, each with the keys that it takes."""
    return [f"{kind} with {one.roles[role]}".removesuffix(" with ") for kind, one in KINDS.items() if role in one.roles]


def _one_of(names: Iterable[str]) -> str:
    """Alternatives in words.

    >>> _one_of(["words", "spans", "ngrams"]), _one_of(["pair"])
    ('words, spans or ngrams', 'pair')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
