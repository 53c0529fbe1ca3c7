import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, to_checked_json
from preprocessing.text import sentences
from preprocessing.tokenization import (
    ByteLevelBPE,
    SentencePieceBPE,
    SingleBytes,
    TokenizerSpec,
    Unigram,
    Vocab,
    WordLevel,
    WordPiece,
    table_rows,
    train,
)
from preprocessing.tokenization.training import check_vocab

SENTENCE = "the cat sat on a mat and the dogs ran after it quickly while nobody was looking at their unhappy faces"
WORDS = SENTENCE.split()
TEXTS = [
    " ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 13)).capitalize() + ". Caf\u00e9 1!" for i in range(1, 60)
]
SPECS: list[TokenizerSpec] = [
    WordPiece(vocab_size=100),
    WordPiece(vocab_size=100, lowercase=False),
    ByteLevelBPE(vocab_size=300),
    ByteLevelBPE(vocab_size=300, special_tokens="roberta"),
    Unigram(vocab_size=60),
    SentencePieceBPE(vocab_size=60),
    Unigram(vocab_size=40, lowercase=True),
    SentencePieceBPE(vocab_size=60, lowercase=True),
    WordLevel(vocab_size=40),
    SingleBytes(),
]
SAMPLE = "The cats sat\nunhappily.\n\nNobody ran after the Caf\u00e9 1, quickly!"


@pytest.fixture(scope="module")
def vocabs() -> dict[TokenizerSpec, Vocab]:
    return {spec: train(spec, TEXTS) for spec in SPECS}


@pytest.fixture(params=SPECS, ids=str)
def vocab(request: pytest.FixtureRequest, vocabs: dict[TokenizerSpec, Vocab]) -> Vocab:
    return vocabs[request.param]


