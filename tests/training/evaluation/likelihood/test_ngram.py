"""N-gram models: a text counted by hand, nltk's probabilities on a toy text, and properties of each distribution."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from preprocessing.errors import BadInput
from tests.training.evaluation.likelihood.nets import vocabulary
from training.evaluation.likelihood import (
    NGramLikelihood,
    NGrams,
    PerplexityText,
    Request,
    UnscoredRequests,
    Windowing,
    fit,
)

A, B, C, BEGIN, END = range(5)
BY_HAND = (0.5, 1.0, 1.5)


def of(sentences: Sequence[Sequence[int]], size: int, **keys: object) -> NGrams:
    starts = [place == 0 for sentence in sentences for place in range(len(sentence))]
    return fit(np.array([id for each in sentences for id in each]), np.array(starts), size, **keys)  # type: ignore[arg-type]


def random_sentences(seed: int, size: int = 7, count: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [(rng.integers(0, size, rng.integers(1, 9)) ** 2 % size).tolist() for _ in range(count)]


def p(model: NGrams, *ids: int) -> float:
    """The probability of the last token after the others, which start a sentence."""
    return math.exp(float(model.log_p([ids])[0][-1]))


def test_bigrams_equal_those_computed_by_hand() -> None:
    """The text is a b, a b, a c. Unigrams by the number of different predecessors: a 1, b 1, c 1, the end 2, of 5.
    Discounts leave 2.5 / 5, of which a, b, c and the end get a quarter each: .225 .225 .225 .325. After a, the counts
    are b 2, c 1: 1.5 / 3 remain."""
    model = of([[A, B], [A, B], [A, C]], 3, order=2, discounts=[BY_HAND, BY_HAND])
    assert p(model, A) == pytest.approx((3 - 1.5) / 3 + 0.5 * 0.225)
    assert p(model, A, B) == pytest.approx((2 - 1) / 3 + 0.5 * 0.225)
    assert p(model, A, C) == pytest.approx((1 - 0.5) / 3 + 0.5 * 0.225)
    assert p(model, A, A) == pytest.approx(0.5 * 0.225)
    assert p(model, B, END) == pytest.approx((2 - 1) / 2 + 0.5 * 0.325)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_of_all_tokens_and_the_end_sum_to_one(order: int, seed: int) -> None:
    size = 9  # two of them never occur
    model = of(random_sentences(seed), size, order=order)
    for context in ([], [1], [1, 2], [8], [4, 4, 2, 1, 0], *random_sentences(seed + 9, count=5)):
        total = sum(p(model, *context, id) for id in (*range(size), size + 1))
        assert total == pytest.approx(1, abs=1e-5), context


@pytest.mark.parametrize("order", [2, 3, 4])
def test_with_one_discount_probabilities_equal_those_of_nltk(order: int) -> None:
    """Only inside sentences, because nltk also counts contexts before the beginning of a sentence, and we do not."""
    lm = pytest.importorskip("nltk.lm")
    from nltk.util import everygrams

    size, sentences = 7, random_sentences(0, count=60)
    theirs = lm.KneserNeyInterpolated(order, discount=0.1)
    around = [["<s>", *map(str, sentence), "</s>"] for sentence in sentences]
    theirs.fit((list(everygrams(each, max_len=order)) for each in around), [word for each in around for word in each])
    discounts = [(0.0, 0.0, 0.0), *[(0.1, 0.1, 0.1)] * (order - 1)]
    ours = of(sentences, size, order=order, discounts=discounts)
    rng, some = np.random.default_rng(1), 0
    for _ in range(200):
        context = rng.integers(0, size, order - 1).tolist()
        word = int(rng.integers(0, size))
        wanted = theirs.score(str(word), list(map(str, context)))
        if wanted:  # nltk gives no probability to unseen n-grams
            some += 1
            assert p(ours, *context, word) == pytest.approx(wanted, rel=1e-5)
    assert some > 50


def test_longer_ngrams_fit_their_own_text_better() -> None:
    sentences = random_sentences(3, count=200)
    nats = [-sum(float(each.sum()) for each in of(sentences, 7, order=order).log_p(sentences)) for order in (1, 2, 3)]
    assert nats[0] > nats[1] > nats[2]


def test_ngrams_do_not_cross_sentence_boundaries() -> None:
    one, two = of([[A, B], [C, A]], 3, order=3), of([[C, A], [A, B]], 3, order=3)
    for ids in ([A], [C, A], [B, C], [A, B, END]):
        assert p(one, *ids) == p(two, *ids)


def test_texts_scored_together_equal_texts_scored_alone() -> None:
    model, texts = of(random_sentences(4), 7), random_sentences(5, count=20)
    together = model.log_p([*texts, []])
    for text, found in zip(texts, together, strict=False):
        np.testing.assert_allclose(found, model.log_p([text])[0])
    assert len(together[-1]) == 0
    assert model.log_p([]) == []


def test_a_text_shorter_than_the_ngrams_is_counted() -> None:
    model = of([[A]], 3)
    assert sum(p(model, A, id) for id in (A, B, C, END)) == pytest.approx(1, abs=1e-6)
    assert p(model, A) > p(model, B) == p(model, C)


def test_a_token_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(BadInput, match="invalid token ID: got 12, expected less than 7"):
        of(random_sentences(0), 7).log_p([[1, 12]])
    with pytest.raises(BadInput, match="invalid text: got token ID 4, expected IDs below 3"):
        of(random_sentences(0), 3)
    with pytest.raises(BadInput, match="got no tokens"):
        fit(np.zeros(0, np.int64), np.zeros(0, np.bool_), 3)


def test_ngrams_are_scored_like_neural_models() -> None:
    vocab = vocabulary("gpt2")
    sentences = [vocab.encode(text) for text in (" the fox jumps", " the dog jumps", " pack the box")] * 3
    reader = NGramLikelihood(of(sentences, vocab.size, order=3), vocab)
    good, bad, part = reader.log_ps(
        [Request("", " the fox jumps"), Request("", " jumps fox the"), Request(" the fox", " jumps")]
    )
    assert good.nats > bad.nats
    assert part.nats == pytest.approx(good.nats - reader.log_ps([Request("", " the fox")])[0].nats)
    (found,) = reader.perplexities([PerplexityText(" the fox jumps")], Windowing())
    assert (found.nats, found.tokens, found.words) == (pytest.approx(-good.nats), good.tokens, 3)
    assert reader.describe().startswith("log p by 3-grams (modified Kneser-Ney)")


def test_a_continuation_without_tokens_is_refused() -> None:
    """It used to be scored by the end of its sentence."""
    vocab = vocabulary("gpt2")
    reader = NGramLikelihood(of([vocab.encode(" the fox jumps")] * 3, vocab.size, order=3), vocab)
    with pytest.raises(UnscoredRequests, match="the continuation '' has no token after ' the fox'") as failed:
        reader.log_ps([Request(" the fox", " jumps"), Request(" the fox", "")])
    assert list(failed.value.why) == [1]
