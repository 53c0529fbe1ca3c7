"""The stored paths of a run, also after its directory has moved."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.corpora import mini_corpus, mini_run
from training.run import Run, load_run, load_stored_run, write_run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An `--output-dir` with a corpus and a run."""
    corpus = mini_corpus(tmp_path / "out" / "corpora" / "mini", num_train=3, num_validation=1)
    folder = tmp_path / "out" / "runs" / "bert"
    folder.mkdir(parents=True)
    write_run(mini_run(corpus, folder))
    return tmp_path / "out"


def test_a_run_that_was_not_moved_has_its_stored_paths(out: Path) -> None:
    run = load_stored_run(out / "runs" / "bert")
    assert (run.folder, run.corpus) == (str(out / "runs" / "bert"), str(out / "corpora" / "mini"))


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_a_run_that_was_moved_or_copied_with_its_corpus_uses_the_new_paths(
    out: Path, how: object, tmp_path: Path
) -> None:
    """It used to be trained at the old location, and `eval` and `export` reported that there was no finished corpus."""
    now = tmp_path / "elsewhere" / "out"
    now.parent.mkdir()
    how(out, now)  # type: ignore[operator]
    run = load_stored_run(now / "runs" / "bert")
    assert (run.folder, run.corpus) == (str(now / "runs" / "bert"), str(now / "corpora" / "mini"))


def test_a_run_that_was_moved_alone_uses_the_corpus_at_its_old_path(out: Path, tmp_path: Path) -> None:
    shutil.move(out / "runs" / "bert", tmp_path / "alone")
    run = load_stored_run(tmp_path / "alone")
    assert (run.folder, run.corpus) == (str(tmp_path / "alone"), str(out / "corpora" / "mini"))


def test_a_relative_path_is_resolved(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out)
    assert load_run(Path("runs/bert"))["corpus"] == str(out / "corpora" / "mini")


def test_an_older_run_file_without_a_directory_is_unchanged(tmp_path: Path) -> None:
    run: Run = mini_run(tmp_path / "corpus", tmp_path)
    write_run(replace(run, folder=str(tmp_path)))
    (tmp_path / "pretrain.json").write_text('{"corpus": "somewhere"}')
    assert load_run(tmp_path) == {"corpus": "somewhere"}
