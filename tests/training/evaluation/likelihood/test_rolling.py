"""Perplexities equal those of transformers in the same windows; a memory of everything is equivalent to one long
sequence."""

from typing import Any

import numpy as np
import pytest
import torch

from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from tests.training.evaluation.likelihood.nets import LONG, exported, net, vocabulary
from tests.training.parity import TEXT
from training.evaluation.likelihood import (
    NGramLikelihood,
    PerplexityText,
    Request,
    Targets,
    Windowing,
    first_of,
    fit,
    targets_of,
)
from training.evaluation.likelihood.models import perplexity
from training.evaluation.likelihood.models.causal import token_log_ps


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return exported("gpt2", tmp_path_factory.mktemp("gpt2"))


@torch.no_grad()
def expected(oracle: Any, text: str, window: int, stride: int) -> float:
    """The negative log-probability of a text. The context of a token is the part of its first window that precedes
    it."""
    ids, total, done = [vocabulary("gpt2").sep, *vocabulary("gpt2").encode(text)], 0.0, 1
    while done < len(ids):
        stop = min(len(ids), done + (window if done == 1 else stride))
        begin = max(0, stop - 1 - window)
        log_p = oracle(torch.tensor([ids[begin : stop - 1]])).logits[0].log_softmax(-1)
        total -= sum(float(log_p[at - 1 - begin, ids[at]]) for at in range(done, stop))
        done = stop
    return total


@pytest.mark.parametrize(("window", "stride"), [(32, 32), (32, 7), (5, 1), (1, 1), (0, 0)])
def test_texts_have_the_perplexity_of_transformers(oracle: Any, window: int, stride: int) -> None:
    found = perplexity(
        net("gpt2"),
        vocabulary("gpt2"),
        [PerplexityText(LONG), PerplexityText(TEXT[0])],
        window=window,
        stride=stride,
        micro_tokens=50,
    )
    wanted = sum(expected(oracle, text, window or 32, stride or 32) for text in (LONG, TEXT[0]))
    assert found.nats == pytest.approx(wanted, rel=1e-5)
    assert found.tokens == sum(len(vocabulary("gpt2").encode(text)) for text in (LONG, TEXT[0]))
    assert (found.window, found.stride, found.memory) == (window or 32, stride or 32, 0)


def test_words_and_bytes_are_counted_in_the_original_text() -> None:
    text = PerplexityText("naive, not", original="na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve , not")
    found = perplexity(net("gpt2"), vocabulary("gpt2"), [text])
    assert (found.words, found.bytes) == (3, 12)
    assert "3 words, 12 bytes; windows of 32 tokens, 32 new ones each" in found.describe()


LINES = " The fox\n jumps\n\n"
KINDS: dict[str, tokenization.TokenizerSpec] = {
    "byte_level_bpe": tokenization.ByteLevelBPE(vocab_size=300),
    "bytes": tokenization.SingleBytes(vocab_size=80),
    "words": tokenization.WordLevel(vocab_size=60),
    "wordpiece": tokenization.WordPiece(vocab_size=100),
    "sentencepiece_bpe": tokenization.SentencePieceBPE(vocab_size=80),
    "unigram": tokenization.Unigram(vocab_size=40),
}


@pytest.mark.parametrize("kind", KINDS)
def test_line_ends_count_as_words_only_if_they_are_predicted(kind: str) -> None:
    given = tokenization.train(KINDS[kind], [*TEXT, LINES])
    keeps = kind in ("byte_level_bpe", "bytes")
    found = targets_of(given, PerplexityText(LINES, line_ends=True))
    assert found == Targets(given.encode(LINES), words=6 if keeps else 3, ends_left_out=0 if keeps else 3, unknown=0)
    assert ("\n" in given.decode(found.ids)) == keeps
    sentence = targets_of(
        given, PerplexityText("The fox jumps", line_ends=True)
    )  # as in lm1b: the end of the text counts as a word
    assert given.sep is not None
    assert sentence == Targets([*given.encode("The fox jumps"), given.sep], words=4, ends_left_out=0, unknown=0)
    assert targets_of(given, PerplexityText("The fox jumps")) == Targets(given.encode("The fox jumps"), 3, 0, 0)


