"""A moved or copied output directory: its runs continue in its store, with their artifacts."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service import utils

from orchestration.tracking import runs as track
from tests.training.corpora import mini_corpus

METADATA = track.Metadata("mini", {"peak": 1e-3}, {"recipe_hash": "abc"}, "* a net", {"recipe.yaml": "name: mini\n"})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mini_corpus(tmp_path_factory.mktemp("text") / "corpus", num_train=3, num_validation=1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("was", "becomes"), [("before", "is now"), ("was? 50%", "is now"), ("before", "now? 50%20 #1")]
)
def test_moved_store_has_its_artifacts_at_the_new_place(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, was: str, becomes: str
) -> None:
    """The run once continued, but its artifacts were written to the old place."""
    before, now = tmp_path / was, tmp_path / becomes
    with track.run(track.tracking_store(before), before / "runs" / "a", corpus, METADATA) as tracked:
        pass
    assert (before / "artifacts").is_dir()
    before.rename(now)
    utils._artifact_repos_cache.clear()  # simulate a new process, because MLflow caches artifact repositories
    folder = now / "runs" / "a"
    assert track.existing_run(folder) == replace(
        tracked, uri=track.tracking_store(now).uri
    )  # for code that has only the directory
    with track.run(track.tracking_store(now), folder, corpus, METADATA) as again:
        (now / "page.txt").write_text("text")
        track.client_of(again.uri).log_artifact(again.run_id, str(now / "page.txt"))
    assert again.run_id == tracked.run_id
    assert not before.exists()
    assert [path.name for path in (now / "artifacts").rglob("page.txt")] == ["page.txt"]
    assert sum("its artifacts are now read and written at the new place" in one for one in caplog.messages) == 1


def test_copied_store_is_independent(corpus: Path, tmp_path: Path) -> None:
    """With both directories present, the run of the copy was once logged to the original store."""
    first, second = tmp_path / "first", tmp_path / "it's 50%? a copy"
    with track.run(track.tracking_store(first), first / "runs" / "a", corpus, METADATA) as tracked:
        pass
    shutil.copytree(first, second)
    utils._artifact_repos_cache.clear()  # simulate a new process, because MLflow caches artifact repositories
    folder = second / "runs" / "a"
    assert track.existing_run(first / "runs" / "a") == tracked
    assert track.existing_run(folder) == replace(tracked, uri=track.tracking_store(second).uri)
    track.mirror(folder, "mine", "the scores of mine", lambda run: track.log_scores(run, {"average": 0.5}))
    (second / "page.txt").write_text("text")
    page = str(second / "page.txt")
    track.mirror(folder, "page", "a page", lambda run: track.client_of(run.uri).log_artifact(run.run_id, page))
    with track.run(track.tracking_store(second), folder, corpus, METADATA) as again:
        track.log_scores(again, {"eval/loss": 2.5})
    assert again.run_id == tracked.run_id
    metrics = [
        track.client_of(track.tracking_store(out).uri).get_run(tracked.run_id).data.metrics for out in (first, second)
    ]
    assert [sorted(each) for each in metrics] == [[], ["average", "eval/loss"]]
    assert [len(list(out.glob("artifacts/**/page.txt"))) for out in (first, second)] == [0, 1]


def test_store_set_by_the_user_is_not_relocated(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output directory of the run also has a store, with other runs."""
    out = tmp_path / "out"
    with track.run(track.tracking_store(out), out / "runs" / "other", corpus, METADATA):
        pass
    monkeypatch.chdir(tmp_path)  # MLflow puts the artifacts of such a store into the current directory
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := track.tracking_store(tmp_path / "elsewhere").uri)
    with track.run(track.tracking_store(out), out / "runs" / "a", corpus, METADATA) as tracked:
        pass
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert track.existing_run(out / "runs" / "a") == tracked
    assert tracked.uri == uri
