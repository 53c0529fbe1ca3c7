"""Source code from its file to token IDs: all whitespace is kept, or its loss is reported."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import encode_corpus, train_vocab
from pipeline.readers import JsonlReader, Source, TextReader
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps import read_text
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.shards import TokenStore
from preprocessing.tokenization import (
    ByteLevelBPE,
    SentencePieceBPE,
    SingleBytes,
    TokenizerSpec,
    Unigram,
    Vocab,
    WordLevel,
    WordPiece,
)

HERE = ("--direct_running_mode=in_memory",)
CODE = "def f(a):\n\tif a:\n\n\n        return  [\n            a,\n        ]\n    # One.  Two.\n\treturn\tNone\n"
KEPT = Clean(min_chars=1, whitespace="keep")


def build(
    folder: Path, vocab: TokenizerSpec, source: Source, clean: Clean = KEPT, **keys: Any
) -> tuple[TokenStore, Vocab]:
    corpus = Corpus(name="code", sources=(source,), clean=clean, validation_ratio=0, test_ratio=0, **keys)
    read_text(corpus, folder / "text", HERE)
    train_vocab(folder / "text", vocab, folder / "vocab", HERE)
    encode_corpus(folder / "text", folder / "vocab", corpus, folder / "corpus", HERE)
    store = TokenStore.open(folder / "corpus", "train")
    return store, Vocab.load(store.vocab_dir)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for number in range(4):
        (tmp_path / "code" / f"{number}.py").write_text(f"\n{CODE * (number + 1)}\n\n")
    return tmp_path / "code"


@pytest.mark.parametrize("vocab", [ByteLevelBPE(vocab_size=300), SingleBytes()], ids=lambda vocab: vocab.kind)
@pytest.mark.parametrize("sentences", ["found", "lines"])
def test_source_code_keeps_its_whitespace(vocab: TokenizerSpec, sentences: str, code: Path, tmp_path: Path) -> None:
    store, made = build(tmp_path, vocab, TextReader(path=str(code)), sentence_boundaries=sentences)
    texts = {made.decode(store.shards[0].document(row)["ids"]) for row in range(4)}
    assert texts == {(CODE * times).strip("\n") for times in range(1, 5)}
    assert store.manifest.ledger.is_balanced()
    assert store.manifest.ledger.dropped["trimmed"].bytes == 4 * 4  # line ends before and after each text


@pytest.mark.parametrize(
    "vocab",
    [WordPiece(vocab_size=60), Unigram(vocab_size=31), SentencePieceBPE(vocab_size=40), WordLevel(vocab_size=40)],
    ids=lambda vocab: vocab.kind,
)
def test_a_vocabulary_that_loses_whitespace_is_refused(vocab: TokenizerSpec, code: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"data.tokenizer.kind: invalid value {vocab.kind}, expected") as error:
        build(tmp_path, vocab, TextReader(path=str(code)))
    assert "\n" not in str(error.value)


def test_a_filter_that_strips_lines_is_refused_with_whitespace_keep() -> None:
    with pytest.raises(ValueError, match=r"clean\.whitespace: got 'keep', expected collapse with the filter c4"):
        Clean(whitespace="keep", filters=("c4",))


def test_lost_indentation_is_reported(code: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(tmp_path, ByteLevelBPE(vocab_size=300), TextReader(path=str(code)), Clean(min_chars=1))
    actual = [record.getMessage() for record in caplog.records if "indented" in record.getMessage()]
    assert len(actual) == 1
    assert "clean.whitespace: keep" in actual[0]


def test_indentation_of_prose_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "prose.txt").write_text(
        "  A chapter begins.\nAnd here it goes on.\nAnd on.\nAnd on.\nTo the end.\n" * 3
    )
    build(tmp_path, ByteLevelBPE(vocab_size=300), TextReader(path=str(tmp_path / "prose.txt")), Clean(min_chars=1))
    assert not any("indented" in record.getMessage() for record in caplog.records)


def test_the_default_whitespace_is_not_among_the_causes() -> None:
    assert "whitespace" not in Clean().causes
    assert Clean(whitespace="keep").causes["whitespace"] == "keep"


def _marked(folder: Path, lines: list[tuple[str, list[str]]]) -> JsonlReader:
    """Return a source of texts with marked phrases."""
    documents = []
    for text, phrases in lines:
        spans, at = [], 0
        for phrase in phrases:
            at = text.index(phrase, at)
            spans.append([at, at + len(phrase)])
            at += len(phrase)
        documents.append(json.dumps({"text": text, "phrases": spans}))
    (folder / "in.jsonl").write_text("\n".join(documents) + "\n")
    return JsonlReader(path=str(folder / "in.jsonl"), spans_key="phrases")


def _units(store: TokenStore, vocab: Vocab) -> list[str]:
    found = list[str]()
    for shard in store.shards:
        for row in range(len(shard)):
            document = shard.document(row)
            at = [*(start for start, begins in enumerate(document["unit_starts"]) if begins), len(document["ids"])]
            found += [vocab.decode(document["ids"][start:stop]) for start, stop in pairwise(at)]
    return [unit.replace(" ", "").replace("##", "") for unit in found]


def test_phrases_follow_the_cleaned_text_and_lost_ones_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "The \ufb01ne day. AT&amp;T wrote to jo@mail.org, \x07 and caf\xc3\xa9 Noir  opened."
    marked = ["\ufb01ne day", "AT&amp;T", "to jo@mail.org", "\x07", "caf\xc3\xa9 Noir"]
    clean = Clean(min_chars=1, mask_pii=("email",))
    store, vocab = build(
        tmp_path, WordPiece(vocab_size=300), _marked(tmp_path, [(text, marked)]), clean, phrases="given"
    )
    assert {"fineday", "at&t", "toname@example.com", "cafenoir"} <= set(_units(store, vocab))
    assert store.manifest.statistics["phrases"] == {"given": 5, "changed": 1, "without_token": 0}
    assert "of 5 marked phrases, 1 are lost and will be masked as words (1 changed" in caplog.text


def test_phrases_beside_a_repeated_line_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    again = "This line stands in each of the documents. New York"
    lines = [
        (f"Hello Old  Town number {n}.\n\n{again}\nFar New York {n} ends.", ["Old  Town", "New York"]) for n in (1, 2)
    ]
    lines = [(text, [*phrases, f"New York {n}"]) for n, (text, phrases) in enumerate(lines, 1)]
    store, vocab = build(
        tmp_path,
        WordPiece(vocab_size=300),
        _marked(tmp_path, lines),
        Clean(min_chars=1),
        phrases="given",
        dedup=Dedup(line_min_chars=40),
    )
    units = _units(store, vocab)
    assert (units.count("oldtown"), units.count("newyork")) == (2, 1)
    assert {"newyork1", "newyork2"} <= set(units)
    assert store.manifest.statistics["phrases"] == {"given": 6, "changed": 0, "repeated_line": 1, "without_token": 0}
    assert "1 repeated_line" in caplog.text


def test_phrases_in_filtered_lines_are_counted(tmp_path: Path) -> None:
    text = (
        "Menu Home\nOld Town has a long market street today.\nIt has [1] many people in New York.\n"
        "Three more words end it."
    )
    store, vocab = build(
        tmp_path,
        WordPiece(vocab_size=300),
        _marked(tmp_path, [(text, ["Menu Home", "Old Town", "has [1] many", "New York"])]),
        Clean(min_chars=1, filters=("c4",)),
        phrases="given",
    )
    assert {"oldtown", "newyork"} <= set(_units(store, vocab))
    assert Manifest.load(store.folder).statistics["phrases"]["changed"] == 2
