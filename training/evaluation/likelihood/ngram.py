"""An n-gram model with modified Kneser-Ney smoothing: a baseline for the likelihoods of models.

The method is that of Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling", section
3, interpolated. A discount is subtracted from each count; it differs for counts of 1, of 2, and of 3 or more. The count
of a shorter n-gram is the number of distinct tokens before it, not of its occurrences. Sentences start with a start
token; n-grams that start with it keep their counts, since no token precedes them. The probability mass of the unigram
discounts is divided among all tokens (as in KenLM, Heafield et al. 2013). Tokens are IDs, so the model is trained on
the same data as a neural model.

In memory, an n-gram is its index among the sorted n-grams of its length. The key of an n-gram is the index of its
context, times the size of the vocabulary, plus its last token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Bools, Floats, Ints
from preprocessing.tokenization import Vocab
from training.evaluation.likelihood.perplexities import Perplexity, PerplexityText, Windowing, unknown_of
from training.evaluation.likelihood.requests import LogP, PseudoKind, Request, each_of, encoder, join_request

Discounts = tuple[float, float, float]
"""The discounts of counts of 1, of 2, and of 3 or more."""

_FALLBACK: Final[Discounts] = (0.5, 1.0, 1.5)  # for texts too small to estimate them (as in KenLM)
_UNSEEN: Final = -1


@dataclass(frozen=True)
class _Order:
    """The N n-grams of one length, and the left-over probability of each of their C contexts."""

    key_N: Ints  # int64, sorted
    share_N: Floats  # float32: the discounted count, divided by the count of the context
    left_C: Floats  # float32: the probability left to shorter n-grams


@dataclass(frozen=True)
class NGrams:
    """Probabilities of tokens given up to `len(orders) - 1` previous tokens; made by `fit`."""

    orders: tuple[_Order, ...]  # by length, from 1
    vocab_size: int  # without the start and end tokens of a sentence

    @property
    def order(self) -> int:
        return len(self.orders)

    def log_p(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the log-probability of each token of each text, in nats, given the start token and the tokens
        before it.

        The start token has the ID `vocab_size`, and the end token `vocab_size + 1`. Raises BadInput if a token is
        not in the vocabulary.
        """
        sizes = [len(text) + 1 for text in texts]
        begin = self.vocab_size
        strange = next((id for text in texts for id in text if id == begin or not 0 <= id <= begin + 1), None)
        if strange is not None:
            raise BadInput(f"invalid token ID: got {strange}, expected less than {begin}; use the n-gram vocabulary")
        flat_T = np.array([id for text in texts for id in (begin, *text)], np.int64)
        place_T = np.concatenate([np.arange(size) for size in sizes]) if sizes else np.zeros(0, np.int64)
        with np.errstate(divide="ignore"):  # without discounts, tokens can have probability 0
            log_p_T = np.log(self._p(flat_T, place_T))
        return [part[1:] for part in np.split(log_p_T, np.cumsum(sizes)[:-1])] if sizes else []

    def _p(self, flat_T: Ints, place_T: Ints) -> Floats:
        """The probability of each token, from shorter to longer contexts; the value of a start token is meaningless."""
        width = self.vocab_size + 2
        first = self.orders[0]
        p_T = first.share_N[flat_T].astype(np.float64) + first.left_C[0] / (self.vocab_size + 1)
        number_T = flat_T  # index of the n-gram of the current length that ends at each token
        for length, order in enumerate(self.orders[1:], 2):
            if not len(order.key_N):  # all sentences are shorter
                break
            context_T = np.append(_UNSEEN, number_T[:-1])
            context_T[place_T < length - 1] = _UNSEEN
            at = np.flatnonzero(context_T != _UNSEEN)
            p_T[at] *= order.left_C[context_T[at]]
            key = context_T[at] * width + flat_T[at]
            index = np.searchsorted(order.key_N, key)
            is_there = order.key_N[np.minimum(index, len(order.key_N) - 1)] == key
            p_T[at[is_there]] += order.share_N[index[is_there]]
            number_T = np.full(len(flat_T), _UNSEEN)
            number_T[at[is_there]] = index[is_there]
        return p_T


