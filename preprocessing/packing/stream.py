"""Stream packing: consecutive sequences continue each other, for models with memory.

Sequences are in text order and have equal lengths. rows.py arranges them so that sequence b of a batch continues
sequence b of the previous batch.
"""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.packing.packing_plan import (
    EMITTED,
    Columns,
    PackingPlan,
    compact,
    excess,
    row_of,
    sentences_on_line,
    separators,
    stretch,
)
from preprocessing.schema import Bools, Ints, Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import ENDED, Frame, Vocab


@spec
class Stream:
    """Streams: consecutive text with memory (Transformer-XL, arXiv:1901.02860, 3.2).

    Documents are joined, each followed by a separator, and cut every `seq_length` tokens. Tokens at the end of a shard
    that do not fill a sequence are left out.
    """

    kind: Literal["stream"] = "stream"

    produced_columns: ClassVar[Columns] = EMITTED
    possible_columns: ClassVar[Columns] = EMITTED
    specials: ClassVar[tuple[str, ...]] = ("sep",)
    fresh: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    segments: ClassVar[int] = 1
    reuse_len: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    label_says: ClassVar[str] = ""
    label_means: ClassVar[tuple[str, str]] = ("", "")
    required_annotations: ClassVar[frozenset[str]] = frozenset()
    both_ways: ClassVar[bool] = False
    partners: ClassVar[bool] = False
    counts_alone: ClassVar[bool] = False
    joins_shards: ClassVar[bool] = False
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    @property
    def least(self) -> int:
        return 1

    @property
    def frame(self) -> Frame:
        return ENDED

    def describe(self) -> str:
        return "streams of continuous text; each sequence continues the previous one"

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan sequences of exactly length + lookahead tokens; `rng` is not used."""
        separator_at_N = separators(shard)
        places = len(separator_at_N) + int(shard.offset_N1[-1])
        num_rows = max(0, (places - lookahead) // length)
        start_R = length * np.arange(num_rows)
        left = places - length * num_rows
        return PackingPlan(
            start_RP=compact(start_R[:, None]),
            stop_RP=compact(start_R[:, None] + length + lookahead),
            separator_at_N=separator_at_N,
            counts={"documents": len(separator_at_N), "rows": num_rows, "left_out_tokens": left},
        )

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Return input_ids, token_type_ids, special_tokens_mask and word_starts of the i-th sequence of the plan.

        The column unit_starts is included if the shard has units.
        """
        special_S, part = stretch(plan, int(plan.start_RP[i, 0]), int(plan.stop_RP[i, 0]))
        return row_of(special_S, [part], shard, vocab, wanted)


