"""Pairs of segments: `[CLS] A [SEP] B [SEP]`, as BERT and those after it build them."""

from typing import ClassVar, Final, Literal

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.packing.packing_plan import EMITTED, Columns, PackingPlan, compact, count_up, excess, row_of
from preprocessing.packing.pool import Pool
from preprocessing.schema import Floats, Ints, Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab

Negative = Literal["random", "swapped", "none", "dialogue"]

_TURNS: Final = 3  # query, response, query or the like
_LABEL_SAYS: Final[dict[Negative, str]] = {
    "random": "next sentence prediction",
    "swapped": "sentence order prediction",
    "dialogue": "real or made-up response",
    "none": "",
}
_LABEL_MEANS: Final[dict[Negative, tuple[str, str]]] = {
    "random": ("The second segment follows the first.", "The second segment does not follow the first."),
    "swapped": ("The segments are in their order.", "The segments are swapped."),
    "dialogue": ("The response is the real one.", "The response is made up."),
    "none": ("", ""),
}


@spec
class SegmentPair:
    """Segment pairs: `[CLS] A [SEP] B [SEP]` (BERT, arXiv:1810.04805, 3.1 and A.2).

    The procedure is that of BERT's create_pretraining_data.py. Each document has a target length: the sequence length,
    or a shorter one with probability `short_seq_prob`. Sentences are collected up to the target and split at random
    into A and B. With `negatives: random`, B comes from another document with probability `negative_prob` (label 1),
    and the sentences after A are returned. With `swapped` (ALBERT 3.1), A and B change places with probability
    `negative_prob` (label 1). With `unit: sentence`, A and B are one sentence each (RoBERTa 4.2, SENTENCE-PAIR).

    With `none` (ELECTRA's build_pretraining_dataset.py), B continues A, starting near the middle of the sequence, and
    there is no label. A fraction `single_segment_prob` of the sequences has no B, and `short_seq_prob` is a fraction of
    the sequences. With `dialogue` (ERNIE, arXiv:1904.09223, 4.2.3), the sentences of a document are turns; A is some of
    them and B the reply, or a turn of another document with probability `negative_prob` (label 1).

    Three points differ from the reference. A chunk has at least two sentences (a single last one joins the chunk
    before), so that the label is balanced; the reference has 57 % ones. B never comes from the same document. A
    document of one sentence, and with `unit: sentence` a single last sentence, is used only as B. ELECTRA's A and B do
    not interleave.
    """

    kind: Literal["segment_pair"] = "segment_pair"
    negatives: Negative = key(
        doc="Second segment of negative pairs: from another document, swapped, another turn, or no negatives."
    )
    negative_prob: float = key(default=0.5, doc="Probability of a negative pair (label 1).")
    short_seq_prob: float = key(default=0.1, doc="Probability of a target length below the sequence length.")
    unit: Literal["segment", "sentence"] = key(
        default="segment", doc="Unit of A and B: several sentences, or one sentence each."
    )
    num_separators: Literal[1, 2] = key(default=1, doc="Number of separators between A and B; RoBERTa has 2.")
    single_segment_prob: float = key(
        default=0.0, doc="Fraction of sequences without a second segment; for negatives none."
    )

    possible_columns: ClassVar[Columns] = EMITTED | {"next_sentence_label"}
    specials: ClassVar[tuple[str, ...]] = ("cls", "sep")
    fresh: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    segments: ClassVar[int] = 2
    reuse_len: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    required_annotations: ClassVar[frozenset[str]] = frozenset()
    both_ways: ClassVar[bool] = False
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        for name in ("negative_prob", "short_seq_prob", "single_segment_prob"):
            require(0 <= getattr(self, name) <= 1, f"packing.{name}", getattr(self, name), "a share from 0 to 1")
        require(
            self.single_segment_prob == 0 or self.negatives == "none",
            "packing.single_segment_prob",
            self.single_segment_prob,
            "0 unless negatives is none",
        )
        by_sentence = self.unit == "segment" or self.negatives in ("random", "swapped")
        require(by_sentence, "packing.unit", self.unit, f"segment where negatives is {self.negatives}")

    @property
    def produced_columns(self) -> Columns:
        return EMITTED if self.negatives == "none" else EMITTED | {"next_sentence_label"}

    @property
    def partners(self) -> bool:
        return self.negatives in ("random", "dialogue")

    @property
    def label_says(self) -> str:
        return _LABEL_SAYS[self.negatives]

    @property
    def label_means(self) -> tuple[str, str]:
        return _LABEL_MEANS[self.negatives]

    @property
    def least(self) -> int:
        return 4 + self.num_separators

    @property
    def frame(self) -> Frame:
        return Frame("cls A sep", f"cls A {' '.join(['sep'] * self.num_separators)} B:1 sep:1")

    def describe(self) -> str:
        return {
            "random": f"pairs of {self.unit}s, {self.negative_prob:.0%} random next sentence (NSP)",
            "swapped": f"pairs of {self.unit}s, {self.negative_prob:.0%} swapped (SOP)",
            "dialogue": f"queries and responses, {self.negative_prob:.0%} made up",
            "none": "pairs of segments, the second following the first",
        }[self.negatives]

    def plan(self, shard: Shard | Pool, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Pairs of at most length + lookahead tokens; BadInput where a lone document needs a random partner.

        Of a pool (pool.py) the rows are those of its first shard, and their partners from all of its documents.
        """
        room = length + lookahead - 2 - self.num_separators
        bounds_N1 = np.searchsorted(
            shard.sentence_at_M, shard.offset_N1
        )  # document d: sentences [bounds[d], bounds[d + 1])
        at_M1 = np.append(shard.sentence_at_M, shard.offset_N1[-1])
        if self.negatives == "none":
            return self._plan_contiguous(at_M1, bounds_N1, room, rng)
        own = shard.own if isinstance(shard, Pool) else len(bounds_N1) - 1
        num_sentences_N = np.diff(bounds_N1)[:own]
        if self.partners and len(bounds_N1) == 2:
            raise BadInput(
                f"{shard.path}: has one document only, and packing.negatives {self.negatives} needs a partner for it: "
                "give more text, a larger share to this split, or set packing.negatives=swapped"
            )
        found = (
            self._dialogues(bounds_N1, own, rng)
            if self.negatives == "dialogue"
            else self._chunks(at_M1, bounds_N1, own, room, rng)
        )
        chunk_3R, partner_2R, label_R = found
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
        if self.negatives == "swapped":
            start_RP[negative_R] = start_RP[negative_R, ::-1]
            stop_RP[negative_R] = stop_RP[negative_R, ::-1]
        else:
            start_RP[negative_R, 1], stop_RP[negative_R, 1] = at_M1[partner_2R[:, negative_R]]
        _truncate(start_RP, stop_RP, room, rng)
        return PackingPlan(start_RP=compact(start_RP), stop_RP=compact(stop_RP), pair_label_R=label_R, counts=counts)

    def _chunks(
        self, at_M1: Ints, bounds_N1: Ints, own: int, room: int, rng: np.random.Generator
    ) -> tuple[Ints, Ints, Ints]:
        """Sentence numbers (first, middle, last) of each chunk, (first, last) of its random partner, and the label.

        Chunks are those of the first `own` documents, which all go in step: round t draws the t-th chunk of every one
        that still has sentences.
        """
        is_short_N = rng.random(own) < self.short_seq_prob
        target_N = np.where(is_short_N, rng.integers(2, room, size=own, endpoint=True), room)
        if self.unit == "sentence":
            target_N[:] = 1  # the second sentence fills it, whatever the first is
        document = np.flatnonzero(np.diff(bounds_N1[: own + 1]) >= 2)
        first = bounds_N1[document]
        rounds = [np.zeros((6, 0), dtype=np.int64)]
        while document.size:
            end, target = bounds_N1[document + 1], target_N[document]
            coin, split, other, where = rng.random((4, document.size))
            last = np.clip(np.searchsorted(at_M1, at_M1[first] + target), first + 2, end)
            if self.unit == "segment":
                last = np.where(end - last == 1, end, last)  # a last lone sentence joins
            middle = first + 1 + (split * (last - first - 1)).astype(np.int64)
            label = (coin < self.negative_prob).astype(np.int64)
            partner_first = partner_last = first
            if self.negatives == "random":
                if self.unit == "segment":
                    middle = np.where((label == 1) & (end - middle == 1), end, middle)  # here it joins A
                last = np.where(label == 1, middle, last)  # the rest of the chunk is put back
                partner_first, stop = _partners(document, bounds_N1, other, where)
                wanted = target - (at_M1[middle] - at_M1[first])
                partner_last = np.clip(np.searchsorted(at_M1, at_M1[partner_first] + wanted), partner_first + 1, stop)
            rounds.append(np.stack([first, middle, last, partner_first, partner_last, label]))
            unfinished = last < end if self.unit == "segment" else last < end - 1
            document, first = document[unfinished], last[unfinished]
        found_6R = np.concatenate(rounds, axis=1)
        found_6R = found_6R[:, np.argsort(found_6R[0])]  # in the order of the text
        return found_6R[:3], found_6R[3:5], found_6R[5].astype(np.int8)

    def _dialogues(self, bounds_N1: Ints, own: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """The same for dialogues: three turns a row, two or four where that leaves none over; B is the last."""
        num_turns_N = np.diff(bounds_N1[: own + 1])
        num_rows_N = np.where(num_turns_N >= 2, num_turns_N // _TURNS + (num_turns_N % _TURNS == 2), 0)
        document_R = np.repeat(np.arange(len(num_turns_N)), num_rows_N)
        first_R = bounds_N1[document_R] + _TURNS * count_up(num_rows_N)
        end_R = bounds_N1[document_R + 1]
        last_R = np.where(end_R - first_R <= _TURNS + 1, end_R, first_R + _TURNS)
        coin_R, other_R, where_R = rng.random((3, len(first_R)))
        partner_R, _ = _partners(document_R, bounds_N1, other_R, where_R)
        return (
            np.stack([first_R, last_R - 1, last_R]),
            np.stack([partner_R, partner_R + 1]),
            (coin_R < self.negative_prob).astype(np.int8),
        )

    def _plan_contiguous(self, at_M1: Ints, bounds_N1: Ints, room: int, rng: np.random.Generator) -> PackingPlan:
        """Rows of `none`: sentences up to a target, A up to about half of it, the rest cut off at the row's end."""
        most = room + 2 + self.num_separators  # the target counts what the row may hold, special tokens and all
        document = np.arange(len(bounds_N1) - 1)
        first = bounds_N1[document]
        rounds = [np.zeros((3, 0), dtype=np.int64)]
        while document.size:
            is_single, is_short, how_short, coin = rng.random((4, document.size))
            target = np.where(is_short < self.short_seq_prob, 5 + (how_short * (most - 4)).astype(np.int64), most)
            end = bounds_N1[document + 1]
            last = np.clip(np.searchsorted(at_M1, at_M1[first] + target), first + 1, end)
            half = (target - 3) // 2
            middle = np.maximum(np.searchsorted(at_M1, at_M1[first] + half) - 1, first + 1)  # A stays below the half
            overflows = (at_M1[middle] - at_M1[first] < half) & (coin < 0.5)  # but for a sentence that reaches over it
            middle = np.where(is_single < self.single_segment_prob, last, np.minimum(middle + overflows, last))
            rounds.append(np.stack([first, middle, last]))
            unfinished = last < end
            document, first = document[unfinished], last[unfinished]
        found_3R = np.concatenate(rounds, axis=1)
        start_R, middle_R, last_R = at_M1[found_3R[:, np.argsort(found_3R[0])]]
        stop_a_R = np.minimum(
            middle_R, start_R + room + self.num_separators
        )  # a row without B has no separator between
        stop_b_R = np.minimum(last_R, np.maximum(middle_R, middle_R + room - (stop_a_R - start_R)))
        return PackingPlan(
            start_RP=compact(np.stack([start_R, middle_R], axis=1)),
            stop_RP=compact(np.stack([stop_a_R, stop_b_R], axis=1)),
            counts={
                "documents": len(bounds_N1) - 1,
                "rows": len(start_R),
                "single_rows": int((stop_b_R == middle_R).sum()),
                "left_out_tokens": int((last_R - stop_b_R + middle_R - stop_a_R).sum()),
            },
        )

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Columns input_ids, token_type_ids, special_tokens_mask, word_starts and, but for `none`, next_sentence_label
        of the i-th row of the plan.
        """
        (start_a, start_b), (stop_a, stop_b) = plan.start_RP[i].tolist(), plan.stop_RP[i].tolist()
        middle, long_b = stop_a - start_a + 1, stop_b - start_b
        between = self.num_separators if long_b else 0
        special_S = np.zeros(middle + between + long_b + 1, dtype=bool)
        special_S[[0, -1]] = True
        special_S[middle : middle + between] = True
        row = row_of(special_S, [(start_a, stop_a), (start_b, stop_b)], shard, vocab, wanted)
        row["input_ids"][0] = vocab.cls
        row["token_type_ids"][middle + max(between, 1) :] = 1  # the separators behind A belong to A
        return row if self.negatives == "none" else row | {"next_sentence_label": plan.pair_label_R[i]}


def _partners(document: Ints, bounds_N1: Ints, other: Floats, where: Floats) -> tuple[Ints, Ints]:
    """Number of a random sentence of a random other document, and of the one behind that document's last."""
    partner = (other * (len(bounds_N1) - 2)).astype(np.int64)
    partner += partner >= document
    begin, stop = bounds_N1[partner], bounds_N1[partner + 1]
    return begin + (where * (stop - begin)).astype(np.int64), stop


def _truncate(start_RP: Ints, stop_RP: Ints, room: int, rng: np.random.Generator) -> None:
    """Shorten pairs in place to `room`: token by token off the longer part (B when equal), front or back by a coin."""
    cut_RP = excess(start_RP, stop_RP, room)
    front_RP = rng.binomial(cut_RP, 0.5)
    start_RP += front_RP
    stop_RP -= cut_RP - front_RP
