"""What is asked of a net: how likely is this text after that one?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, get_args

from preprocessing.errors import BadInput
from preprocessing.vocab import Vocab
from training.likelihood.perplexities import Perplexity, Text, Windowing

PseudoKind = Literal["original", "within_word_l2r"]
"""The pseudo-log-likelihoods of masked models. original: one token is masked at a time (Salazar et al. 2020,
arXiv:1910.14659). within_word_l2r: the later tokens of its word are masked too, so that they do not give it away (Kauf
and Ivanova 2023, arXiv:2305.10588)."""
PSEUDO_KINDS: Final = get_args(PseudoKind)


class Request(NamedTuple):
    """How likely is `continuation` behind `context`, which may be empty? Blanks between the two belong to either."""

    context: str
    continuation: str


@dataclass(frozen=True)
class LogP:
    """The log-probability of a continuation: the sum over its tokens; a pseudo one where a masked model gave it."""

    nats: float
    tokens: int
    greedy: bool  # whether each token is the one with the highest score
    cut: int = 0  # tokens at the beginning of the context that the net did not read: the row was too long
    last_nats: float = 0.0  # of the last token alone
    last_greedy: bool = False  # whether that is the one with the highest score
    unknown: int = 0  # tokens of the context and the continuation that stand for what the vocabulary does not have


Scorer = Callable[[Sequence[Request]], list[LogP]]
"""A net that is asked; answers stand in the order of the requests."""


class Reader(Protocol):
    """A net, or an n-gram model, that says how likely texts are."""

    @property
    def vocab(self) -> Vocab:
        """What texts are cut into."""

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind) -> list[LogP]:
        """The log-probability of each continuation; `pseudo` says which one a masked model gives. BadInput where there
        is none."""

    def perplexities(self, texts: Sequence[Text], windowing: Windowing) -> list[Perplexity]:
        """How well it predicts each text. BadInput where it predicts none, or the numbers do not fit it."""

    def describe(self, pseudo: PseudoKind) -> str:
        """What its log-probabilities are, in one line: "log p, left to right"."""

    def shown(self, request: Request) -> str:
        """A request as it is read, special tokens written out."""


Pair = tuple[list[int], list[int]]
"""Ids of a context, one at least, and those of a continuation."""


def split_at_word(request: Request) -> Request:
    """The same text with the blanks that end the context at the beginning of the continuation, as in lm-eval.

    Byte-level pieces begin with the blank before a word.

    >>> split_at_word(Request("the cat ", "sat"))
    Request(context='the cat', continuation=' sat')
    """
    context = request.context.rstrip()
    return Request(context, request.context[len(context) :] + request.continuation)


def pair_of(vocab: Vocab, request: Request) -> Pair:
    """The ids of a request for a decoder, as lm-eval has them (api/model.py, `_encode_pair`).

    The continuation is what the whole text has behind as many tokens as the context alone has. Where the context is
    empty, a text begins behind [CLS] or <s>, or where there is none, behind the end of a text. NoToken where the
    continuation is none.
    """
    context, continuation = split_at_word(request)
    if request.context:
        whole, before = vocab.encode(context + continuation), vocab.encode(context)
        pair = before, whole[len(before) :]
    else:
        pair = [], vocab.encode(continuation)
    if not pair[1]:
        raise no_token(request)
    return (pair[0] or [first_of(vocab)]), pair[1]


class NoToken(BadInput):
    """A continuation is no token."""

    request: Request


def no_token(request: Request) -> NoToken:
    """The error of a request whose continuation is no token, in one line."""
    error = NoToken(f"the continuation {request.continuation!r} has no token behind {request.context[-40:]!r}")
    error.request = request
    return error


def first_of(vocab: Vocab) -> int:
    """The token behind which a text begins."""
    first = vocab.around.before[-1] if vocab.around.before else vocab.sep
    if first is None:
        raise BadInput("the vocabulary has no token that a text could begin behind; give each text a context")
    return first


def cut_to(pair: Pair, longest: int) -> tuple[Pair, int]:
    """The pair in a row of `longest` tokens and the one behind it, and how many tokens of the context that costs.

    Tokens go at the beginning. BadInput where the continuation alone is too long.

    >>> cut_to(([1, 2, 3], [4, 5]), 3)
    (([2, 3], [4, 5]), 1)
    """
    context, continuation = pair
    if len(continuation) > longest:
        raise BadInput(f"a continuation of {len(continuation)} tokens does not fit a net of {longest} positions")
    over = max(0, len(context) + len(continuation) - longest - 1)
    return (context[over:], continuation), over