def one_line(error: pytest.ExceptionInfo[BadInput]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_special_token_ids_follow_the_model_family(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    bert = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    roberta = vocabs[SPECS[3]]
    assert vocabs[SPECS[0]].specials == vocabs[SPECS[4]].specials == bert
    assert vocabs[SPECS[2]].specials == {"sep": vocabs[SPECS[2]].size - 1}
    assert roberta.specials == {"cls": 0, "pad": 1, "sep": 2, "unk": 3, "mask": roberta.size - 1}
    assert roberta.special_ids == (0, 1, 2, 3, roberta.size - 1)


def test_a_vocabulary_has_at_most_the_requested_size(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    assert all(vocab.size <= spec.vocab_size for spec, vocab in vocabs.items())
    assert vocabs[SPECS[0]].size == 100
    assert vocabs[SPECS[4]].size == 60


def test_a_small_text_gives_fewer_tokens() -> None:
    assert train(ByteLevelBPE(vocab_size=5_000), ["abab abab"]).size < 270
    assert train(WordPiece(vocab_size=5_000), ["abab abab"]).size < 20


def test_token_names_are_unique_and_encoded_ids_are_in_range(vocab: Vocab) -> None:
    assert len({vocab.piece(id) for id in range(vocab.size)}) == vocab.size
    assert set(vocab.encode(SAMPLE)) <= set(range(vocab.size))


def test_byte_bpe_is_lossless(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    for text in (SAMPLE, "\u4e0b\u4e00 \U0001f468\u200d\U0001f469 \x00"):
        assert vocabs[SPECS[2]].decode(vocabs[SPECS[2]].encode(text)) == text


def test_case_and_accents_are_removed_only_on_request(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    assert vocabs[SPECS[0]].decode(vocabs[SPECS[0]].encode("Caf\u00e9 THE")) == "cafe the"
    assert vocabs[SPECS[1]].decode(vocabs[SPECS[1]].encode("Caf\u00e9 the")) == "Caf\u00e9 the"


@pytest.mark.parametrize("number", [6, 7])
def test_sentencepiece_folds_case_and_keeps_accents(vocabs: dict[TokenizerSpec, Vocab], number: int) -> None:
    vocab = vocabs[SPECS[number]]
    text = "CAFÉ The CAT"
    assert not any(char.isupper() for id in range(5, vocab.size) for char in vocab.piece(id))
    assert vocab.decode(vocab.encode(text)) == "café the cat"
    assert vocab.encode(text) == vocab.encode(text.lower())
    cased = vocabs[SPECS[number - 2]]
    assert cased.encode(text) != cased.encode(text.lower())


@pytest.mark.parametrize("number", [6, 7])
def test_offsets_refer_to_the_text_before_case_folding(vocabs: dict[TokenizerSpec, Vocab], number: int) -> None:
    vocab = vocabs[SPECS[number]]
    # a ligature is one character of the text but two letters in the tokens
    text = "\ufb01\ufb01\ufb01 CATS Sat. The MAT"
    ids, _, _, unit_starts, _ = vocab.encode_documents([[text]], spans=[[(4, 12), (18, 21)]])[0]
    assert unit_starts is not None
    spelled = [vocab.decode(unit).replace(" ", "") for unit in np.split(ids, np.flatnonzero(unit_starts)[1:])]
    assert {"catssat", "the", "mat"} <= set(spelled)


def test_a_cased_model_uses_the_default_sentencepiece_rules(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    """Cased vocabularies keep the hash that they had before the key `lowercase` existed."""
    assert b"nmt_nfkc_cf" not in vocabs[SPECS[4]].files["spiece.model"]
    assert b"nmt_nfkc_cf" in vocabs[SPECS[6]].files["spiece.model"]


@pytest.mark.parametrize("spec", [Unigram, SentencePieceBPE])
def test_a_cased_file_can_be_read_with_case_folding(
    vocabs: dict[TokenizerSpec, Vocab], spec: type[Unigram], tmp_path: Path
) -> None:
    cased = vocabs[spec(vocab_size=60)]
    cased.save(tmp_path)
    folded = train(spec(vocab_size=60, lowercase=True, path=str(tmp_path / "spiece.model")), [])
    assert folded.encode("The CAT") == cased.encode("the cat") != cased.encode("The CAT")
    plain = Tokenizer.from_buffer(folded.files["tokenizer.json"])
    assert plain.encode("The CAT", add_special_tokens=False).ids == folded.encode("The CAT")


def test_special_tokens_in_a_text_are_plain_text(vocab: Vocab) -> None:
    named = [vocab.piece(id) for id in vocab.special_ids if id != vocab.unk]
    ids = vocab.encode(" ".join(["the", *named, "cat"]) + "".join(named))
    assert not set(ids) & (set(vocab.special_ids) - {vocab.unk})


def test_special_tokens_are_named_when_decoded(vocab: Vocab) -> None:
    for id in vocab.special_ids:
        assert vocab.piece(id) in vocab.decode([id, *vocab.encode("cat")])


def test_a_document_is_encoded_like_its_sentences(vocab: Vocab) -> None:
    texts = [sentences(SAMPLE), [], sentences(TEXTS[0]), ["cat"]]
    encoded = vocab.encode_documents(texts)
    for document, (ids, sentence_starts, word_starts, *_) in zip(texts, encoded, strict=True):
        pieces = [vocab.encode(sentence) for sentence in document]
        assert ids.tolist() == [id for piece in pieces for id in piece]
        starts = np.cumsum([0, *map(len, pieces)])[:-1]
        assert np.flatnonzero(sentence_starts).tolist() == starts.tolist()
        assert word_starts[starts].all()
        assert (ids.dtype, sentence_starts.dtype, word_starts.dtype) == (np.int32, bool, bool)
        assert len(ids) == len(sentence_starts) == len(word_starts)


def test_a_sentence_without_tokens_adds_no_sentence_start(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    ids, sentence_starts, *_ = vocabs[SPECS[0]].encode_documents([["\x07", "cat", "\x07", " mat", "\x07"]])[0]
    assert (len(ids), sentence_starts.tolist()) == (2, [True, True])
    assert len(vocabs[SPECS[0]].encode_documents([["\x07"]])[0].ids) == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SPECS[0], ["the", "cats", "sat", "unhappily", ".", "nobody", "ran"]),
        (SPECS[2], ["The", " cats", " sat", "\n", "unhappily.", "\n", "\n", "Nobody", " ran"]),
        (SPECS[4], ["The", "cats", "sat", "unhappily.", "Nobody", "ran"]),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_word_starts_follow_the_words_of_the_text(
    vocabs: dict[TokenizerSpec, Vocab], spec: TokenizerSpec, words: list[str]
) -> None:
    vocab = vocabs[spec]
    ids, _, word_starts, *_ = vocab.encode_documents([sentences("The cats sat\nunhappily.\n\nNobody ran")])[0]
    begun = np.split(ids, np.flatnonzero(word_starts)[1:])
    spelled = ["".join(vocab.piece(id).replace("##", "") for id in word) for word in begun]
    marks = {"\u0120": " ", "\u010a": "\n", "\u2581": ""}
    assert ["".join(marks.get(char, char) for char in word) for word in spelled] == words


def test_word_start_tokens_have_their_mark(vocab: Vocab) -> None:
    inside = [vocab.piece(id) for id in np.flatnonzero(~vocab.starts_word_V)]
    begin = [vocab.piece(id) for id in np.flatnonzero(vocab.starts_word_V) if id not in vocab.special_ids]
    mark = {"wordpiece": "##", "byte_level_bpe": "\u0120", "bytes": "\u0120", "word_level": ""}.get(
        vocab.kind, "\u2581"
    )
    assert all(piece.startswith(mark) == (vocab.kind == "wordpiece") for piece in inside)
    assert any(piece.startswith(mark) for piece in (inside if vocab.kind == "wordpiece" else begin))
    assert vocab.starts_word_V.shape == (vocab.size,)
    assert vocab.starts_word_V[list(vocab.special_ids)].all()


def test_byte_bpe_of_sentences_equals_byte_bpe_of_the_text(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    for vocab in (vocabs[SPECS[2]], vocabs[SPECS[3]]):
        for text in (SAMPLE, "\n\n".join(TEXTS), "He ran. \u4e0b\u3002\u4e0b\uff01\u201c\u4e0b\u201d A?! (B.) C"):
            assert vocab.encode_documents([sentences(text)])[0].ids.tolist() == vocab.encode(text)


def test_a_saved_vocabulary_loads_unchanged(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path)
    loaded = Vocab.load(tmp_path, wanted=vocab.hash)
    assert loaded == vocab
    assert loaded.encode(SAMPLE) == vocab.encode(SAMPLE)


def test_a_vocabulary_can_be_pickled(vocab: Vocab) -> None:
    vocab.encode(SAMPLE)
    again = pickle.loads(pickle.dumps(vocab))
    assert again == vocab
    special = vocab.piece(vocab.special_ids[-1])
    assert again.encode(special) == vocab.encode(special)


def test_tokenizer_json_alone_gives_the_same_ids(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path)
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [SAMPLE.replace("\n", " "), *TEXTS[:10]]:
        assert plain.encode(text, add_special_tokens=False).ids == vocab.encode(text)


def test_tokenizer_json_adds_the_special_tokens_of_the_family(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path)
    ids = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("the cat").ids
    around = [] if vocab.cls is None else [vocab.cls, vocab.sep]
    assert ids == [*around[:1], *vocab.encode("the cat"), *around[1:]]


def test_family_files_are_saved_too(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path)
    of_sentencepiece = vocab.kind in ("unigram", "sentencepiece_bpe")
    own = {"vocab.json", "merges.txt"} if vocab.kind == "byte_level_bpe" else {"vocab.txt"}
    own = {"spiece.model"} if of_sentencepiece else own
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "specials.json"} | own
    about = json.loads((tmp_path / "specials.json").read_bytes())
    assert {role: id for role, id in about.items() if role in vocab.specials} == vocab.specials


def test_a_vocabulary_read_from_its_own_files_is_equal(vocabs: dict[TokenizerSpec, Vocab], tmp_path: Path) -> None:
    for number, (spec, vocab) in enumerate(vocabs.items()):
        folder = tmp_path / str(number)
        vocab.save(folder)
        file = next((name for name in ("spiece.model", "vocab.txt") if name in vocab.files), "")
        settings = {name: getattr(spec, name) for name in ("size", "lowercase", "specials") if hasattr(spec, name)}
        assert train(type(spec)(**settings, path=str(folder / file)), []) == vocab
        if spec.kind in ("wordpiece", "byte_level_bpe"):
            assert train(type(spec)(**settings, path=str(folder / "tokenizer.json")), []) == vocab


def test_equal_texts_give_equal_bytes_in_any_process_on_any_number_of_cores(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    code = (
        "from tests.preprocessing.tokenization.test_vocab import SPECS, TEXTS\n"
        "from preprocessing.tokenization import train\n"
        "print([train(spec, iter(TEXTS)).hash for spec in SPECS])"
    )
    expected = [vocab.hash for vocab in vocabs.values()]
    for settings in ({"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "3"}, {"TOKENIZERS_PARALLELISM": "false"}):
        run = subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True)
        assert run.stdout.strip() == str(expected), run.stderr


def test_rare_characters_are_limited_and_ties_go_by_code_point() -> None:
    # a and b are 99.99% of the text, and 100 / 32 is 3
    vocab = train(WordPiece(vocab_size=100), ["ab " * 20_000 + "zyx"])
    assert [vocab.piece(id) for id in range(5, vocab.size) if len(vocab.piece(id)) == 1] == ["a", "b", "x"]
    assert vocab.encode("x z") == [vocab.encode("x")[0], vocab.unk]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            WordPiece(vocab_size=20),
            r"^tokenizer.vocab_size: invalid value 20, expected at least \d+ for this text; set "
            r"data.tokenizer.vocab_size=\d+$",
        ),
        (
            Unigram(vocab_size=5_000),
            r"value 5000, expected at most (\d+) for this text; set data.tokenizer.vocab_size=\1, or add text",
        ),
        (
            Unigram(vocab_size=8),
            r"^tokenizer.vocab_size: invalid value 8, expected at least \d+ for this text; set "
            r"data.tokenizer.vocab_size=\d+$",
        ),
        (
            SentencePieceBPE(vocab_size=8, extra_ids=2),
            r"^tokenizer.vocab_size: invalid value 8, expected at least \d+ for this text; set data.tokenizer.",
        ),
    ],
)
def test_a_size_that_the_text_does_not_allow_is_bad_input(spec: TokenizerSpec, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        train(spec, TEXTS)
    one_line(error)


CHARACTERS = [
    [
        "".join(chr(0x4E00 + (number * number) % 3_001) for number in range(9_000)),
        "A\u00e9 \ufb01 \uff11 \uff8a\uff9d.",
    ],
    TEXTS,
]


@pytest.mark.parametrize("texts", CHARACTERS)
@pytest.mark.parametrize(
    "spec",
    [WordPiece(vocab_size=20), Unigram(vocab_size=8, lowercase=True), SentencePieceBPE(vocab_size=20, extra_ids=9)],
)
def test_least_size_is_the_minimum_for_training(spec: TokenizerSpec, texts: list[str]) -> None:
    least = spec.least_size(texts)
    with pytest.raises(
        BadInput, match=f"expected at least {least} for this text; set data.tokenizer.vocab_size="
    ) as error:
        train(spec, texts)
    asked = int(str(error.value).split("=")[-1])
    assert asked >= least
    assert train(replace(spec, vocab_size=least), texts).size == least


def test_least_size_is_zero_for_byte_word_and_file_vocabularies() -> None:
    for spec in (
        ByteLevelBPE(vocab_size=300),
        WordLevel(vocab_size=9),
        SingleBytes(vocab_size=9),
        WordPiece(vocab_size=9, path="vocab.txt"),
    ):
        assert spec.least_size(CHARACTERS[0]) == 0


def test_unigram_without_text_is_bad_input() -> None:
    with pytest.raises(BadInput) as error:
        train(Unigram(vocab_size=100), [])
    one_line(error)


OF_BYTES = b'{"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel"}}'


@pytest.mark.parametrize(
    ("name", "content", "spec", "message"),
    [
        ("absent.txt", None, WordPiece, "absent.txt: No such file"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", WordPiece, r"has no \[MASK\]"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nthe\ncat\n", WordPiece, "a duplicate token"),
        ("vocab.txt", b"[PAD]\n\xff\xfe\n", WordPiece, "not a valid tokenizer of this kind"),
        ("tokenizer.json", b"{", WordPiece, "not a valid tokenizer of this kind"),
        ("tokenizer.json", OF_BYTES, WordPiece, "tokenizer.kind: invalid value wordpiece, expected byte_level_bpe"),
        (
            "tokenizer.json",
            b'{"model": {"type": "WordPiece"}}',
            ByteLevelBPE,
            "tokenizer.kind: invalid value byte_level_bpe, expected wordpiece",
        ),
        ("tokenizer.json", b'{"model": []}', ByteLevelBPE, "not a valid tokenizer of this kind"),
        ("spiece.model", b"no protocol buffer", Unigram, "not a valid sentencepiece model"),
        ("spiece.model", b"", Unigram, "not a valid sentencepiece model"),
        ("tokenizer.json", OF_BYTES, Unigram, "tokenizer.kind: invalid value unigram, expected byte_level_bpe"),
        ("tokenizer.json", OF_BYTES, SentencePieceBPE, "tokenizer.kind: invalid value sentencepiece_bpe"),
    ],
)
def test_an_invalid_vocabulary_file_is_bad_input(
    tmp_path: Path, name: str, content: bytes | None, spec: type[WordPiece], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message) as error:
        train(spec(vocab_size=300, path=str(tmp_path / name)), [])
    assert one_line(error).startswith(("tokenizer.path: ", "tokenizer.kind: "))


def test_a_file_with_more_tokens_than_vocab_size_is_bad_input(
    vocabs: dict[TokenizerSpec, Vocab], tmp_path: Path
) -> None:
    vocabs[SPECS[0]].save(tmp_path)
    with pytest.raises(BadInput, match=r"tokenizer\.vocab_size: invalid value 90, expected at least 100"):
        train(WordPiece(vocab_size=90, path=str(tmp_path / "vocab.txt")), [])


def test_check_vocab_accepts_the_same_kind_and_a_larger_size(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    vocab = vocabs[SPECS[0]]
    check_vocab(vocab, WordPiece(vocab_size=100))
    check_vocab(vocab, WordPiece(vocab_size=101))
    with pytest.raises(BadInput, match=r"tokenizer\.vocab_size: invalid value 99, expected at least 100"):
        check_vocab(vocab, WordPiece(vocab_size=99))
    with pytest.raises(BadInput, match=r"tokenizer\.kind: invalid value unigram, expected wordpiece"):
        check_vocab(vocab, Unigram())


def test_word_level_ids_follow_frequency_and_rare_words_are_unknown() -> None:
    texts = ["the cat of the mat <unk> , 's </s>", "the cat , a </s> b <unk> <unk>", "rare"]
    vocab = train(WordLevel(vocab_size=7), texts)
    assert [vocab.piece(id) for id in range(vocab.size)] == ["<unk>", "</s>", "the", ",", "cat", "'s", "a"]
    assert vocab.specials == {"unk": 0, "sep": 1}
    assert vocab.encode("a rare cat, <unk> </s>\nThe 's the</s>") == [6, 0, 0, 0, 0, 0, 5, 0]
    assert vocab.decode([2, 4, 1, 6]) == "the cat </s> a"
    assert vocab.starts_word_V.all()


def test_single_bytes_are_lossless_and_unseen_bytes_are_unknown() -> None:
    known = "face\u00e9\n \u4e0b</s>"
    vocab = train(SingleBytes(), [known])
    assert vocab.size == 2 + len(set(known.encode()))
    text = "face\n\n \u4e0b\u00e9 "
    assert len(vocab.encode(text)) == len(text.encode())
    assert vocab.decode(vocab.encode(text)) == text
    assert vocab.encode("z") == [vocab.unk]
    ids, _, word_starts, *_ = vocab.encode_documents([["a cafe\n", "a"]])[0]
    assert np.flatnonzero(word_starts).tolist() == [0, 1, 6, 7]
    assert ids.tolist() == vocab.encode("a cafe\na")


def test_single_bytes_keep_the_most_frequent_bytes() -> None:
    vocab = train(SingleBytes(vocab_size=4), ["aaa bb c"])
    assert [vocab.piece(id) for id in range(4)] == ["<unk>", "</s>", "a", "b"]


def test_a_too_small_vocab_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"invalid tokenizer\.vocab_size: got 0, expected an integer of at least 1"):
        WordPiece(vocab_size=0)
    with pytest.raises(ValueError, match=r"invalid tokenizer\.vocab_size: got 2, expected an integer of at least 3"):
        SingleBytes(vocab_size=2)


@pytest.mark.parametrize("spec", [WordPiece, ByteLevelBPE, Unigram, SentencePieceBPE, WordLevel, SingleBytes])
def test_padded_vocab_size_is_at_least_vocab_size(spec: type[WordPiece]) -> None:
    assert (table_rows(spec(vocab_size=500)), table_rows(spec(vocab_size=500, padded_vocab_size=512))) == (500, 512)
    with pytest.raises(
        ValueError,
        match=r"invalid tokenizer\.padded_vocab_size: got 499, expected 0 \(.*\), or "
        r"at least tokenizer\.vocab_size \(500\)",
    ):
        spec(vocab_size=500, padded_vocab_size=499)


def test_padding_rows_do_not_change_the_vocabulary(vocabs: dict[TokenizerSpec, Vocab]) -> None:
    assert train(WordPiece(vocab_size=100, padded_vocab_size=128), TEXTS) == vocabs[SPECS[0]]


def test_language_sampling_alpha_above_1_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"invalid tokenizer\.language_sampling_alpha: got 1.5, expected a number from 0 to 1"
    ):
        SentencePieceBPE(language_sampling_alpha=1.5)


def test_a_damaged_vocabulary_file_is_named(vocab: Vocab, tmp_path: Path) -> None:
    for name in vocab.files.keys() - {"specials.json"}:
        vocab.save(tmp_path)
        content = vocab.files[name]
        (tmp_path / name).write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        with pytest.raises(BadInput, match=f"{name}: damaged file") as error:
            Vocab.load(tmp_path)
        one_line(error)


def test_changed_special_ids_change_the_hash(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path)
    about = from_checked_json((tmp_path / "specials.json").read_bytes())
    (tmp_path / "specials.json").write_bytes(to_checked_json(about | {"sep": 5}))
    with pytest.raises(BadInput, match="as in the corpus"):
        Vocab.load(tmp_path, wanted=vocab.hash)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_damaged_specials_json_is_bad_input(vocabs: dict[TokenizerSpec, Vocab], tmp_path: Path, content: bytes) -> None:
    vocabs[SPECS[0]].save(tmp_path)
    (tmp_path / "specials.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"specials\.json: invalid file") as error:
        Vocab.load(tmp_path)
    one_line(error)


def test_a_missing_vocabulary_file_is_named(vocab: Vocab, tmp_path: Path) -> None:
    for name in vocab.files:
        vocab.save(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(BadInput, match=f"{name}: No such file"):
            Vocab.load(tmp_path)


def test_a_vocabulary_with_another_hash_is_bad_input(vocab: Vocab, tmp_path: Path) -> None:
    vocab.save(tmp_path)
    with pytest.raises(BadInput, match=f"got hash {vocab.hash[:12]}, expected 0123456789ab as in the corpus"):
        Vocab.load(tmp_path, wanted="0123456789abcdef")


def test_frequency_order_starts_with_the_most_frequent_tokens() -> None:
    texts = ["the cat and the dog and the bird", "the dog saw a cat", "a bird, a bird"] * 40
    plain, ordered = (train(WordPiece(vocab_size=80, token_order=order), texts) for order in ("training", "frequency"))
    count_V = np.bincount([id for text in texts for id in ordered.encode(text)], minlength=ordered.size)
    ordinary_V = np.delete(count_V, list(ordered.special_ids))
    assert (np.diff(ordinary_V) <= 0).all()
    assert ordered.special_ids == plain.special_ids == (0, 1, 2, 3, 4)
    assert ordered.piece(5) == "the"
    assert {plain.piece(id) for id in range(plain.size)} == {ordered.piece(id) for id in range(ordered.size)}
    assert [plain.piece(id) for id in plain.encode(texts[0])] == [ordered.piece(id) for id in ordered.encode(texts[0])]
    assert not (np.diff(np.bincount([id for text in texts for id in plain.encode(text)])[5:]) <= 0).all()
    assert ordered.hash == train(WordPiece(vocab_size=80, token_order="frequency"), texts).hash


@pytest.mark.parametrize(
    ("kind", "size", "least"), [(WordPiece, 1, 6), (WordPiece, 5, 6), (ByteLevelBPE, 256, 257), (Unigram, 2, 6)]
)
def test_vocab_size_must_exceed_the_special_tokens(kind: Any, size: int, least: int) -> None:
    with pytest.raises(
        ValueError, match=f"invalid tokenizer.vocab_size: got {size}, expected an integer of at least {least}"
    ):
        kind(vocab_size=size)
    kind(vocab_size=least)
