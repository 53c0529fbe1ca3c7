"""Checks on a sample of a corpus before the text is read."""

from pathlib import Path

import pytest

from orchestration.cli import main
from pipeline.readers import TextReader
from pipeline.spec import Clean, Corpus
from pipeline.steps import require_room, sample
from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, Unigram, WordPiece


def chinese_text(start: int, num: int) -> str:
    return "\n\n".join(
        "".join(chr(0x4E00 + (start + 37 * line + place) % 3_500) for place in range(100)) for line in range(num)
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text").mkdir()
    for number in range(40):
        (tmp_path / "text" / f"{number:02}.txt").write_text(chinese_text(91 * number, 50))
    return Corpus(name="zh", sources=(TextReader(path=str(tmp_path / "text"), document_unit="paragraphs"),))


@pytest.mark.parametrize("spec", [WordPiece(vocab_size=4_096), Unigram(vocab_size=2_048)])
def test_a_too_small_vocabulary_is_refused_before_the_text_is_read(corpus: Corpus, spec: WordPiece) -> None:
    with pytest.raises(BadInput) as error:
        require_room(spec, corpus)
    least = spec.least_size(sample.documents(corpus))
    message = (
        f"tokenizer.vocab_size: invalid value {spec.vocab_size}, expected at least {least} for this text; set "
        f"data.tokenizer.vocab_size="
    )
    assert str(error.value) == f"{message}{8192 if isinstance(spec, WordPiece) else 4096}"


def test_a_large_enough_vocabulary_is_accepted(corpus: Corpus) -> None:
    require_room(WordPiece(vocab_size=8_192), corpus)
    require_room(
        ByteLevelBPE(vocab_size=300), Corpus(name="x", sources=(TextReader(path="/no/such"),))
    )  # the text is not opened


def test_a_sample_of_more_text_is_small_spread_and_deterministic(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "SAMPLE_BYTES", 64_000)
    monkeypatch.setattr(sample, "_OPENED", 0)
    found = list(sample.documents(corpus))
    assert found == list(sample.documents(corpus))
    assert 60_000 < sum(len(text.encode()) for text in found) < 70_000
    firsts = [chinese_text(91 * number, 1) for number in range(40)]
    assert len({text for text in found if text in firsts}) == 16
    with pytest.raises(BadInput, match=r"expected at least .* for a sample of this text") as error:
        require_room(WordPiece(vocab_size=4_096), corpus)
    assert str(error.value).endswith("data.tokenizer.vocab_size=16384")  # the whole text has more characters


def test_text_dropped_by_cleaning_does_not_count(corpus: Corpus) -> None:
    english = Corpus(name="en", sources=corpus.sources, clean=Clean(languages=("en",)))
    assert list(sample.documents(english)) == []
    require_room(WordPiece(vocab_size=4_096), english)


def test_the_command_reports_the_override_and_leaves_no_files(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error used to come only after the whole text stage, with the message `ask for more`."""
    given = ["bert_base", "--scale", "tiny", "--data", str(tmp_path / "text"), "--output-dir", str(tmp_path / "out")]
    assert main(["corpus", *given, "--progress", "none"]) == 2
    assert "for this text" in (last := capsys.readouterr().err.splitlines()[-1])
    assert last.endswith("; set data.tokenizer.vocab_size=8192")
    assert not (tmp_path / "out" / "text").exists()