def test_without_an_end_of_text_token_the_end_is_not_a_word() -> None:
    given = vocabulary("gpt2")
    endless = Vocab.of(given.kind, given.size, dict.fromkeys(tokenization.vocab.ROLES), 0, given.files)
    assert targets_of(endless, PerplexityText("fox", line_ends=True)) == Targets(given.encode("fox"), 1, 1, 0)


def test_the_end_of_a_sentence_is_predicted_after_it() -> None:
    ids, end = vocabulary("gpt2").encode("The fox"), vocabulary("gpt2").sep
    assert end is not None
    plain, ended = (
        perplexity(net("gpt2"), vocabulary("gpt2"), [PerplexityText("The fox", line_ends=ends)])
        for ends in (False, True)
    )
    (last,) = token_log_ps(net("gpt2"), [([first_of(vocabulary("gpt2")), *ids], [end])])
    assert ended.nats - plain.nats == pytest.approx(-float(last.nats_S[0]), rel=1e-4)
    assert (ended.tokens, ended.words) == (plain.tokens + 1, plain.words + 1)


def test_ngrams_predict_each_line_end_that_counts_as_a_word() -> None:
    given = vocabulary("bert")
    sentences = [given.encode(text) for text in TEXT]
    starts = [at == 0 for sentence in sentences for at in range(len(sentence))]
    reader = NGramLikelihood(fit(np.concatenate(sentences), np.array(starts), given.size, order=2), given)
    whole, *lines = reader.perplexities(
        [PerplexityText(text, line_ends=True) for text in ("The fox\njumps\n", "The fox", "jumps")], Windowing()
    )
    assert (whole.nats, whole.tokens) == (sum(one.nats for one in lines), sum(one.tokens for one in lines))
    assert whole.words == 5
    strange = "\N{CJK UNIFIED IDEOGRAPH-6F22}"
    assert reader.perplexities([PerplexityText(strange)], Windowing())[0].unknown == 1
    assert reader.log_ps([Request("The", f" {strange}")])[0].unknown == 1


def test_unknown_tokens_are_counted() -> None:
    text = "The fox \N{CJK UNIFIED IDEOGRAPH-6F22}\N{CJK UNIFIED IDEOGRAPH-5B57} jumps"
    found = perplexity(net("gpt2"), vocabulary("bert"), [PerplexityText(text), PerplexityText("fox")])
    assert found.unknown == 2
    assert f"{found.tokens} tokens (2 unknown), " in found.describe()
    assert "unknown" not in perplexity(net("gpt2"), vocabulary("gpt2"), [PerplexityText(text)]).describe()


@pytest.mark.parametrize("kind", ["xl", "adaptive"])
def test_windows_with_a_memory_of_everything_equal_one_long_sequence(kind: str) -> None:
    text = [PerplexityText(" ".join(TEXT)), PerplexityText("Pack my box")]
    tokens = max(len(vocabulary(kind).encode(each.text)) for each in text)
    assert 20 < tokens <= 64  # the size of the memory
    whole = perplexity(net(kind), vocabulary(kind), text, window=tokens)
    carried = perplexity(net(kind), vocabulary(kind), text, window=6, carry=True)
    cut = perplexity(net(kind), vocabulary(kind), text, window=6)
    assert carried.nats == pytest.approx(whole.nats, rel=1e-5)
    assert abs(cut.nats - whole.nats) > 1e-2
    assert (carried.memory, whole.memory) == (64, 0)
    assert "a memory of 64 tokens" in carried.describe()


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("gpt2", {"carry": True}, "the model has no memory"),
        ("gpt2", {"window": 33}, "invalid window: got 33, expected 1 to 32"),
        ("gpt2", {"window": 8, "stride": 9}, "invalid stride: got 9, expected 1 to 8"),
        ("xl", {"window": 8, "stride": 4, "carry": True}, "invalid stride: got 4, expected 8"),
        ("bert", {}, "cannot compute likelihoods"),
    ],
)
def test_invalid_windows_and_strides_are_refused(kind: str, keys: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        perplexity(net(kind), vocabulary(kind), [PerplexityText("fox")], **keys)
