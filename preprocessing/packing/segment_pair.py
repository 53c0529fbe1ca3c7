"""Segment pairs, `[CLS] A [SEP] B [SEP]` (BERT, ALBERT, ELECTRA, ERNIE)."""

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

_TURNS: Final = 3  # turns per sequence, e.g. query, response, query
_LABEL_SAYS: Final[dict[Negative, str]] = {
    "random": "next sentence prediction",
    "swapped": "sentence order prediction",
    "dialogue": "real or random response",
    "none": "",
}
_LABEL_MEANS: Final[dict[Negative, tuple[str, str]]] = {
    "random": ("The second segment follows the first.", "The second segment does not follow the first."),
    "swapped": ("The segments are in their original order.", "The segments are swapped."),
    "dialogue": ("The response is the real one.", "The response comes from another document."),
    "none": ("", ""),
}


@spec
class SegmentPair:
    """Segment pairs: `[CLS] A [SEP] B [SEP]` (BERT, arXiv:1810.04805, 3.1 and A.2).

    The procedure is that of BERT's create_pretraining_data.py. Each document has a target length: the sequence length,
    or a shorter one with probability `short_seq_prob`. Sentences are collected up to the target and split at random
    into A and B. With `negatives: random`, B comes from another document with probability `negative_prob` (label 1),
    and the sentences after A are used for the next pair. With `swapped` (ALBERT 3.1), A and B change places with
    probability `negative_prob` (label 1). With `unit: sentence`, A and B are one sentence each (RoBERTa 4.2,
    SENTENCE-PAIR).

    With `none` (ELECTRA's build_pretraining_dataset.py), B continues A and starts near the middle of the sequence, and
    there is no label. A fraction `single_segment_prob` of the sequences has no B, and a fraction `short_seq_prob` has a
    shorter target length. Unlike in ELECTRA's code, the sentences of A and B do not interleave.

    With `dialogue` (ERNIE, arXiv:1904.09223, 4.2.3), the sentences of a document are turns. A has one or more turns,
    and B is the reply, or a turn of another document with probability `negative_prob` (label 1).

    Three points differ from BERT's code. A chunk has at least two sentences, because a single last sentence joins the
    previous chunk. So the labels are balanced; in BERT's code 57 % are 1. A random B never comes from the document of
    A. A document of one sentence, and with `unit: sentence` a single last sentence, is used only as B.
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
    counts_alone: ClassVar[bool] = True
    joins_shards: ClassVar[bool] = False
    kernel_gap: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        for name in ("negative_prob", "short_seq_prob", "single_segment_prob"):
            require(0 <= getattr(self, name) <= 1, f"packing.{name}", getattr(self, name), "a fraction from 0 to 1")
        require(
            self.single_segment_prob == 0 or self.negatives == "none",
            "packing.single_segment_prob",
            self.single_segment_prob,
            "0 unless negatives is none",
        )
        is_allowed = self.unit == "segment" or self.negatives in ("random", "swapped")
        require(is_allowed, "packing.unit", self.unit, f"segment if negatives is {self.negatives}")

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
            "random": f"pairs of {self.unit}s, {self.negative_prob:.0%} with a random second {self.unit} (NSP)",
            "swapped": f"pairs of {self.unit}s, {self.negative_prob:.0%} swapped (SOP)",
            "dialogue": f"queries and responses, {self.negative_prob:.0%} of the responses random",
            "none": "pairs of consecutive segments",
        }[self.negatives]

    def plan(self, shard: Shard | Pool, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan pairs of at most length + lookahead tokens.

        If `shard` is a pool (pool.py), the pairs are those of its first shard; random partners come from all documents.
        Raises BadInput if pairs need a random partner and there is only one document.
        """
        room = length + lookahead - 2 - self.num_separators
        bounds_N1 = np.searchsorted(
            shard.sentence_at_M, shard.offset_N1
        )  # document d has the sentences [bounds[d], bounds[d + 1])
        at_M1 = np.append(shard.sentence_at_M, shard.offset_N1[-1])
        if self.negatives == "none":
            return self._plan_contiguous(at_M1, bounds_N1, room, rng)
        own = shard.own if isinstance(shard, Pool) else len(bounds_N1) - 1
        num_sentences_N = np.diff(bounds_N1)[:own]
        if self.partners and len(bounds_N1) == 2:
            raise BadInput(
                f"{shard.path}: packing.negatives {self.negatives} requires at least 2 documents, but the split has 1; "
                "add text, increase the ratio of this split, or set data.packing.negatives=swapped"
            )
        chunk_3R, partner_2R, label_R = (
            self._dialogues(bounds_N1, own, rng)
            if self.negatives == "dialogue"
            else self._chunks(at_M1, bounds_N1, own, room, rng)
        )
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

    def count(self, shard: Shard | Pool, length: int, lookahead: int, rng: np.random.Generator) -> int:
        """Return the number of sequences of `plan`, by kernels in a tenth of the time.

        It draws the same numbers, and leaves out all that does not decide where a chunk ends. Raises ImportError
        without numba.
        """
        from preprocessing.packing.pair_kernels import advance_chunks, advance_contiguous

        room = length + lookahead - 2 - self.num_separators
        bounds_N1 = np.searchsorted(shard.sentence_at_M, shard.offset_N1)
        at_M1 = np.append(shard.sentence_at_M, shard.offset_N1[-1])
        own = shard.own if isinstance(shard, Pool) else len(bounds_N1) - 1
        if self.negatives == "dialogue":
            return int(_count_dialogues(np.diff(bounds_N1[: own + 1])).sum())
        is_contiguous, num_rows = self.negatives == "none", 0
        target_N = np.zeros(0, np.int64) if is_contiguous else self._targets(own, room, rng)
        document = np.flatnonzero(np.diff(bounds_N1[: own + 1]) >= (1 if is_contiguous else 2))
        first = bounds_N1[document]
        while document.size:
            num_rows += len(document)
            draws_4K = rng.random((4, document.size))
            if is_contiguous:
                target_K = self._contiguous_targets(draws_4K[1], draws_4K[2], room + 2 + self.num_separators)
                left = advance_contiguous(at_M1, bounds_N1, target_K, document, first)
            else:
                rule = self.unit == "segment", self.negatives == "random", self.negative_prob
                left = advance_chunks(at_M1, bounds_N1, target_N, document, first, *draws_4K[:2], *rule)
            document, first = document[:left], first[:left]
        return num_rows

    def _targets(self, own: int, room: int, rng: np.random.Generator) -> Ints:
        """Return the target length of each of the first `own` documents."""
        is_short_N = rng.random(own) < self.short_seq_prob
        target_N = np.where(is_short_N, rng.integers(2, room, size=own, endpoint=True), room)
        if self.unit == "sentence":
            target_N[:] = 1  # a chunk gets the minimum of two sentences
        return target_N

    def _contiguous_targets(self, is_short: Floats, how_short: Floats, max_length: int) -> Ints:
        """Return the target length of each sequence of negatives `none`, special tokens included."""
        return np.where(is_short < self.short_seq_prob, 5 + (how_short * (max_length - 4)).astype(np.int64), max_length)

    def _chunks(
        self, at_M1: Ints, bounds_N1: Ints, own: int, room: int, rng: np.random.Generator
    ) -> tuple[Ints, Ints, Ints]:
        """Return sentence indices (first, middle, last) of each chunk, (first, last) of its random partner, and labels.

        Only the first `own` documents are divided into chunks. Round t draws the t-th chunk of all documents that still
        have sentences.
        """
        target_N = self._targets(own, room, rng)
        document = np.flatnonzero(np.diff(bounds_N1[: own + 1]) >= 2)
        first = bounds_N1[document]
        rounds = [np.zeros((6, 0), dtype=np.int64)]
        while document.size:
            end, target = bounds_N1[document + 1], target_N[document]
            coin, split, other, where = rng.random((4, document.size))
            last = np.clip(np.searchsorted(at_M1, at_M1[first] + target), first + 2, end)
            if self.unit == "segment":
                last = np.where(end - last == 1, end, last)  # a single last sentence joins the chunk
            middle = first + 1 + (split * (last - first - 1)).astype(np.int64)
            label = (coin < self.negative_prob).astype(np.int64)
            partner_first = partner_last = first
            if self.negatives == "random":
                if self.unit == "segment":
                    middle = np.where((label == 1) & (end - middle == 1), end, middle)  # a single last sentence joins A
                last = np.where(label == 1, middle, last)  # the sentences after A start the next chunk
                partner_first, stop = _partners(document, bounds_N1, other, where)
                remaining = target - (at_M1[middle] - at_M1[first])
                partner_last = np.clip(
                    np.searchsorted(at_M1, at_M1[partner_first] + remaining), partner_first + 1, stop
                )
            rounds.append(np.stack([first, middle, last, partner_first, partner_last, label]))
            unfinished = last < end if self.unit == "segment" else last < end - 1
            document, first = document[unfinished], last[unfinished]
        chunk_6R = np.concatenate(rounds, axis=1)
        chunk_6R = chunk_6R[:, np.argsort(chunk_6R[0])]  # in text order
        return chunk_6R[:3], chunk_6R[3:5], chunk_6R[5].astype(np.int8)

    def _dialogues(self, bounds_N1: Ints, own: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Return the same as `_chunks` for dialogues.

        A sequence has three turns; some have two or four, so that no turn is left over. B is the last turn.
        """
        num_turns_N = np.diff(bounds_N1[: own + 1])
        num_rows_N = _count_dialogues(num_turns_N)
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
        """Plan sequences for negatives `none`: sentences up to a target length, of which A has about half.

        Tokens beyond the sequence length are cut off.
        """
        max_length = room + 2 + self.num_separators  # the target includes special tokens
        document = np.arange(len(bounds_N1) - 1)
        first = bounds_N1[document]
        rounds = [np.zeros((3, 0), dtype=np.int64)]
        while document.size:
            is_single, is_short, how_short, coin = rng.random((4, document.size))
            target = self._contiguous_targets(is_short, how_short, max_length)
            end = bounds_N1[document + 1]
            last = np.clip(np.searchsorted(at_M1, at_M1[first] + target), first + 1, end)
            half = (target - 3) // 2
            middle = np.maximum(
                np.searchsorted(at_M1, at_M1[first] + half) - 1, first + 1
            )  # A is shorter than half, but has at least one sentence
            overflows = (at_M1[middle] - at_M1[first] < half) & (coin < 0.5)  # with probability 1/2, one more sentence
            middle = np.where(is_single < self.single_segment_prob, last, np.minimum(middle + overflows, last))
            rounds.append(np.stack([first, middle, last]))
            unfinished = last < end
            document, first = document[unfinished], last[unfinished]
        chunk_3R = np.concatenate(rounds, axis=1)
        start_R, middle_R, last_R = at_M1[chunk_3R[:, np.argsort(chunk_3R[0])]]
        stop_a_R = np.minimum(middle_R, start_R + room + self.num_separators)  # without B there is no separator after A
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
        """Return input_ids, token_type_ids, special_tokens_mask and word_starts of the i-th sequence of the plan.

        The column next_sentence_label is included unless negatives is `none`.
        """
        (start_a, start_b), (stop_a, stop_b) = plan.start_RP[i].tolist(), plan.stop_RP[i].tolist()
        middle, long_b = stop_a - start_a + 1, stop_b - start_b
        between = self.num_separators if long_b else 0
        special_S = np.zeros(middle + between + long_b + 1, dtype=bool)
        special_S[[0, -1]] = True
        special_S[middle : middle + between] = True
        row = row_of(special_S, [(start_a, stop_a), (start_b, stop_b)], shard, vocab, wanted)
        row["input_ids"][0] = vocab.cls
        row["token_type_ids"][middle + max(between, 1) :] = 1  # the separators after A belong to A
        return row if self.negatives == "none" else row | {"next_sentence_label": plan.pair_label_R[i]}


def _count_dialogues(num_turns_N: Ints) -> Ints:
    """Return the number of sequences of each dialogue."""
    return np.where(num_turns_N >= 2, num_turns_N // _TURNS + (num_turns_N % _TURNS == 2), 0)


def _partners(document: Ints, bounds_N1: Ints, other: Floats, where: Floats) -> tuple[Ints, Ints]:
    """Return the index of a random sentence in a random other document, and the end of that document."""
    partner = (other * (len(bounds_N1) - 2)).astype(np.int64)
    partner += partner >= document
    begin, stop = bounds_N1[partner], bounds_N1[partner + 1]
    return begin + (where * (stop - begin)).astype(np.int64), stop


def _truncate(start_RP: Ints, stop_RP: Ints, room: int, rng: np.random.Generator) -> None:
    """Truncate pairs in place to `room` tokens.

    Tokens are removed one by one from the longer part, or from B if both are equal, at a random end.
    """
    cut_RP = excess(start_RP, stop_RP, room)
    front_RP = rng.binomial(cut_RP, 0.5)
    start_RP += front_RP
    stop_RP -= cut_RP - front_RP
