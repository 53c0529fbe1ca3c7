"""The one place where a training sample is made: segment, choose and rewrite at an address (epoch, sample).

The loader and the materialising pipeline both call `Rows.row`, so a row on disk and a row from the loader are the same.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Final, Literal

import numpy as np

from preprocessing import compat, rng
from preprocessing.choose import Choose
from preprocessing.errors import BadInput
from preprocessing.order import shuffled
from preprocessing.rewrite import Rewrite
from preprocessing.schema import ASKED_FOR, OPTIONAL, Ints, Row
from preprocessing.segment import Plan, Segment, plans_of
from preprocessing.shards import Store
from preprocessing.vocab import Vocab

_KEPT_COPIES: Final = 2  # a batch may reach from one epoch into the next
_REMEDY: Final = {
    "hits": "use choose kind 'tokens', 'words' or 'spans'",
    "labels": "use rewrite kind 'cloze' or 'shift'",
    "pair_label": "use segment kind 'pair', or drop that loss",
}
_REMEDY_VOCAB: Final = {
    "sentinel": "use a vocabulary of kind unigram or sentencepiece_bpe with sentinels 100",
    "other": "use a vocabulary of kind wordpiece, unigram, sentencepiece_bpe, or byte_bpe with specials 'roberta'",
}


@dataclass(frozen=True)
class _Copy:
    """The plans of one pass over the text (segment.plans_of); row numbers run on from plan to plan."""

    plans: tuple[Plan, ...]
    end_K: Ints  # rows up to and with plan k


@dataclass(frozen=True)
class Rows:
    """Every training sample of one corpus split, made on demand from its address.

    `length` is the most tokens of a row that the model sees. `duplicates` k > 0 is static masking: epoch e repeats the
    pairs and masks of epoch e % k; with 0 each epoch draws new ones. The order is new in every epoch either way.
    `semantics` compat: the instances of the reference script, in its order, fill the epochs 0 ... duplicates - 1.
    """

    store: Store
    vocab: Vocab
    _: KW_ONLY
    segment: Segment
    choose: Choose
    rewrite: Rewrite
    length: int
    seed: int
    duplicates: int = 0
    semantics: Literal["fixed", "compat"] = "fixed"
    # Worked out on the way, never part of the identity: plans and row counts by turn, first position after each epoch;
    # tokens of the text by place of an epoch, and up to its end.
    _copies: dict[int, _Copy] = field(default_factory=dict, init=False, repr=False, compare=False)
    _counts: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _ends: list[int] = field(default_factory=list, init=False, repr=False, compare=False)
    _read: dict[int, Ints] = field(default_factory=dict, init=False, repr=False, compare=False)
    _texts: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for part in (self.segment, self.rewrite):
            for name in part.specials:
                if getattr(self.vocab, name) is None:
                    raise BadInput(
                        f"{part.kind!r} needs a special token {name!r} and the vocabulary has none: "
                        f"{_REMEDY_VOCAB.get(name, _REMEDY_VOCAB['other'])}"
                    )
        if self.choose.needs & OPTIONAL and not all(shard.has_units for shard in self.store.shards):
            raise BadInput(
                f"{self.store.folder}: choose {self.choose.kind!r} needs phrases and this corpus has none: "
                "set `units` in the corpus file and make the corpus again, or use choose kind 'words'"
            )

    def count(self, epoch: int) -> int:
        """Rows of this epoch; BadInput when the text does not give a single one."""
        if self.semantics == "compat":
            return len(self._of_epoch(epoch))
        turn = self._plan_turn(epoch)
        if turn not in self._counts:
            self._counts[turn] = int(self._copy(epoch).end_K[-1])
        return self._counts[turn]

    def row(self, epoch: int, sample: int) -> Row:
        """One training sample: the columns of schema.py, labels included; the same bytes whoever asks, and when."""
        if self.semantics == "compat":
            return compat.row(self._instances[self._of_epoch(epoch)[sample]], self.vocab)
        copy = self._copy(epoch)
        k = int(np.searchsorted(copy.end_K, sample, side="right"))
        plan, shard = copy.plans[k], self.store.shards[k % len(self.store.shards)]
        i = sample - int(copy.end_K[k]) + len(plan)
        row = self.segment.row(plan, i, shard, self.vocab, self._wanted)
        if "counts" in self._wanted:
            row["counts"] = self._counts_V[row["ids"]]
        if "stream" in self._wanted:
            row["stream"] = self._stream_T
        draws = self._masking.at(self._turn(epoch), sample)
        return self.rewrite(row | {"hits": self.choose(row, draws)}, self.vocab, draws)

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

    def beginning(self, start: int, stop: int) -> range:
        """Positions of the rows that begin at the tokens start ... stop - 1 of the text, in the order of positions.

        Special tokens do not count; the tokens of the text run on from epoch to epoch without end.
        """
        return range(self._first_from(start), self._first_from(stop))

    def following(self, start: int, stop: int, streams: int) -> list[tuple[int, int, bool]]:
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
        if self.semantics == "compat":
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
        made, copies, turn = len(self._instances), max(self.duplicates, 1), self._turn(epoch) if self.duplicates else 0
        return range(turn * made // copies, (turn + 1) * made // copies)

    @cached_property
    def _instances(self) -> list[compat.Instance]:
        """Made once and kept; BadInput where the parts stand for no reference, or the text is empty."""
        made = compat.instances(
            compat.documents_of(self.store.shards),
            self.vocab,
            segment=self.segment,
            choose=self.choose,
            rewrite=self.rewrite,
            length=self.length,
            seed=self.seed,
            duplicates=max(self.duplicates, 1),
        )
        if not made:
            raise BadInput(f"{self.store.folder}: not one pair row in {self.store.split}: give more text")
        return made

    @cached_property
    def _wanted(self) -> frozenset[str]:
        return self.choose.needs | self.rewrite.needs

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
        return rng.key(self.seed, "masking")

    @cached_property
    def _order(self) -> rng.Key:
        return rng.key(self.seed, "order")

    def _turn(self, epoch: int) -> int:
        """The epoch whose draws this epoch uses."""
        return epoch % self.duplicates if self.duplicates else epoch

    def _epoch_of(self, position: int) -> tuple[int, int]:
        """Epoch of a position, and the epoch's first position."""
        while not self._ends or self._ends[-1] <= position:
            epoch = len(self._ends)
            self._ends.append(self.count(epoch) + (self._ends[-1] if epoch else 0))
        epoch = bisect_right(self._ends, position)
        return epoch, self._ends[epoch - 1] if epoch else 0

    def _plan_turn(self, epoch: int) -> int:
        """The epoch whose pairs this epoch uses."""
        return self._turn(epoch) if self.segment.fresh else 0

    def _copy(self, epoch: int) -> _Copy:
        """Plans of the epoch, made on first use; only the latest few stay in memory."""
        turn = self._plan_turn(epoch)
        if turn not in self._copies:
            key, lookahead = rng.key(self.seed, "segment"), self.rewrite.lookahead
            stride = self.rewrite.raw_length(self.length, self.choose) - lookahead
            plans = plans_of(self.segment, self.store.shards, stride, lookahead, lambda k: key.at(turn, k))
            if not any(len(plan) for plan in plans):
                raise BadInput(
                    f"{self.store.folder}: not one {self.segment.kind} row in {self.store.split}: give more text"
                )
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
    "rewrite 'cloze' needs column 'hits', which segment 'packed' and choose 'nothing' do not emit:
    use choose kind 'tokens', 'words' or 'spans'"
    """
    emitted = (
        segment.emits | choose.emits | ASKED_FOR | OPTIONAL
    )  # whether the corpus has these is seen when it is opened
    readers = {f"choose {choose.kind!r}": choose.needs, f"rewrite {rewrite.kind!r}": rewrite.needs}
    for reader, needs in readers.items():
        for column in sorted(needs - emitted):
            givers = f"segment {segment.kind!r} and choose {choose.kind!r}"
            return f"{reader} needs column {column!r}, which {givers} do not emit: {_REMEDY[column]}"
    if rewrite.kind == "unified" and segment.kind != "pair":
        return f"rewrite 'unified' needs two segments, segment {segment.kind!r} has one: use segment kind 'pair'"
    if unread := choose.emits - rewrite.needs:
        reason = f"rewrite {rewrite.kind!r} does not read {min(unread)!r}"
        return f"choose {choose.kind!r} has no effect, {reason}: use choose kind 'nothing'"
    emitted |= rewrite.emits
    for loss, needs in losses_needs.items():
        for column in sorted(needs - emitted):
            lacking = f"which segment {segment.kind!r} does not emit"
            return f"loss {loss!r} needs column {column!r}, {lacking}: {_REMEDY[column]}"
    return None
