"""Denoising of a whole sequence (BART, arXiv:1910.13461, 2.2)."""

from math import ceil
from typing import ClassVar, Final, Literal, get_args

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.mlm import ordinary_ids
from preprocessing.objectives.part import Attention
from preprocessing.objectives.seq2seq import two_sides
from preprocessing.schema import Bools, Ints, Row
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab

Edit = Literal["sentence_permutation", "token_masking", "token_deletion", "text_infilling", "document_rotation"]
_MAX_POISSON: Final = 10  # numpy draws numbers of this mean and above in another way than the kernels
_COVERING: Final = ("token_masking", "token_deletion", "text_infilling")
_DESCRIPTIONS: Final[dict[Edit, str]] = {
    "sentence_permutation": "sentences shuffled",
    "token_masking": "{rate:.0%} of the tokens masked",
    "token_deletion": "{rate:.0%} of the tokens deleted",
    "text_infilling": "{rate:.0%} of the words masked in runs of {mean:g}",
    "document_rotation": "document rotated",
}


@spec
class Denoising:
    """Denoising: the decoder restores a noised sequence (BART, arXiv:1910.13461).

    One or several of BART's five noise types are applied, always in the order below, as in fairseq's
    denoising_dataset.py:

    * sentence_permutation: a fraction `permute_sentence_ratio` of the sentences of each document change places.
    * token_masking: a fraction `mask_ratio` of the tokens, rounded up, becomes [MASK].
    * token_deletion: a fraction `mask_ratio` of the tokens, rounded up, is deleted.
    * text_infilling: each run of whole words becomes one [MASK]. Run lengths are drawn from Poisson(`poisson_lambda`)
      until they sum to a fraction `mask_ratio` of the words, rounded up; the last is cut to fit. A run of length 0
      inserts a [MASK]. Other runs begin at different, uniformly drawn words and end early at a special token. A run
      that begins inside another one becomes part of it, so somewhat less than `mask_ratio` is masked.
    * document_rotation: the sequence starts at a uniformly drawn token; the tokens before it move to the end.

    A masked token becomes a random one instead with probability `random_replace_prob`. A special token inside the
    sequence (a separator) keeps its place, except in document_rotation; the first and the last special token always
    keep theirs. A noised sequence is never longer than the original.
    """

    kind: Literal["denoising"] = "denoising"
    noise_types: tuple[Edit, ...] = key(
        default=("sentence_permutation", "text_infilling"),
        doc="Noise types to apply; their order in the list has no effect.",
    )
    mask_ratio: float = key(default=0.3, doc="Fraction of tokens, or of words for text_infilling, to mask or delete.")
    poisson_lambda: float = key(default=3.0, doc="Mean run length in words for text_infilling (Poisson).")
    random_replace_prob: float = key(
        default=0.0, doc="Probability that a masked token becomes a random token instead of [MASK]."
    )
    permute_sentence_ratio: float = key(
        default=1.0, doc="Fraction of sentences that change places in sentence_permutation."
    )

    produced_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    specials: ClassVar[tuple[str, ...]] = ("sep", "mask")
    lookahead: ClassVar[int] = 0
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "source_input_ids"})
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = True
    two_sided: ClassVar[bool] = True
    attention: ClassVar[Attention] = "model"
    target: ClassVar[str] = "the whole text"
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        are_unique = 0 < len(self.noise_types) == len(set(self.noise_types))
        require(
            are_unique,
            "objective.noise_types",
            self.noise_types,
            f"one or several of {', '.join(get_args(Edit))}, each at most once",
        )
        are_compatible = sum(edit in _COVERING for edit in self.noise_types) <= 1
        require(
            are_compatible,
            "objective.noise_types",
            self.noise_types,
            "at most one of token_masking, token_deletion and text_infilling",
        )
        require(
            0 < self.mask_ratio <= 1, "objective.mask_ratio", self.mask_ratio, "a fraction greater than 0 and at most 1"
        )
        require(self.poisson_lambda > 0, "objective.poisson_lambda", self.poisson_lambda, "a positive number of words")
        for name in ("random_replace_prob", "permute_sentence_ratio"):
            require(0 <= getattr(self, name) <= 1, f"objective.{name}", getattr(self, name), "a fraction from 0 to 1")

    @property
    def kernel_gap(self) -> str:
        is_large = self.poisson_lambda >= _MAX_POISSON
        return f"{self.kind} with poisson_lambda of {_MAX_POISSON} or more" if is_large else ""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns of a sequence that the objective reads."""
        extra = {"sentence_permutation": "sentence_starts", "text_infilling": "word_starts"}
        return frozenset(
            {"input_ids", "special_tokens_mask"} | {extra[edit] for edit in self.noise_types if edit in extra}
        )

    def describe(self) -> str:
        noise = ", ".join(
            _DESCRIPTIONS[edit].format(rate=self.mask_ratio, mean=self.poisson_lambda) for edit in self.noise_types
        )
        return f"source: {noise}; targets: the original text"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 1.0, 1.0

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that neither side exceeds `length` tokens."""
        return length

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return frame

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> class Tiny:
        ...     size, sep, mask, special_ids = 100, 3, 4, (0, 1, 2, 3, 4)
        >>> special_S = np.array([True, False, False, False, False, False, False, True])
        >>> row = {"input_ids": np.array([2, 11, 12, 13, 14, 15, 16, 3]), "word_starts": np.ones(8, bool)}
        >>> row |= {"special_tokens_mask": special_S}
        >>> made = Denoising(noise_types=("text_infilling",), mask_ratio=0.5)(row, Tiny, key(0, "masking").at(0, 2))
        >>> made["source_input_ids"].tolist()
        [2, 4, 12, 4, 15, 16, 3]
        >>> made["input_ids"].tolist(), made["labels"].tolist()
        ([3, 2, 11, 12, 13, 14, 15, 16], [2, 11, 12, 13, 14, 15, 16, 3])
        """
        ids_U, special_S = row["input_ids"], row["special_tokens_mask"]
        starts_S = row["word_starts"] if "text_infilling" in self.noise_types else None
        if "sentence_permutation" in self.noise_types:
            order_S = _sentence_order(special_S, row["sentence_starts"], self.permute_sentence_ratio, rng)
            ids_U = ids_U[order_S]  # special tokens keep their positions
            starts_S = None if starts_S is None else starts_S[order_S]
        if starts_S is not None:
            ids_U = self._infill(ids_U, special_S, starts_S, vocab, rng)
        elif "token_masking" in self.noise_types or "token_deletion" in self.noise_types:
            ordinary = np.flatnonzero(~special_S)
            at_M = rng.permutation(ordinary)[: ceil(self.mask_ratio * len(ordinary) - 1e-9)]
            if "token_deletion" in self.noise_types:
                at_M = at_M[: len(ids_U) - 1]  # the encoder needs at least one token
            if "token_masking" in self.noise_types:
                ids_U = ids_U.copy()
                ids_U[at_M] = self._masks(len(at_M), vocab, rng)
            else:
                ids_U = np.delete(ids_U, at_M)
        if "document_rotation" in self.noise_types:
            first, stop = _body(ids_U, special_S)
            if stop > first:
                ids_U = ids_U.copy()
                ids_U[first:stop] = np.roll(ids_U[first:stop], -int(rng.integers(stop - first)))
        return two_sides(row, ids_U, row["input_ids"], vocab.sep)

    def _infill(self, ids_S: Ints, special_S: Bools, starts_S: Bools, vocab: Vocab, rng: np.random.Generator) -> Ints:
        """Replace runs of words by masks, and insert a mask for each run of length 0."""
        num_tokens = len(ids_S)
        begin_W1 = np.append(starts_S.nonzero()[0], num_tokens)
        special_W = special_S[begin_W1[:-1]]
        words = (~special_W).nonzero()[0]
        length_N = infill_lengths(self.poisson_lambda, ceil(self.mask_ratio * len(words) - 1e-9), rng)
        long_N = length_N[length_N > 0]
        first_N = words[rng.permutation(len(words))[: len(long_N)]]
        walls = np.append(special_W.nonzero()[0], len(special_W))
        stop_N = np.minimum(first_N + long_N, walls[walls.searchsorted(first_N)])
        at_N = begin_W1[first_N]
        step_S1 = np.bincount(at_N + 1, minlength=num_tokens + 1)
        step_S1 -= np.bincount(begin_W1[stop_N], minlength=num_tokens + 1)
        is_kept_S = step_S1[:-1].cumsum() == 0  # False inside a run, after its first token
        at_N = at_N[is_kept_S[at_N]]
        ids_S = ids_S.copy()
        ids_S[at_N] = self._masks(len(at_N), vocab, rng)
        kept_U = ids_S[is_kept_S]
        return self._insert(kept_U, special_S, min(len(length_N) - len(long_N), len(ids_S) - len(kept_U)), vocab, rng)

    def _insert(self, ids_U: Ints, special_S: Bools, count: int, vocab: Vocab, rng: np.random.Generator) -> Ints:
        """Insert `count` masks into the IDs at uniformly drawn positions."""
        if not count:
            return ids_U
        first, stop = _body(ids_U, special_S)
        is_old = np.ones(len(ids_U) + count, dtype=bool)
        is_old[first + rng.permutation(stop + count - first)[:count]] = False
        longer = np.empty(len(is_old), dtype=ids_U.dtype)
        longer[is_old], longer[~is_old] = ids_U, self._masks(count, vocab, rng)
        return longer

    def _masks(self, count: int, vocab: Vocab, rng: np.random.Generator) -> Ints:
        """Return `count` IDs, each [MASK] or, with probability `random_replace_prob`, a random token."""
        mask_N = np.full(count, vocab.mask, dtype=np.int64)
        if self.random_replace_prob:
            random_at = (rng.random(count) < self.random_replace_prob).nonzero()[0]
            mask_N[random_at] = ordinary_ids(len(random_at), vocab, rng)
        return mask_N


def infill_lengths(mean: float, budget: int, rng: np.random.Generator) -> Ints:
    """Draw Poisson lengths that sum to `budget`; the last one is cut to fit, int64.

    >>> from preprocessing.rng import key
    >>> infill_lengths(3.0, 10, key(0, "masking").at(0, 1)).tolist()
    [0, 2, 2, 5, 1]
    """
    length_N = rng.poisson(mean, size=ceil(1.2 * budget / mean) + 8)  # almost always sufficient
    while (total_N := np.cumsum(length_N))[-1] < budget:
        length_N = np.append(length_N, rng.poisson(mean, size=len(length_N)))
    last = int(np.searchsorted(total_N, budget))
    length_N[last] -= total_N[last] - budget
    return length_N[: last + 1] if budget else length_N[:0]


def _sentence_order(special_S: Bools, starts_S: Bools, fraction: float, rng: np.random.Generator) -> Ints:
    """Return a new order of the tokens: for each position, the index of its token.

    In each document, a fraction of the sentences, rounded up, change places.
    """
    begin_N = starts_S.nonzero()[0]  # each special token counts as a sentence
    special_N = special_S[begin_N]
    document_N, selected = special_N.cumsum(), (~special_N).nonzero()[0]
    if fraction < 1:
        selected = np.sort(rng.permutation(selected)[: ceil(fraction * len(selected) - 1e-9)])
    order_N = np.arange(len(begin_N))  # the number of the sentence at each place
    order_N[selected] = selected[(document_N[selected] + rng.random(len(selected))).argsort()]
    place_S, bound_N1 = np.arange(len(starts_S)), [*begin_N.tolist(), len(starts_S)]
    return np.concatenate([place_S[bound_N1[number] : bound_N1[number + 1]] for number in order_N.tolist()])


def _body(ids_U: Ints, special_S: Bools) -> tuple[int, int]:
    """Return start and stop of the sequence without a special token at its start and at its end.

    Noise moves neither of these tokens, so `special_S` may be the mask of the original sequence.
    """
    return int(special_S[0]), len(ids_U) - int(special_S[-1])