def fit(ids_T: Ints, starts_T: Bools, vocab_size: int, order: int = 5, discounts: Sequence[Discounts] = ()) -> NGrams:
    """Count the n-grams of concatenated sentences; `starts_T` marks the first token of each sentence.

    The discounts of each length are estimated from the numbers of n-grams with counts 1, 2, 3 and 4, unless they are
    given. Raises BadInput if there is no token, or a token is not in the vocabulary.
    """
    if not len(ids_T) or ids_T.max() >= vocab_size:
        highest = f"token ID {ids_T.max()}" if len(ids_T) else "no tokens"
        raise BadInput(f"invalid text: got {highest}, expected IDs below {vocab_size}; use the n-gram vocabulary")
    flat_T, sentence_T = _around(ids_T, starts_T, vocab_size)
    width, orders = vocab_size + 2, list[_Order]()
    number_T: Ints = flat_T
    counts_N: Ints = np.bincount(flat_T, minlength=width)
    key_N: Ints = np.arange(width)
    begins_N = key_N == vocab_size  # whether an n-gram starts with the start token
    for length in range(1, order + 1):
        longer = _longer(flat_T, sentence_T, number_T, width, length) if length < order else None
        if longer is not None:  # count the distinct tokens before each n-gram
            behind_N = np.bincount(longer.suffix_N, minlength=len(key_N))
            counts_N = np.where(begins_N, counts_N, behind_N)
        if length == 1:
            counts_N[vocab_size] = 0  # the start token is never predicted
        order_discounts = discounts[length - 1] if discounts else estimate(counts_N)
        contexts = 1 if length == 1 else len(orders[-1].key_N)
        orders.append(_discount(key_N, counts_N, order_discounts, width if length > 1 else 0, contexts))
        if longer is not None:
            begins_N = begins_N[longer.key_N // width]
            number_T, counts_N, key_N = longer.number_T, longer.counts_N, longer.key_N
    return NGrams(tuple(orders), vocab_size)


def estimate(counts_N: Ints) -> Discounts:
    """Estimate discounts from the numbers of n-grams with counts 1, 2, 3 and 4 (Chen and Goodman, equation 17).

    >>> [round(each, 3) for each in estimate(np.repeat([1, 2, 3, 4], [100, 40, 20, 12]))]
    [0.556, 1.167, 1.667]
    """
    n = np.bincount(np.minimum(counts_N, 5), minlength=5)[:5].astype(float).tolist()
    if not all(n[1:]):
        return _FALLBACK
    y = n[1] / (n[1] + 2 * n[2])
    first, second, third = (k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))
    return (first, second, third) if 0 < first < 1 and 0 < second < 2 and 0 < third < 3 else _FALLBACK


@dataclass(frozen=True)
class _Longer:
    """The n-grams with one more token: their indices at each position, keys and counts."""

    number_T: Ints  # int32, by position of the first token; _UNSEEN if the sentence ends earlier
    key_N: Ints
    counts_N: Ints
    suffix_N: Ints  # index of the n-gram without its first token


def _around(ids_T: Ints, starts_T: Bools, vocab_size: int) -> tuple[Ints, Ints]:
    """Add start and end tokens around each sentence; return all tokens and the sentence number of each."""
    starts_T = np.array(starts_T, np.bool_)
    starts_T[0] = True
    sentence_T = np.cumsum(starts_T) - 1
    first_U = np.flatnonzero(starts_T)
    flat_T = np.full(len(ids_T) + 2 * len(first_U), vocab_size + 1, np.int32)
    flat_T[np.arange(len(ids_T)) + 2 * sentence_T + 1] = ids_T
    flat_T[first_U + 2 * np.arange(len(first_U))] = vocab_size
    return flat_T, np.cumsum(flat_T == vocab_size, dtype=np.int32)