@spec
class StreamPair:
    """Streams of segment pairs with memory (XLNet, arXiv:1906.08237, 2.5).

    A sequence has `reuse_len` tokens of a stream, then `A <sep> B <sep> <cls>`, as in XLNet's data_utils.py. A starts
    at the end of the reused tokens and ends after a sentence. B is the text that follows. With probability 1/2, or if A
    is one sentence that fills the sequence, B is a random text instead. Both are truncated on the right. The next
    sequence of a stream starts `reuse_len` tokens later: a memory stores only the states of the reused tokens. Token
    types are 0 for the reused tokens and A, 1 for B, 2 for <cls>. Whether B follows A is not predicted.

    With `directions: both`, half of the sequences of a batch read the text from its end (3.1; `bi_data` there). Their
    text is reversed, but the separators and <cls> keep their places. Their `positions` count down, which encodes the
    direction. Words stay whole, and n-grams of words are drawn in reading order.
    """

    kind: Literal["stream_pair"] = "stream_pair"
    reuse_len: int = key(
        default=256, doc="Number of first tokens that the memory stores; the next sequence starts after them."
    )
    directions: Literal["both", "forward"] = key(
        default="both", doc="Reading directions; both: half of the sequences are read from the end."
    )

    possible_columns: ClassVar[Columns] = EMITTED | {"positions"}
    specials: ClassVar[tuple[str, ...]] = ("cls", "sep")
    fresh: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    segments: ClassVar[int] = 3
    languages: ClassVar[tuple[str, ...]] = ()
    label_says: ClassVar[str] = ""
    label_means: ClassVar[tuple[str, str]] = ("", "")
    required_annotations: ClassVar[frozenset[str]] = frozenset()
    partners: ClassVar[bool] = False
    counts_alone: ClassVar[bool] = False
    joins_shards: ClassVar[bool] = False
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {"tiny": {"reuse_len": 32}, "small": {"reuse_len": 64}}

    def __post_init__(self) -> None:
        require(self.reuse_len >= 1, "packing.reuse_len", self.reuse_len, "a positive number of tokens")

    @property
    def produced_columns(self) -> Columns:
        return EMITTED | {"positions"} if self.both_ways else EMITTED

    @property
    def both_ways(self) -> bool:
        return self.directions == "both"

    @property
    def least(self) -> int:
        return self.reuse_len + 5  # one token of each segment, and three special tokens

    @property
    def frame(self) -> Frame:
        return Frame("A sep cls:2", "A sep B:1 sep:1 cls:2")

    def describe(self) -> str:
        from_end = ", half of them read from the end" if self.both_ways else ""
        return f"{self.reuse_len:,} tokens of continuous text, then a pair of segments{from_end}"

    def plan(
        self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator, *, backward: bool = False
    ) -> PackingPlan:
        """Plan sequences of exactly length + lookahead tokens. Raises BadInput if these leave no room for a pair."""
        room = length + lookahead - self.reuse_len - 3
        if length + lookahead < self.least:
            raise BadInput(
                f"packing.reuse_len: invalid value {self.reuse_len}, expected at most {length + lookahead - 5} for "
                f"sequences of {length} tokens; decrease data.packing.reuse_len"
            )
        separator_at_N, sentence_at_M = separators(shard), sentences_on_line(shard)
        places = len(separator_at_N) + int(shard.offset_N1[-1])
        num_rows = max(0, (places - room - 1) // self.reuse_len)
        begin_R = self.reuse_len * np.arange(1, num_rows + 1)
        bound_M1 = np.append(sentence_at_M, places)
        if backward:
            bound_M1 = places - bound_M1[::-1]  # bounds of sentences, on the reversed line
        start_RP, stop_RP, is_random_R = _pairs(begin_R, bound_M1, room, rng)
        start_RP = np.column_stack([begin_R - self.reuse_len, start_RP])
        stop_RP = np.column_stack([begin_R, stop_RP])
        if backward:
            start_RP, stop_RP = places - stop_RP, places - start_RP
        return PackingPlan(
            start_RP=compact(start_RP),
            stop_RP=compact(stop_RP),
            separator_at_N=separator_at_N,
            counts={
                "documents": 0 if backward else len(separator_at_N),  # counted in the forward plan
                "rows": num_rows,
                "negatives": int(is_random_R.sum()),
            },
        )

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Return input_ids, token_type_ids, special_tokens_mask and word_starts of the i-th sequence of the plan.

        The column unit_starts is included if the shard has units, and positions if directions is `both`.
        """
        bounds = zip(plan.start_RP[i].tolist(), plan.stop_RP[i].tolist(), strict=True)
        (reused_S, *parts), (a_S, *a), (b_S, *b) = (stretch(plan, *bound) for bound in bounds)
        one = np.ones(1, dtype=bool)
        is_backward = plan.start_RP[i, 1] < plan.start_RP[i, 0]  # A precedes the reused tokens in the text
        if is_backward:
            special_S = np.concatenate([one, one, b_S, one, a_S, reused_S])
            row = _reverse(row_of(special_S, [*b, *a, *parts], shard, vocab, wanted))
        else:
            special_S = np.concatenate([reused_S, a_S, one, b_S, one, one])
            row = row_of(special_S, [*parts, *a, *b], shard, vocab, wanted)
        if self.both_ways:
            place_S = np.arange(len(special_S), dtype=np.int32)
            row["positions"] = place_S[::-1].copy() if is_backward else place_S
        row["input_ids"][-1] = vocab.cls
        row["token_type_ids"][len(reused_S) + len(a_S) + 1 : -1] = 1  # the separator after A belongs to A
        row["token_type_ids"][-1] = 2
        return row


def _reverse(row: Row) -> Row:
    """Reverse the tokens of a sequence; ends of words, units and sentences become their starts."""
    return {
        name: np.flip(np.append(column[1:], True) if name.endswith("_starts") else column).copy()
        for name, column in row.items()
    }


def _pairs(begin_R: Ints, sentence_at_M1: Ints, room: int, rng: np.random.Generator) -> tuple[Ints, Ints, Bools]:
    """Return start and stop of A and B on a line of sentences, each [R, 2], and whether B is a random text.

    A starts at `begin_R`, and A and B together have exactly `room` tokens. The last element of `sentence_at_M1` is the
    end of the line.
    """
    num_rows, places = len(begin_R), int(sentence_at_M1[-1])
    coin_R, split_R, where_R = rng.random((3, num_rows))
    first_R = np.searchsorted(sentence_at_M1, begin_R, side="right")  # sentence starts within `room`, where A may end
    last_R = np.searchsorted(sentence_at_M1, begin_R + room)
    end_R = sentence_at_M1[last_R]  # the first end of a sentence or of the line that fills `room`
    is_whole_R = first_R == last_R
    split_R = sentence_at_M1[first_R + (split_R * (last_R - first_R)).astype(np.int64)]  # the end of A
    is_random_R = is_whole_R | (coin_R < 0.5)
    remaining_R = np.maximum(1, room - (split_R - begin_R))
    other_R = (where_R * (places - remaining_R)).astype(np.int64)
    other_stop_R = sentence_at_M1[np.searchsorted(sentence_at_M1, other_R + remaining_R)]
    other_R = sentence_at_M1[np.searchsorted(sentence_at_M1, other_R, side="right") - 1]
    start_RP = np.stack([begin_R, np.where(is_random_R, other_R, split_R)], axis=1)
    stop_RP = np.stack([split_R, np.where(is_random_R, other_stop_R, end_R)], axis=1)
    return start_RP, stop_RP - excess(start_RP, stop_RP, room), is_random_R
