"""Sentences, words and phrases of a corpus, from its keys to masked sequences."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader, ParallelReader, Source, TextReader
from pipeline.spec import Clean, Corpus
from pipeline.steps import phrases_of, read_text
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.masking import EntityMasking
from preprocessing.objectives import MaskedLM
from preprocessing.packing import Contiguous
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.shards import Shard, TokenStore
from preprocessing.tokenization import Vocab, WordPiece

HERE = ("--direct_running_mode=in_memory",)
CITY = "They say that New York City never sleeps."


def build(folder: Path, source: Source, *, lowercase: bool = True, **keys: Any) -> Path:
    keys = {"clean": Clean(min_chars=1)} | keys
    corpus = Corpus(name="marks", sources=(source,), validation_ratio=0, test_ratio=0, **keys)
    read_text(corpus, folder / "text", HERE)
    train_vocab(folder / "text", WordPiece(vocab_size=300, lowercase=lowercase), folder / "vocab", HERE)
    encode_corpus(folder / "text", folder / "vocab", corpus, folder / "corpus", HERE)
    return folder / "corpus"


def shard_of(corpus: Path) -> tuple[Shard, Vocab]:
    store = TokenStore.open(corpus, "train")
    return store.shards[0], Vocab.load(store.vocab_dir)


def pieces_of(corpus: Path, starts: str) -> list[str]:
    """Return the text between consecutive starts in the first document, without blanks."""
    shard, vocab = shard_of(corpus)
    document = shard.document(0)
    at = [*np.flatnonzero(document[starts]).tolist(), len(document["ids"])]
    found = (vocab.decode(document["ids"][start:stop]) for start, stop in pairwise(at))
    return [text.replace(" ", "").replace("##", "") for text in found]


@pytest.fixture
def jsonl(tmp_path: Path) -> str:
    """One document with phrases marked by the source."""
    start = CITY.index("New")
    spans = [[start, start + len("New York City")]]
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": CITY, "phrases": spans}) + "\n")
    return str(tmp_path / "in.jsonl")


def test_phrases_given_by_the_source_are_units(jsonl: str, tmp_path: Path) -> None:
    corpus = build(tmp_path, JsonlReader(path=jsonl, spans_key="phrases"), phrases="given")
    assert pieces_of(corpus, "unit_starts") == ["they", "say", "that", "newyorkcity", "never", "sleeps", "."]


@pytest.mark.slow
def test_phrases_of_a_gazetteer_are_units(jsonl: str, tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("New York\nnever sleeps\nYork City\n")
    corpus = build(tmp_path, JsonlReader(path=jsonl), phrases=str(tmp_path / "phrases.txt"))
    assert pieces_of(corpus, "unit_starts") == ["they", "say", "that", "newyork", "city", "neversleeps", "."]


def test_other_phrases_make_the_shards_again(jsonl: str, tmp_path: Path) -> None:
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("New York\n")
    build(tmp_path, JsonlReader(path=jsonl), phrases=str(phrases))
    phrases.write_text("York City\n")
    assert "yorkcity" in pieces_of(build(tmp_path, JsonlReader(path=jsonl), phrases=str(phrases)), "unit_starts")


def test_a_missing_phrase_file_is_a_one_line_error(jsonl: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"invalid phrases: cannot read .*gone\.txt") as error:
        build(tmp_path, JsonlReader(path=jsonl), phrases=str(tmp_path / "gone.txt"))
    assert "\n" not in str(error.value)


def test_entities_are_masked_as_a_whole(jsonl: str, tmp_path: Path) -> None:
    store = TokenStore.open(build(tmp_path, JsonlReader(path=jsonl, spans_key="phrases"), phrases="given"), "train")
    parts: dict[str, Any] = {
        "packing": Contiguous(unit="sentence"),
        "masking": EntityMasking(rate=0.5),
        "objective": MaskedLM(),
    }
    rows = ExampleDataset(store, Vocab.load(store.vocab_dir), ExampleSpec(**parts), length=64)
    shard = store.shards[0]
    unit_T = np.cumsum(shard.unit_starts(0, shard.num_tokens)) - 1
    for epoch in range(20):
        is_asked_T = rows.row(epoch, 0)["labels"][1:-1] >= 0
        for unit in range(unit_T[-1] + 1):
            assert len(set(is_asked_T[unit_T == unit])) == 1


def test_entity_masking_without_phrases_is_refused(jsonl: str, tmp_path: Path) -> None:
    store = TokenStore.open(build(tmp_path, JsonlReader(path=jsonl)), "train")
    parts: dict[str, Any] = {
        "packing": Contiguous(unit="sentence"),
        "masking": EntityMasking(),
        "objective": MaskedLM(),
    }
    with pytest.raises(BadInput, match="needs phrases, which this corpus does not have"):
        ExampleDataset(store, Vocab.load(store.vocab_dir), ExampleSpec(**parts), length=64).row(0, 0)


def test_the_sides_of_a_translation_are_units(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("A small lamp.\nThe open door.\n")
    (tmp_path / "train.de").write_text("Eine kleine Lampe.\nDie offene Tuer.\n")
    paths = (str(tmp_path / "train.en"), str(tmp_path / "train.de"))
    corpus = build(tmp_path, ParallelReader(paths=paths), phrases="given", document_order="input")
    assert pieces_of(corpus, "unit_starts") == ["asmalllamp.", "einekleinelampe."]


def test_chinese_words_are_segmented_on_request(tmp_path: Path) -> None:
    (tmp_path / "zh.txt").write_text(
        "\u6211\u4eec\u5728\u5317\u4eac\u5927\u5b66\u5b66\u4e60\u8bed\u8a00\u6a21\u578b\u3002\n"
    )
    source = TextReader(path=str(tmp_path / "zh.txt"), document_unit="line")
    single = pieces_of(build(tmp_path / "pieces", source), "word_starts")
    words = pieces_of(build(tmp_path / "words", source, word_segmentation="jieba"), "word_starts")
    assert {len(piece) for piece in single} == {1}
    assert "\u5b66\u4e60" in words
    assert "".join(words) == "".join(single)


def test_sentence_boundaries_can_be_lines(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("One. Two stay together\nand the third stands alone.\n")
    corpus = build(tmp_path, TextReader(path=str(tmp_path / "in.txt")), sentence_boundaries="lines")
    assert pieces_of(corpus, "sentence_starts") == ["one.twostaytogether", "andthethirdstandsalone."]


def test_implausible_sentences_are_reported_once_and_in_the_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in.txt").write_text("word " * 80 + "\n" + "other " * 90)
    corpus = build(tmp_path, TextReader(path=str(tmp_path / "in.txt"), document_unit="line"))
    doubt = Manifest.load(corpus).statistics["implausible_sentences"]
    assert "the median length is 539 characters" in doubt
    assert [record.getMessage() for record in caplog.records] == [f"implausible sentences of marks: {doubt}"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("गर्मियों में पूरे देश से लोग यहाँ आते हैं।", "गर्मियों as गरमियो"),
        ("ในฤดูร้อนผู้คนจากทั่วประเทศจะมาที่นี่", "as ในฤดรอนผคนจากท;"),
        ("夏になると全国から多くの人々が訪れます。", "々か 訪 れます。;"),
        ("Die Häuser über der Brücke gehören ihr.", "Häuser as hauser"),
    ],
)
def test_marks_removed_by_the_vocabulary_are_reported(
    text: str, example: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """BERT's lower-casing removes accents and, in other scripts, vowels; the user gets a warning."""
    (tmp_path / "in.txt").write_text(f"{text}\n")
    source = TextReader(path=str(tmp_path / "in.txt"), document_unit="line")
    corpus = build(tmp_path, source)
    doubt = Manifest.load(corpus).statistics["stripped_marks"]
    assert example in doubt
    assert "to keep them, set data.tokenizer.lowercase=false" in doubt
    assert f"stripped marks of marks: {doubt}" in [record.getMessage() for record in caplog.records]
    cased = build(tmp_path / "cased", source, lowercase=False)
    assert "stripped_marks" not in Manifest.load(cased).statistics


def test_plausible_sentences_are_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in.txt").write_text("One sentence. And another.\n")
    corpus = build(tmp_path, TextReader(path=str(tmp_path / "in.txt"), document_unit="line"))
    assert "implausible_sentences" not in Manifest.load(corpus).statistics
    assert not caplog.records


@pytest.mark.parametrize(("languages", "num"), [(("de",), 1), ((), 3)])
def test_sentences_follow_the_rules_of_the_selected_language(
    languages: tuple[str, ...], num: int, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("Vertrag vom 3. Oktober, unterschrieben am 5. November\n")
    source = TextReader(path=str(tmp_path / "in.txt"), document_unit="line")
    corpus = build(tmp_path, source, clean=Clean(min_chars=1, languages=languages))
    assert len(pieces_of(corpus, "sentence_starts")) == num


def test_phrases_of_a_file_are_separated_only_by_line_ends(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("San\u2028Jose\r\n\nNew\x85York\nParis", "utf-8", newline="")
    assert phrases_of(str(tmp_path / "phrases.txt")) == ["San\u2028Jose", "New\x85York", "Paris"]
