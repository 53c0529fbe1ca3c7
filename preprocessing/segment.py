"""Lengths -> rows: which ranges of a shard's tokens make one row, and the special tokens around them.

`plan` does the index arithmetic of a whole shard at once and reads no token; `row` fetches one row of a plan. A shard
is taken as one line of tokens: documents follow each other, sentence starts are positions on that line.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.knob import knob, require
from preprocessing.schema import Bools, Ints, Row
from preprocessing.shards import Shard
from preprocessing.vocab import Vocab


@dataclass(frozen=True)
class Plan:
    """The R rows of one shard; row i is made of P parts, part p being the positions [start_RP[i, p], stop_RP[i, p])."""

    start_RP: Ints
    stop_RP: Ints
    pair_label_R: Ints  # int8; zeros for Packed
    separator_at_N: Ints  # int64; Packed: where the separator after each document stands; empty for Pair
    counts: dict[str, int]  # what a data card says about the plan

    def __len__(self) -> int:
        return len(self.start_RP)


@knob
class Packed:
    """Rows filled to the brim from documents in order.

    `tokens` (GPT-2): documents, each with a separator behind it, cut every `length` tokens; the last row may be short.
    `sentences` (RoBERTa 4.2, FULL-SENTENCES): `<s> whole sentences </s>`, with one more `</s>` between two documents; a
    sentence that is longer than a row is cut, never dropped. Without `cross_documents` no row holds two documents.
    Positions here count the separators too: the one behind document d has a place on the line.
    """

    kind: Literal["packed"] = "packed"
    fill: Literal["sentences", "tokens"]
    cross_documents: bool = True

    emits: ClassVar[frozenset[str]] = frozenset({"ids", "segments", "special", "word_starts"})
    fresh: ClassVar[bool] = False  # every epoch has the same rows, in another order

    @property
    def specials(self) -> tuple[str, ...]:
        """Special tokens that the vocabulary must have."""
        return ("cls", "sep") if self.fill == "sentences" else ("sep",)

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> Plan:
        """Rows of at most length + lookahead tokens that together hold every token of the shard; draws nothing."""
        offset_N1 = shard.offset_N1
        num_documents = len(offset_N1) - 1
        separator_at_N = offset_N1[1:] + np.arange(num_documents)
        begin_N = offset_N1[:-1] + np.arange(num_documents)
        counts = {"documents": num_documents}
        if self.fill == "tokens":
            end_N = separator_at_N + 1
            if self.cross_documents:
                begin_N, end_N = begin_N[:1], end_N[-1:]
            start_R, stop_R = _windows(begin_N, end_N, length, lookahead)
        else:
            room = length + lookahead - 2
            piece_at_M = _cut_long(shard.sentence_at_M, int(offset_N1[-1]), room)
            counts |= {"cuts_in_sentences": len(piece_at_M) - len(shard.sentence_at_M)}
            start_R, stop_R = self._fill(piece_at_M, offset_N1, room)
        counts |= {"rows": len(start_R)}
        return Plan(
            start_RP=_compact(start_R[:, None]),
            stop_RP=_compact(stop_R[:, None]),
            pair_label_R=np.zeros(len(start_R), dtype=np.int8),
            separator_at_N=separator_at_N,
            counts=counts,
        )

    def _fill(self, piece_at_M: Ints, offset_N1: Ints, room: int) -> tuple[Ints, Ints]:
        """Start and stop of rows that take as many whole pieces as `room` holds, separators between them included."""
        document_M = np.searchsorted(offset_N1, piece_at_M, side="right") - 1
        begin_M = piece_at_M + document_M
        end_M = np.append(piece_at_M[1:], offset_N1[-1:])[: len(piece_at_M)] + document_M
        next_M = np.searchsorted(end_M, begin_M + room, side="right")  # first piece that a row begun here cannot hold
        if not self.cross_documents:
            next_M = np.minimum(next_M, np.searchsorted(document_M, document_M, side="right"))
        next_of, first, firsts = next_M.tolist(), 0, []
        while first < len(next_of):
            firsts.append(first)
            first = next_of[first]
        first_R = np.array(firsts, dtype=np.int64)
        return begin_M[first_R], end_M[next_M[first_R] - 1]

    def row(self, plan: Plan, i: int, shard: Shard, vocab: Vocab) -> Row:
        """Columns ids, segments, special and word_starts (unit_starts, with units) of the i-th row of the plan."""
        start, stop = int(plan.start_RP[i, 0]), int(plan.stop_RP[i, 0])
        before, after = np.searchsorted(plan.separator_at_N, (start, stop)).tolist()
        special_S = np.zeros(stop - start, dtype=bool)
        special_S[plan.separator_at_N[before:after] - start] = True
        if self.fill == "sentences":
            special_S = np.pad(special_S, 1, constant_values=True)  # <s> in front, </s> behind
        first, last = start - before, stop - after
        row = _row(special_S, [(first, last)], shard, vocab)
        if self.fill == "sentences":
            row["ids"][0] = vocab.cls
        return row


@knob
class Pair:
    """`[CLS] A [SEP] B [SEP]`, as BERT's create_pretraining_data.py builds it (arXiv:1810.04805, 3.1 and appendix A.2).

    Per document a target length: the row's, or with probability `short` a shorter one. Sentences are taken up to the
    target and split at random into A and B. `random`: with probability 1/2, B comes from another document (label 1) and
    the sentences behind A are put back. `swap` (ALBERT 3.1): with probability 1/2, A and B change places (label 1).

    Mended against the reference: a chunk has at least two sentences (a last lone one joins the chunk before), so that
    the label is a fair coin, not 57 % ones, and the partner is never the same document. A document of one sentence is
    only ever a partner.
    """

    kind: Literal["pair"] = "pair"
    negative: Literal["random", "swap"]
    short: float = 0.1

    emits: ClassVar[frozenset[str]] = Packed.emits | {"pair_label"}
    fresh: ClassVar[bool] = True  # every epoch pairs anew
    specials: ClassVar[tuple[str, ...]] = ("cls", "sep")

    def __post_init__(self) -> None:
        require(0 <= self.short <= 1, "segment.short", self.short, "a share from 0 to 1")

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> Plan:
        """Pairs of at most length + lookahead tokens; BadInput when a random partner is wanted of a lone document."""
        room = length + lookahead - 3
        offset_N1 = shard.offset_N1
        bounds_N1 = np.searchsorted(shard.sentence_at_M, offset_N1)  # document d: sentences [bounds[d], bounds[d + 1])
        num_sentences_N = np.diff(bounds_N1)
        if self.negative == "random" and len(num_sentences_N) == 1:
            raise BadInput(
                f"{shard.path}: has one document only, and segment.negative random needs a partner for it: "
                "give more text, a larger share to this split, or set segment.negative=swap"
            )
        at_M1 = np.append(shard.sentence_at_M, offset_N1[-1])
        chunk_3R, partner_2R, label_R = self._chunks(at_M1, bounds_N1, room, rng)
        counts = {
            "documents": len(num_sentences_N),
            "unpaired_documents": int((num_sentences_N == 1).sum()),
            "rows": len(label_R),
            "negatives": int(label_R.sum()),
        }
        first_R, middle_R, last_R = at_M1[chunk_3R]
        start_RP = np.stack([first_R, middle_R], axis=1)
        stop_RP = np.stack([middle_R, last_R], axis=1)
        negative_R = label_R == 1
        if self.negative == "swap":
            start_RP[negative_R] = start_RP[negative_R, ::-1]
            stop_RP[negative_R] = stop_RP[negative_R, ::-1]
        else:
            start_RP[negative_R, 1], stop_RP[negative_R, 1] = at_M1[partner_2R[:, negative_R]]
        _truncate(start_RP, stop_RP, room, rng)
        return Plan(
            start_RP=_compact(start_RP),
            stop_RP=_compact(stop_RP),
            pair_label_R=label_R,
            separator_at_N=np.zeros(0, dtype=np.int64),
            counts=counts,
        )

    def _chunks(self, at_M1: Ints, bounds_N1: Ints, room: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Sentence numbers (first, middle, last) of each chunk, (first, last) of its random partner, and the label.

        All documents go in step: round t draws the t-th chunk of every document that still has sentences.
        """
        num_documents = len(bounds_N1) - 1
        is_short_N = rng.random(num_documents) < self.short
        target_N = np.where(is_short_N, rng.integers(2, room, size=num_documents, endpoint=True), room)
        document = np.flatnonzero(np.diff(bounds_N1) >= 2)
        first = bounds_N1[document]
        rounds = [np.zeros((6, 0), dtype=np.int64)]
        while document.size:
            end, target = bounds_N1[document + 1], target_N[document]
            coin, split, other, where = rng.random((4, document.size))
            last = np.clip(np.searchsorted(at_M1, at_M1[first] + target), first + 2, end)
            last = np.where(end - last == 1, end, last)  # a last lone sentence joins
            middle = first + 1 + (split * (last - first - 1)).astype(np.int64)
            label = (coin < 0.5).astype(np.int64)
            partner_first = partner_last = first
            if self.negative == "random":
                middle = np.where((label == 1) & (end - middle == 1), end, middle)  # here it joins A
                last = np.where(label == 1, middle, last)  # the rest of the chunk is put back
                partner = (other * (num_documents - 1)).astype(np.int64)
                partner += partner >= document
                begin, stop = bounds_N1[partner], bounds_N1[partner + 1]
                partner_first = begin + (where * (stop - begin)).astype(np.int64)
                wanted = target - (at_M1[middle] - at_M1[first])
                partner_last = np.clip(np.searchsorted(at_M1, at_M1[partner_first] + wanted), partner_first + 1, stop)
            rounds.append(np.stack([first, middle, last, partner_first, partner_last, label]))
            unfinished = last < end
            document, first = document[unfinished], last[unfinished]
        found_6R = np.concatenate(rounds, axis=1)
        found_6R = found_6R[:, np.argsort(found_6R[0])]  # in the order of the text
        return found_6R[:3], found_6R[3:5], found_6R[5].astype(np.int8)

    def row(self, plan: Plan, i: int, shard: Shard, vocab: Vocab) -> Row:
        """Columns ids, segments, special, word_starts and pair_label of the i-th row of the plan."""
        (start_a, start_b), (stop_a, stop_b) = plan.start_RP[i].tolist(), plan.stop_RP[i].tolist()
        middle = stop_a - start_a + 1
        special_S = np.zeros(middle + stop_b - start_b + 2, dtype=bool)
        special_S[[0, middle, -1]] = True
        row = _row(special_S, [(start_a, stop_a), (start_b, stop_b)], shard, vocab)
        row["ids"][0] = vocab.cls
        row["segments"][middle + 1 :] = 1  # the separator behind A belongs to A
        return row | {"pair_label": plan.pair_label_R[i]}


