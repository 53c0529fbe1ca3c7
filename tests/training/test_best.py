"""The best checkpoint by validation loss is kept, and training ends if the loss does not improve."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from preprocessing.errors import BadInput
from tests.training.corpora import mini_run
from training import loop
from training.best import update_best
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import Callbacks, TrainingResult, pretrain
from training.run import Run, step_of, steps


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    one = mini_run(corpus, tmp_path / "run")
    return replace(one, eval_every=1, save_every=one.steps, keep_checkpoints=1)


def train(
    run: Run, losses: Sequence[float], monkeypatch: pytest.MonkeyPatch, stop_at: int = -1
) -> tuple[TrainingResult, int]:
    """Train with these validation losses; return the result and the number of updates of this call."""
    evaluations = iter(losses)
    monkeypatch.setattr(loop, "evaluate", lambda *_: {"eval/loss": next(evaluations)})
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    done: list[int] = []
    result = pretrain(
        run,
        engine,
        lambda step, metrics: done.append(step) if "eval/loss" in metrics else None,
        Callbacks(should_stop=lambda: len(done) == stop_at),
    )
    return result, len(done)


def test_training_ends_if_the_loss_does_not_improve(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.steps >= 6
    early = replace(run, early_stopping_patience=2, keep_best=True)
    result, done = train(early, [3.0, 2.0, 2.5, math.nan], monkeypatch)
    assert (result.finished, done, result.state.step) == (True, 4, 4)
    assert result.state.best == {"step": 2, "loss": 2.0, "in_vain": 2}
    saved = [step_of(path) for path in steps(Path(run.folder) / "checkpoints")]
    assert saved == [4, 2]  # the last one, and the best one
    state = json.loads((Path(run.folder) / "checkpoints" / "step-000000004" / "state.json").read_text())
    assert state["best"] == result.state.best

    again, done = train(early, [], monkeypatch)  # e.g. after a crash before the export
    assert (again.finished, done, again.state.step) == (True, 0, 4)
    more, done = train(replace(early, early_stopping_patience=3), [2.1], monkeypatch)
    assert (more.finished, done, more.state.step) == (True, 1, 5)


def test_a_resumed_run_counts_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    early = replace(run, early_stopping_patience=3)
    result, _ = train(early, [2.0, 3.0, 3.0], monkeypatch, stop_at=3)
    assert (result.finished, result.state.best["in_vain"]) == (False, 2)
    result, done = train(early, [2.5], monkeypatch)
    assert (result.finished, done, result.state.step) == (True, 1, 4)


def test_only_the_newest_best_checkpoint_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    falling_then_flat = [5.0, 4.0, 3.0, *[3.5] * (run.steps - 3)]
    result, _ = train(replace(run, keep_best=True), falling_then_flat, monkeypatch)
    assert result.state.step == run.steps
    assert [step_of(path) for path in steps(Path(run.folder) / "checkpoints")] == [run.steps, 3]


def test_by_default_nothing_is_tracked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result, done = train(run, [5.0, *[9.0] * run.steps], monkeypatch)
    assert (result.finished, done, result.state.best) == (True, run.steps, {})
    assert [step_of(path) for path in steps(Path(run.folder) / "checkpoints")] == [run.steps]


@pytest.mark.parametrize(("key", "value"), [("keep_best", True), ("early_stopping_patience", 2)])
def test_a_corpus_without_validation_text_is_refused(
    run: Run, key: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "open_validation", lambda *_: None)
    with pytest.raises(BadInput, match=rf"cluster\.{key}: got {value}, but the corpus .* has no validation text"):
        train(replace(run, **{key: value}), [], monkeypatch)


def test_of_equal_losses_the_first_is_the_best() -> None:
    assert update_best({"step": 1, "loss": 2.0, "in_vain": 0}, 2, 2.0) == {"step": 1, "loss": 2.0, "in_vain": 1}
    assert update_best({}, 1, math.inf) == {"in_vain": 1}
