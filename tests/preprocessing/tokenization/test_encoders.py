"""Fast encoders return the IDs and boundaries of `tokenizers`, or are refused."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from preprocessing.errors import BadInput
from preprocessing.schema import Ints
from preprocessing.text import sentences
from preprocessing.tokenization import (
    ByteLevelBPE,
    SentencePieceBPE,
    TokenizerSpec,
    Vocab,
    WordPiece,
    byte_level_bpe,
    encoders,
    train,
)
from preprocessing.tokenization import vocab as vocab_module
from preprocessing.tokenization.encoders import (
    BatchEncoder,
    GigatokenEncoder,
    ListEncoder,
    NanotokenEncoder,
    choose_encoder,
    find_obstacle,
    open_encoder,
)
from preprocessing.tokenization.parity import are_equal, find_difference, make_strings

SPECS: dict[str, TokenizerSpec] = {
    "uncased": WordPiece(vocab_size=9_000),
    "cased": WordPiece(vocab_size=9_000, lowercase=False),
    "gpt2": ByteLevelBPE(vocab_size=3_000),
    "roberta": ByteLevelBPE(vocab_size=3_000, special_tokens="roberta"),
}
NAMES = {"uncased": "nanotoken", "cased": "nanotoken", "gpt2": "gigatoken", "roberta": "gigatoken"}
TEXT = (
    "The cat sat. It's 3.14 o'clock?!  \u201cYes.\u201dNo.\r\n\tna\u00efve caf\u00e9s\u2026 "
    "\u4eca\u5929\u3002\u660e\u5929 [MASK] <s> </s> <|endoftext|> e\u0301\u0301 "
)


@cache
def vocab(name: str) -> Vocab:
    return train(SPECS[name], [TEXT * 20, *make_strings(4_000, ["the", " of", "\u0120and"], seed=1)])


def installed(name: str) -> str:
    """The name of the encoder for a tokenizer; skips the test without its package."""
    if obstacle := find_obstacle(NAMES[name]):
        pytest.skip(obstacle)
    return NAMES[name]


def opened(one: Vocab, name: str) -> BatchEncoder:
    return open_encoder(name, one.files["tokenizer.json"], ListEncoder(one._encode))


each_vocab = pytest.mark.parametrize("name", SPECS)


def make_documents(number: int, pieces: Sequence[str]) -> list[list[str]]:
    """Documents with sentences as they are found, and others that are cut anywhere."""
    strings = list(make_strings(number, pieces, seed=2))
    documents = [sentences(" ".join(strings[first : first + 4])) for first in range(0, number, 4)]
    return [*documents, *(list(strings[first : first + 3]) for first in range(0, number, 3)), [], [""], [TEXT, "", " "]]


@each_vocab
def test_documents_have_the_ids_and_boundaries_of_the_library(name: str) -> None:
    plain = vocab(name)
    fast = plain.use_encoder(installed(name))
    assert (fast.encoder, fast, plain.encoder) == (NAMES[name], plain, "")
    documents = make_documents(600, plain._pieces)
    for ours, wanted in zip(fast.encode_documents(documents), plain.encode_documents(documents), strict=True):
        assert ours.ids.dtype == wanted.ids.dtype == np.int32
        for found, expected in zip(ours[:3], wanted[:3], strict=True):
            np.testing.assert_array_equal(found, expected)


@each_vocab
def test_an_encoder_passes_its_trial(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocab_module, "NUM_STRINGS", 3_000)
    assert vocab(name).try_encoder([TEXT, "", "a" * 101]) == (installed(name), "")


class Faulty:
    """An encoder with a fault in a text."""

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], fault: str) -> None:
        self.reference, self.fault = encode, fault

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        found = self.reference(list(texts))
        if "strange" in texts:
            ids = found[texts.index("strange")]
            ids[:] = {"another ID": [*ids[:-1], 7], "missing": ids[:-1], "added": [*ids, 7], "none": []}[self.fault]
        end_N = np.cumsum([0, *map(len, found)])
        return np.array([*chain.from_iterable(found)], np.int32), end_N


@pytest.mark.parametrize("fault", ["another ID", "missing", "added", "none"])
def test_a_trial_finds_each_kind_of_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = vocab("uncased")
    monkeypatch.setattr(vocab_module, "NUM_STRINGS", 100)
    monkeypatch.setattr(vocab_module, "find_obstacle", lambda name: "")
    monkeypatch.setattr(vocab_module, "open_encoder", lambda *_: Faulty(one._encode, fault))
    name, reason = one.try_encoder(["usual", "strange"])
    assert name == ""
    assert reason.startswith("nanotoken 0.1.0 differs from tokenizers: 'strange' is [")
    assert one.try_encoder(["usual"]) == ("nanotoken", "")


def test_two_faults_that_keep_the_number_of_ids_are_found() -> None:
    """The first text has an ID more, and the second one less."""

    class Shifted:
        def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
            return np.array([1, 2, 3], np.int32), np.array([0, 2, 3])

    assert find_difference(Shifted(), lambda texts: [[1], [2, 3]], iter("ab")) == "'a' is [1, 2], expected [1]"


def test_special_tokens_in_a_text_are_text() -> None:
    for name in SPECS:
        plain, fast = vocab(name), vocab(name).use_encoder(installed(name))
        text = [["".join(plain.piece(id) for id in plain.special_ids)]]
        assert not set(fast.encode_documents(text)[0].ids.tolist()) & set(plain.special_ids) - {plain.unk}


def content(name: str, **changes: Any) -> dict[str, Any]:
    """The content of a tokenizer.json with other values; keys with a dot are inside of its parts."""
    found: dict[str, Any] = json.loads(vocab(name).files["tokenizer.json"])
    for key, value in changes.items():
        part, _, inside = key.partition("__")
        if inside:
            found[part] |= {inside: value}
        else:
            found[part] = value
    return found


def test_an_encoder_is_chosen_by_all_parts_of_the_tokenizer() -> None:
    assert {name: choose_encoder(content(name)) for name in SPECS} == NAMES
    token = {"id": 3, "content": "the", "special": False}
    refused = [
        content("uncased", added_tokens=[token]),
        content("uncased", normalizer=None),
        content("uncased", pre_tokenizer={"type": "Whitespace"}),
        content("uncased", model__dropout=0.1),
        content("gpt2", model__dropout=0.1),
        content("gpt2", model__ignore_merges=True),
        content("gpt2", model__byte_fallback=True),
        content("gpt2", model__unk_token="<unk>"),
        content("gpt2", normalizer={"type": "NFC"}),
        content("gpt2", pre_tokenizer__add_prefix_space=True),
        content("gpt2", pre_tokenizer__use_regex=False),
    ]
    assert {choose_encoder(each) for each in refused} == {""}
    sentencepiece = train(SentencePieceBPE(vocab_size=100), [TEXT])
    assert sentencepiece.try_encoder([TEXT]) == ("", "")


def test_without_a_package_or_with_another_version_the_library_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    one = vocab("gpt2")
    monkeypatch.setattr(encoders, "version", lambda name: "0.23.3" if name == "tokenizers" else "0.11.0")
    assert one.try_encoder([]) == ("", "gigatoken 0.11.0 was not tested, only 0.10.0")
    monkeypatch.setattr(encoders, "version", lambda name: "0.22.1" if name == "tokenizers" else "0.10.0")
    assert one.try_encoder([]) == ("", "tokenizers 0.22.1 was not tested, only 0.23.3")
    assert one.use_encoder("gigatoken") is one

    def missing(name: str) -> str:
        raise encoders.PackageNotFoundError(name)

    monkeypatch.setattr(encoders, "version", missing)
    _, reason = one.try_encoder([])
    assert reason == "gigatoken is not installed: run `pip install 'sesame-pretraining[fast]'`"
    assert one.use_encoder("gigatoken") is one


def test_a_file_that_an_encoder_refuses_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("uncased")
    with pytest.raises(
        BadInput, match=r"^nanotoken cannot read this tokenizer.json \(.*\); use the encoder of tokenizers$"
    ):
        open_encoder("nanotoken", b'{"model": {"type": "Unigram"}}', ListEncoder(vocab("uncased")._encode))
    one = vocab("uncased")
    broken = replace(one, files=one.files | {"tokenizer.json": json.dumps(content("uncased", decoder=7)).encode()})
    monkeypatch.setattr(vocab_module, "NUM_STRINGS", 10)
    name, reason = broken.try_encoder([])
    assert bool(name) != bool(reason)


def test_another_process_uses_the_same_encoder() -> None:
    fast = vocab("uncased").use_encoder(installed("uncased"))
    fast.encode_documents([["One."]])
    again = pickle.loads(pickle.dumps(fast))
    assert again.encoder == "nanotoken"
    assert again.encode_documents([["One."]])[0].ids.tolist() == vocab("uncased").encode("One.")


@pytest.mark.parametrize("kind", ["gpt2", "uncased"])
def test_an_encoder_is_renewed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cache of words grows by hundreds of MB."""
    encoder: Any = opened(vocab(kind), installed(kind))
    encoder = getattr(encoder, "encoder", encoder)
    monkeypatch.setattr(encoders, "_RENEWED_AFTER", 10)
    used = set()
    for text in ("a cat", "a dog sat", "a mouse"):
        ids_T, _ = encoder.encode([text])
        assert ids_T.tolist() == vocab(kind).encode(text)
        used.add(encoder._encoder)
    assert len(used) == 2