def _row(special_S: Bools, parts: list[tuple[int, int]], shard: Shard, vocab: Vocab) -> Row:
    """Columns of a row whose special places hold the separator and whose others hold the parts [start, stop)."""
    ids_S = np.full(len(special_S), vocab.sep, dtype=np.int32)
    ids_S[~special_S] = np.concatenate([shard.ids_T[start:stop] for start, stop in parts])
    row: Row = {
        "ids": ids_S,
        "segments": np.zeros(len(ids_S), dtype=np.int8),
        "special": special_S,
        "word_starts": _starts(special_S, [shard.word_starts(*part) for part in parts]),
    }
    if shard.has_units:
        row["unit_starts"] = _starts(special_S, [shard.unit_starts(*part) for part in parts])
    return row


def _starts(special_S: Bools, starts: list[Bools]) -> Bools:
    """Starts of words or units in a row: none reaches over a special token."""
    starts_S = special_S.copy()
    starts_S[~special_S] = np.concatenate(starts)
    starts_S[0] = True
    starts_S[1:] |= special_S[:-1]
    return starts_S


def _windows(begin_D: Ints, end_D: Ints, stride: int, lookahead: int) -> tuple[Ints, Ints]:
    """Start and stop of windows over the stretches [begin, end), one every `stride`; none has fewer than two tokens."""
    num_D = (end_D - begin_D - 2) // stride + 1
    start_R = np.repeat(begin_D, num_D) + stride * _count_up(num_D)
    return start_R, np.minimum(start_R + stride + lookahead, np.repeat(end_D, num_D))


