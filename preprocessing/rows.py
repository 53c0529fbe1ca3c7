"""The one place where a training sample is made: packing, masking and objective at an address (epoch, sample).

The loader and the pipeline that writes rows to disk both call `ExampleDataset.row`, so that their rows are the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args

import numpy as np

from preprocessing import rng
from preprocessing.errors import BadInput
from preprocessing.masking import Masking
from preprocessing.objectives import Objective
from preprocessing.order import turns
from preprocessing.packing import Packing
from preprocessing.row_plans import RowOrder, RowPlans, TokenPositions
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import ON_DEMAND, OPTIONAL, Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.spec import kind_of
from preprocessing.tokenization import KINDS, Vocab

UNMIXED: Final = "take a corpus file without `mixture`, or name the text with --data PATH, without GROUP="
_UNIONS: Final[dict[str, Any]] = {"packing": Packing, "masking": Masking, "objective": Objective}


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

    Of a mixture each group has an order and epochs of its own, and the groups take turns (order.deal): in rows, by
    their shares of the tokens over the mean length of their rows in their first epoch. So from the first position up to
    any other each has had its share of the rows to within two rows, and each of its rows as often as any other, or once
    less. Row i of group g of G has the number i * G + g.
    """

    store: TokenStore
    vocab: Vocab
    sampling: ExampleSpec
    length: int

    def __post_init__(self) -> None:
        masking = self.sampling.masking
        for part in (self.sampling.packing, self.sampling.objective):
            for role in part.specials:
                if getattr(self.vocab, role) is None:
                    raise BadInput(
                        f"{part.kind!r} needs a special token {role!r} and the vocabulary has none: "
                        f"use a vocabulary of kind {_one_of(_kinds_with(role))}"
                    )
        if self.store.groups and (reason := self.sampling.unmixable):
            raise BadInput(f"{self.store.folder}: is a mixture, and {reason}; {UNMIXED}")
        if masking.required_columns & OPTIONAL and not all(shard.has_units for shard in self.store.shards):
            raise BadInput(
                f"{self.store.folder}: masking {masking.kind!r} needs phrases and this corpus has none: "
                "set `phrases` in the corpus file and make the corpus again, or use another masking kind"
            )

    def count(self, epoch: int) -> int:
        """Rows of this epoch, of all groups; BadInput when the text does not give a single one."""
        return sum(self._plans.count(group, epoch) for group in range(self._num_groups))

    def each(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The address of each row of this epoch, in the order of the text."""
        for group in range(self._num_groups):
            for i in range(self._plans.count(group, epoch)):
                yield epoch, i * self._num_groups + group

    def row(self, epoch: int, sample: int) -> Row:
        """One training sample: the columns of schema.py with labels; the same bytes in any process, at any time."""
        number, group = divmod(sample, self._num_groups)
        planned, lines = self._plans.epoch(group, epoch), self._plans.lines[group]
        k = int(np.searchsorted(planned.end_K, number, side="right"))
        plan, shard = planned.plans[k], lines[k % len(lines)]
        i = number - int(planned.end_K[k]) + len(plan)
        row = self.sampling.packing.row(plan, i, shard, self.vocab, self._wanted)
        if "counts" in self._wanted:
            row["counts"] = self._counts_V[row["input_ids"]]
        if "stream" in self._wanted:
            row["stream"] = self._stream_T
        draws = self._masking.at(self._plans.turn(epoch), sample)
        return self.sampling.objective(row | {"hits": self.sampling.masking(row, draws)}, self.vocab, draws)

    def at(self, position: int) -> tuple[int, int]:
        """(epoch, sample) that stands at this position; positions run on from epoch to epoch without end.

        Of a mixture, the epoch is that of the row's group.
        """
        return self.addresses(position, position + 1)[0]

    def addresses(self, start: int, stop: int) -> list[tuple[int, int]]:
        """(epoch, sample) at the positions start ... stop - 1; faster than `at` for each."""
        return [(epoch, sample) for epoch, sample in self._order.addresses(start, stop).tolist()]

    def realised(self, stop: int) -> list[RealizedShare]:
        """What the positions before `stop` have of each group, in the order of the store's; of other text, of all.

        Rows are counted. Tokens and epochs are those rows at the mean length, and over the number, of the first epoch.
        """
        return [
            RealizedShare(
                rows=rows,
                tokens=rows * self._plans.tokens(group, 0) // self._plans.count(group, 0),
                epochs=rows / self._plans.count(group, 0),
            )
            for group, rows in enumerate(turns(stop, self._order.shares).tolist())
        ]

    def rows_in_token_range(self, start: int, stop: int) -> range:
        """Positions of the rows that begin at the tokens start ... stop - 1 of the text, in the order of positions.

        Special tokens do not count; the tokens of the text run on from epoch to epoch without end.
        """
        return range(self._positions.first_row_from(start), self._positions.first_row_from(stop))

    def stream_rows(self, start: int, stop: int, streams: int) -> list[tuple[int, int, bool]]:
        """(epoch, sample, fresh) at the positions start ... stop - 1 of rows that go on from each other.

        Position p is row p // streams of stream p % streams: in a batch of so many rows each goes on from the one at
        its place in the batch before, unless it is `fresh`: the first of its epoch, or of a shard. Every epoch is cut
        into as many stretches as there are streams; the few rows that are left over are left out. Where the text is
        read both ways, the first half of the streams reads it forward, but for as few rows.
        """
        rows = self._plans.count(0, 0)
        each = rows // streams
        if not each:
            raise BadInput(
                f"{self.store.folder}: {rows} rows of {self.length} tokens in {self.store.split} cannot be shared by "
                f"{streams} streams: give more text, or lower phases.global_batch_size"
            )
        turn_N, stream_N = np.divmod(np.arange(start, stop), streams)
        epoch_N, place_N = np.divmod(turn_N, each)
        sample_N = stream_N * each + place_N
        fresh_N = (place_N == 0) | np.isin(sample_N, self._plans.epoch(0, 0).end_K)  # the same plans in each epoch
        return list(zip(epoch_N.tolist(), sample_N.tolist(), fresh_N.tolist(), strict=True))

    def stats(self) -> dict[str, int]:
        """Counts of the first epoch over all shards: rows, documents, documents too short for a pair, cut sentences."""
        plans = [plan for group in range(self._num_groups) for plan in self._plans.epoch(group, 0).plans]
        return {name: sum(plan.counts[name] for plan in plans) for name in plans[0].counts}

    @cached_property
    def _plans(self) -> RowPlans:
        return RowPlans(self.store, self.sampling, self.length)

    @cached_property
    def _order(self) -> RowOrder:
        return RowOrder(self._plans, rng.key(self.sampling.seed, "order"))

    @cached_property
    def _positions(self) -> TokenPositions:
        return TokenPositions(self._plans, self._order)

    @property
    def _num_groups(self) -> int:
        return len(self._plans.groups)

    @cached_property
    def _wanted(self) -> frozenset[str]:
        return self.sampling.masking.required_columns | self.sampling.objective.required_columns

    @cached_property
    def _stream_T(self) -> Ints:
        """The tokens of the first shard, a fair sample of the corpus: documents were dealt to shards by a hash.

        Of a mixture as many, each group with its share of them; a small one comes several times.
        """
        first, groups = self.store.shards[0].ids_T, self.store.groups
        if not groups:
            return first
        shards = [shards[0].ids_T for shards in self._plans.groups]
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


def impossible(
    packing: Packing, masking: Masking, objective: Objective, losses_needs: Mapping[str, frozenset[str]]
) -> str | None:
    """Why these parts cannot work together (which lacks which column, and what to do), or None when they can.

    `losses_needs`: for the kind of each loss the columns that it needs.

    >>> from preprocessing.masking import NoMasking
    >>> from preprocessing.objectives import MaskedLM, CausalLM
    >>> from preprocessing.packing import Contiguous
    >>> impossible(Contiguous(unit="token"), NoMasking(), CausalLM(), {"next_token": frozenset({"labels"})})
    >>> impossible(Contiguous(unit="token"), NoMasking(), MaskedLM(), {"masked_tokens": frozenset({"labels"})})
    "objective 'mlm' needs column 'hits', which masking 'none' does not produce: use masking kind 'token', 'whole_word',
    'entity', 'span', 'ngram', 'random_spans', 'fragment' or 'partial_prediction'"
    """
    parts = {"packing": packing, "masking": masking, "objective": objective}
    # Whether the corpus has the optional columns is known when it is opened
    emitted = packing.produced_columns | masking.produced_columns | ON_DEMAND | OPTIONAL
    for reader, needs in (("masking", masking.required_columns), ("objective", objective.required_columns)):
        for column in sorted(needs - emitted):
            return f"{reader} {parts[reader].kind!r} needs column {column!r}, {_lacking(column, parts)}"
    if objective.reads_segments not in (1, packing.segments):
        kinds = [kind_of(member) for member in get_args(Packing) if member.segments == objective.reads_segments]
        return (
            f"objective {objective.kind!r} needs rows of {objective.reads_segments} segments, packing {packing.kind!r} "
            f"has {packing.segments}: use packing kind {_one_of(map(repr, kinds))}"
        )
    if unread := masking.produced_columns - objective.required_columns:
        reason = f"objective {objective.kind!r} does not read {min(unread)!r}"
        none = [kind_of(member) for member in get_args(Masking) if not member.possible_columns]
        return f"masking {masking.kind!r} has no effect, {reason}: use masking kind {_one_of(map(repr, none))}"
    for loss, needs in losses_needs.items():
        if scarce := needs & (ON_DEMAND | OPTIONAL):
            return (
                f"loss {loss!r} needs column {min(scarce)!r}, which only masking and objective can have: leave it out"
            )
        for column in sorted(needs - emitted - objective.produced_columns):
            return f"loss {loss!r} needs column {column!r}, {_lacking(column, parts)}, or drop that loss"
    return None


def _lacking(column: str, parts: Mapping[str, Packing | Masking | Objective]) -> str:
    """Which part could produce a column that no part of a recipe produces, and of which kind it would have to be."""
    for room, union in _UNIONS.items():
        if kinds := [kind_of(member) for member in get_args(union) if column in member.possible_columns]:
            return f"which {room} {parts[room].kind!r} does not produce: use {room} kind {_one_of(map(repr, kinds))}"
    raise ValueError(f"no part produces column {column!r}")


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
