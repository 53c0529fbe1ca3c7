"""An n-gram model with modified Kneser-Ney smoothing: the baseline beside the likelihoods of a net.

Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling", section 3, interpolated: of
each count a discount is taken, which differs for 1, 2, and 3 or more; shorter n-grams count the tokens that they have
been seen behind, not how often. Sentences begin with a token of their own, and n-grams that begin so keep their counts,
since nothing stands before them. What was never seen shares what the discounts of single tokens leave (as in KenLM,
Heafield et al. 2013). Tokens are ids, so that it is trained on what a net is trained on.

In memory an n-gram is its number among those of its length, sorted: a key of an n-gram is the number of the n-gram
without its last token, times the size of the vocabulary, and the last token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Bools, Floats, Ints
from preprocessing.tokenization import Vocab
from training.likelihood.perplexities import Perplexity, PerplexityText, Windowing, unknown_of
from training.likelihood.requests import LogP, PseudoKind, Request, each_of, encoder, join_request

Discounts = tuple[float, float, float]
"""What is taken of counts of 1, of 2, and of 3 or more."""

_FALLBACK: Final[Discounts] = (0.5, 1.0, 1.5)  # where a text is too small to estimate them (KenLM's)
_UNSEEN: Final = -1


@dataclass(frozen=True)
class _Order:
    """N-grams of one length, N of them, and for each of their contexts, C, what the discounts leave."""

    key_N: Ints  # int64, sorted
    share_N: Floats  # float32: the discounted count, divided by that of its context
    left_C: Floats  # float32: what is left to shorter n-grams


@dataclass(frozen=True)
class NGrams:
    """Probabilities of tokens behind as many as `len(orders) - 1` others; made by `fit`."""

    orders: tuple[_Order, ...]  # by length, from 1
    vocab_size: int  # without the two tokens around a sentence

    @property
    def order(self) -> int:
        return len(self.orders)

    def log_p(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Log-probability of each token of each text, in nats, from those before it in the text and its beginning.

        The number behind that of the beginning is the end of a sentence. BadInput where a token is in no vocabulary.
        """
        sizes = [len(text) + 1 for text in texts]
        begin = self.vocab_size
        strange = next((id for text in texts for id in text if id == begin or not 0 <= id <= begin + 1), None)
        if strange is not None:
            raise BadInput(f"token {strange} is none of the {begin} of the n-gram model; use its vocabulary")
        flat_T = np.array([id for text in texts for id in (begin, *text)], np.int64)
        place_T = np.concatenate([np.arange(size) for size in sizes]) if sizes else np.zeros(0, np.int64)
        with np.errstate(divide="ignore"):  # without discounts there are tokens of probability 0
            log_p_T = np.log(self._p(flat_T, place_T))
        return [part[1:] for part in np.split(log_p_T, np.cumsum(sizes)[:-1])] if sizes else []

    def _p(self, flat_T: Ints, place_T: Ints) -> Floats:
        """The probability of each token, shorter contexts first; that of the beginning of a text means nothing."""
        width = self.vocab_size + 2
        first = self.orders[0]
        p_T = first.share_N[flat_T].astype(np.float64) + first.left_C[0] / (self.vocab_size + 1)
        number_T = flat_T  # of the n-gram that ends at each token, of the length that the loop is at
        for length, order in enumerate(self.orders[1:], 2):
            if not len(order.key_N):  # no sentence is as long
                break
            context_T = np.append(_UNSEEN, number_T[:-1])
            context_T[place_T < length - 1] = _UNSEEN
            at = np.flatnonzero(context_T != _UNSEEN)
            p_T[at] *= order.left_C[context_T[at]]
            key = context_T[at] * width + flat_T[at]
            found = np.searchsorted(order.key_N, key)
            is_there = order.key_N[np.minimum(found, len(order.key_N) - 1)] == key
            p_T[at[is_there]] += order.share_N[found[is_there]]
            number_T = np.full(len(flat_T), _UNSEEN)
            number_T[at[is_there]] = found[is_there]
        return p_T