def _cut_long(sentence_at_M: Ints, total: int, room: int) -> Ints:
    """Sentence starts, and a further start every `room` tokens inside a sentence that is longer than that."""
    num_pieces_M = -(-np.diff(sentence_at_M, append=total) // room)
    return np.repeat(sentence_at_M, num_pieces_M) + room * _count_up(num_pieces_M)


def _count_up(num_D: Ints) -> Ints:
    """0, 1, ... num[0] - 1, 0, 1, ... num[1] - 1, and so on.

    >>> _count_up(np.array([3, 0, 2])).tolist()
    [0, 1, 2, 0, 1]
    """
    return np.arange(num_D.sum()) - np.repeat(np.cumsum(num_D) - num_D, num_D)


def _truncate(start_RP: Ints, stop_RP: Ints, room: int, rng: np.random.Generator) -> None:
    """Shorten pairs in place to `room`: token by token off the longer part (B when equal), front or back by a coin."""
    long_a_R, long_b_R = (stop_RP - start_RP).T
    excess_R = np.maximum(long_a_R + long_b_R - room, 0)
    from_a_R = np.clip(long_a_R - long_b_R, 0, excess_R)  # one side alone, until both are equal; then in turns
    from_b_R = np.clip(long_b_R - long_a_R, 0, excess_R)
    in_turns_R = excess_R - from_a_R - from_b_R
    cut_RP = np.stack([from_a_R + in_turns_R // 2, from_b_R + (in_turns_R + 1) // 2], axis=1)
    front_RP = rng.binomial(cut_RP, 0.5)
    start_RP += front_RP
    stop_RP -= cut_RP - front_RP


def _compact(position_RP: Ints) -> Ints:
    """The same numbers in the smallest unsigned type that holds them: a plan stays in memory."""
    return position_RP.astype(np.min_scalar_type(position_RP.max(initial=0)))


Segment = Packed | Pair
