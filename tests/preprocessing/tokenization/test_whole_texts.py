# ruff: noqa: RUF001
"""Sentences are only marks in a document: in every vocabulary, its token IDs equal those of its whole text."""

import json
import random
from itertools import accumulate

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from preprocessing.text import lines_as_sentences, normalize, sentences
from preprocessing.tokenization import (
    ByteLevelBPE,
    SentencePieceBPE,
    SingleBytes,
    TokenizerSpec,
    Unigram,
    Vocab,
    WordLevel,
    WordPiece,
    train,
)
from preprocessing.tokenization.cuts import LONGEST, parts
from preprocessing.tokenization.sentencepiece import _lines

CHINESE = "北京是中国的首都。它很大！“真的吗？”他问。《红楼梦》很有名。（见下文。）\n\n第二段没有空格。第三句在这里。"
JAPANESE = (
    "夏になると全国から多くの人々が訪れます。海で泳ぎます！「はい。」と言った。「本当に？」『ええ。』\n次の段落です。"
)
THAI = "ในฤดูร้อนผู้คนจากทั่วประเทศจะมาที่นี่ และเล่นน้ำในทะเล แล้วกลับบ้าน และนอนหลับ"
ENGLISH = "Dr. Who saw the house. “Why?” he asked... No. 5 lives!\n\nThe second paragraph (of two) ends. Here it is."
OTHERS = "नमस्ते दुनिया। यह दूसरा है॥ և սա հայերեն է։ Եվ սա։ ሰላም ነው። ደህና። مرحبا بكم۔ هل هذا؟ نعم.\n។ ៕ A?! B…"
TEXTS = [CHINESE, JAPANESE, THAI, ENGLISH, OTHERS, "長" * 30_000, "a" * 30_000, "12. ab " * 3_000]
_DRAW = random.Random(0)
_MARKS = "。！？｡.!?…\"'“”‘’「」《》«» \n\n，、;:-—()12abcABC的一是不人éŞİßǅ①㍿ｶﾞ์ ไทย។।॥։ա ա: ؟ "
WILD = [normalize("".join(_DRAW.choices(_MARKS, k=_DRAW.randint(1, 90)))) for _ in range(300)]
DRAWN = [normalize("".join(_DRAW.choices(sentences(text), k=9))) for text in TEXTS[:5] for _ in range(20)]
SPECS: list[TokenizerSpec] = [
    WordPiece(vocab_size=700),
    WordPiece(vocab_size=700, lowercase=False),
    ByteLevelBPE(vocab_size=600),
    ByteLevelBPE(vocab_size=600, special_tokens="roberta"),
    Unigram(vocab_size=500),
    Unigram(vocab_size=500, lowercase=True),
    SentencePieceBPE(vocab_size=500),
    SentencePieceBPE(vocab_size=500, lowercase=True, strip_accents=True),
    WordLevel(vocab_size=400),
    SingleBytes(),
]


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.describe())
def vocab(request: pytest.FixtureRequest) -> Vocab:
    return train(request.param, [*TEXTS[:5], *DRAWN, *WILD])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("cut", [sentences, lines_as_sentences])
def test_the_ids_of_a_document_equal_those_of_its_text(vocab: Vocab, cut: object) -> None:
    texts = [*TEXTS, *DRAWN, *WILD]
    encoded = vocab.encode_documents([cut(text) for text in texts])  # type: ignore[operator]
    for text, document in zip(texts, encoded, strict=True):
        assert document.ids.tolist() == vocab.encode(text), text[:200]
        assert len(document.ids) == len(document.sentence_starts) == len(document.word_starts)
        assert document.sentence_starts[:1].all()
        assert (document.word_starts | ~document.sentence_starts).all()


def test_fast_and_slow_sentence_starts_agree(vocab: Vocab) -> None:
    """The fast methods to find sentence starts agree with the slow one, which uses the offsets of all tokens."""
    texts = [*TEXTS[:5], *DRAWN, *WILD]
    cut = [sentences(text) for text in texts]
    fast, slow = vocab.encode_documents(cut), vocab.encode_documents(cut, spans=[[] for _ in texts])
    for text, document, placed in zip(texts, fast, slow, strict=True):
        assert document.ids.tolist() == placed.ids.tolist(), text
        if "์" not in text:  # a combining mark without a base character has no position if accents are stripped
            assert document.sentence_starts.tolist() == placed.sentence_starts.tolist(), text


