"""Positions of phrases and Chinese words in tokenized text."""

import numpy as np
import pytest

from preprocessing.tokenization import ByteLevelBPE, SentencePieceBPE, TokenizerSpec, Unigram, Vocab, WordPiece, train
from tests.preprocessing.tokenization.test_vocab import SPECS, TEXTS


@pytest.fixture(scope="module", params=SPECS, ids=str)
def vocab(request: pytest.FixtureRequest) -> Vocab:
    return train(request.param, TEXTS)


def test_units_are_phrases_and_the_words_outside_them(vocab: Vocab) -> None:
    text = ["The cat sat on a mat.", " Nobody ran after the dogs."]
    spans = [(4, 11), (29, 38)]  # "cat sat" and "ran after"
    plain = vocab.encode_documents([text])[0]
    ids, _, word_starts, unit_starts, _ = vocab.encode_documents([text], spans=[spans])[0]
    assert ids.tolist() == plain.ids.tolist()
    assert word_starts.tolist() == plain.word_starts.tolist()
    assert plain.unit_starts is None
    assert unit_starts is not None
    spelled = [vocab.decode(unit) for unit in np.split(ids, np.flatnonzero(unit_starts)[1:])]
    units = [unit.strip().lower().replace(" ", "") for unit in spelled]
    assert {"catsat", "ranafter"} <= set(units)
    assert "the" in units
    assert "cat" not in units


def test_documents_without_phrases_or_text_have_units(vocab: Vocab) -> None:
    encoded = vocab.encode_documents([["The cat."], [], ["", "sat"]], spans=[[], [], []])
    for document in encoded:
        assert document.unit_starts is not None
        assert document.unit_starts.tolist() == document.word_starts.tolist()


@pytest.mark.parametrize(
    "spec",
    [WordPiece(vocab_size=40), ByteLevelBPE(vocab_size=300), Unigram(vocab_size=13), SentencePieceBPE(vocab_size=13)],
)
def test_chinese_words_can_come_from_jieba(spec: TokenizerSpec) -> None:
    text = "\u7136\u800c\u8fd9\u6837\u7684\u5904\u7406"  # yet | such | -s | treatment
    vocab = train(spec, [" ".join(text)] * 9)  # no token has two characters
    first, second = vocab.encode_documents([[text], [text[1:4]]], words="jieba")
    words = np.split(first.ids, np.flatnonzero(first.word_starts)[1:])
    spelled = [vocab.decode(word).replace(" ", "") for word in words]
    assert [word for word in spelled if word] == ["\u7136\u800c", "\u8fd9\u6837", "\u7684", "\u5904\u7406"]
    assert second.word_starts[0]
