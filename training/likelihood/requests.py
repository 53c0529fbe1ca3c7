"""What is asked of a net: how likely is this text after that one?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from training.likelihood.perplexities import Perplexity, PerplexityText, Windowing

PseudoKind = Literal["original", "within_word_l2r"]
"""The pseudo-log-likelihoods of masked models. original: one token is masked at a time (Salazar et al. 2020,
arXiv:1910.14659). within_word_l2r: the later tokens of its word are masked too, so that they do not give it away (Kauf
and Ivanova 2023, arXiv:2305.10588)."""
PSEUDO_KINDS: Final = get_args(PseudoKind)
Made = TypeVar("Made")
_KEPT: Final = 512  # encoded texts: requests with one context stand together, and those of a whole task are too many


class Request(NamedTuple):
    """How likely is `continuation` behind `context`, which may be empty? Blanks between the two belong to either."""

    context: str
    continuation: str


class Option(Request):
    """A request that is compared with others of the same context: all of them are scored from one place of the text."""

    all_continuations: tuple[str, ...] = ()  # of those that are compared, with its own

    @classmethod
    def of(cls, context: str, continuations: Sequence[str]) -> list[Self]:
        """One for each continuation."""
        found, together = [cls(context, each) for each in continuations], tuple(continuations)
        for option in found:
            option.all_continuations = together
        return found


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
    shares_token: bool = False  # whether the context ends inside of a token, or has other tokens than it has alone


Scorer = Callable[[Sequence[Request]], list[LogP]]
"""A net that is asked; answers stand in the order of the requests."""


class LikelihoodModel(Protocol):
    """A net, or an n-gram model, that says how likely texts are."""

    @property
    def vocab(self) -> Vocab:
        """What texts are cut into."""

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind) -> list[LogP]:
        """The log-probability of each continuation; `pseudo` says which one a masked model gives. Unscored where some
        have none, BadInput where the reader gives none at all."""

    def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
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


class JoinedTokens(NamedTuple):
    """The tokens of a whole request, and where its continuation begins."""

    ids: list[int]
    begin: int  # number of the first token that is scored
    start: int  # character of the whole text at which that begins, the blanks before it left aside
    shares_token: bool  # as in LogP
    any_shares: bool  # whether it does, or one of those that it is compared with


Encode = Callable[[str], Sequence[tuple[int, int, int]]]
"""The tokens of a text: id, first character, the one behind the last."""


class TextEncoder(NamedTuple):
    """Encodes texts, and keeps the last ones."""

    encode: Encode
    start_of: Callable[[str, tuple[str, ...]], tuple[bool, int]]  # `_start_of`


def encoder(vocab: Vocab) -> TextEncoder:
    """What encodes the texts of requests with this vocabulary."""
    encode = lru_cache(_KEPT)(vocab.encode_with_offsets)
    return TextEncoder(encode, lru_cache(_KEPT)(partial(_start_of, encode)))


def _start_of(encode: Encode, context: str, continuations: tuple[str, ...]) -> tuple[bool, int]:
    """Whether one of these continuations shares a token with the context, and the character of the text from which all
    of them are scored."""
    before, wholes = encode(context) if context else (), [encode(context + each) for each in continuations]
    if all(_begins(whole, before, len(context)) for whole in wholes):
        return False, len(context)
    return True, _last_end(len(context), [before, *wholes])


def join_request(encoder: TextEncoder, request: Request) -> JoinedTokens:
    """The ids of the text of a request, and from where on they are scored.

    Where the ids of the context begin those of the whole text, all behind them is the continuation, as lm-eval has it.
    Elsewhere a token may stand for the end of the context and the begin of the continuation ("in th", "e town"): it is
    scored from the last place at which a token ends in the context and in the whole text, so that nothing of the
    continuation is lost. Of an `Option`, the place is one for all that it is compared with.
    """
    context, continuation = split_at_word(request)
    behind = request.context[len(context) :]
    together = getattr(request, "all_continuations", ()) if context else ()
    any_shares, start = encoder.start_of(context, tuple(behind + each for each in together) or (continuation,))
    before, whole = encoder.encode(context) if context else (), encoder.encode(context + continuation)
    is_alike = _begins(whole, before, len(context))
    if is_alike and start == len(context):
        begin = len(before)
    else:
        begin = next((at for at, (_, _, stop) in enumerate(whole) if stop > start), len(whole))
    ids = [id for id, _, _ in whole]
    is_nothing = start < len(context) and all(stop <= len(context) for _, _, stop in whole)
    if begin == len(ids) or is_nothing:
        raise no_token(request)
    return JoinedTokens(ids, begin, start, not is_alike or start < len(context), any_shares)


def _begins(whole: Sequence[tuple[int, int, int]], before: Sequence[tuple[int, int, int]], size: int) -> bool:
    """Whether a text begins with the ids of its first `size` characters, and they stand for no more than these: one
    token that is unknown may stand for any number."""
    first = whole[: len(before)]
    return [id for id, *_ in first] == [id for id, *_ in before] and all(stop <= size for *_, stop in first)


def _last_end(at: int, encodings: Sequence[Sequence[tuple[int, int, int]]]) -> int:
    """The last character up to `at` that is inside of no token of any of the encodings.

    >>> _last_end(5, [[(0, 0, 2), (1, 3, 5)], [(0, 0, 2), (2, 3, 6)]])
    3
    """
    while inside := [start for tokens in encodings for _, start, stop in tokens if start < at < stop]:
        at = min(inside)
    return at


def pair_of(vocab: Vocab, request: Request) -> Pair:
    """The ids of a request for a decoder: those of the whole text, cut where `joined` says.

    Where nothing stands before the continuation, a text begins behind [CLS] or <s>, or where there is none, behind the
    end of a text. NoToken where the continuation is none.
    """
    return _pair(vocab, join_request(encoder(vocab), request))


def _pair(vocab: Vocab, found: JoinedTokens) -> Pair:
    return (found.ids[: found.begin] or [first_of(vocab)]), found.ids[found.begin :]


def pairs_of(vocab: Vocab, requests: Sequence[Request], longest: int) -> list[tuple[Pair, int, bool]]:
    """For each request its ids for a decoder in a row of so many tokens, how many tokens of the context that costs, and
    whether it shares a token with that. Unscored where some of them have no token, or too many."""
    encode = encoder(vocab)

    def made(request: Request) -> tuple[Pair, int, bool]:
        found = join_request(encode, request)
        return *cut_to(_pair(vocab, found), longest), found.shares_token

    return each_of(requests, made)


class UnscoredRequests(BadInput):
    """Requests that cannot be scored, and why: by their numbers."""

    why: dict[int, str]


def each_of(requests: Sequence[Request], make: Callable[[Request], Made]) -> list[Made]:
    """What is made of each request; Unscored, with all of those of which nothing can be made."""
    found, why = list[Made](), dict[int, str]()
    for number, request in enumerate(requests):
        try:
            found.append(make(request))
        except BadInput as error:
            why[number] = str(error)
    if why:
        more = f" (and {len(why) - 1:,} more)" if len(why) > 1 else ""
        unscored = UnscoredRequests(f"{next(iter(why.values()))}{more}")
        unscored.why = why
        raise unscored
    return found


class NoToken(BadInput):
    """A continuation is no token."""


def no_token(request: Request) -> NoToken:
    """The error of a request whose continuation is no token, in one line."""
    return NoToken(f"the continuation {request.continuation!r} has no token behind {request.context[-40:]!r}")


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
