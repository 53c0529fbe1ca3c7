"""The token at which a continuation starts, for every vocabulary and every kind of model."""

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.tokenization import ENDED, Frame, TokenizerSpec, Vocab, add_frame
from tests.training.evaluation.likelihood import test_seq2seq
from tests.training.evaluation.likelihood.nets import BERT, GPT2, LONG
from tests.training.parity import built
from training.evaluation.likelihood import (
    LikelihoodModel,
    NGramLikelihood,
    Option,
    Request,
    UnscoredRequests,
    encoder,
    fit,
    join_request,
    pair_of,
    requests,
)
from training.evaluation.likelihood.models import CausalLikelihood
from training.losses import MaskedTokens, NextToken
from training.model_spec import ModelSpec

TEXT = ["It was in the town that they met, and the other towns were there then. "] * 30
TEXT += ["That is it, in the town at the end. The unbelievable believer believes in thunder. "] * 20
CHINESE = ["我们在北京大学学习中文。北京的大学很多。学生也很多。今天天气很好。我们去公园玩。"] * 30
SPECS: dict[str, TokenizerSpec] = {
    "wordpiece": tokenization.WordPiece(vocab_size=150),
    "byte_level_bpe": tokenization.ByteLevelBPE(vocab_size=400),
    "unigram": tokenization.Unigram(vocab_size=31),
    "sentencepiece_bpe": tokenization.SentencePieceBPE(vocab_size=92),
    "words": tokenization.WordLevel(vocab_size=100),
    "bytes": tokenization.SingleBytes(vocab_size=300),
}
ENGLISH = Option.of("It was in th", ["e town", "at town"])
SHARING = [kind for kind in SPECS if kind != "bytes"]


@cache
def vocabulary(kind: str, language: str = "en") -> Vocab:
    return tokenization.train(SPECS[kind], TEXT if language == "en" else CHINESE)


def text_after_first_character(pieces: Vocab, text: str, ids: Sequence[int]) -> str:
    """The text after the first character of its last tokens `ids`."""
    tokens = pieces.encode_with_offsets(text)
    assert [id for id, *_ in tokens[len(tokens) - len(ids) :]] == ids
    return text[tokens[len(tokens) - len(ids)][1] :].strip()


@pytest.mark.parametrize("kind", SHARING)
def test_a_token_shared_with_the_context_is_scored(kind: str) -> None:
    """The text used to be cut after as many tokens as the context has alone: "e town" and "at town" both became
    "town"."""
    pieces = vocabulary(kind)
    for option in ENGLISH:
        text = "".join(option)
        context, continuation = pair_of(pieces, option)
        assert context + continuation == pieces.encode(text)
        assert text_after_first_character(pieces, text, continuation) == "th" + option.continuation
        assert join_request(encoder(pieces), option).shares_token
    assert len({tuple(pair_of(pieces, option)[1]) for option in ENGLISH}) == 2


@pytest.mark.parametrize("kind", SPECS)
def test_a_continuation_after_a_whole_token_starts_after_the_context(kind: str) -> None:
    pieces = vocabulary(kind)
    for request in (
        Request("It was in", " the town"),
        Request("It was in ", "the town"),
        *Option.of("It", [" is", " was"]),
    ):
        context, continuation = pair_of(pieces, request)
        assert context == pieces.encode(request.context.rstrip())
        assert context + continuation == pieces.encode("".join(request))
        assert not join_request(encoder(pieces), request).shares_token


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("context", ["我们在北", "今天天", "北京的大"])
def test_chinese_continuations_without_spaces_start_at_the_same_token(kind: str, context: str) -> None:
    """The whole continuation is scored, and all options start at one token, even if whole words are tokens."""
    pieces = vocabulary(kind, "zh")
    options = Option.of(context, ["京大学很多", "气很好", "学生也很多"])
    found = [join_request(encoder(pieces), option) for option in options]
    assert len({one.start for one in found}) == 1
    for one, option in zip(found, options, strict=True):
        assert one.ids == pieces.encode("".join(option))
        tokens = pieces.encode_with_offsets("".join(option))
        assert all(stop <= one.start for *_, stop in tokens[: one.begin])
        assert tokens[one.begin][1] <= one.start <= len(context)
    assert kind not in ("wordpiece", "bytes") or not any(one.shares_token for one in found)


def test_options_are_scored_from_the_same_token() -> None:
    """An option that shares no token with the context would otherwise lack the factor of the shared token."""
    pieces = vocabulary("byte_level_bpe")
    alone, beside = Request("It was in th", "x"), Option.of("It was in th", ["x", "e town"])[0]
    assert text_after_first_character(pieces, "It was in thx", pair_of(pieces, alone)[1]) == "x"
    assert text_after_first_character(pieces, "It was in thx", pair_of(pieces, beside)[1]) == "thx"


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
def test_an_unknown_token_does_not_hide_the_continuation(kind: str) -> None:
    """The IDs are those of the context, but the unknown token stands for one more word."""
    pieces = vocabulary(kind)
    context, continuation = pair_of(pieces, Request("It was in zq", "qzq town"))
    assert len(context) == len(pieces.encode("It was in"))
    assert continuation[0] == pieces.unk
    with pytest.raises(BadInput, match="has no token after 'It was in zq'"):
        pair_of(pieces, Request("It was in zq", ""))


