"""Find the sequences that contain tokens of a document, and the documents whose tokens a sequence contains.

Nothing is enumerated: the token range of the document selects the sequences of each plan that overlap it, and the
inverse of the order gives their positions. The tokens that a sequence contains are those that packing gives it. Masking
and objective may hide some of them, or move them into targets.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from preprocessing.packing import Packing, PackingPlan, Pool
from preprocessing.row_plans import EpochPlans, RowOrder, RowPlans
from preprocessing.schema import Bools, Ints
from preprocessing.shards import Shard
from preprocessing.tokenization import Vocab


@dataclass(frozen=True)
class DocumentRows:
    """K token ranges of a document, and the sequences that contain them, in order of positions; all int64.

    The sequence at `position_K`, of epoch `epoch_K`, contains the tokens [`start_K`, `stop_K`) of the document. A
    sequence with several ranges, such as two segments that are no neighbors, occurs once for each.
    """

    position_K: Ints
    epoch_K: Ints
    start_K: Ints
    stop_K: Ints


class DocumentPlace(NamedTuple):
    """A document: its shard, and its index in the shard."""

    shard: Shard
    document: int


class DocumentSpan(NamedTuple):
    """Tokens [start, stop) of a document: the shard, and the index of the document in it."""

    shard: Shard
    document: int
    start: int
    stop: int


Found = tuple[Ints, Ints, Ints]
"""The numbers of sequences in their epoch, and the range of the document in each, int64 [K] each."""
_Part = tuple[Ints, int, Found]
"""Positions, the epoch, and what was found in it."""
_NONE: Final[Found] = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def find_rows(
    plans: RowPlans,
    order: RowOrder,
    documents: Sequence[DocumentPlace],
    positions: range,
    report: Callable[[float], None],
) -> list[DocumentRows]:
    """The sequences at `positions` that contain tokens of each document. The time depends on the number of epochs.

    `report` is called after each epoch with the share of the work that is done.
    """
    parts: list[list[_Part]] = [[] for _ in documents]
    groups = [_group_of(plans, place.shard) for place in documents]
    for done, group in enumerate(sorted(set(groups))):
        first, stop = (int(order.turns(position)[group]) for position in (positions.start, positions.stop))
        mine = [number for number, each in enumerate(groups) if each == group]
        search, rows = _Search(plans, group, [documents[number] for number in mine]), order.row_sums(group)
        epochs = range(rows.epoch_at(first), rows.epoch_at(stop - 1) + 1) if first < stop else range(0)
        for epoch in epochs:
            for number, found in zip(mine, search.find(epoch), strict=True):
                parts[number].append((order.positions(group, epoch, found[0]), epoch, found))
            report((done + (epoch + 1 - epochs.start) / len(epochs)) / len(set(groups)))
    return [_collect(each, positions) for each in parts]


def find_stream_rows(
    plans: RowPlans,
    documents: Sequence[DocumentPlace],
    positions: range,
    streams: int,
    report: Callable[[float], None],
) -> list[DocumentRows]:
    """The same for sequences that continue each other, as ExampleDataset.stream_rows arranges them."""
    each = plans.count(0, 0) // streams
    parts: list[list[_Part]] = [[] for _ in documents]
    search = _Search(plans, 0, documents)
    epochs = range(positions.start // (each * streams), -(-positions.stop // (each * streams)))
    for epoch in epochs:
        for of_document, found in zip(parts, search.find(epoch), strict=True):
            stream_K, place_K = np.divmod(found[0], each)
            position_K = (epoch * each + place_K) * streams + stream_K
            of_document.append((np.where(stream_K < streams, position_K, -1), epoch, found))
        report((epoch + 1 - epochs.start) / len(epochs))
    return [_collect(each, positions) for each in parts]


def _group_of(plans: RowPlans, shard: Shard) -> int:
    return next(group for group, shards in enumerate(plans.groups) if any(each is shard for each in shards))


def _collect(parts: Sequence[_Part], positions: range) -> DocumentRows:
    """Positions, epoch and ranges of several epochs as one value; only those at `positions`, neighbors merged."""
    none = np.zeros(0, np.int64)
    position_K = np.concatenate([none, *(at_K for at_K, _, _ in parts)])
    epoch_K = np.concatenate([none, *(np.full(len(at_K), epoch) for at_K, epoch, _ in parts)])
    start_K, stop_K = (np.concatenate([none, *(found[side] for *_, found in parts)]) for side in (1, 2))
    order = np.lexsort((start_K, position_K))
    order = order[(positions.start <= position_K[order]) & (position_K[order] < positions.stop)]
    position_K, epoch_K, start_K, stop_K = (of_K[order] for of_K in (position_K, epoch_K, start_K, stop_K))
    base_K = np.cumsum(np.diff(position_K, prepend=-1) != 0) * (int(stop_K.max(initial=0)) + 1)
    end_K = np.maximum.accumulate(base_K + stop_K)  # of the ranges up to this one in the same sequence
    is_new_K = np.ones(len(end_K), bool)
    is_new_K[1:] = (base_K + start_K)[1:] > end_K[:-1]
    last_K = np.flatnonzero(np.append(is_new_K[1:], True)) if len(end_K) else none
    return DocumentRows(position_K[is_new_K], epoch_K[is_new_K], start_K[is_new_K], (end_K - base_K)[last_K])


class _Search:
    """The sequences of an epoch of a group that contain tokens of each document; equal plans are searched once."""

    def __init__(self, plans: RowPlans, group: int, documents: Sequence[DocumentPlace]) -> None:
        self._plans, self._group, self._documents = plans, group, documents
        self._found: dict[int, list[Found]] = {}

    def find(self, epoch: int) -> list[Found]:
        turn = self._plans.plan_turn(epoch)
        if turn not in self._found:
            planned = self._plans.epoch(self._group, epoch)
            self._found[turn] = [self._find_document(planned, *place) for place in self._documents]
        return self._found[turn]

    def _find_document(self, planned: EpochPlans, shard: Shard, document: int) -> Found:
        lines = self._plans.lines[self._group]
        first_K = planned.end_K - [len(plan) for plan in planned.plans]
        found: list[Found] = [_NONE]
        for k, plan in enumerate(planned.plans):
            for number, first, stop in _places_on(lines[k % len(lines)], shard, document):
                row_K, start_K, stop_K = _find_in_plan(plan, number, first, stop)
                found.append((row_K + first_K[k], start_K, stop_K))
        number_K, start_K, stop_K = (np.concatenate(each) for each in zip(*found, strict=True))
        return number_K, start_K, stop_K


def _places_on(line: Shard | Pool, shard: Shard, document: int) -> Iterator[tuple[int, int, int]]:
    """The index of a document on a line, and its first token and the end of its tokens there; none on another line."""
    first, stop = shard.offset_N1[document : document + 2].tolist()
    if not isinstance(line, Pool):
        if line is shard:
            yield document, first, stop
        return
    before = 0
    for member, begin in zip(line.shards, line.begin_K[:-1].tolist(), strict=True):
        if member is shard:
            yield before + document, begin + first, begin + stop
        before += len(member.offset_N1) - 1


def _find_in_plan(plan: PackingPlan, number: int, first: int, stop: int) -> Found:
    """The sequences of a plan that contain tokens of document `number`, which has the tokens [first, stop)."""
    shift = number if len(plan.separator_at_N) else 0  # a line with separators has one after each earlier document
    alone = (np.array([first + shift]), np.array([stop + shift]), np.zeros(1, np.int64))
    if plan.piece_2Q.size:
        return _overlap(plan.start_RP, plan.stop_RP, *_find_pieces(plan, first, stop))
    if not len(plan.text_at_N):
        return _overlap(plan.start_RP, plan.stop_RP, *alone)
    # the line has the sentences in another order; pairs of translations refer to the tokens of the shard instead
    begin_M = np.append(0, plan.separator_at_N + 1)[:-1]
    mine_M = (first <= plan.text_at_N) & (plan.text_at_N < stop)
    sentences = (begin_M[mine_M], plan.separator_at_N[mine_M], plan.text_at_N[mine_M] - first)
    alone = (alone[0] - shift, alone[1] - shift, alone[2])
    is_window_R = plan.language_RP[:, 1] < 0
    parts = []
    for is_mine_R, ranges in ((is_window_R, sentences), (~is_window_R, alone)):
        row_R = np.flatnonzero(is_mine_R)
        row_K, start_K, stop_K = _overlap(plan.start_RP[row_R], plan.stop_RP[row_R], *ranges)
        parts.append((row_R[row_K], start_K, stop_K))
    row_K, start_K, stop_K = (np.concatenate(each) for each in zip(*parts, strict=True))
    return row_K, start_K, stop_K


def _find_pieces(plan: PackingPlan, first: int, stop: int) -> tuple[Ints, Ints, Ints]:
    """The ranges [begin, end) of a line of pieces that have the tokens [first, stop), and the first token of each."""
    place_Q, at_Q = plan.piece_2Q.astype(np.int64)
    separated_N = plan.separator_at_N - np.arange(len(plan.separator_at_N))  # number of tokens before each separator
    line_end = int(plan.stop_RP[-1, 0])
    end_Q = np.append(place_Q[1:], line_end - np.searchsorted(plan.separator_at_N, line_end))
    mine_Q = np.flatnonzero((first <= at_Q) & (at_Q < stop))
    begin_X = place_Q[mine_Q] + np.searchsorted(separated_N, place_Q[mine_Q], side="right")
    return begin_X, begin_X + (end_Q - place_Q)[mine_Q], at_Q[mine_Q] - first


def _overlap(start_RP: Ints, stop_RP: Ints, begin_X: Ints, end_X: Ints, token_X: Ints) -> Found:
    """The rows whose parts overlap the ranges [begin, end) of a line, and the tokens in each overlap.

    The ranges are ascending and disjoint; the first token of range x is token `token_X[x]` of the document.
    """
    num_parts = start_RP.shape[1]
    start_Q, stop_Q = start_RP.reshape(-1), stop_RP.reshape(-1)
    if not len(begin_X):
        return _NONE
    near_Q = np.flatnonzero((start_Q < end_X[-1]) & (stop_Q > begin_X[0]))
    start_Q, stop_Q = start_Q[near_Q].astype(np.int64), stop_Q[near_Q].astype(np.int64)
    first_Q = np.searchsorted(end_X, start_Q, side="right")
    num_Q = np.maximum(np.searchsorted(begin_X, stop_Q) - first_Q, 0)
    which_K = np.repeat(np.arange(len(near_Q)), num_Q)
    range_K = np.repeat(first_Q - np.cumsum(num_Q) + num_Q, num_Q) + np.arange(num_Q.sum())
    low_K = np.maximum(start_Q[which_K], begin_X[range_K])
    high_K = np.minimum(stop_Q[which_K], end_X[range_K])
    shift_K = token_X[range_K] - begin_X[range_K]
    is_some_K = low_K < high_K  # a missing part is an empty range
    row_K = near_Q[which_K] // num_parts
    return row_K[is_some_K], (low_K + shift_K)[is_some_K], (high_K + shift_K)[is_some_K]


class _TokenPlaces:
    """A line whose tokens are their own places on it, so that packing tells where each token of a sequence is."""

    has_units = False

    @property
    def ids_T(self) -> "_TokenPlaces":
        return self

    def __getitem__(self, tokens: slice) -> Ints:
        return np.arange(tokens.start, tokens.stop)

    def word_starts(self, start: int, stop: int) -> Bools:
        return np.zeros(stop - start, bool)


def find_places(packing: Packing, plan: PackingPlan, i: int, vocab: Vocab) -> Ints:
    """The place on its line of each token of the i-th sequence of a plan, -1 at special tokens; int64 [S]."""
    make: Callable[..., dict[str, np.ndarray]] = packing.row
    row = make(plan, i, _TokenPlaces(), vocab, frozenset())
    return np.where(row["special_tokens_mask"], -1, row["input_ids"].astype(np.int64))


def list_documents(line: Shard | Pool, place_S: Ints) -> tuple[list[DocumentSpan], Ints]:
    """The documents of the tokens at these places, and for each token the index of its document, -1 at special tokens.

    A document whose tokens are in several ranges occurs once for each range, in the order of the sequence.
    """
    is_token_S = place_S >= 0
    offset_N1 = line.offset_N1
    document_S = np.where(is_token_S, np.searchsorted(offset_N1, place_S, side="right") - 1, -1)
    text_S = np.flatnonzero(is_token_S)
    step_S = np.abs(np.diff(place_S[text_S], prepend=-9))
    is_new_S = (np.diff(document_S[text_S], prepend=-1) != 0) | (step_S > 1)
    number_S = np.full(len(place_S), -1)
    number_S[text_S] = np.cumsum(is_new_S) - 1
    spans = []
    for number in range(int(is_new_S.sum())):
        mine_S = place_S[number_S == number]
        document, first = int(document_S[number_S == number][0]), int(mine_S.min())
        shard, index = _shard_of(line, document)
        start = first - int(offset_N1[document])
        spans.append(DocumentSpan(shard, index, start, start + len(mine_S)))
    return spans, number_S


def _shard_of(line: Shard | Pool, document: int) -> tuple[Shard, int]:
    """The shard of a document of a line, and the index of the document in it."""
    for shard in line.shards if isinstance(line, Pool) else (line,):
        if document < len(shard.offset_N1) - 1:
            return shard, document
        document -= len(shard.offset_N1) - 1
    raise IndexError("no such document")
