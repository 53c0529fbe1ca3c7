"""The one place where a training sample is made: packing, masking and objective at an address (epoch, sample).

The loader and the materialising pipeline both call `ExampleDataset.row`, so a row on disk and a row from the loader are
the same.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, get_args

import numpy as np

from preprocessing import rng
from preprocessing.errors import BadInput
from preprocessing.masking import Masking
from preprocessing.objectives import Objective
from preprocessing.order import deal, shuffle, turns, whole_shares
from preprocessing.packing import Packing, PackingPlan, lines_of, plans_of
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import ON_DEMAND, OPTIONAL, Ints, Row
from preprocessing.shards import Shard, TokenStore
from preprocessing.spec import kind_of
from preprocessing.tokenization import KINDS, Vocab

UNMIXED: Final = "take a corpus file without `mixture`, or name the text with --data PATH, without GROUP="
_FEW_SENTENCES: Final = 1.2  # a document: that many have texts whose lines were taken for documents
_KEPT_COPIES: Final = 2  # a batch may reach from one epoch into the next
_UNIONS: Final[dict[str, Any]] = {"packing": Packing, "masking": Masking, "objective": Objective}


@dataclass(frozen=True)
class _Copy:
    """The plans of one pass over a group of the text (segment.plans_of); row numbers run on from plan to plan."""

    plans: tuple[PackingPlan, ...]
    end_K: Ints  # rows up to and with plan k

    @property
    def long_R(self) -> Ints:
        """Tokens of the text in each row."""
        return np.concatenate([(plan.stop_RP.astype(np.int64) - plan.start_RP).sum(axis=1) for plan in self.plans])


@dataclass(frozen=True)
class RealizedShare:
    """What a stretch of positions has of one group of a mixture; tokens are those of the text, special ones are not."""

    rows: int
    tokens: int
    epochs: float


@dataclass(frozen=True)
class ExampleDataset:
    """Every training sample of one corpus split, made on demand from its address.

    `length` is the most tokens of a row that the model reads.

    Of a mixture each group has an order and epochs of its own, and the groups take turns (order.dealt): in rows, by
    their shares of the tokens over the mean length of their rows in their first epoch. So from the first position up to
    any other each has had its share of the rows to within two rows, and each of its rows as often as any other, or once
    less. Row i of group g of G has the number i * G + g.
    """

    store: TokenStore
    vocab: Vocab
    sampling: ExampleSpec
    length: int
    # Caches, no part of the identity: plans and numbers of rows by group and turn; by group, its first place after each
    # of its epochs; for an epoch, the tokens up to each of its places; the tokens up to the end of each epoch.
    _copies: dict[tuple[int, int], _Copy] = field(default_factory=dict, init=False, repr=False, compare=False)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _ends: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _read: dict[int, Ints] = field(default_factory=dict, init=False, repr=False, compare=False)
    _texts: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        choose = self.sampling.masking
        for part in (self.sampling.packing, self.sampling.objective):
            for role in part.specials:
                if getattr(self.vocab, role) is None:
                    raise BadInput(
                        f"{part.kind!r} needs a special token {role!r} and the vocabulary has none: "
                        f"use a vocabulary of kind {_one_of(_kinds_with(role))}"
                    )
        if self.store.groups and (reason := self.sampling.unmixable):
            raise BadInput(f"{self.store.folder}: is a mixture, and {reason}; {UNMIXED}")
        if choose.needs & OPTIONAL and not all(shard.has_units for shard in self.store.shards):
            raise BadInput(
                f"{self.store.folder}: choose {choose.kind!r} needs phrases and this corpus has none: "
                "set `units` in the corpus file and make the corpus again, or use another masking kind"
            )

    def count(self, epoch: int) -> int:
        """Rows of this epoch, of all groups; BadInput when the text does not give a single one."""
        return sum(self._count(group, epoch) for group in range(len(self._groups)))

    def each(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The address of each row of this epoch, in the order of the text."""
        for group in range(len(self._groups)):
            for i in range(self._count(group, epoch)):
                yield epoch, i * len(self._groups) + group

    def row(self, epoch: int, sample: int) -> Row:
        """One training sample: the columns of schema.py with labels; the same bytes in any process, at any time."""
        number, group = divmod(sample, len(self._groups))
        copy, lines = self._copy(group, epoch), self._lines[group]
        k = int(np.searchsorted(copy.end_K, number, side="right"))
        plan, shard = copy.plans[k], lines[k % len(lines)]
        i = number - int(copy.end_K[k]) + len(plan)
        row = self.sampling.packing.row(plan, i, shard, self.vocab, self._wanted)
        if "counts" in self._wanted:
            row["counts"] = self._counts_V[row["input_ids"]]
        if "stream" in self._wanted:
            row["stream"] = self._stream_T
        draws = self._masking.at(self._turn(epoch), sample)
        return self.sampling.objective(row | {"hits": self.sampling.masking(row, draws)}, self.vocab, draws)

    def at(self, position: int) -> tuple[int, int]:
        """(epoch, sample) that stands at this position; positions run on from epoch to epoch without end.

        Of a mixture, the epoch is that of the row's group.
        """
        return self.addresses(position, position + 1)[0]

    def addresses(self, start: int, stop: int) -> list[tuple[int, int]]:
        """(epoch, sample) at the positions start ... stop - 1; faster than `at` for each."""
        return [(epoch, sample) for epoch, sample in self._addresses(start, stop).tolist()]

    def realised(self, stop: int) -> list[RealizedShare]:
        """What the positions before `stop` have of each group, in the order of the store's; of other text, of all.

        Rows are counted. Tokens and epochs are those rows at the mean length, and over the number, of the first epoch.
        """
        return [
            RealizedShare(
                rows=rows,
                tokens=rows * self._tokens(group, 0) // self._count(group, 0),
                epochs=rows / self._count(group, 0),
            )
            for group, rows in enumerate(turns(stop, self._shares).tolist())
        ]

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
        rows = self._count(0, 0)
        each = rows // streams
        if not each:
            raise BadInput(
                f"{self.store.folder}: {rows} rows of {self.length} tokens in {self.store.split} cannot be shared by "
                f"{streams} streams: give more text, or lower phases.global_batch_size"
            )
        turn_N, stream_N = np.divmod(np.arange(start, stop), streams)
        epoch_N, place_N = np.divmod(turn_N, each)
        sample_N = stream_N * each + place_N
        fresh_N = (place_N == 0) | np.isin(sample_N, self._end_K)
        return list(zip(epoch_N.tolist(), sample_N.tolist(), fresh_N.tolist(), strict=True))

    def stats(self) -> dict[str, int]:
        """Counts of the first epoch over all shards: rows, documents, documents too short for a pair, cut sentences."""
        plans = [plan for group in range(len(self._groups)) for plan in self._copy(group, 0).plans]
        return {name: sum(plan.counts[name] for plan in plans) for name in plans[0].counts}

    def _first_from(self, token: int) -> int:
        """Position of the first row that begins at this token of the text or behind it."""
        while not self._texts or self._texts[-1] <= token:
            self._texts.append(int(self._text(len(self._texts))[-1]) + (self._texts[-1] if self._texts else 0))
        epoch = bisect_right(self._texts, token)
        token -= self._texts[epoch - 1] if epoch else 0
        begun = int(np.searchsorted(self._text(epoch), token)) + 1 if token else 0
        return self._first_of(epoch) + begun

    def _first_of(self, epoch: int) -> int:
        """The first position of an epoch; of a mixture, which has none, of as many rows as its groups' first epochs."""
        return epoch * self.count(0) if self.store.groups else sum(self.count(before) for before in range(epoch))

    def _text(self, epoch: int) -> Ints:
        """Tokens of the text up to and with the row at each place of an epoch; only the latest few stay in memory."""
        if epoch not in self._read:
            epoch_N, sample_N = self._addresses(self._first_of(epoch), self._first_of(epoch + 1)).T
            number_N, group_N = np.divmod(sample_N, len(self._groups))
            long_N = np.empty(len(sample_N), np.int64)
            for group, its in np.unique(np.stack([group_N, epoch_N]), axis=1).T.tolist():
                mine_N = (group_N == group) & (epoch_N == its)
                long_N[mine_N] = self._copy(group, its).long_R[number_N[mine_N]]
            while len(self._read) >= _KEPT_COPIES:
                self._read.pop(next(iter(self._read)))
            self._read[epoch] = np.cumsum(long_N)
        return self._read[epoch]

    def _remedy(self) -> str:
        """What helps where the text makes no row: more of it, or documents of more than a sentence."""
        documents = sum(len(shard.offset_N1) - 1 for shard in self.store.shards)
        sentences = sum(len(shard.sentence_at_M) for shard in self.store.shards)
        if sentences > _FEW_SENTENCES * documents:
            return "give more text"
        return (
            f"its {documents:,} documents have {sentences:,} sentences, one each: give documents, not their lines "
            "(paragraphs:PATH reads a file in which blank lines separate them)"
        )

    @cached_property
    def _wanted(self) -> frozenset[str]:
        return self.sampling.masking.needs | self.sampling.objective.needs

    @cached_property
    def _groups(self) -> tuple[tuple[Shard, ...], ...]:
        """The shards of each group; of other text all of them as one."""
        if not self.store.groups:
            return (self.store.shards,)
        by_name = {shard.path.name: shard for shard in self.store.shards}
        return tuple(tuple(by_name[name] for name in group.shards) for group in self.store.groups)

    @cached_property
    def _lines(self) -> tuple[tuple[Shard, ...], ...]:
        return tuple(lines_of(self.sampling.packing, shards) for shards in self._groups)

    @cached_property
    def _shares(self) -> Ints:
        """Shares of the rows, for `dealt`."""
        if not self.store.groups:
            return np.ones(1, np.int64)
        return whole_shares(
            [
                Fraction(str(group.weight)) * self._count(number, 0) / self._tokens(number, 0)
                for number, group in enumerate(self.store.groups)
            ]
        )

    @cached_property
    def _end_K(self) -> Ints:
        """Rows up to and with plan k, where rows go on from each other: the same in every epoch."""
        return self._copy(0, 0).end_K

    @cached_property
    def _stream_T(self) -> Ints:
        """The tokens of the first shard, a fair sample of the corpus: documents were dealt to shards by a hash.

        Of a mixture as many, each group with its share of them; a small one comes several times.
        """
        first, groups = self.store.shards[0].ids_T, self.store.groups
        if not groups:
            return first
        shards = [shards[0].ids_T for shards in self._groups]
        return np.concatenate(
            [np.resize(ids_T, round(group.share * len(first))) for ids_T, group in zip(shards, groups, strict=True)]
        )

    @cached_property
    def _counts_V(self) -> Ints:
        """How often each token is in the stream."""
        ids_T = self._stream_T
        return np.bincount(ids_T, minlength=max(self.vocab.size, int(ids_T.max(initial=0)) + 1))

    @cached_property
    def _masking(self) -> rng.RandomKey:
        return rng.key(self.sampling.seed, "masking")

    @cached_property
    def _order(self) -> rng.RandomKey:
        return rng.key(self.sampling.seed, "order")

    def _turn(self, epoch: int) -> int:
        """The epoch whose draws this epoch uses."""
        return epoch % self.sampling.static_masks if self.sampling.static_masks else epoch

    def _addresses(self, start: int, stop: int) -> Ints:
        """Epoch and sample at the positions start ... stop - 1, int64 [N, 2]."""
        group_N, place_N = deal(np.arange(start, stop), self._shares)
        found_N2 = np.empty((len(group_N), 2), np.int64)
        for group in np.unique(group_N).tolist():
            mine_N = group_N == group
            first, count = int(place_N[mine_N][0]), int(mine_N.sum())
            found_N2[mine_N] = self._of_group(group, first, first + count)
        return found_N2

    def _of_group(self, group: int, start: int, stop: int) -> Ints:
        """The same at the places start ... stop - 1 of the order of one group."""
        found = [np.zeros((0, 2), np.int64)]
        while start < stop:
            epoch, first = self._epoch_of(group, start)
            place_N = np.arange(start, min(stop, self._ends[group][epoch])) - first
            number_N = shuffle(place_N, self._count(group, epoch), self._order, epoch)
            sample_N = number_N * len(self._groups) + group
            found.append(np.stack([np.full(len(sample_N), epoch), sample_N], axis=1))
            start += len(place_N)
        return np.concatenate(found)

    def _epoch_of(self, group: int, place: int) -> tuple[int, int]:
        """Epoch of a place in the order of a group, and the epoch's first place."""
        ends = self._ends.setdefault(group, [])
        while not ends or ends[-1] <= place:
            epoch = len(ends)
            ends.append(self._count(group, epoch) + (ends[-1] if epoch else 0))
        epoch = bisect_right(ends, place)
        return epoch, ends[epoch - 1] if epoch else 0

    def _count(self, group: int, epoch: int) -> int:
        """Rows of an epoch of a group."""
        turn = self._plan_turn(epoch)
        if (group, turn) not in self._counts:
            self._counts[group, turn] = int(self._copy(group, epoch).end_K[-1])
        return self._counts[group, turn]

    def _tokens(self, group: int, epoch: int) -> int:
        """Tokens of the text in the rows of an epoch of a group, without those that are there for a last label."""
        long_R = self._copy(group, epoch).long_R
        return int(long_R.sum()) - len(long_R) * self.sampling.objective.lookahead

    def _plan_turn(self, epoch: int) -> int:
        """The epoch whose pairs this epoch uses."""
        return self._turn(epoch) if self.sampling.packing.fresh else 0

    def _copy(self, group: int, epoch: int) -> _Copy:
        """Plans of an epoch of a group, made on first use; only the latest few of each group stay in memory."""
        turn = self._plan_turn(epoch)
        if (group, turn) not in self._copies:
            segment, rewrite = self.sampling.packing, self.sampling.objective
            key, lookahead = rng.key(self.sampling.seed, "segment"), rewrite.lookahead
            stride = rewrite.raw_length(self.length, self.sampling.masking) - lookahead
            first = sum(map(len, self._groups[:group]))
            plans = plans_of(segment, self._lines[group], stride, lookahead, lambda k: key.at(turn, first + k))
            if not any(len(plan) for plan in plans):
                of = f" of {', '.join(self.store.groups[group].shards)}" if self.store.groups else ""
                where = f"{self.store.split}{of}"
                raise BadInput(f"{self.store.folder}: not one {segment.kind} row in {where}: {self._remedy()}")
            mine = [known for known in self._copies if known[0] == group]
            for old in mine[: 1 - _KEPT_COPIES]:
                del self._copies[old]
            self._copies[group, turn] = _Copy(plans, np.cumsum([len(plan) for plan in plans]))
        return self._copies[group, turn]


