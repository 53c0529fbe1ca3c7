"""Requests to a model: how likely is a continuation after a context?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from training.evaluation.likelihood.perplexities import Perplexity, PerplexityText, Windowing

PseudoKind = Literal["original", "within_word_l2r"]
"""Pseudo-log-likelihoods of masked language models.

original: mask one token at a time (Salazar et al. 2020, arXiv:1910.14659). within_word_l2r: also mask the later
tokens of its word, because they would reveal it (Kauf and Ivanova 2023, arXiv:2305.10588).
"""
PSEUDO_KINDS: Final = get_args(PseudoKind)
Result = TypeVar("Result")
_CACHE_SIZE: Final = 512  # cached encodings; requests of one context are consecutive, so few suffice


class Request(NamedTuple):
    """A request for the likelihood of `continuation` after `context`. The context may be empty; blanks between them may
    belong to either."""

    context: str
    continuation: str


class Option(Request):
    """A request that is compared with others of the same context. All of them are scored from the same position."""

    all_continuations: tuple[str, ...] = ()  # all compared continuations, with this one

    @classmethod
    def of(cls, context: str, continuations: Sequence[str]) -> list[Self]:
        """Return one request per continuation."""
        options, all_continuations = [cls(context, each) for each in continuations], tuple(continuations)
        for option in options:
            option.all_continuations = all_continuations
        return options


@dataclass(frozen=True)
class LogP:
    """Log-probability of a continuation, summed over its tokens; a pseudo-log-likelihood for masked language models."""

    nats: float
    tokens: int
    greedy: bool  # whether each token has the highest score
    cut: int = 0  # tokens dropped from the start of the context, because the sequence was too long
    last_nats: float = 0.0  # log-probability of the last token
    last_greedy: bool = False  # whether the last token has the highest score
    unknown: int = 0  # unknown tokens in the context and the continuation
    shares_token: bool = False  # whether the context ends inside a token, or is tokenized differently than alone


Scorer = Callable[[Sequence[Request]], list[LogP]]
"""Scores requests; results are in the order of the requests."""


class LikelihoodModel(Protocol):
    """A model, or an n-gram model, that assigns likelihoods to texts."""

    @property
    def vocab(self) -> Vocab:
        """The vocabulary that tokenizes texts."""

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind) -> list[LogP]:
        """Return the log-probability of each continuation.

        `pseudo` selects the kind of pseudo-log-likelihood of a masked language model. Raises UnscoredRequests if
        some continuations cannot be scored, and BadInput if the model gives no likelihoods.
        """

    def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
        """Return the perplexity of each text. Raises BadInput if the model has none, or the windows do not fit it."""

    def describe(self, pseudo: PseudoKind) -> str:
        """The kind of log-probability, in one line, for example "log p, from left to right"."""

    def format_request(self, request: Request) -> str:
        """The model input of a request as text, with special tokens."""


Pair = tuple[list[int], list[int]]
"""Token IDs of a context (at least one) and of a continuation."""


def split_at_word(request: Request) -> Request:
    """Move blanks at the end of the context to the start of the continuation, as in lm-eval.

    Byte-level tokens include the blank before a word.

    >>> split_at_word(Request("the cat ", "sat"))
    Request(context='the cat', continuation=' sat')
    """
    context = request.context.rstrip()
    return Request(context, request.context[len(context) :] + request.continuation)


class JoinedTokens(NamedTuple):
    """The tokens of a whole request, and the position where scoring starts."""

    ids: list[int]
    begin: int  # index of the first scored token
    start: int  # its first character in the whole text, leading blanks ignored
    shares_token: bool  # as in LogP
    any_shares: bool  # whether this or a compared continuation shares a token


Encode = Callable[[str], Sequence[tuple[int, int, int]]]
"""Maps a text to its tokens: ID, first character, and the character after the last."""


class TextEncoder(NamedTuple):
    """Encodes texts with a cache."""

    encode: Encode
    start_of: Callable[[str, tuple[str, ...]], tuple[bool, int]]  # `_start_of`


def encoder(vocab: Vocab) -> TextEncoder:
    """Return an encoder of request texts for this vocabulary."""
    encode = lru_cache(_CACHE_SIZE)(vocab.encode_with_offsets)
    return TextEncoder(encode, lru_cache(_CACHE_SIZE)(partial(_start_of, encode)))


def _start_of(encode: Encode, context: str, continuations: tuple[str, ...]) -> tuple[bool, int]:
    """Whether any continuation shares a token with the context, and the character at which scoring starts for all."""
    before, wholes = encode(context) if context else (), [encode(context + each) for each in continuations]
    if all(_begins(whole, before, len(context)) for whole in wholes):
        return False, len(context)
    return True, _last_end(len(context), [before, *wholes])


def join_request(encoder: TextEncoder, request: Request) -> JoinedTokens:
    """Return the token IDs of a request's text, and the position where scoring starts.

    If the token IDs of the context are a prefix of those of the whole text, the rest is the continuation, as in
    lm-eval. Otherwise one token may cover the end of the context and the start of the continuation ("in th", "e town").
    Scoring then starts at the last position where a token ends both in the context and in the whole text. So no part of
    the continuation is lost. Compared requests (`Option`) start at the same position.
    """
    context, continuation = split_at_word(request)
    behind = request.context[len(context) :]
    compared = getattr(request, "all_continuations", ()) if context else ()
    any_shares, start = encoder.start_of(context, tuple(behind + each for each in compared) or (continuation,))
    before, whole = encoder.encode(context) if context else (), encoder.encode(context + continuation)
    is_alike = _begins(whole, before, len(context))
    if is_alike and start == len(context):
        begin = len(before)
    else:
        begin = next((at for at, (_, _, stop) in enumerate(whole) if stop > start), len(whole))
    ids = [id for id, _, _ in whole]
    is_inside_context = start < len(context) and all(stop <= len(context) for _, _, stop in whole)
    if begin == len(ids) or is_inside_context:
        raise no_token(request)
    return JoinedTokens(ids, begin, start, not is_alike or start < len(context), any_shares)


def _begins(whole: Sequence[tuple[int, int, int]], before: Sequence[tuple[int, int, int]], size: int) -> bool:
    """Whether the tokens `before` of the first `size` characters are a prefix of `whole`, and cover only these
    characters.

    An unknown token may cover any number of characters.
    """
    first = whole[: len(before)]
    return [id for id, *_ in first] == [id for id, *_ in before] and all(stop <= size for *_, stop in first)


def _last_end(at: int, encodings: Sequence[Sequence[tuple[int, int, int]]]) -> int:
    """The largest position up to `at` that is inside no token of any encoding.

    >>> _last_end(5, [[(0, 0, 2), (1, 3, 5)], [(0, 0, 2), (2, 3, 6)]])
    3
    """
    while inside := [start for tokens in encodings for _, start, stop in tokens if start < at < stop]:
        at = min(inside)
    return at


def pair_of(vocab: Vocab, request: Request) -> Pair:
    """Return the token IDs of a request for a decoder: the whole text, split where `join_request` says.

    An empty context becomes [CLS] or <s>, or the end-of-text token if the vocabulary has neither. Raises NoToken if
    the continuation has no token.
    """
    return _pair(vocab, join_request(encoder(vocab), request))


def _pair(vocab: Vocab, joined: JoinedTokens) -> Pair:
    return (joined.ids[: joined.begin] or [first_of(vocab)]), joined.ids[joined.begin :]


def pairs_of(vocab: Vocab, requests: Sequence[Request], longest: int) -> list[tuple[Pair, int, bool]]:
    """Return token IDs for a decoder, the number of dropped context tokens, and `shares_token`, for each request.

    Sequences have at most `longest` tokens. Raises UnscoredRequests if a continuation has no token, or too many.
    """
    encode = encoder(vocab)

    def build(request: Request) -> tuple[Pair, int, bool]:
        found = join_request(encode, request)
        return *cut_to(_pair(vocab, found), longest), found.shares_token

    return each_of(requests, build)


class UnscoredRequests(BadInput):
    """Requests that cannot be scored; `why` maps their indices to reasons."""

    why: dict[int, str]


def each_of(requests: Sequence[Request], make: Callable[[Request], Result]) -> list[Result]:
    """Apply `make` to each request. Raises UnscoredRequests with all requests for which `make` raises BadInput."""
    results, why = list[Result](), dict[int, str]()
    for number, request in enumerate(requests):
        try:
            results.append(make(request))
        except BadInput as error:
            why[number] = str(error)
    if why:
        more = f" (and {len(why) - 1:,} more)" if len(why) > 1 else ""
        unscored = UnscoredRequests(f"{next(iter(why.values()))}{more}")
        unscored.why = why
        raise unscored
    return results


class NoToken(BadInput):
    """A continuation has no token of its own."""


def no_token(request: Request) -> NoToken:
    """Return the error for a request whose continuation has no token."""
    return NoToken(f"the continuation {request.continuation!r} has no token after {request.context[-40:]!r}")


def first_of(vocab: Vocab) -> int:
    """Return the token before the first token of a text."""
    first = vocab.around.before[-1] if vocab.around.before else vocab.sep
    if first is None:
        raise BadInput("the vocabulary has no token for the start of a text; give each text a context")
    return first


def cut_to(pair: Pair, longest: int) -> tuple[Pair, int]:
    """Truncate the start of the context to fit; return the pair and the number of dropped tokens.

    The pair may have `longest` + 1 tokens, since the last one is only predicted. Raises BadInput if the continuation
    alone is too long.

    >>> cut_to(([1, 2, 3], [4, 5]), 3)
    (([2, 3], [4, 5]), 1)
    """
    context, continuation = pair
    if len(continuation) > longest:
        raise BadInput(f"continuation too long: got {len(continuation)} tokens, expected at most {longest}; shorten it")
    over = max(0, len(context) + len(continuation) - longest - 1)
    return (context[over:], continuation), over