@cache
def reader(kind: str) -> LikelihoodModel:
    pieces = vocabulary("wordpiece" if kind == "masked" else "byte_level_bpe")
    if kind == "ngram":
        ids = [pieces.encode(text) for text in TEXT[::10]]
        flat = np.concatenate([np.array(each) for each in ids])
        starts = np.concatenate([np.arange(len(each)) == 0 for each in ids])
        return NGramLikelihood(fit(flat, starts, pieces.size, order=3), pieces)
    if kind == "seq2seq":
        return CausalLikelihood(test_seq2seq.net("bart"), test_seq2seq.vocabulary("bart"))
    trunk, loss = (BERT, MaskedTokens()) if kind == "masked" else (GPT2, NextToken())
    return CausalLikelihood(built(ModelSpec(model=trunk, losses=(loss,), vocab_size=pieces.size)), pieces)


def options_sharing_a_token(kind: str) -> list[Option]:
    """Options that share a token with their context, in the vocabulary of the model."""
    return Option.of("Th", ["e fox", "at fox"]) if kind == "seq2seq" else ENGLISH


@pytest.mark.parametrize("kind", ["causal", "masked", "seq2seq", "ngram"])
def test_different_options_have_different_scores_and_are_marked_as_sharing(kind: str) -> None:
    clear = Request("The quick", " fox") if kind == "seq2seq" else Request("It was in", " the town")
    one, other, without = reader(kind).log_ps([*options_sharing_a_token(kind), clear], "within_word_l2r")
    assert one.nats != other.nats
    assert (one.shares_token, other.shares_token, without.shares_token) == (True, True, False)


def test_a_decoder_with_a_source_reads_only_the_tokens_of_the_continuation() -> None:
    """The source contains the whole context, and the decoder does not repeat its end."""
    shown = [reader("seq2seq").format_request(option) for option in options_sharing_a_token("seq2seq")]
    assert shown == ["<s>Th</s> => </s><s>e fox", "<s>Th</s> => </s><s>at fox"]


@pytest.mark.parametrize("kind", ["causal", "masked", "seq2seq", "ngram"])
def test_all_unscorable_requests_are_named_together(kind: str) -> None:
    asked = [Request("The", " fox"), Request("Pack", ""), Request("The", " dog"), Request("", "")]
    wrong = {
        1: "the continuation '' has no token after 'Pack'",
        3: "the continuation '' has no token after ''",
    }
    if kind != "ngram":
        asked.append(Request("", LONG * 3))
    with pytest.raises(UnscoredRequests) as caught:
        reader(kind).log_ps(asked, "within_word_l2r")
    assert {number: caught.value.why[number] for number in wrong} == wrong
    assert kind == "ngram" or "continuation too long" in caught.value.why[4]
    assert str(caught.value) == f"{wrong[1]} (and {len(asked) - 3} more)"


def test_time_for_options_is_proportional_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs used to be compared: 50 options of a long context took fifty times as long as their encoding."""
    compared, texts = list[int](), list[str]()

    def begins(*given: Any) -> bool:
        compared.append(1)
        return is_begun(*given)

    def encode(text: str) -> list[tuple[int, int, int]]:
        texts.append(text)
        return pieces.encode_with_offsets(text)

    pieces, is_begun = vocabulary("byte_level_bpe"), requests._begins
    monkeypatch.setattr(requests, "_begins", begins)
    options = Option.of("It was in", [f" the town {number}" for number in range(60)])
    made = encoder(SimpleNamespace(encode_with_offsets=encode))  # type: ignore[arg-type]
    assert len({join_request(made, option).start for option in options}) == 1
    assert len(texts) == 61
    assert len(compared) <= 2 * 60


def test_encoded_texts_of_a_task_are_not_kept_in_memory() -> None:
    """They used to be kept, with one tuple per token: 8 GB for the 56,000 requests of MMLU with five examples."""
    alive = WeakSet[Tokens]()

    def encode(text: str) -> Tokens:
        found = Tokens([(0, 0, len(text))])
        alive.add(found)
        return found

    made, most = encoder(SimpleNamespace(encode_with_offsets=encode)), 0  # type: ignore[arg-type]
    for number in range(5_000):
        join_request(made, Request("", f"text {number}"))
        most = max(most, len(alive))
    assert 2 < most < 1_000


class Tokens(list[tuple[int, int, int]]):
    """A list that supports weak references."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "frame"), [("wordpiece", ENDED), ("unigram", Frame("A sep cls:2", "A sep B:1 sep:1 cls:2"))]
)
def test_a_text_starts_with_the_start_tokens_of_its_sequences(kind: str, frame: Frame) -> None:
    """Texts of GPT-1, whose sequences have no [CLS], and of XLNet, whose sequences end with it, used to start with
    it."""
    pieces = vocabulary(kind)
    assert pair_of(pieces, Request("", "the town"))[0] == [pieces.cls]
    assert pair_of(add_frame(pieces, frame), Request("", "the town")) == ([pieces.sep], pieces.encode("the town"))
