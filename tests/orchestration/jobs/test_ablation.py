"""Progress of an ablation table whose trials run in parallel, and measures of a trial."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from orchestration.jobs import ablation, job
from orchestration.jobs.ablation import _TrialProgress
from orchestration.jobs.ablation_trial import MeasuredScore, MeasureRequest, measure_rise, measure_run
from orchestration.jobs.job import JobFlags, inputs_of
from orchestration.reports.ablations.tables import TABLES
from orchestration.tracking import METRICS_FILE
from pipeline.spec import Corpus
from preprocessing.errors import BadInput, DataError
from tests.training.corpora import mini_corpus, mini_run
from training.evaluation import load_held_out, probe
from training.formats import save_weights
from training.model import Model
from training.model_spec import ModelSpec


def make_trial(name: str) -> Any:
    return SimpleNamespace(name=name, job=SimpleNamespace(recipe=SimpleNamespace(num_steps=30)))


def test_all_trials_share_one_progress_bar_that_also_shows_other_stages() -> None:
    events: list[Any] = []
    first, second = cells = [make_trial("sop, seed 0"), make_trial("nsp, seed 0")]
    together = _TrialProgress(cells, events.append)
    together.of(first)({"stage": "starting workers", "workers": 1})
    together.update()
    together.of(first)({"stage": "pretrain", "done": 20, "total": 30})
    together.update()
    together.of(first)({"stage": "scores"})
    together.of(second)({"stage": "pretrain", "done": 3, "total": 30})
    together.update()
    for each in cells:
        together.of(each)({"stage": "done", "done": 30})
    together.update()
    common = {"stage": "table", "total": 60, "left_s": 0.0}
    assert events == [
        common | {"done": 0, "ended": "0/2 trials", "now": "starting workers"},
        common | {"done": 20, "ended": "0/2 trials"},
        common | {"done": 23, "ended": "0/2 trials", "now": "scores"},
        common | {"done": 60, "ended": "2/2 trials"},
    ]


def test_the_files_of_a_text_are_listed_once_for_all_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("A text.\n")
    flags = JobFlags(recipe="x", scale="tiny", data=(str(tmp_path / "text.txt"),), output_dir=tmp_path / "out")
    listed: list[str] = []

    def count(corpus: Corpus) -> str:
        listed.append(corpus.name)
        return inputs_of(corpus)

    monkeypatch.setattr(ablation, "inputs_of", count)
    monkeypatch.setattr(job, "inputs_of", count)
    plan = ablation.plan(TABLES["albert-sp"], flags, 2)
    assert len(plan.cells) > 2
    assert listed == ["text"]
    assert len({cell.job.plan.text.hash for cell in plan.cells}) == 1


def test_rise_of_a_non_finite_loss_is_infinite() -> None:
    assert measure_rise([5.0, math.nan, 4.0]) == math.inf
    assert measure_rise([5.0, 4.0, 3.0]) == 0.0


def test_measures_of_a_trial_are_its_loss_its_accuracy_and_its_loss_rise(tmp_path: Path) -> None:
    run = mini_run(mini_corpus(tmp_path / "corpus"), tmp_path)
    spec = ModelSpec(model=run.model, losses=run.losses, vocab_size=run.vocab_size)
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=3)
    save_weights(dict(model.named_parameters()), spec, tmp_path / "weights")
    points = [
        (10, {"train/loss": 6.0}),
        (20, {"train/loss": 4.0}),
        (20, {"eval/loss": 9.0}),
        (30, {"train/loss": 4.75}),
    ]
    lines = [json.dumps({"step": step, "time": 0.0, "metrics": metrics}) + "\n" for step, metrics in points]
    (tmp_path / METRICS_FILE).write_text("".join(lines))
    threads = torch.get_num_threads()
    rows = run.to_json()
    found = measure_run(
        tmp_path,
        rows,
        {
            "loss": MeasureRequest("loss", "a row", rows),
            "MLM": MeasureRequest("masked", "a row", rows),
            "rise": MeasureRequest("rise", ""),
            "validation": MeasureRequest("validation", ""),
        },
    )
    torch.set_num_threads(threads)
    wanted = probe.evaluate_masked_tokens(model.eval(), load_held_out(run))
    assert found["loss"] == MeasuredScore(
        pytest.approx(wanted.loss), f"{wanted.scored:,} masked tokens of held-out text"
    )
    assert found["MLM"].value == wanted.accuracy
    assert found["validation"] == MeasuredScore(9.0, "the validation text")
    assert found["rise"] == MeasuredScore(0.75, "3 mean losses of training steps")
    (tmp_path / METRICS_FILE).write_text("")
    with pytest.raises(DataError, match="no validation loss; hold out more text with --holdout-ratio"):
        measure_run(tmp_path, rows, {"validation": MeasureRequest("validation", "")})
    torch.set_num_threads(threads)
    with pytest.raises(
        BadInput, match="invalid measure: got 'luck', expected masked, loss, pairs, task, rise or validation"
    ):
        measure_run(tmp_path, rows, {"luck": MeasureRequest("luck", "")})


KEPT = {"scores": {}, "facts": {}, "outcome": ""}


def test_missing_results_of_a_finished_table_are_logged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is logged again, and each missing trial is logged below the run of its table."""
    cells = [
        SimpleNamespace(name=name, row=name, seed=0, stage=SimpleNamespace(folder=tmp_path / name)) for name in "ab"
    ]
    for one in cells:
        one.stage.folder.mkdir()
        (one.stage.folder / ablation.SCORES).write_text(json.dumps(KEPT))
        one.job = SimpleNamespace(plan=SimpleNamespace(run=SimpleNamespace(folder=one.stage.folder)))
    (tmp_path / ablation.SCORES).write_text(json.dumps(KEPT))
    plan: Any = SimpleNamespace(cells=cells, table=SimpleNamespace(name="t"), stage=SimpleNamespace(folder=tmp_path))
    lacks = {tmp_path: {ablation.PAGE}, tmp_path / "a": {"a"}, tmp_path / "b": set[str]()}
    given: list[Any] = []
    monkeypatch.setattr(ablation.tracking, "read_unlogged_metrics", lacks.__getitem__)
    monkeypatch.setattr(ablation.tracking, "existing_run", lambda folder: SimpleNamespace(run_id="of the table"))
    monkeypatch.setattr(ablation, "_log", lambda plan, summary: given.append(summary))
    monkeypatch.setattr(
        ablation, "_log_cell", lambda make_trial, tags: given.append((make_trial.name, tags["mlflow.parentRunId"]))
    )
    ablation._log_missing(plan)
    assert given == [KEPT, ("a", "of the table")]
