"""What a run's folder says of itself, wherever it is now."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.corpora import mini_corpus, mini_run
from training.run import Run, load_run, stored_run, write_run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder of `--output-dir` with a corpus and a run."""
    corpus = mini_corpus(tmp_path / "out" / "corpora" / "mini", num_train=3, num_validation=1)
    folder = tmp_path / "out" / "runs" / "bert"
    folder.mkdir(parents=True)
    write_run(mini_run(corpus, folder))
    return tmp_path / "out"


def test_a_run_that_is_where_it_was_is_as_it_was_written(out: Path) -> None:
    run = stored_run(out / "runs" / "bert")
    assert (run.folder, run.corpus) == (str(out / "runs" / "bert"), str(out / "corpora" / "mini"))


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_a_run_that_was_moved_or_copied_with_its_corpus_reads_that(out: Path, how: object, tmp_path: Path) -> None:
    """It was trained on where it had been, and `eval` and `export` said that there is no finished corpus."""
    now = tmp_path / "elsewhere" / "out"
    now.parent.mkdir()
    how(out, now)  # type: ignore[operator]
    run = stored_run(now / "runs" / "bert")
    assert (run.folder, run.corpus) == (str(now / "runs" / "bert"), str(now / "corpora" / "mini"))


def test_a_run_that_was_moved_alone_reads_the_corpus_where_that_stays(out: Path, tmp_path: Path) -> None:
    shutil.move(out / "runs" / "bert", tmp_path / "alone")
    run = stored_run(tmp_path / "alone")
    assert (run.folder, run.corpus) == (str(tmp_path / "alone"), str(out / "corpora" / "mini"))


def test_a_relative_path_is_the_same_folder(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out)
    assert load_run(Path("runs/bert"))["corpus"] == str(out / "corpora" / "mini")


def test_a_run_of_before_that_says_no_folder_is_left_as_it_is(tmp_path: Path) -> None:
    run: Run = mini_run(tmp_path / "corpus", tmp_path)
    write_run(replace(run, folder=str(tmp_path)))
    (tmp_path / "pretrain.json").write_text('{"corpus": "somewhere"}')
    assert load_run(tmp_path) == {"corpus": "somewhere"}