def test_no_encoder_is_imported_before_its_use() -> None:
    program = (
        "import sys; import preprocessing.tokenization; print({'nanotoken', 'gigatoken', 'numba'} & {*sys.modules})"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


@pytest.mark.slow
@each_vocab
def test_a_million_strings_have_the_ids_of_the_library(name: str) -> None:
    one = vocab(name)
    encoder = opened(one, installed(name))
    assert find_difference(encoder, one._encode, make_strings(1_000_000, one._pieces, seed=3)) == ""


def test_characters_that_are_new_in_unicode_are_left_to_the_library() -> None:
    """Gigatoken 0.10 knows Unicode 17, whose new letters once were punctuation; a million strings found one text."""
    one = vocab("gpt2")
    texts = ["plain", "Z<\n\n\u00c3\r\n\U00033372's!", "\u088f's!", "", "\U0001f600's \u0905", "\ua7ce" * 3]
    ids_T, end_N = opened(one, installed("gpt2")).encode(texts)
    assert [ids_T[start:end].tolist() for start, end in pairwise(end_N)] == one._encode(texts)


CODE_POINTS = (*range(0xD800), *range(0xE000, 0x110000))  # without halves of surrogate pairs, which are not text


def find_odd(encoder: BatchEncoder, tokenizer: Tokenizer, patterns: Sequence[str]) -> set[str]:
    """The characters whose IDs inside of these patterns differ from those of the library."""
    odd = set[str]()
    for pattern in patterns:
        for first in range(0, len(CODE_POINTS), 50_000):
            chars = [chr(code) for code in CODE_POINTS[first : first + 50_000]]
            texts = [pattern.format(char) for char in chars]
            ids_T, end_N = encoder.encode(texts)
            wanted = [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
            if not are_equal(wanted, ids_T, end_N):
                each_found = (ids_T[start:end].tolist() for start, end in pairwise(end_N.tolist()))
                odd |= {char for char, ids, found in zip(chars, wanted, each_found, strict=True) if ids != found}
    return odd


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point_has_the_wordpiece_of_the_library(lowercase: bool) -> None:
    """Each character is a token at the start of words and inside of words, so that no difference is hidden."""
    installed("uncased")
    pieces = {"[UNK]": 0}
    for prefix in ("", "##"):
        for code in CODE_POINTS:
            pieces.setdefault(prefix + chr(code), len(pieces))
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    assert find_odd(NanotokenEncoder(tokenizer.to_str()), tokenizer, ("a{}b", "{} \u0301", "A{}\u03a3")) == set()


@pytest.mark.slow
def test_the_words_of_all_code_points_are_those_of_the_library_except_for_new_ones() -> None:
    """Merges of neighbours with each first and last byte of a character show where the words are cut."""
    installed("gpt2")
    sign = {byte: char for char, byte in byte_level_bpe._BYTE_OF.items()}
    first, last = [sign[byte] for byte in range(0xC2, 0xF5)], [sign[byte] for byte in range(0x80, 0xC0)]
    pieces = {char: id for id, char in enumerate(sorted(sign.values()))}
    merges = [("s", "!"), ("'", "s")]
    merges += [(left, byte) for left in ("a", "1", "!", sign[0x20]) for byte in first]
    merges += [(byte, right) for right in ("b", "2", "?", sign[0x20]) for byte in last]
    pieces |= {left + right: len(pieces) + rank for rank, (left, right) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(pieces, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    patterns = ("a{}b", "1{}2", "!{}?", "{}'s!", "  {} ")
    odd = find_odd(GigatokenEncoder(tokenizer.to_str()), tokenizer, patterns)
    assert odd == {char for char in map(chr, CODE_POINTS) if encoders._NEW.fullmatch(char)}
    assert all(char.encode().startswith(encoders._FIRST_BYTES) for char in odd)
