"""Sequences of task texts: special tokens, truncation, windows, words, character offsets."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, TokenizerSpec, Unigram, Vocab, WordPiece, train
from preprocessing.tokenization.template import SPECIAL, Template, windows

TEXT = "Ada wrote to the non-profit. It isn't far, said Charles; naïve engines compute. " * 4
KINDS = {
    "wordpiece": WordPiece(vocab_size=120),
    "roberta": ByteLevelBPE(vocab_size=320, special_tokens="roberta"),
    "gpt2": ByteLevelBPE(vocab_size=300),
    "unigram": Unigram(vocab_size=40),
}


@pytest.fixture(scope="module", params=KINDS)
def vocab(request: pytest.FixtureRequest) -> Vocab:
    spec: TokenizerSpec = KINDS[request.param]
    return train(spec, [TEXT] * 30)


def token_names(vocab: Vocab, ids: np.ndarray) -> list[str]:
    return ["*" if id not in vocab.special_ids else vocab.piece(id) for id in ids.tolist()]


def test_ids_equal_those_of_a_corpus(vocab: Vocab) -> None:
    row = Template(vocab, 400).row(TEXT)
    assert row.ids[row.text == 0].tolist() == vocab.encode(TEXT)


def test_special_tokens_follow_the_template(vocab: Vocab) -> None:
    row = Template(vocab, 400).row("Ada wrote.", "It isn't far.")
    shape = "".join("s" if of == SPECIAL else str(of) for of in row.text.tolist())
    while "00" in shape or "11" in shape:
        shape = shape.replace("00", "0").replace("11", "1")
    assert shape == {"gpt2": "0s1s", "roberta": "s0ss1s"}.get(vocab_name(vocab), "s0s1s")
    assert (row.segments[row.text == 1] == (0 if vocab_name(vocab) == "roberta" else 1)).all()


def vocab_name(vocab: Vocab) -> str:
    return vocab.kind if vocab.kind != "byte_level_bpe" else ("gpt2" if vocab.cls is None else "roberta")


def test_the_longer_text_is_truncated_first(vocab: Vocab) -> None:
    row = Template(vocab, 30).row(TEXT, "It isn't far.")
    short = len(vocab.encode("It isn't far."))
    assert len(row.ids) == 30
    assert (row.text == 1).sum() == min(short, (row.text >= 0).sum() // 2)


def test_is_cut_is_true_if_tokens_were_dropped(vocab: Vocab) -> None:
    whole = len(Template(vocab).row(TEXT, TEXT).ids)
    assert [Template(vocab, length).row(TEXT, TEXT).is_cut for length in (whole - 1, whole, whole + 1)] == [
        True,
        False,
        False,
    ]
    assert not Template(vocab).row(TEXT).at(np.arange(3)).is_cut


@pytest.mark.parametrize("step", [8, 20])
def test_windows_cover_every_token(vocab: Vocab, step: int) -> None:
    whole = Template(vocab).row("Ada wrote?", TEXT)
    found = windows(whole, 60, step)
    parts = [window.ids[window.text == 1].tolist() for window in found]
    assert len(found) > 2
    assert [len(window.ids) for window in found[:-1]] == [60] * (len(found) - 1)
    assert [id for part in parts[:-1] for id in part[:step]] + parts[-1] == vocab.encode(TEXT)
    assert all((window.ids[window.text == 0] == whole.ids[whole.text == 0]).all() for window in found)
    assert all((window.text == SPECIAL).sum() == (whole.text == SPECIAL).sum() for window in found)


def test_a_fitting_text_is_one_window(vocab: Vocab) -> None:
    whole = Template(vocab).row("Ada wrote?", "Yes.")
    (window,) = windows(whole, 200, 128)
    assert window.ids.tolist() == whole.ids.tolist()


def test_a_long_question_is_truncated(vocab: Vocab) -> None:
    for window in windows(Template(vocab).row(TEXT, TEXT), 60, 8, most_first=20):
        assert (window.text == 0).sum() == 20


@pytest.mark.parametrize("length", [5, 8, 30, 64])
def test_a_too_long_question_is_truncated_to_leave_room_for_a_step(vocab: Vocab, length: int) -> None:
    step = length // 3 if length > 5 else 1
    whole = Template(vocab).row(TEXT, TEXT)
    if length == 5 and (whole.text == SPECIAL).sum() == 4:
        with pytest.raises(BadInput, match="5 tokens leave no room for a question and its text; increase"):
            windows(whole, length, step)
        return
    found = windows(whole, length, step)
    assert max(len(window.ids) for window in found) == length
    assert all((window.text == 1).sum() >= step for window in found[:-1])
    assert (found[0].text == 0).sum() >= 1
    assert set().union(*(window.token[window.text == 1].tolist() for window in found)) == set(
        whole.token[whole.text == 1].tolist()
    )


@pytest.mark.parametrize("length", [1, 2, 3])
def test_windows_without_room_for_a_question_and_its_text_are_refused(vocab: Vocab, length: int) -> None:
    with pytest.raises(BadInput, match=f"{length} tokens leave no room for a question and its text"):
        windows(Template(vocab).row(TEXT, TEXT), length, length // 3)


def test_offsets_are_characters_of_the_text(vocab: Vocab) -> None:
    row = Template(vocab, 400).row("Ada wrote?", TEXT)
    covered = set()
    for start, stop, of in zip(row.start.tolist(), row.stop.tolist(), row.text.tolist(), strict=True):
        if of == 1:
            covered |= set(range(start, stop))
    assert {at for at, char in enumerate(TEXT) if not char.isspace()} <= covered


def test_given_words_keep_their_numbers(vocab: Vocab) -> None:
    words = ["Ada", "wrote", "non-profit", "engines"]
    row = Template(vocab, 60).row(words)
    assert np.unique(row.word[row.text == 0]).tolist() == [0, 1, 2, 3]
    first = [int(np.flatnonzero(row.word == number)[0]) for number in range(4)]
    assert first == sorted(first)


def test_a_special_token_in_a_text_is_plain_text(vocab: Vocab) -> None:
    row = Template(vocab, 60).row("".join(map(vocab.piece, vocab.special_ids)))
    inside = row.ids[row.text == 0]
    assert not set(inside.tolist()) & (set(vocab.special_ids) - {vocab.unk})


def test_a_length_below_two_texts_is_refused(vocab: Vocab) -> None:
    with pytest.raises(BadInput, match=r"expected at least . for two texts"):
        Template(vocab, 2)


def test_columns_have_the_dtypes_of_the_schema(vocab: Vocab) -> None:
    row = Template(vocab, 60).row("Ada").columns()
    assert {name: array.dtype for name, array in row.items()} == {
        "input_ids": np.int32,
        "token_type_ids": np.int8,
        "labels": np.int32,
    }
    assert (row["labels"] < 0).all()


def test_sequences_equal_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    vocab = train(KINDS["wordpiece"], [TEXT] * 30)
    vocab.save(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for length in (12, 30, 400):
        row = Template(vocab, length).row(TEXT[:90], TEXT[40:300])
        found = theirs(
            TEXT[:90],
            TEXT[40:300],
            truncation="longest_first",
            max_length=length,
            return_token_type_ids=True,
        )
        assert row.ids.tolist() == found["input_ids"]
        assert row.segments.tolist() == found["token_type_ids"]