def test_each_sentence_starts_with_its_first_token(vocab: Vocab) -> None:
    for text in TEXTS[:5]:
        cut = sentences(text)
        (document,) = vocab.encode_documents([cut])
        num = int(document.sentence_starts.sum())
        assert num <= len(cut)
        if vocab.kind == "bytes":
            assert num == len(cut)
            stops = [*np.flatnonzero(document.sentence_starts).tolist()[1:], len(document.ids)]
            begun = [vocab.decode(document.ids[:stop]) for stop in stops]
            assert begun == list(accumulate(cut))


def test_byte_bpe_sentence_starts_work_with_any_splitter_and_normalizer() -> None:
    """A pattern like that of Llama 3 joins line ends to the mark before them; a normalizer may make a text longer."""
    ours = train(ByteLevelBPE(vocab_size=400), TEXTS[3:4] * 3 + ["a.\n\nb.\n\nc!\n\n" * 20])
    about = json.loads(ours.files["tokenizer.json"])
    pattern = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
    other = Tokenizer(models.BPE(about["model"]["vocab"], [tuple(pair) for pair in about["model"]["merges"]]))
    other.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    for normalizer in (None, normalizers.NFKD()):
        if normalizer:
            other.normalizer = normalizer
        special = dict.fromkeys(("pad", "unk", "cls", "mask")) | {"sep": 0}
        size = other.get_vocab_size()
        vocab = Vocab.of("byte_level_bpe", size, special, 0, {"tokenizer.json": other.to_str().encode()})
        for text in ("One.\n\nTwo\u00e9 \ufb01.\n\nThree.", CHINESE):
            (document,) = vocab.encode_documents([sentences(text)])
            assert document.ids.tolist() == vocab.encode(text)
            assert 1 < document.sentence_starts.sum() <= len(sentences(text))


@pytest.mark.parametrize("spec", [Unigram(vocab_size=14), SentencePieceBPE(vocab_size=18)], ids=lambda spec: spec.kind)
def test_tokens_are_trained_without_a_blank_before_each_sentence(spec: TokenizerSpec) -> None:
    """Training adds no blank before a sentence either: only the first token starts with one."""
    vocab = train(spec, ["我们走。你们来。他们看。" * 9] * 9)
    assert [vocab.piece(id) for id in vocab.encode("我们走。你们来。")].count("\u2581") <= 1
    begun = [vocab.piece(id) for id in range(5, vocab.size) if vocab.piece(id).startswith("\u2581")]
    assert not any("你" in piece or "他" in piece for piece in begun)


def test_word_level_is_trained_on_the_words_of_whole_texts() -> None:
    vocab = train(WordLevel(vocab_size=50), ["我们走。你们来。 又来。"] * 3)
    assert {"我们走。你们来。", "又来。"} <= {vocab.piece(id) for id in range(vocab.size)}


@pytest.mark.parametrize("text", [*TEXTS, "。" * 25_000, ("短句。" * 3 + "\n") * 900], ids=range(len(TEXTS) + 2))
def test_training_lines_are_bounded_and_lose_no_text(text: str) -> None:
    lines = list(_lines(text))
    assert max(map(len, lines)) <= LONGEST
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_long_text_is_encoded_in_parts_that_start_with_blanks(text: str) -> None:
    found = parts(text, "blanks")
    assert "".join(found) == text
    assert all(part[0] in " \n" for part in found[1:])
    assert parts(text, "nowhere") == [text]


@pytest.mark.parametrize("spec", [Unigram(vocab_size=19), SentencePieceBPE(vocab_size=60)], ids=lambda spec: spec.kind)
def test_a_long_text_has_the_ids_of_its_words(spec: TokenizerSpec) -> None:
    """Scores are summed in float32; in a text of this length, sums alone could not distinguish tokens."""
    words = [f"w{number % 97}x" for number in range(20_000)]
    vocab = train(spec, [" ".join(words[:300])])
    of_word = {word: vocab.encode(word) for word in set(words)}
    assert vocab.encode(" ".join(words)) == [id for word in words for id in of_word[word]]


@pytest.mark.parametrize("words", ["pieces", "jieba"])
def test_words_and_phrases_may_cross_sentence_ends(words: object) -> None:
    text = "我们走。你们来。他们看。"
    vocab = train(WordPiece(vocab_size=60), [text] * 3)
    spans = [[(2, 6)]]
    (document,) = vocab.encode_documents([sentences(text)], words=words, spans=spans)  # type: ignore[arg-type]
    assert document.ids.tolist() == vocab.encode(text)
    assert document.unit_starts is not None
    assert document.unit_starts[2]
    assert not document.unit_starts[3:6].any()