def fit(ids_T: Ints, starts_T: Bools, vocab_size: int, order: int = 5, discounts: Sequence[Discounts] = ()) -> NGrams:
    """N-grams of sentences, whose tokens lie end to end and whose first ones `starts_T` names.

    The discounts of each length are estimated from how many n-grams count 1, 2, 3, 4, unless they are given. BadInput
    where there is no token, or one is not in the vocabulary.
    """
    if not len(ids_T) or ids_T.max() >= vocab_size:
        highest = ids_T.max() if len(ids_T) else "no token"
        raise BadInput(f"an n-gram model of {vocab_size} tokens cannot be made of a text with {highest}")
    flat_T, sentence_T = _around(ids_T, starts_T, vocab_size)
    width, found = vocab_size + 2, list[_Order]()
    number_T: Ints = flat_T
    counts_N: Ints = np.bincount(flat_T, minlength=width)
    key_N: Ints = np.arange(width)
    begins_N = key_N == vocab_size  # whether an n-gram begins with a beginning
    for length in range(1, order + 1):
        longer = _longer(flat_T, sentence_T, number_T, width, length) if length < order else None
        if longer is not None:  # tokens that an n-gram was seen behind
            behind_N = np.bincount(longer.suffix_N, minlength=len(key_N))
            counts_N = np.where(begins_N, counts_N, behind_N)
        if length == 1:
            counts_N[vocab_size] = 0  # the beginning is never predicted
        given = discounts[length - 1] if discounts else estimate(counts_N)
        contexts = 1 if length == 1 else len(found[-1].key_N)
        found.append(_discounted(key_N, counts_N, given, width if length > 1 else 0, contexts))
        if longer is not None:
            begins_N = begins_N[longer.key_N // width]
            number_T, counts_N, key_N = longer.number_T, longer.counts_N, longer.key_N
    return NGrams(tuple(found), vocab_size)


def estimate(counts_N: Ints) -> Discounts:
    """The discounts that how many n-grams have counts of 1, 2, 3 and 4 suggests (Chen and Goodman, 17).

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
    """N-grams that are one token longer: their number at each place, and what is known of each."""

    number_T: Ints  # int32, by the place of the first token; _UNSEEN where a sentence ends before
    key_N: Ints
    counts_N: Ints
    suffix_N: Ints  # the number of the n-gram without its first token


def _around(ids_T: Ints, starts_T: Bools, vocab_size: int) -> tuple[Ints, Ints]:
    """All tokens with a beginning and an end around each sentence, and the number of the sentence of each."""
    starts_T = np.array(starts_T, np.bool_)
    starts_T[0] = True
    sentence_T = np.cumsum(starts_T) - 1
    first_U = np.flatnonzero(starts_T)
    flat_T = np.full(len(ids_T) + 2 * len(first_U), vocab_size + 1, np.int32)
    flat_T[np.arange(len(ids_T)) + 2 * sentence_T + 1] = ids_T
    flat_T[first_U + 2 * np.arange(len(first_U))] = vocab_size
    return flat_T, np.cumsum(flat_T == vocab_size, dtype=np.int32)


def _longer(flat_T: Ints, sentence_T: Ints, number_T: Ints, width: int, length: int) -> _Longer:
    """The n-grams of `length` + 1 tokens, of which `number_T` numbers those of `length` at their first token."""
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


def _discounted(key_N: Ints, counts_N: Ints, given: Discounts, width: int, contexts: int) -> _Order:
    """Counts as shares of their contexts, less the discounts, and what these leave; `width` 0: there is one context."""
    context_N = key_N // width if width else np.zeros(len(key_N), np.int64)
    total_C = np.bincount(context_N, counts_N, minlength=contexts)
    taken_N = np.minimum(np.array([0.0, *given])[np.minimum(counts_N, 3)], counts_N)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_C = np.bincount(context_N, taken_N, minlength=contexts) / total_C
        share_N = (counts_N - taken_N) / total_C[context_N]
    left_C[total_C == 0] = 1.0  # a context that nothing was seen behind
    return _Order(key_N, np.nan_to_num(share_N).astype(np.float32), left_C.astype(np.float32))


@dataclass(frozen=True)
class NGramLikelihood:
    """N-grams as a `Reader`, so that they are asked what a net is asked, in the tokens of its vocabulary."""

    ngrams: NGrams
    vocab: Vocab

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind = "within_word_l2r") -> list[LogP]:
        encode = encoder(self.vocab)
        asked = each_of(requests, lambda request: join_request(encode, request))
        nats = [
            nats_S[one.begin :] for nats_S, one in zip(self.ngrams.log_p([a.ids for a in asked]), asked, strict=True)
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
            for nats_S, one in zip(nats, asked, strict=True)
        ]

    def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
        """A text is one sentence, however many it has; where ends of lines are words, each line is one."""
        return [self._perplexity(text) for text in texts]

    def _perplexity(self, text: PerplexityText) -> Perplexity:
        lines = text.text.removesuffix("\n").split("\n") if text.line_ends else [text.text]
        ids = [self.vocab.encode(line) for line in lines]
        nats_T, unknown = np.concatenate(self.ngrams.log_p(ids)), sum(unknown_of(self.vocab, each) for each in ids)
        size = self.ngrams.order
        return Perplexity(-float(nats_T.sum()), len(nats_T), text.words, text.bytes, size, 1, unknown=unknown)

    def describe(self, pseudo: PseudoKind = "within_word_l2r") -> str:
        return f"log p by {self.ngrams.order}-grams (modified Kneser-Ney); no token is said to be the likeliest"

    def shown(self, request: Request) -> str:
        return request.context + request.continuation
