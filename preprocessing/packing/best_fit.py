"""Best-fit packing: whole documents are combined so that they fill sequences (Ding et al. 2024, arXiv:2404.10830)."""

from collections import deque
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from preprocessing.packing.packing_plan import EMITTED, Columns, PackingPlan, compact, count_up, row_of, stretch
from preprocessing.schema import Bools, Ints, Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization import ENDED, Frame, Vocab


class _Pieces(NamedTuple):
    """Q token ranges of documents, in text order; each is followed by a separator or not."""

    start_Q: Ints
    tokens_Q: Ints  # number of tokens, without the separator
    is_separated_Q: Bools


@spec
class BestFit:
    """Best-fit packing: whole documents fill sequences, and only longer ones are cut.

    A document that is longer than a sequence is cut into pieces as long as a sequence, and a rest. Then best-fit
    decreasing combines documents and rests (Ding et al. 2024, arXiv:2404.10830, 3): from the largest to the smallest,
    each goes into the fullest sequence that has room for it. Within a sequence they are in text order. With thousands
    of documents, sequences are almost full. They are not if most documents fill more than half of a sequence, because
    two do not fit; packing kind `contiguous` then fills them.

    A separator follows each document, except a document whose last piece fills a sequence without it. With `add_cls`, a
    sequence is `<s> A </s> B </s>` as in RoBERTa, with `</s>` after each piece. Tokens attend to all documents of their
    sequence. For attention within documents, use `contiguous` without `cross_documents`: unpadded batches stay full.

    Small shards are packed together. No draws are needed: each epoch has the same sequences in another order.
    """

    kind: Literal["best_fit"] = "best_fit"
    add_cls: bool = key(
        default=False, doc="Whether a sequence starts with cls, and each piece ends with sep, as encoders expect."
    )

    produced_columns: ClassVar[Columns] = EMITTED
    possible_columns: ClassVar[Columns] = EMITTED
    fresh: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    segments: ClassVar[int] = 1
    reuse_len: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    label_says: ClassVar[str] = ""
    label_means: ClassVar[tuple[str, str]] = ("", "")
    required_annotations: ClassVar[frozenset[str]] = frozenset()
    both_ways: ClassVar[bool] = False
    partners: ClassVar[bool] = False
    counts_alone: ClassVar[bool] = False
    joins_shards: ClassVar[bool] = True
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of special tokens that the tokenizer must have."""
        return ("cls", "sep") if self.add_cls else ("sep",)

    @property
    def least(self) -> int:
        return 3 if self.add_cls else 2

    @property
    def frame(self) -> Frame:
        return Frame("cls A sep", "cls A sep B sep") if self.add_cls else ENDED

    def describe(self) -> str:
        return "whole documents packed by best fit" + ", between cls and sep" * self.add_cls

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan sequences of at most length + lookahead tokens that cover each token once; `rng` is not used."""
        room = length + lookahead - self.add_cls
        pieces, num_cut = self._cut(shard.offset_N1, room)
        sequence_Q = fit(pieces.tokens_Q + pieces.is_separated_Q, room)
        order = np.argsort(sequence_Q, kind="stable")
        tokens_Q, is_separated_Q = pieces.tokens_Q[order], pieces.is_separated_Q[order]
        end_Q: Ints = np.cumsum(tokens_Q + is_separated_Q)
        stop_R = end_Q[np.flatnonzero(np.diff(sequence_Q[order], append=-1))]
        start_R = np.append(0, stop_R)[:-1]
        counts = {
            "documents": len(shard.offset_N1) - 1,
            "cut_documents": num_cut,
            "unfilled_tokens": room * len(stop_R) - int(end_Q[-1:].sum()),
            "rows": len(stop_R),
        }
        return PackingPlan(
            start_RP=compact(start_R[:, None]),
            stop_RP=compact((stop_R - self.add_cls)[:, None]),  # without the separator that ends each sequence
            separator_at_N=end_Q[is_separated_Q] - 1,
            piece_2Q=compact(np.stack([np.cumsum(tokens_Q) - tokens_Q, pieces.start_Q[order]])),
            counts=counts,
        )

    def _cut(self, offset_N1: Ints, room: int) -> tuple[_Pieces, int]:
        """Return the pieces of all documents, and the number of documents that have several.

        A piece has at most `room` places, with its separator.
        """
        most = room - self.add_cls
        num_pieces_N = -(-np.diff(offset_N1) // most)
        start_Q = np.repeat(offset_N1[:-1], num_pieces_N) + most * count_up(num_pieces_N)
        end_Q = np.repeat(offset_N1[1:], num_pieces_N)
        stop_Q = np.minimum(start_Q + most, end_Q)
        is_separated_Q = ((stop_Q == end_Q) & (stop_Q - start_Q < room)) | self.add_cls
        return _Pieces(start_Q, stop_Q - start_Q, is_separated_Q), int((num_pieces_N > 1).sum())

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Return input_ids, token_type_ids, special_tokens_mask and word_starts of the i-th sequence of the plan.

        The column unit_starts is included if the shard has units.
        """
        special_S, packed = stretch(plan, int(plan.start_RP[i, 0]), int(plan.stop_RP[i, 0]))
        if self.add_cls:
            special_S = np.pad(special_S, 1, constant_values=True)  # <s> before, </s> after
        row = row_of(special_S, _find_pieces(plan, *packed), shard, vocab, wanted)
        if self.add_cls:
            row["input_ids"][0] = vocab.cls
        return row


def _find_pieces(plan: PackingPlan, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the token ranges in the text of the packed tokens start ... stop - 1, which are whole pieces."""
    place_Q, at_Q = plan.piece_2Q
    first = int(np.searchsorted(place_Q, place_Q.dtype.type(start)))  # another type would convert all places
    num_pieces = int(np.searchsorted(place_Q[first : first + stop - start].astype(np.int64), stop))
    places = [*place_Q[first : first + num_pieces].tolist(), stop]
    starts = at_Q[first : first + num_pieces].tolist()
    return [(at, at + end - place) for at, place, end in zip(starts, places[:-1], places[1:], strict=True)]


def fit(size_Q: Ints, room: int) -> Ints:
    """Return the sequence of each piece, int64 [Q], by best-fit decreasing; a sequence holds a total size of `room`.

    Pieces are placed from the largest to the smallest, equal ones in the given order. Each goes into the sequence with
    the least free space that has room for it. Of several with equal space, it is the one that has had it for the
    longest. If there is none, a new sequence begins.

    Pieces of one size are placed together. A sequence that takes one of them has less space than before, so it is the
    best fit for the next one too, until it has no room. So k of them go into it at once, and equal sequences are
    filled by one numpy operation. The number of operations depends on the number of sizes rather than of pieces.

    >>> fit(np.array([3, 5, 8, 2, 6, 1]), room=8).tolist()
    [2, 2, 0, 1, 1, 3]
    """
    order = np.argsort((room - size_Q).astype(np.min_scalar_type(room)), kind="stable")  # a radix sort up to 2**16
    count_S = np.bincount(size_Q, minlength=1)
    sequence_Q = np.empty(len(size_Q), np.int64)  # in the order of sizes
    spaces = _FreeSpaces(room)
    done = 0
    for size in np.flatnonzero(count_S)[::-1].tolist():
        end = done + int(count_S[size])
        while done < end:
            space, sequence_K = spaces.take(size, end - done)
            each = space // size
            stop = min(end, done + each * len(sequence_K))
            sequence_Q[done:stop] = np.repeat(sequence_K, each)[: stop - done]
            num_full, rest = divmod(stop - done, each)
            spaces.put(space - each * size, sequence_K[:num_full])
            spaces.put(space - rest * size, sequence_K[num_full : num_full + (rest > 0)])
            done = stop
    result_Q = np.empty_like(sequence_Q)
    result_Q[order] = sequence_Q
    return result_Q


class _FreeSpaces:
    """The sequences with each amount of free space, in the order in which they got it."""

    def __init__(self, room: int) -> None:
        self._room, self._num_sequences = room, 0
        self._queues: dict[int, deque[Ints]] = {}
        self._nonempty = 0  # bit s is set if some sequences have a free space of s

    def put(self, space: int, sequence_K: Ints) -> None:
        if space and len(sequence_K):
            self._queues.setdefault(space, deque()).append(sequence_K)
            self._nonempty |= 1 << space

    def take(self, size: int, count: int) -> tuple[int, Ints]:
        """Remove sequences with the least free space of at least `size`; begin new ones if there are none.

        Return the space, and some of the sequences: at most as many as `count` pieces need.
        """
        larger = self._nonempty >> size
        if not larger:
            first = self._num_sequences
            self._num_sequences += -(-count // (self._room // size))
            return self._room, np.arange(first, self._num_sequences)
        space = size + (larger & -larger).bit_length() - 1
        queue, needed = self._queues[space], -(-count // (space // size))
        sequence_K = queue.popleft()
        if len(sequence_K) > needed:
            queue.appendleft(sequence_K[needed:])
        if not queue:
            self._nonempty ^= 1 << space
        return space, sequence_K[:needed]
