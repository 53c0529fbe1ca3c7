"""Masked words of held-out sentences."""

import pytest

from preprocessing.errors import DataError
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from tests.training.held_out import with_test_split
from training.evaluation.tasks import Cloze, ClozeItems, cloze


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return TokenStore.open(with_test_split(tmp_path_factory.mktemp("corpus") / "mini"), "test")


def made(store: TokenStore, length: int = 64) -> ClozeItems:
    return Cloze().make(store, Vocab.load(store.vocab_dir), length)


def test_a_blank_is_a_one_token_word_inside_a_sentence(store: TokenStore) -> None:
    vocab, blanks = Vocab.load(store.vocab_dir), made(store).blanks
    assert len(blanks) >= 40
    for blank in blanks:
        assert 0 < blank.at < len(blank.ids_S)
        assert vocab.starts_word_V[blank.answer]
        assert blank.at + 1 == len(blank.ids_S) or vocab.starts_word_V[blank.ids_S[blank.at + 1]]
        assert len(vocab.decode([blank.answer]).strip()) >= 3
        assert blank.answer not in vocab.special_ids


def test_the_same_corpus_gives_the_same_blanks(store: TokenStore) -> None:
    once, again = ([(one.ids_S.tolist(), one.at) for one in made(store).blanks] for _ in range(2))
    assert once == again


def test_sentences_that_are_too_long_are_left_out(store: TokenStore) -> None:
    longest = max(len(one.ids_S) for one in made(store).blanks)
    assert all(len(one.ids_S) <= longest - 1 for one in made(store, length=longest + 1).blanks)
    with pytest.raises(
        DataError, match=r"task cloze: the held-out documents of .* have 0 sentences with a word of one"
    ):
        made(store, length=8)


def test_left_out_sentences_are_noted(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloze, "MOST_BLANKS", 10_000)
    whole = made(store)
    assert whole.notes == ()
    sizes = [len(one.ids_S) for one in whole.blanks]
    most = max(sizes) - 1
    (note,) = made(store, length=most + 2).notes
    assert note.endswith(f" sentences are longer than {most} tokens and left out")
    assert int(note.split()[0]) >= sum(size > most for size in sizes) > 0
    monkeypatch.setattr(cloze, "MOST_BLANKS", 50)
    (note,) = made(store).notes
    assert (
        note
        == f"{len(sizes) - 50:,} of {len(sizes):,} sentences with a word of one token are left out: at most 50 are used"
    )


def test_the_majority_score_is_the_fraction_of_the_most_frequent_answer(store: TokenStore) -> None:
    blanks = made(store)
    answers = [one.answer for one in blanks.blanks]
    assert blanks.majority == max(answers.count(each) for each in set(answers)) / len(answers)
