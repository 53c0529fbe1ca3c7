"""A corpus that changes while a run reads it: no result of the changed corpus is accepted."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.errors import BadInput, Diverged, MiscountedLoss
from preprocessing.shards import TokenStore
from tests.training.corpora import mini_corpus, mini_run
from training import loop
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import Callbacks, pretrain
from training.run import CHECKPOINTS, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return mini_run(mini_corpus(tmp_path / "corpus"), tmp_path / "run", save_every=5, eval_every=10)


def permute(corpus: Path, split: str = "train", share: float = 0.25, is_quiet: bool = False) -> None:
    """Permute a fraction of the IDs of a shard in place; with `is_quiet`, the modification time stays the same."""
    (path,) = corpus.glob(f"{split}-*.arrow")
    ids_T = TokenStore.open(corpus, split, verify=False).shards[0].ids_T
    ids_K = ids_T[: int(share * len(ids_T))]
    at, was = path.read_bytes().index(ids_T.tobytes()), path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(np.random.default_rng(0).permutation(ids_K).tobytes())
    if is_quiet:
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    else:
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns + 1))


def out_of_range(corpus: Path) -> None:
    """Write IDs that are not in the vocabulary."""
    (path,) = corpus.glob("train-*.arrow")
    ids_T = TokenStore.open(corpus, "train", verify=False).shards[0].ids_T
    at = path.read_bytes().index(ids_T.tobytes())
    with path.open("r+b") as file:
        file.seek(at)
        file.write(np.full_like(ids_T, 60_000).tobytes())


def other_vocabulary(corpus: Path) -> None:
    path = corpus / "vocab" / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b"w7", b"w8", 1))


def other_manifest(corpus: Path) -> None:
    mini_corpus(corpus.with_name("other"), num_train=59)
    shutil.copy(corpus.with_name("other") / "manifest.json", corpus / "manifest.json")


def train(run: Run, at: int, change: Callable[[], Any]) -> Any:
    """Train, and call `change` after `at` updates."""
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)

    def report_activity(done: int, activity: str) -> None:
        if done == at and not activity:
            change()

    return pretrain(run, engine, lambda step, metrics: None, Callbacks(report_activity=report_activity))


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "train": (permute, r"train-.*\.arrow: has changed while it was read: its content differs"),
    "validation": (
        lambda corpus: permute(corpus, "validation"),
        r"validation-.*\.arrow: has changed while it was read: its content differs",
    ),
    "gone": (lambda corpus: next(corpus.glob("train-*")).unlink(), r"train-.*\.arrow: has changed .*: it is missing"),
    "cut": (lambda corpus: next(corpus.glob("validation-*")).rename(corpus / "x"), "it is missing"),
    "manifest": (other_manifest, r"manifest\.json: has changed while it was read: it lists another corpus"),
    "no manifest": (lambda corpus: (corpus / "manifest.json").unlink(), "manifest.json: No such file"),
    "vocabulary": (other_vocabulary, r"tokenizer\.json: damaged file"),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("at", [7, 19])
def test_a_corpus_that_changes_during_training_stops_the_run_in_one_line(run: Run, kind: str, at: int) -> None:
    """The run used to finish with exit code 0 and other weights if a quarter of a shard's IDs was permuted."""
    change, message = CHANGES[kind]
    with pytest.raises(BadInput, match=message) as found:
        train(run, at, lambda: change(Path(run.corpus)))
    assert "\n" not in str(found.value)


def test_checkpoints_before_a_change_are_kept_and_the_run_resumes_from_them(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.corpus, tmp_path / "kept")
    with pytest.raises(BadInput, match="restore it"):
        train(run, 12, lambda: permute(Path(run.corpus)))
    assert sorted(path.name for path in (tmp_path / "run" / CHECKPOINTS).iterdir()) == [
        "step-000000005",
        "step-000000010",
    ]
    with pytest.raises(BadInput, match=r"train-.*\.arrow: is damaged"):
        train(run, -1, lambda: None)
    shutil.rmtree(run.corpus)
    shutil.copytree(tmp_path / "kept", run.corpus)
    whole = replace(run, folder=str(tmp_path / "whole"))
    assert train(run, -1, lambda: None).state == train(whole, -1, lambda: None).state


def test_a_change_with_the_same_modification_time_is_detected_at_the_end(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="its content differs"):
        train(run, 7, lambda: permute(Path(run.corpus), is_quiet=True))
    found = sorted(path.name for path in (tmp_path / "run" / CHECKPOINTS).iterdir())
    assert found
    assert all(name.startswith("broken-step-") for name in found)


def test_touching_a_corpus_without_changing_it_is_allowed(run: Run) -> None:
    assert train(run, 7, lambda: [path.touch() for path in Path(run.corpus).iterdir()]).finished


def test_ids_outside_of_the_vocabulary_are_reported_as_a_changed_corpus(run: Run) -> None:
    """They used to raise a traceback of a hundred lines."""
    with pytest.raises(BadInput, match=r"train-.*\.arrow: has changed while it was read: its content differs"):
        train(run, 7, lambda: out_of_range(Path(run.corpus)))


@pytest.mark.parametrize(
    "error", [IndexError("bug"), Diverged("lower optimizer.learning_rate"), MiscountedLoss("mend `count`")]
)
def test_the_corpus_is_checked_before_an_error_is_reported_as_a_bug(
    run: Run, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(self: Any, step: int, *given: Any) -> Any:
        raise error

    monkeypatch.setattr(loop.Learner, "learn", learn)
    with pytest.raises(type(error)):
        train(run, -1, lambda: None)
    with pytest.raises(BadInput, match="its content differs"):
        train(run, 0, lambda: permute(Path(run.corpus), is_quiet=True))


def test_a_run_does_not_resume_with_another_corpus(run: Run) -> None:
    train(replace(run, save_every=10), -1, lambda: None)
    shutil.rmtree(run.corpus)
    mini_corpus(Path(run.corpus), num_train=59)
    with pytest.raises(BadInput, match="the corpus has changed since this checkpoint was written"):
        train(run, -1, lambda: None)
