"""Several --data: what a corpus file among them says of its text is never dropped in silence."""

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


def opened(*data: str, holdout_ratio: float | None = None, recipe: str = "bert_base") -> object:
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
@pytest.mark.parametrize("turned", [False, True])
def test_a_corpus_file_that_says_more_than_its_sources_is_refused(
    line: str, key: str, turned: bool, folder: Path
) -> None:
    given = [corpus_file(folder, "strict", line), "my.csv"]
    with pytest.raises(
        BadInput, match=f"--data strict.yaml: its {key} would not apply to my.csv; use it as the only --data"
    ) as error:
        opened(*(given[::-1] if turned else given))
    assert "\n" not in str(error.value)
    assert opened(given[0])  # alone it may say what it likes


def test_one_without_more_than_its_sources_is_text_as_any(folder: Path) -> None:
    corpus = opened(corpus_file(folder, "plain"), "my.csv")
    assert len(corpus.sources) == 2  # type: ignore[attr-defined]


def test_two_corpus_files_are_not_mixed_either(folder: Path) -> None:
    strict, plain = corpus_file(folder, "strict", "dedup: {line_min_chars: 60}"), corpus_file(folder, "plain")
    with pytest.raises(BadInput, match=r"its dedup would not apply to plain\.yaml"):
        opened(plain, strict)


def test_shares_that_the_command_says_are_no_matter(folder: Path) -> None:
    given = [corpus_file(folder, "mine", "test_ratio: 0.2"), "my.csv"]
    assert opened(*given, holdout_ratio=0.1).test_ratio == 0.05  # type: ignore[attr-defined]


def test_a_shipped_corpus_may_stand_beside_text(folder: Path) -> None:
    assert len(opened("demo", "a.txt").sources) == 2  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"--data demo_phrases: its phrases would not apply to a\.txt"):
        opened("demo_phrases", "a.txt")


def test_a_corpus_file_is_no_text_of_a_group(folder: Path) -> None:
    strict = corpus_file(folder, "strict", "dedup: {minhash: true}")
    given = [f"{group}=a.txt" for group in ("webtext2", "books1", "books2", "wikipedia")]
    data = (f"common_crawl={strict}", *given)
    with pytest.raises(BadInput, match=r"--data strict\.yaml: is a corpus, but a group of a mixture needs text"):
        open_job(JobFlags(recipe="gpt3_125m", scale="tiny", data=data, overrides=["data.corpus=common_crawl_books"]))


@pytest.mark.parametrize("recipe", ["bert_base", "t5_base", "transformer_xl_base"])
def test_a_vocabulary_that_loses_white_space_is_refused_before_anything_is_read(recipe: str, folder: Path) -> None:
    code = corpus_file(folder, "code", "clean: {whitespace: keep}")
    said = r"invalid value .*, expected .*byte_level_bpe.* with clean\.whitespace: keep"
    with pytest.raises(BadInput, match=said):
        opened(code, recipe=recipe)
    assert opened(code, recipe="gpt2")
