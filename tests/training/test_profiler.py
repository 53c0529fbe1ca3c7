"""A profile shows the time of each part of a step, and does not change what is learned."""

import csv
import gzip
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.corpora import mini_run
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import Callbacks, pretrain
from training.run import Run


@pytest.fixture(scope="module")
def profiled(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, torch.Tensor]]:
    run = replace(mini_run(corpus, tmp_path_factory.mktemp("run")), profile_steps=4)
    return run, trained(run)


def trained(run: Run) -> dict[str, torch.Tensor]:
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    pretrain(run, engine, lambda step, metrics: None)
    return engine.full_state()


def lines(run: Run) -> dict[tuple[str, str], dict[str, str]]:
    with open(Path(run.folder) / "profile" / "table.csv", encoding="utf-8", newline="") as file:
        return {(line["of"], line["name"]): line for line in csv.DictReader(file)}


def test_profiling_does_not_change_what_is_learned(profiled, tmp_path: Path) -> None:
    run, weights = profiled
    plain = trained(replace(run, profile_steps=0, folder=str(tmp_path)))
    assert all(torch.equal(weights[name], plain[name]) for name in plain)
    assert not (tmp_path / "profile").exists()


def test_the_trace_is_a_chrome_trace_of_the_profiled_steps(profiled) -> None:
    with gzip.open(Path(profiled[0].folder) / "profile" / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event["name"] == "phase: optimizer" and event["ph"] == "X" for event in events) == 4


def test_the_table_has_phases_modules_and_operators_of_a_step(profiled) -> None:
    found = lines(profiled[0])
    phases = {name: float(line["host_ms"]) for (of, name), line in found.items() if of == "phase"}
    assert list(phases)[:4] == ["data", "forward", "backward", "optimizer"]
    whole = float(found["step", "one step"]["host_ms"])
    parts = sum(phases[name] for name in ("data", "forward", "backward", "optimizer", "between these"))
    assert parts == pytest.approx(whole, rel=1e-6)
    assert all(0 < phases[name] < whole for name in ("data", "forward", "backward", "optimizer"))
    assert float(found["module", "trunk.blocks.*.attention"]["calls"]) == 2
    assert float(found["module", "trunk"]["host_ms"]) < phases["forward"]
    assert float(found["operator", "aten::addmm"]["calls"]) > 0
    text = (Path(profiled[0].folder) / "profile" / "table.txt").read_text()
    assert "Means of 4 steps of the first worker" in text
    assert "trunk.blocks.*.attention" in text


def test_a_run_that_ends_during_profiling_is_noted(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = mini_run(corpus, tmp_path / "short", profile_steps=9)
    trained(replace(run, phases=(replace(run.phases[0], steps=5),)))
    assert "Means of 2 steps" in (tmp_path / "short" / "profile" / "table.txt").read_text()
    trained(replace(run, folder=str(tmp_path / "shorter"), phases=(replace(run.phases[0], steps=3),)))
    (actual,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert actual == "no profile: only 3 steps were left; profiling starts after 3 steps"


def test_a_step_that_was_not_run_is_not_counted(corpus: Path, tmp_path: Path) -> None:
    """When a run was asked to stop, it had already started a step, so that the means included one step too many."""
    run, asked = mini_run(corpus, tmp_path / "stopped", profile_steps=9), iter([*6 * [False], True])
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    assert pretrain(run, engine, lambda step, metrics: None, Callbacks(should_stop=lambda: next(asked))).state.step == 6
    assert "Means of 3 steps" in (Path(run.folder) / "profile" / "table.txt").read_text()
