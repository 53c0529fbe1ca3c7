"""Span corruption and its variants (T5, arXiv:1910.10683, 3.1 and 3.3).

Both sides end with the end token (`sep`), and the decoder starts with the padding token. The objectives of table 3 in
the paper correspond to these settings:

* Prefix language modeling: PrefixLM.
* BERT-style: masking `token`, SpanCorruption(targets="all", collapse_spans=False, random_replace_prob=0.1).
* Deshuffling: Deshuffling.
* MASS-style: masking `token`, SpanCorruption(targets="all", collapse_spans=False).
* Replace spans: masking `token`, SpanCorruption().
* Drop tokens: masking `token`, SpanCorruption(collapse_spans=False).
* Random spans: masking `random_spans`, SpanCorruption().
"""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.masking import Masking
from preprocessing.objectives.mlm import ordinary_ids
from preprocessing.objectives.part import Attention
from preprocessing.objectives.seq2seq import add_end, two_sides
from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class SpanCorruption:
    """Span corruption: each selected span is replaced by a sentinel token and predicted (T5 3.1.4).

    Each target span follows its sentinel. The first sentinel is the last ID of the vocabulary, the next one the ID
    before it, and so on. Without `collapse_spans` the spans are deleted and only their tokens are predicted. With
    `targets: all` the whole sequence is predicted; then, without `collapse_spans`, each selected token becomes the
    first sentinel, or a random token with probability `random_replace_prob`.

    With masking `random_spans`, the first token is never selected and the last one always is, and the IDs equal those
    of the reference. With another masking, the targets of the reference may begin without a sentinel, or end with an
    additional one.
    """

    kind: Literal["span_corruption"] = "span_corruption"
    targets: Literal["spans", "all"] = key(
        default="spans", doc="Decoder targets: the selected spans, or the whole sequence."
    )
    collapse_spans: bool = key(
        default=True, doc="Whether one sentinel replaces a span; false: delete it, or replace each token."
    )
    random_replace_prob: float = key(
        default=0.0, doc="Probability of a random token instead of the sentinel; for targets all, collapse_spans false."
    )

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids", "hits"})
    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    lookahead: ClassVar[int] = 0
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = False
    two_sided: ClassVar[bool] = True
    attention: ClassVar[Attention] = "model"
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require(
            0 <= self.random_replace_prob <= 1,
            "objective.random_replace_prob",
            self.random_replace_prob,
            "a probability from 0 to 1",
        )
        in_place = self.targets == "all" and not self.collapse_spans
        require(
            in_place or not self.random_replace_prob,
            "objective.random_replace_prob",
            self.random_replace_prob,
            "0 unless targets is all and collapse_spans is false",
        )

    @property
    def kernel_gap(self) -> str:
        return f"{self.kind} with random_replace_prob" if self.random_replace_prob else ""

    @property
    def specials(self) -> tuple[str, ...]:
        """Roles of special tokens that the tokenizer must have."""
        drops = self.targets == "spans" and not self.collapse_spans
        return ("pad", "sep") if drops else ("pad", "sep", "sentinel")

    @property
    def target(self) -> str:
        return "masked spans" if self.targets == "spans" else "the whole text"

    def describe(self) -> str:
        if self.collapse_spans:
            targets = "the spans" if self.targets == "spans" else "the whole text"
            return f"each selected span replaced by one sentinel; targets: {targets}"
        if self.targets == "spans":
            return "selected tokens deleted; targets: these tokens"
        random = f" ({self.random_replace_prob:.0%}: by a random token)" if self.random_replace_prob else ""
        return f"each selected token replaced by a sentinel{random}; targets: the whole text"

    def shares(self, masking: Masking) -> tuple[float, float]:
        if self.targets == "all":
            return 1.0, 1.0
        if not masking.span_mean:
            return 1.0, masking.predicted
        sentinels = masking.predicted / masking.span_mean
        return 1.0, (masking.predicted + sentinels) / (
            1 - masking.predicted + sentinels
        )  # the source has the full length

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that neither side exceeds `length` tokens.

        With masking `random_spans` the source has exactly `length` tokens.

        >>> from preprocessing.masking import RandomSpans
        >>> [SpanCorruption().raw_length(length, RandomSpans()) for length in (512, 256, 128, 64)]
        [568, 284, 141, 70]
        """
        if not masking.span_mean or self.targets == "all":
            return length - 1  # one for the end token; the number of spans is unknown
        raw = length - 1
        while max(self._lengths(raw + 1, masking)) <= length:
            raw += 1
        return raw

    def _lengths(self, num_tokens: int, masking: Masking) -> tuple[int, int]:
        """Return the lengths of source and targets of a sequence, including end tokens."""
        hit_S = masking(
            {"input_ids": np.zeros(num_tokens)}, np.random.default_rng(0)
        )  # every draw has the same number of spans
        noise, sentinels = int(np.count_nonzero(hit_S)), int(hit_S.max()) if self.collapse_spans else 0
        return num_tokens - noise + sentinels + 1, noise + sentinels + 1

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        if "sentinel" not in self.specials:
            return 0
        return masking.most_runs(num_tokens) if self.collapse_spans else 1

    def frame(self, frame: Frame) -> Frame:
        return frame.add_end()

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> class Tiny:
        ...     size, pad, sep, sentinels = 100, 0, 3, 10
        >>> row = {"input_ids": np.array([11, 12, 13, 14, 15, 16]), "hits": np.array([0, 1, 1, 0, 0, 2])}
        >>> made = SpanCorruption()(row, Tiny, key(0, "masking").at(0, 0))
        >>> made["source_input_ids"].tolist(), made["labels"].tolist(), made["input_ids"].tolist()
        ([11, 99, 14, 15, 98, 3], [99, 12, 13, 98, 16, 3], [0, 99, 12, 13, 98, 16])
        """
        ids_S, is_hit_S = row["input_ids"], row["hits"] > 0
        first_S = is_hit_S.copy()  # the first token of each run
        first_S[1:] &= ~is_hit_S[:-1]
        if self.targets == "spans" and not self.collapse_spans:
            source_U, target_S = ids_S[~is_hit_S], ids_S[is_hit_S]
        elif self.collapse_spans:
            sentinel_N = self.sentinels(int(first_S.sum()), vocab)
            source_U = _collapse(ids_S, is_hit_S, first_S, sentinel_N)
            target_S = _spans(ids_S, is_hit_S, first_S, sentinel_N) if self.targets == "spans" else ids_S
        else:
            source_U, target_S = ids_S.copy(), ids_S
            source_U[is_hit_S] = vocab.size - 1
            if self.random_replace_prob:
                swap_at = np.flatnonzero(is_hit_S & (rng.random(len(ids_S)) < self.random_replace_prob))
                source_U[swap_at] = ordinary_ids(len(swap_at), vocab, rng)
        return two_sides(row, add_end(source_U, vocab.sep), add_end(target_S, vocab.sep), vocab.pad)

    def sentinels(self, count: int, vocab: Vocab) -> Ints:
        """Return the IDs of the first `count` sentinels, int32; BadInput if the tokenizer has fewer."""
        if count > vocab.sentinels:
            raise BadInput(
                f"a sequence has {count} selected spans, but the tokenizer has {vocab.sentinels} sentinel tokens; "
                "increase data.tokenizer.extra_ids or the span length in masking"
            )
        return vocab.size - 1 - np.arange(count, dtype=np.int32)


def _collapse(ids_S: Ints, is_hit_S: Bools, first_S: Bools, sentinel_N: Ints) -> Ints:
    """Replace each selected run by its sentinel."""
    source_S = ids_S.copy()
    source_S[first_S] = sentinel_N
    return source_S[first_S | ~is_hit_S]


def _spans(ids_S: Ints, is_hit_S: Bools, first_S: Bools, sentinel_N: Ints) -> Ints:
    """Return the selected runs, each after its sentinel."""
    first_M = first_S[is_hit_S]
    at_M = np.arange(len(first_M)) + np.cumsum(first_M)
    answer = np.empty(len(first_M) + len(sentinel_N), dtype=np.int32)
    answer[at_M] = ids_S[is_hit_S]
    answer[at_M[first_M] - 1] = sentinel_N
    return answer
