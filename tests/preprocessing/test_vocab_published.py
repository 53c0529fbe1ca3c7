"""Published vocabularies give the published ids."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from preprocessing.text import normalise, sentences
from preprocessing.vocab import ByteBPE, Unigram, WordPiece, train

pytestmark = pytest.mark.shared


def test_bert_ids_are_those_of_the_reference_tokenizer(shared: Path) -> None:
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy  # slow to import

    file = shared / "tokenizers" / "bert-uncased" / "vocab.txt"
    vocab, reference = train(WordPiece(file=str(file)), []), BertTokenizerLegacy(str(file))
    assert (vocab.size, vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (30522, 0, 100, 101, 102, 103)
    assert vocab.encode("hello world") == [7592, 2088]
    sample = (shared / "tokenizers" / "hf_fixtures" / "sample_text.txt").read_text(encoding="utf-8").split("\n")
    odd = ["\u00c9t\u00e9 na\u00efve \u4e0b\u4e00", "(MASK) don't 3.5% \u20ac\u2122", "x" * 101, "x" * 100]
    for text in (*sample, *odd):
        assert vocab.encode(text) == reference.convert_tokens_to_ids(reference.tokenize(text))


@pytest.mark.parametrize("file", ["", "tokenizer.json"])
def test_gpt2_ids_are_the_published_ones(shared: Path, file: str) -> None:
    vocab = train(ByteBPE(file=str(shared / "tokenizers" / "gpt2-roberta" / file)), [])
    assert (vocab.size, vocab.sep, vocab.special_ids) == (50257, 50256, (50256,))
    assert vocab.encode("Hello world") == [15496, 995]
    assert vocab.encode("The quick brown fox jumps over the lazy dog.") == [
        464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290, 13,
    ]  # fmt: skip


def test_roberta_ids_are_the_published_ones(shared: Path) -> None:
    spec = ByteBPE(size=50265, specials="roberta", file=str(shared / "tokenizers" / "gpt2-roberta"))
    vocab = train(spec, [])
    assert (vocab.size, vocab.special_ids) == (50265, (0, 1, 2, 3, 50264))
    assert vocab.encode("Hello world") == [31414, 232]
    assert vocab.decode([0, 31414, 232, 50264, 2]) == "<s>Hello world<mask></s>"


def test_albert_ids_are_those_of_its_model(shared: Path) -> None:
    vocab = train(Unigram(size=30000, file=str(shared / "tokenizers" / "albert" / "spiece.model")), [])
    assert (vocab.size, vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (30000, 0, 1, 2, 3, 4)
    assert vocab.decode(vocab.encode("hello world")) == "hello world"
    assert [vocab.piece(id) for id in vocab.encode("hello world")] == ["\u2581hello", "\u2581world"]


def test_albert_tokenizer_json_agrees_with_sentencepiece_on_real_text(shared: Path, tmp_path: Path) -> None:
    vocab = train(Unigram(size=30000, file=str(shared / "tokenizers" / "albert" / "spiece.model")), [])
    vocab.save(tmp_path)
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = normalise((shared / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8"))[:100_000]
    pieces = [sentence.strip().lower() for sentence in sentences(text)]
    equal = [plain.encode(piece, add_special_tokens=False).ids == vocab.encode(piece) for piece in pieces]
    assert np.mean(equal) > 0.999
