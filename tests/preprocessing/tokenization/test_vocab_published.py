"""Published vocabularies give the published token IDs."""

from pathlib import Path

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.text import normalize, sentences
from preprocessing.tokenization import ByteLevelBPE, SentencePieceBPE, Unigram, WordPiece, train

pytestmark = pytest.mark.shared

# Text with names of special tokens, unknown characters and normalized characters, and empty text
ODD = ["<pad> </s> <unk> [CLS] <s> <extra_id_0>", "\u4e0b\u4e00 \u6211\u4eec", "\u00bd cafe\u0301 \uff21", "", " a  b "]


def sample(shared: Path) -> list[str]:
    """Return sentences in many scripts, and English ones."""
    scripts = (shared / "tokenizers" / "hf_fixtures" / "sample_text.txt").read_text(encoding="utf-8").split("\n")
    text = normalize((shared / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8"))
    return [*scripts, *sentences(text[:50_000]), *ODD]


def test_bert_ids_equal_the_reference_tokenizer(shared: Path) -> None:
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy  # slow to import

    file = shared / "tokenizers" / "bert-uncased" / "vocab.txt"
    vocab, reference = train(WordPiece(path=str(file)), []), BertTokenizerLegacy(str(file))
    assert (vocab.size, vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (30522, 0, 100, 101, 102, 103)
    assert vocab.encode("hello world") == [7592, 2088]
    sample = (shared / "tokenizers" / "hf_fixtures" / "sample_text.txt").read_text(encoding="utf-8").split("\n")
    odd = ["\u00c9t\u00e9 na\u00efve \u4e0b\u4e00", "(MASK) don't 3.5% \u20ac\u2122", "x" * 101, "x" * 100]
    for text in (*sample, *odd):
        assert vocab.encode(text) == reference.convert_tokens_to_ids(reference.tokenize(text))


def test_chinese_bert_ids_equal_the_reference_tokenizer(shared: Path) -> None:
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy  # slow to import

    file = shared / "tokenizers" / "bert-chinese" / "vocab.txt"
    vocab, reference = train(WordPiece(path=str(file)), []), BertTokenizerLegacy(str(file))
    assert (vocab.size, vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (21128, 0, 100, 101, 102, 103)
    news = (shared / "zh" / "zh_samples" / "news_zh_1.txt").read_text(encoding="utf-8", errors="replace")
    for text in sentences(normalize(news))[:100]:
        assert vocab.encode(text) == reference.convert_tokens_to_ids(reference.tokenize(text))


def test_the_small_vocabulary_of_the_t5_tests_loads(shared: Path) -> None:
    vocab = train(WordPiece(path=str(shared / "tokenizers" / "seqio_fixture" / "bert_vocab_small.txt")), [])
    assert (vocab.size, vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (108, 0, 100, 101, 102, 103)
    assert [vocab.piece(id) for id in vocab.encode("this is a test")] == ["this", "is", "a", "test"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("file", "spec", "size", "specials"),
    [
        ("albert/spiece.model", Unigram, 30000, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}),
        ("t5/spiece.model", Unigram, 32000, {"pad": 0, "unk": 2, "sep": 1}),
        ("hf_fixtures/test_sentencepiece.model", Unigram, 1000, {"unk": 0, "cls": 1, "sep": 2}),
        ("hf_fixtures/test_sentencepiece_bpe.model", SentencePieceBPE, 1000, {"unk": 0, "cls": 1, "sep": 2}),
        ("hf_fixtures/test_sentencepiece_no_bos.model", Unigram, 1000, {"unk": 2, "sep": 1}),
        ("seqio_fixture/sentencepiece.model", Unigram, 26, {"pad": 0, "unk": 2, "sep": 1}),
    ],
)
def test_sentencepiece_models_give_the_ids_of_sentencepiece(
    shared: Path, file: str, spec: type[Unigram], size: int, specials: dict[str, int]
) -> None:
    path = shared / "tokenizers" / file
    vocab, reference = train(spec(path=str(path)), []), SentencePieceProcessor(model_file=str(path))
    plain = Tokenizer.from_buffer(vocab.files["tokenizer.json"])
    plain.encode_special_tokens = True
    assert (vocab.size, vocab.specials) == (size, specials)
    texts = sample(shared)
    assert [vocab.encode(text) for text in texts] == reference.encode(texts)
    texts = [text for text in texts if text not in ODD]  # `tokenizers` has no control tokens
    assert [plain.encode(text, add_special_tokens=False).ids for text in texts] == reference.encode(texts)


@pytest.mark.parametrize(
    ("file", "spec"),
    [("t5/spiece.model", SentencePieceBPE), ("hf_fixtures/test_sentencepiece_bpe.model", Unigram)],
)
def test_a_model_of_the_other_kind_is_bad_input(shared: Path, file: str, spec: type[Unigram]) -> None:
    with pytest.raises(BadInput, match="or change the path"):
        train(spec(path=str(shared / "tokenizers" / file)), [])


def test_t5_tokenizer_json_gives_the_ids_of_transformers_and_of_its_model(shared: Path) -> None:
    from transformers import PreTrainedTokenizerFast  # slow to import

    folder = shared / "tokenizers" / "t5"
    vocab = train(Unigram(vocab_size=32100, path=str(folder / "tokenizer.json")), [])
    reference = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    named, *texts = [ODD[0], *(text for text in sample(shared) if text != ODD[0])]
    ids = [vocab.encode(text) for text in texts]
    assert ids == [reference.encode(text, add_special_tokens=False) for text in texts]
    of_model = SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    assert np.mean([vocab.encode(text) == of_model.encode(text.strip()) for text in texts]) > 0.99
    assert not {vocab.pad, vocab.sep, *range(32000, 32100)} & set(vocab.encode(named))
    assert (vocab.size, vocab.specials) == (32100, {"pad": 0, "unk": 2, "sep": 1})
    assert vocab.piece(32099) == "<extra_id_0>"


@pytest.mark.parametrize("file", ["", "tokenizer.json"])
def test_gpt2_ids_are_the_published_ones(shared: Path, file: str) -> None:
    vocab = train(ByteLevelBPE(path=str(shared / "tokenizers" / "gpt2-roberta" / file)), [])
    assert (vocab.size, vocab.sep, vocab.special_ids) == (50257, 50256, (50256,))
    assert vocab.encode("Hello world") == [15496, 995]
    assert vocab.encode("The quick brown fox jumps over the lazy dog.") == [
        464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290, 13,
    ]  # fmt: skip
    reference = Tokenizer.from_file(str(shared / "tokenizers" / "gpt2-roberta" / "tokenizer.json"))
    for text in sample(shared):
        assert vocab.encode(text) == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.slow
def test_gpt2_files_are_found_by_both_pairs_of_names(shared: Path, tmp_path: Path) -> None:
    folder = shared / "tokenizers" / "gpt2-roberta"
    for given, name in {"encoder.json": "vocab.json", "vocab.bpe": "merges.txt"}.items():
        for file in (tmp_path / "hub" / name, tmp_path / "paper" / given):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes((folder / given).read_bytes())
    hub, paper = (train(ByteLevelBPE(path=str(tmp_path / one)), []) for one in ("hub", "paper"))
    assert hub.hash == paper.hash
    texts = sample(shared)
    whole = train(ByteLevelBPE(path=str(folder)), [])  # this directory has a tokenizer.json, which takes precedence
    assert [whole.encode(text) for text in texts] == [hub.encode(text) for text in texts]


def test_roberta_ids_are_the_published_ones(shared: Path) -> None:
    spec = ByteLevelBPE(vocab_size=50265, special_tokens="roberta", path=str(shared / "tokenizers" / "gpt2-roberta"))
    vocab = train(spec, [])
    assert (vocab.size, vocab.special_ids) == (50265, (0, 1, 2, 3, 50264))
    assert vocab.encode("Hello world") == [31414, 232]
    assert vocab.decode([0, 31414, 232, 50264, 2]) == "<s>Hello world<mask></s>"
    gpt2 = train(ByteLevelBPE(path=str(shared / "tokenizers" / "gpt2-roberta")), [])
    entries = (shared / "tokenizers" / "gpt2-roberta" / "roberta_dict_50260.txt").read_text().splitlines()
    fairseq = {entry.split()[0]: 4 + row for row, entry in enumerate(entries)}  # after <s>, <pad>, </s> and <unk>
    for text in sample(shared):
        assert vocab.encode(text) == [fairseq[str(id)] for id in gpt2.encode(text)]


def test_albert_tokens_are_those_of_its_model(shared: Path) -> None:
    vocab = train(Unigram(vocab_size=30000, path=str(shared / "tokenizers" / "albert" / "spiece.model")), [])
    assert (vocab.size, vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (30000, 0, 1, 2, 3, 4)
    assert vocab.decode(vocab.encode("hello world")) == "hello world"
    assert [vocab.piece(id) for id in vocab.encode("hello world")] == ["\u2581hello", "\u2581world"]


def test_a_published_cased_model_folds_case_on_request(shared: Path) -> None:
    """ALBERT's authors lower-case before encoding; they also remove accents, which this text does not have."""
    path = shared / "tokenizers" / "albert" / "spiece.model"
    vocab = train(Unigram(vocab_size=30000, lowercase=True, path=str(path)), [])
    reference, plain = (
        SentencePieceProcessor(model_file=str(path)),
        Tokenizer.from_buffer(vocab.files["tokenizer.json"]),
    )
    texts = [text for text in sample(shared) if text.isascii() and text not in ODD]
    assert len(texts) > 100
    assert [vocab.encode(text) for text in texts] == reference.encode([text.lower() for text in texts])
    equal = [
        plain.encode(text, add_special_tokens=False).ids == vocab.encode(text) for text in sample(shared)[: -len(ODD)]
    ]
    assert np.mean(equal) > 0.995


def test_albert_tokenizer_json_agrees_with_sentencepiece_on_real_text(shared: Path, tmp_path: Path) -> None:
    vocab = train(Unigram(vocab_size=30000, path=str(shared / "tokenizers" / "albert" / "spiece.model")), [])
    vocab.save(tmp_path)
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = normalize((shared / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8"))[:100_000]
    pieces = [sentence.strip().lower() for sentence in sentences(text)]
    equal = [plain.encode(piece, add_special_tokens=False).ids == vocab.encode(piece) for piece in pieces]
    assert np.mean(equal) > 0.999
