"""A profile shows the time of each part of a step, and does not change what is learned."""

import csv
import gzip
import json
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.training.corpora import mini_run
from training import profiler
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import Callbacks, pretrain
from training.profiler import PhaseStamps, _name_modules, observe_phases, record_phase
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


def test_the_text_begins_with_the_largest_loss_and_shows_purposes(profiled) -> None:
    first, *_ = (Path(profiled[0].folder) / "profile" / "table.txt").read_text().splitlines()
    assert " of a step" in first
    found = lines(profiled[0])
    purposes = {name: float(line["host_ms"]) for (of, name), line in found.items() if of == "purpose"}
    assert {"matrix products", "head: matrix products", "head: loss", "attention", "norms", "optimizer"} <= set(
        purposes
    )
    assert sum(purposes.values()) == pytest.approx(float(found["step", "one step"]["host_ms"]), rel=0.1)


def test_phases_are_measured_on_the_clock_of_torch() -> None:
    stamps = PhaseStamps()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorder, observe_phases(stamps):
        with record_phase("warm-up"):  # the first range of a recording is slow
            pass
        with record_phase("forward"):
            torch.ones(64, 64) @ torch.ones(64, 64)
    recorded = {event.name(): event for event in recorder.profiler.kineto_results.events()}["phase: forward"]
    (_, stamp) = stamps.events
    assert stamp.name == recorded.name()
    assert stamp.start <= recorded.start_ns() + 1e6
    assert recorded.start_ns() + recorded.duration_ns() <= stamp.end + 1e6


def test_fewer_steps_are_recorded_and_read_if_a_step_has_many_events(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "MAX_EVENTS", 500)
    monkeypatch.setattr(profiler, "MAX_TRACE_EVENTS", 501)
    run = mini_run(corpus, tmp_path, profile_steps=4)
    trained(replace(run, phases=(replace(run.phases[0], steps=6),)))
    assert {file.name for file in (tmp_path / "profile").iterdir()} == {"table.txt", "table.csv"}
    assert "The beginning of one step" in (tmp_path / "profile" / "table.txt").read_text()
    limited, left_out = (record.getMessage() for record in caplog.records if record.name == "training.profiler")
    assert re.fullmatch(r"profile: recording 1 of 4 steps: a step has \d+ events", limited)
    assert re.fullmatch(r"profile: no trace.json.gz, because it would have \d+ events", left_out)


def test_evaluations_and_checkpoints_are_no_part_of_a_step(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path, profile_steps=4, eval_every=4, save_every=5)
    trained(replace(run, phases=(replace(run.phases[0], steps=7),)))
    assert lines(run)["phase", "forward"]["calls"] == "1.0"
    assert "Evaluations, checkpoints and samples are left out" in (tmp_path / "profile" / "table.txt").read_text()


def test_compiled_modules_get_no_hooks() -> None:
    """A hook inside compiled code would change it, or would be ignored."""
    model = nn.ModuleDict({
        "trunk": nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1))),
        "heads": nn.ModuleDict({"next_token": nn.Sequential(nn.Linear(1, 1))}),
    })  # fmt: skip

    def named(*, is_compiled: bool) -> list[str]:
        with ExitStack() as hooks:
            _name_modules(model, hooks, is_compiled=is_compiled)
            return [name for name, module in model.named_modules() if module._forward_hooks]

    assert named(is_compiled=False) == [
        "trunk", "trunk.0", "trunk.1", "trunk.1.0", "heads.next_token", "heads.next_token.0",
    ]  # fmt: skip
    assert named(is_compiled=True) == ["trunk", "trunk.0", "trunk.1", "heads.next_token"]
    model["trunk"]._compiled_call_impl = model["trunk"]._call_impl  # as `compile` does
    assert named(is_compiled=True) == ["heads.next_token"]
    assert not any(module._forward_hooks for module in model.modules())


def test_a_run_that_ends_during_profiling_is_noted(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = mini_run(corpus, tmp_path / "short", profile_steps=9)
    trained(replace(run, phases=(replace(run.phases[0], steps=5),)))
    assert "Means of 2 of the 9 requested steps" in (tmp_path / "short" / "profile" / "table.txt").read_text()
    trained(replace(run, folder=str(tmp_path / "shorter"), phases=(replace(run.phases[0], steps=3),)))
    (actual,) = [record.getMessage() for record in caplog.records if record.name == "training.profiler"]
    assert actual == "no profile: only 3 steps were left; profiling starts after 3 steps"


def test_a_step_that_was_not_run_is_not_counted(corpus: Path, tmp_path: Path) -> None:
    """When a run was asked to stop, it had already started a step, so that the means included one step too many."""
    run, asked = mini_run(corpus, tmp_path / "stopped", profile_steps=9), iter([*6 * [False], True])
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    assert pretrain(run, engine, lambda step, metrics: None, Callbacks(should_stop=lambda: next(asked))).state.step == 6
    assert "Means of 3 of the 9 requested steps" in (Path(run.folder) / "profile" / "table.txt").read_text()
