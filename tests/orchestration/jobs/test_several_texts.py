"""Several --data arguments: settings of a corpus file that would not apply to all text are refused."""

from pathlib import Path

import pytest

from orchestration.jobs import JobFlags, open_job
from preprocessing.errors import BadInput


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A document about nothing. It has two sentences.\n")
    (tmp_path / "my.csv").write_text("text,label\nA document about nothing.,1\n")
    return tmp_path


def corpus_file(folder: Path, name: str, *lines: str) -> str:
    (folder / f"{name}.yaml").write_text(
        "\n".join([f"name: {name}", "sources: [{kind: text, path: a.txt}]", *lines, ""])
    )
    return f"{name}.yaml"


def open_corpus(*data: str, holdout_ratio: float | None = None, recipe: str = "bert_base") -> object:
    return open_job(JobFlags(recipe=recipe, scale="tiny", data=data, holdout_ratio=holdout_ratio)).corpus


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("clean: {languages: [en]}", "clean"),
        ("clean: {min_chars: 5}", "clean"),
        ("dedup: {minhash: true}", "dedup"),
        ("decontaminate: {paths: [my.csv]}", "decontaminate"),
        ("validation_ratio: 0.2", "validation_ratio"),
        ("test_ratio: 0.2", "test_ratio"),
        ("document_order: input", "document_order"),
        ("sentence_boundaries: lines", "sentence_boundaries"),
        ("word_segmentation: jieba", "word_segmentation"),
        ("phrases: given", "phrases"),
        ("max_shard_mb: 4", "max_shard_mb"),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_corpus_file_with_more_settings_than_sources_is_refused_beside_text(
    line: str, key: str, is_reversed: bool, folder: Path
) -> None:
    given = [corpus_file(folder, "strict", line), "my.csv"]
    with pytest.raises(
        BadInput, match=f"--data strict.yaml: its {key} would not apply to my.csv; use it as the only --data"
    ) as error:
        open_corpus(*(given[::-1] if is_reversed else given))
    assert "\n" not in str(error.value)
    assert open_corpus(given[0])  # alone, the file may have any settings


def test_corpus_file_with_only_sources_is_accepted_beside_text(folder: Path) -> None:
    corpus = open_corpus(corpus_file(folder, "plain"), "my.csv")
    assert len(corpus.sources) == 2  # type: ignore[attr-defined]


def test_two_corpus_files_with_different_settings_are_refused(folder: Path) -> None:
    strict, plain = corpus_file(folder, "strict", "dedup: {line_min_chars: 60}"), corpus_file(folder, "plain")
    with pytest.raises(BadInput, match=r"its dedup would not apply to plain\.yaml"):
        open_corpus(plain, strict)


def test_holdout_ratio_replaces_the_ratios_of_a_corpus_file(folder: Path) -> None:
    given = [corpus_file(folder, "mine", "test_ratio: 0.2"), "my.csv"]
    assert open_corpus(*given, holdout_ratio=0.1).test_ratio == 0.05  # type: ignore[attr-defined]


def test_built_in_corpus_is_accepted_beside_text(folder: Path) -> None:
    assert len(open_corpus("demo", "a.txt").sources) == 2  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"--data demo_phrases: its phrases would not apply to a\.txt"):
        open_corpus("demo_phrases", "a.txt")


def test_corpus_file_is_refused_as_text_of_a_group(folder: Path) -> None:
    strict = corpus_file(folder, "strict", "dedup: {minhash: true}")
    given = [f"{group}=a.txt" for group in ("webtext2", "books1", "books2", "wikipedia")]
    data = (f"common_crawl={strict}", *given)
    with pytest.raises(BadInput, match=r"--data strict\.yaml: is a corpus, but a group of a mixture needs text"):
        open_job(JobFlags(recipe="gpt3_125m", scale="tiny", data=data, overrides=["data.corpus=common_crawl_books"]))


@pytest.mark.parametrize("recipe", ["bert_base", "t5_base", "transformer_xl_base"])
def test_tokenizer_that_loses_whitespace_is_refused_if_the_corpus_keeps_it(recipe: str, folder: Path) -> None:
    code = corpus_file(folder, "code", "clean: {whitespace: keep}")
    message = r"invalid value .*, expected .*byte_level_bpe.* with clean\.whitespace: keep"
    with pytest.raises(BadInput, match=message):
        open_corpus(code, recipe=recipe)
    assert open_corpus(code, recipe="gpt2")
