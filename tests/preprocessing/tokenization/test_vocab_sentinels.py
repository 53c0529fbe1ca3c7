"""Sentinels of T5: the last IDs of a SentencePiece vocabulary; they are special and never result from text."""

from dataclasses import replace
from pathlib import Path

import pytest

from preprocessing.errors import BadInput
from preprocessing.tokenization import SentencePieceBPE, Unigram, Vocab, train
from preprocessing.tokenization.training import check_vocab
from tests.preprocessing.tokenization.test_vocab import SAMPLE, TEXTS

SPECS = [Unigram(vocab_size=80, extra_ids=20), SentencePieceBPE(vocab_size=80, extra_ids=20)]


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.kind)
def pair(request: pytest.FixtureRequest) -> tuple[Unigram | SentencePieceBPE, Vocab]:
    return request.param, train(request.param, TEXTS)


def test_sentinels_are_the_last_ids_and_count_from_the_end(pair: tuple[Unigram, Vocab]) -> None:
    spec, vocab = pair
    assert (vocab.size, vocab.sentinels, vocab.sentinel) == (80, 20, 79)
    assert [vocab.piece(id) for id in (79, 78, 60)] == ["<extra_id_0>", "<extra_id_1>", "<extra_id_19>"]
    assert vocab.special_ids == (0, 1, 2, 3, 4, *range(60, 80))
    assert vocab.specials == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4, "sentinel": 79}
    assert vocab.starts_word_V[60:].all()
    check_vocab(vocab, spec)


def test_the_other_tokens_equal_a_vocabulary_without_sentinels(pair: tuple[Unigram, Vocab]) -> None:
    spec, vocab = pair
    plain = train(replace(spec, vocab_size=60, extra_ids=0), TEXTS)
    assert (plain.sentinel, plain.sentinels, "sentinel" in plain.specials) == (None, 0, False)
    assert plain.files["spiece.model"] == vocab.files["spiece.model"]
    assert plain.encode(SAMPLE) == vocab.encode(SAMPLE)
    # vocabularies without sentinels keep the hash that they had before sentinels existed
    assert b"sentinels" not in plain.files["specials.json"]


def test_text_never_gives_a_sentinel(pair: tuple[Unigram, Vocab]) -> None:
    _, vocab = pair
    assert max(vocab.encode("The cat <extra_id_0> sat <extra_id_19>.")) < 60
    assert "<extra_id_0>" in vocab.decode([79, *vocab.encode("cat")])


def test_sentinels_survive_saving_and_change_the_hash(pair: tuple[Unigram, Vocab], tmp_path: Path) -> None:
    spec, vocab = pair
    vocab.save(tmp_path)
    loaded = Vocab.load(tmp_path, wanted=vocab.hash)
    assert (loaded, loaded.sentinel) == (vocab, 79)
    assert loaded.special_ids == vocab.special_ids
    fewer = train(replace(spec, vocab_size=79, extra_ids=19), TEXTS)
    assert fewer.files["spiece.model"] == vocab.files["spiece.model"]
    assert fewer.hash != vocab.hash


@pytest.mark.shared
@pytest.mark.parametrize("file", ["spiece.model", "tokenizer.json"])
def test_the_published_t5_has_100_sentinels_from_either_file(shared: Path, file: str) -> None:
    spec = Unigram(
        vocab_size=32100, extra_ids=100, padded_vocab_size=32128, path=str(shared / "tokenizers" / "t5" / file)
    )
    vocab = train(spec, [])
    assert (vocab.size, vocab.sentinel, vocab.pad, vocab.sep) == (32100, 32099, 0, 1)
    assert (vocab.piece(32099), vocab.piece(32000)) == ("<extra_id_0>", "<extra_id_99>")


@pytest.mark.shared
def test_more_sentinels_than_a_file_has_are_bad_input(shared: Path) -> None:
    with pytest.raises(BadInput, match=r"the last 101 tokens are not the sentinels .*; set data\.tokenizer\.extra_ids"):
        train(Unigram(vocab_size=32128, extra_ids=101, path=str(shared / "tokenizers" / "t5" / "tokenizer.json")), [])


def test_there_must_be_fewer_sentinels_than_tokens() -> None:
    with pytest.raises(
        ValueError,
        match=r"invalid tokenizer.extra_ids: got 100, expected an integer of at least 0, below tokenizer.vocab_size",
    ):
        Unigram(vocab_size=100, extra_ids=100)
