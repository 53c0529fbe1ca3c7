"""Contiguous packing: sequences are filled with consecutive documents (GPT-2, RoBERTa, T5)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.packing.packing_plan import (
    EMITTED,
    Columns,
    PackingPlan,
    compact,
    count_up,
    row_of,
    separators,
    stretch,
    windows,
)
from preprocessing.schema import Ints, Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import ENDED, PLAIN, Frame, Vocab


@spec
class Contiguous:
    """Contiguous packing: sequences are filled with consecutive documents.

    With `unit: token` (GPT-2), documents are joined, each followed by a separator, and cut every `seq_length` tokens.
    The last sequence may be short. Without `add_separators`, documents are joined directly (T5, `reduce_concat_tokens`
    in t5/data/preprocessors.py).

    With `unit: sentence` (RoBERTa 4.2, FULL-SENTENCES), a sequence is `<s> whole sentences </s>`, with one more `</s>`
    between two documents. A sentence that is longer than a sequence is cut into several sequences
    (`overlong: truncate`) or dropped. The sequence before a dropped sentence ends there. SpanBERT's BlockDataset also
    drops such sentences. If the last sentence of the text is too long, it drops the sequence before it too.

    Without `cross_documents` a sequence holds one document only. A plan counts separators as positions: the separator
    after each document has its own position.
    """

    kind: Literal["contiguous"] = "contiguous"
    unit: Literal["sentence", "token"] = key(
        doc="Unit of packing: whole sentences between <s> and </s>, or tokens up to the full length."
    )
    cross_documents: bool = key(default=True, doc="Whether a sequence may hold text from several documents.")
    overlong: Literal["truncate", "drop"] = key(
        default="truncate", doc="Treatment of a sentence that is longer than a sequence; for unit sentence."
    )
    add_separators: bool = key(
        default=True, doc="Whether a separator follows each document; false only for unit token."
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
    joins_shards: ClassVar[bool] = False
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require(
            self.add_separators or self.unit == "token",
            "packing.add_separators",
            self.add_separators,
            "true if unit is sentence",
        )

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of special tokens that the tokenizer must have."""
        return ("cls", "sep") if self.unit == "sentence" else ("sep",) if self.add_separators else ()

    @property
    def least(self) -> int:
        return 3 if self.unit == "sentence" else 1

    @property
    def frame(self) -> Frame:
        if self.unit == "sentence":
            return Frame("cls A sep", "cls A sep B sep")
        return ENDED if self.add_separators else PLAIN

    def describe(self) -> str:
        if self.unit == "token":
            return "continuous text" + ("" if self.cross_documents else ", one document per sequence")
        where = "across" if self.cross_documents else "inside"
        return f"full sentences packed {where} documents" + ", overlong sentences dropped" * (self.overlong == "drop")

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan sequences of at most length + lookahead tokens that cover all tokens except dropped sentences.

        `rng` is not used.
        """
        separator_at_N = separators(shard) if self.add_separators else shard.offset_N1[:0]
        counts = {"documents": len(shard.offset_N1) - 1}
        if self.unit == "token":
            bound_N1 = np.append(0, separator_at_N + 1) if self.add_separators else shard.offset_N1
            begin_N, end_N = bound_N1[:-1], bound_N1[1:]
            if self.cross_documents:
                begin_N, end_N = begin_N[:1], end_N[-1:]
            start_R, stop_R = windows(begin_N, end_N, length, lookahead)
        else:
            room, start_M = length + lookahead - 2, shard.sentence_at_M
            if self.overlong == "truncate":
                start_M = _split_overlong(start_M, int(shard.offset_N1[-1]), room)
                counts |= {"cuts_in_sentences": len(start_M) - len(shard.sentence_at_M)}
            start_R, stop_R, num_dropped = self._fill(start_M, shard.offset_N1, room)
            if self.overlong == "drop":
                counts |= {"dropped_sentences": num_dropped}
        counts |= {"rows": len(start_R)}
        return PackingPlan(
            start_RP=compact(start_R[:, None]),
            stop_RP=compact(stop_R[:, None]),
            separator_at_N=separator_at_N,
            counts=counts,
        )

    def _fill(self, part_at_M: Ints, offset_N1: Ints, room: int) -> tuple[Ints, Ints, int]:
        """Return start and stop of sequences, each with as many whole parts as fit into `room`, separators included.

        A part is a sentence, or a range of an overlong sentence. Also return the number of dropped parts, which are
        longer than `room`.
        """
        document_M = np.searchsorted(offset_N1, part_at_M, side="right") - 1
        begin_M = part_at_M + document_M
        end_M = np.append(part_at_M[1:], offset_N1[-1:])[: len(part_at_M)] + document_M
        next_M = np.searchsorted(
            end_M, begin_M + room, side="right"
        )  # the first part that does not fit into a sequence from here
        if not self.cross_documents:
            next_M = np.minimum(next_M, np.searchsorted(document_M, document_M, side="right"))
        next_of, first, firsts, num_dropped = next_M.tolist(), 0, [], 0
        while first < len(next_of):
            if next_of[first] == first:
                first, num_dropped = first + 1, num_dropped + 1
                continue
            firsts.append(first)
            first = next_of[first]
        first_R = np.array(firsts, dtype=np.int64)
        return begin_M[first_R], end_M[next_M[first_R] - 1], num_dropped

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Return input_ids, token_type_ids, special_tokens_mask and word_starts of the i-th sequence of the plan.

        The column unit_starts is included if the shard has units.
        """
        special_S, part = stretch(plan, int(plan.start_RP[i, 0]), int(plan.stop_RP[i, 0]))
        if self.unit == "sentence":
            special_S = np.pad(special_S, 1, constant_values=True)  # <s> before, </s> after
        row = row_of(special_S, [part], shard, vocab, wanted)
        if self.unit == "sentence":
            row["input_ids"][0] = vocab.cls
        return row


def _split_overlong(sentence_at_M: Ints, total: int, room: int) -> Ints:
    """Return sentence starts, with one more start every `room` tokens inside a sentence longer than `room`."""
    num_parts_M = -(-np.diff(sentence_at_M, append=total) // room)
    return np.repeat(sentence_at_M, num_parts_M) + room * count_up(num_parts_M)