def _longer(flat_T: Ints, sentence_T: Ints, number_T: Ints, width: int, length: int) -> _Longer:
    """Return the n-grams of `length` + 1 tokens; `number_T` has the index of the n-gram of `length` tokens that starts
    at each position."""
    last = max(0, len(flat_T) - length)
    place_M = np.flatnonzero((sentence_T[:last] == sentence_T[length:]) & (number_T[:last] != _UNSEEN))
    key_M = number_T[place_M].astype(np.int64) * width + flat_T[place_M + length]
    order_M = np.argsort(key_M, kind="stable")
    key_M = key_M[order_M]
    is_new_M = np.append(True, key_M[1:] != key_M[:-1]) if len(key_M) else np.zeros(0, np.bool_)
    first_N = np.flatnonzero(is_new_M)
    number = np.full(len(flat_T), _UNSEEN, np.int32)
    number[place_M[order_M]] = np.cumsum(is_new_M, dtype=np.int32) - 1
    suffix_N = number_T[place_M[order_M[first_N]] + 1]
    return _Longer(number, key_M[first_N], np.diff(np.append(first_N, len(key_M))), suffix_N)


def _discount(key_N: Ints, counts_N: Ints, discounts: Discounts, width: int, contexts: int) -> _Order:
    """Divide discounted counts by the counts of their contexts; also return the left-over probability.

    `width` is 0 if there is only the empty context.
    """
    context_N = key_N // width if width else np.zeros(len(key_N), np.int64)
    total_C = np.bincount(context_N, counts_N, minlength=contexts)
    taken_N = np.minimum(np.array([0.0, *discounts])[np.minimum(counts_N, 3)], counts_N)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_C = np.bincount(context_N, taken_N, minlength=contexts) / total_C
        share_N = (counts_N - taken_N) / total_C[context_N]
    left_C[total_C == 0] = 1.0  # a context without continuations
    return _Order(key_N, np.nan_to_num(share_N).astype(np.float32), left_C.astype(np.float32))


@dataclass(frozen=True)
class NGramLikelihood:
    """N-grams as a `LikelihoodModel`, with the vocabulary of a neural model."""

    ngrams: NGrams
    vocab: Vocab

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind = "within_word_l2r") -> list[LogP]:
        encode = encoder(self.vocab)
        joined = each_of(requests, lambda request: join_request(encode, request))
        nats = [
            nats_S[one.begin :] for nats_S, one in zip(self.ngrams.log_p([a.ids for a in joined]), joined, strict=True)
        ]
        return [
            LogP(
                float(nats_S.sum()),
                len(nats_S),
                False,
                last_nats=float(nats_S[-1]),
                unknown=unknown_of(self.vocab, one.ids),
                shares_token=one.shares_token,
            )
            for nats_S, one in zip(nats, joined, strict=True)
        ]

    def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
        """Return the perplexity of each text. A text is read as one sentence; if line ends count as words, each line is
        a sentence."""
        return [self._perplexity(text) for text in texts]

    def _perplexity(self, text: PerplexityText) -> Perplexity:
        lines = text.text.removesuffix("\n").split("\n") if text.line_ends else [text.text]
        ids = [self.vocab.encode(line) for line in lines]
        nats_T, unknown = np.concatenate(self.ngrams.log_p(ids)), sum(unknown_of(self.vocab, each) for each in ids)
        size = self.ngrams.order
        return Perplexity(-float(nats_T.sum()), len(nats_T), text.words, text.bytes, size, 1, unknown=unknown)

    def describe(self, pseudo: PseudoKind = "within_word_l2r") -> str:
        return f"log p by {self.ngrams.order}-grams (modified Kneser-Ney); greedy matches are not computed"

    def format_request(self, request: Request) -> str:
        return request.context + request.continuation