def impossible(
    segment: Packing, choose: Masking, rewrite: Objective, losses_needs: Mapping[str, frozenset[str]]
) -> str | None:
    """Why these parts cannot work together (which lacks which column, and what to do), or None when they can.

    `losses_needs`: for the kind of each loss the columns that it needs.

    >>> from preprocessing.masking import NoMasking
    >>> from preprocessing.objectives import MaskedLM, CausalLM
    >>> from preprocessing.packing import Contiguous
    >>> impossible(Contiguous(unit="token"), NoMasking(), CausalLM(), {"next_token": frozenset({"labels"})})
    >>> impossible(Contiguous(unit="token"), NoMasking(), MaskedLM(), {"masked_tokens": frozenset({"labels"})})
    "objective 'mlm' needs column 'hits', which masking 'none' does not emit: use masking kind 'token', 'whole_word',
    'entity', 'span', 'ngram', 'random_spans', 'fragment' or 'partial_prediction'"
    """
    parts = {"packing": segment, "masking": choose, "objective": rewrite}
    # Whether the corpus has the optional columns is known when it is opened
    emitted = segment.emits | choose.emits | ON_DEMAND | OPTIONAL
    for reader, needs in (("masking", choose.needs), ("objective", rewrite.needs)):
        for column in sorted(needs - emitted):
            return f"{reader} {parts[reader].kind!r} needs column {column!r}, {_lacking(column, parts)}"
    if rewrite.reads_segments not in (1, segment.segments):
        kinds = [kind_of(member) for member in get_args(Packing) if member.segments == rewrite.reads_segments]
        return (
            f"objective {rewrite.kind!r} needs rows of {rewrite.reads_segments} segments, packing {segment.kind!r} has "
            f"{segment.segments}: use packing kind {_one_of(map(repr, kinds))}"
        )
    if unread := choose.emits - rewrite.needs:
        reason = f"objective {rewrite.kind!r} does not read {min(unread)!r}"
        none = [kind_of(member) for member in get_args(Masking) if not member.can_emit]
        return f"masking {choose.kind!r} has no effect, {reason}: use masking kind {_one_of(map(repr, none))}"
    for loss, needs in losses_needs.items():
        if scarce := needs & (ON_DEMAND | OPTIONAL):
            return (
                f"loss {loss!r} needs column {min(scarce)!r}, which only masking and objective can have: leave it out"
            )
        for column in sorted(needs - emitted - rewrite.emits):
            return f"loss {loss!r} needs column {column!r}, {_lacking(column, parts)}, or drop that loss"
    return None


def _lacking(column: str, parts: Mapping[str, Packing | Masking | Objective]) -> str:
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
