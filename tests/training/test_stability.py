"""Loss spikes are detected, and skipping their batches equals leaving them out from the start, bit for bit."""

import json
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput, Diverged
from preprocessing.schema import Batch
from tests.training.corpora import gpt, mini_run
from training.data import open_loader
from training.engines import DeepSpeedEngine, StepResult, deepspeed_import
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import TrainingResult, pretrain
from training.run import Run
from training.score import Score
from training.specs import LossSpikes, Phase
from training.spikes import limit, spike

STEPS, BAD = 20, 16  # the batch of this step, counted from 1, has a loss spike
Metrics = dict[int, dict[str, float]]


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return short(mini_run(corpus, tmp_path / "run"))


def short(run: Run, policy: str = "off", **keys: Any) -> Run:
    stability = LossSpikes(policy=policy, window_steps=8, **keys)  # type: ignore[arg-type]
    phases = (Phase(seq_length=48, global_batch_size=9, steps=STEPS),)
    trunk = replace(run.model, hidden_dropout=0.1)
    return replace(run, model=trunk, phases=phases, save_every=4, keep_checkpoints=2, loss_spikes=stability)


class Faulty(LocalEngine):
    """An engine in which some batches, at any step, have losses and gradients that are fifty times too large, or
    NaN."""

    def __init__(self, run: Run, bad: Iterable[int] = (), factor: float = 50.0) -> None:
        super().__init__(build_model(run), run.optimizer, run.engine)
        self.bad = {batch["input_ids"].tobytes() for step in bad for batch in open_loader(run, 0, 1).at(step - 1)}
        self.factor, self.updates = factor, 0

    def forward(self, batch: Batch) -> dict[str, Score]:
        scores = super().forward(batch)
        if batch["input_ids"].tobytes() not in self.bad:
            return scores
        return {kind: score._replace(loss=score.loss * self.factor) for kind, score in scores.items()}

    def step(self, rate: float) -> Any:
        self.updates += 1
        return super().step(rate)


def train(
    run: Run, bad: Iterable[int] = (), factor: float = 50.0
) -> tuple[TrainingResult, dict[str, Tensor], Metrics, Faulty]:
    engine, logged = Faulty(run, bad, factor), dict[int, dict[str, float]]()
    result = pretrain(run, engine, lambda step, metrics: logged.setdefault(step, {}).update(metrics))
    return result, {name: weight.clone() for name, weight in engine.full_state().items()}, logged, engine


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert all(torch.equal(one[name], other[name]) for name in other)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_six_deviations_above_the_mean_of_a_full_window_are_a_spike() -> None:
    values = np.random.default_rng(0).normal(3.0, 0.1, 128).tolist()
    highest = np.mean(values) + 6 * np.std(values)
    assert limit(values, LossSpikes()) == pytest.approx(highest, rel=1e-12)
    assert limit(values[1:], LossSpikes()) == math.inf
    assert spike(129, "loss", highest * 0.999, values, LossSpikes()) is None
    found = spike(129, "loss", highest * 1.001, values, LossSpikes())
    assert found is not None
    assert found.describe() == f"step 129: loss {highest * 1.001:.6g} is a spike, the limit is {highest:.6g}"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_nonfinite_value_needs_no_window(value: float) -> None:
    found = spike(1, "loss", value, (), LossSpikes())
    assert found is not None
    assert found.describe() == f"step 1: loss {value} is not finite"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [lambda run: run, gpt], ids=["bert", "gpt"])
def test_detection_of_spikes_does_not_change_what_is_learned(run: Run, make: Callable[[Run], Run]) -> None:
    run = make(run)
    _, plain, logged, _ = train(short(replace(run, folder=f"{run.folder}-off")))
    for policy in ("warn", "fail", "skip", "rollback"):
        _, weights, found, engine = train(
            short(replace(run, folder=f"{run.folder}-{policy}"), policy, threshold_sigmas=50.0)
        )
        assert_same(weights, plain)
        assert engine.updates == STEPS
        assert [found[step]["train/loss"] for step in found] == [logged[step]["train/loss"] for step in logged]


def test_a_spike_is_reported_with_its_step_and_value(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    result, _, logged, _ = train(short(run, "warn", threshold_sigmas=20.0), [BAD])
    assert [line.split(" is")[0].rsplit(" ", 1)[0] for line in lines(caplog)[0].split("; ")] == [
        f"step {BAD}: loss",
        f"step {BAD}: grad_norm",
    ]
    assert logged[BAD]["train/loss_spike"] == logged[BAD]["train/loss"] > 50
    assert logged[BAD]["train/grad_norm_spike"] == logged[BAD]["train/grad_norm"]
    assert (result.state.skip_steps, result.state.step) == ((), STEPS)
    records = [json.loads(line) for line in (Path(run.folder) / "spikes.jsonl").read_text().splitlines()]
    assert [(one["step"], one["name"], one["skipped"]) for one in records] == [
        (BAD, "loss", []),
        (BAD, "grad_norm", []),
    ]


def test_a_spike_stops_a_run_with_policy_fail(run: Run) -> None:
    with pytest.raises(
        Diverged, match=rf"step {BAD}: loss .* is a spike, .*; lower optimizer.learning_rate .*policy=skip or rollback"
    ):
        train(short(run, "fail", threshold_sigmas=20.0), [BAD])
    with pytest.raises(Diverged, match="step 3: loss nan is not finite"):
        train(short(replace(run, folder=f"{run.folder}-nan"), "fail"), [3], math.nan)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("policy", "factor", "skipped"),
    [
        ("skip", 50.0, (BAD,)),
        ("skip", math.nan, (BAD,)),
        ("rollback", 50.0, (BAD - 1, BAD)),
        ("rollback", math.nan, (BAD,)),
    ],
)
def test_a_run_with_these_skip_steps_from_the_start_has_the_same_weights(
    run: Run, policy: str, factor: float, skipped: tuple[int, ...]
) -> None:
    run = short(run, policy, threshold_sigmas=20.0)
    result, weights, logged, _ = train(run, [BAD], factor)
    assert result.state.skip_steps == skipped
    back = {step: values["train/rolled_back_to"] for step, values in logged.items() if "train/rolled_back_to" in values}
    assert back == ({BAD: 12} if len(skipped) > 1 else {})  # the steps in between log the metrics from before
    again = replace(run, folder=f"{run.folder}-again", skip_steps=skipped)
    repeated, others, _, engine = train(again, [BAD], factor)
    assert_same(weights, others)
    assert engine.updates == STEPS - len(skipped)
    assert repeated.state == result.state if policy == "skip" or math.isnan(factor) else True
    assert (repeated.state.recent_losses, repeated.state.step) == (result.state.recent_losses, STEPS)
    # without detection, the result is the same
    plain = replace(again, folder=f"{run.folder}-plain", loss_spikes=LossSpikes())
    assert_same(weights, train(plain, [BAD], factor)[1])


class Overflowing(Faulty):
    """An engine with a dynamic loss scale that is too large at some updates, counted from 1."""

    overflows: Iterable[int] = ()
    smallest_at = STEPS  # from this update on, the scale has its minimum

    def step(self, rate: float) -> StepResult:
        if self.updates + 1 not in self.overflows:
            return super().step(rate)
        self.updates += 1
        self.optimizer.zero_grad()
        return StepResult(math.inf, skipped=True, overflow=self.updates < self.smallest_at)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("policy", ["off", "warn", "fail", "skip", "rollback"])
def test_an_overflow_of_the_loss_scale_is_not_a_spike(run: Run, caplog: pytest.LogCaptureFixture, policy: str) -> None:
    run = short(run, policy, threshold_sigmas=50.0)
    engine = Overflowing(run)
    engine.overflows = [1, 5, 6]
    result = pretrain(run, engine, lambda step, metrics: None)
    assert (result.finished, result.state.skipped, result.state.skip_steps) == (True, 3, ())
    assert engine.updates == STEPS
    assert lines(caplog) == []


@pytest.mark.one_in(5)
@pytest.mark.parametrize("policy", ["off", "warn", "fail", "skip", "rollback"])
def test_overflows_do_not_count_as_diverged_updates(run: Run, policy: str) -> None:
    run = short(run, policy, threshold_sigmas=50.0)
    engine = Overflowing(run)
    engine.overflows = range(1, 17)
    result = pretrain(run, engine, lambda step, metrics: None)
    assert (result.finished, result.state.skipped, result.state.skipped_in_row) == (True, 16, 0)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("off", "10 updates in a row, of 15, had no finite gradient"),
        ("warn", "10 updates in a row, of 15, had no finite gradient"),
        ("fail", "step 6: grad_norm nan is not finite"),
        ("skip", "more than 2 of the last 8 batches were skipped"),
    ],
)
def test_an_overflow_with_the_smallest_scale_is_a_spike(run: Run, policy: str, message: str) -> None:
    run = short(run, policy, threshold_sigmas=50.0, max_skips=2)
    engine = Overflowing(run)
    engine.overflows, engine.smallest_at = range(3, STEPS), 6
    with pytest.raises(Diverged, match=message):
        pretrain(run, engine, lambda step, metrics: None)


def test_an_overflow_with_a_nonfinite_loss_is_a_spike(run: Run) -> None:
    run = short(run, "fail", threshold_sigmas=50.0)
    engine = Overflowing(run, [3], math.nan)
    engine.overflows = [3]
    with pytest.raises(Diverged, match="step 3: loss nan is not finite"):
        pretrain(run, engine, lambda step, metrics: None)


def engine_with_scaler(scaler: Any, monkeypatch: pytest.MonkeyPatch) -> DeepSpeedEngine[Any]:
    """An engine of two workers with equal losses. fp16 needs a GPU, so that DeepSpeed's answers are replaced, except
    for the loss scaler."""
    engine: DeepSpeedEngine[Any] = DeepSpeedEngine.__new__(DeepSpeedEngine)
    engine.zero, engine.optimizer = 2, SimpleNamespace(param_groups=[], loss_scaler=scaler)
    engine.pipeline, engine.has_no_loss = None, torch.tensor(False)
    monkeypatch.setattr(engine, "reduce_sums", lambda values: [2 * value for value in values])
    return engine


def numbers(result: StepResult) -> tuple[float, bool, bool]:
    return result.grad_norm, result.skipped, result.overflow


def step_result(engine: DeepSpeedEngine[Any], loss: float, gradient: float) -> StepResult:
    """The result of a step with this loss and gradient."""
    applied = math.isfinite(gradient)
    engine.engine = SimpleNamespace(
        backward=lambda loss: None,
        step=lambda: engine.optimizer.loss_scaler.update_scale(not applied),
        get_global_grad_norm=lambda: gradient,
        was_step_applied=lambda: applied,
    )
    engine.backward(torch.tensor(loss))
    engine.backward(torch.tensor(1.0))
    return engine.step(0.1)


def scale_from_4(monkeypatch: pytest.MonkeyPatch) -> Any:
    """DeepSpeed's own loss scaler, which each overflow halves down to 1. As rank 1 it prints nothing."""
    scalers = deepspeed_import.deepspeed().runtime.fp16.loss_scaler
    monkeypatch.setattr(scalers.dist, "get_rank", lambda: 1)
    return scalers.DynamicLossScaler(4.0, 1000, 1.0, 1, False, raise_error_at_min_scale=False)


def test_an_update_is_an_overflow_only_while_the_loss_scale_can_decrease(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with_scaler(scale_from_4(monkeypatch), monkeypatch)
    assert numbers(step_result(engine, 1.0, 2.0)) == (2.0, False, False)
    found = [step_result(engine, 1.0, math.inf).overflow for _ in range(4)]
    assert found == [True, True, False, False]  # scales 4 and 2, and then 1, which is the minimum
    assert engine.optimizer.loss_scaler.cur_scale == 1.0


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_nonfinite_loss_does_not_change_the_loss_scale(loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with_scaler(scale_from_4(monkeypatch), monkeypatch)
    for _ in range(9):
        assert step_result(engine, loss, math.nan).overflow is False
    assert engine.optimizer.loss_scaler.cur_scale == 4.0
    assert step_result(engine, 1.0, math.inf).overflow  # the losses of the previous step are forgotten


def test_a_static_loss_scale_never_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with_scaler(SimpleNamespace(dynamic=False, update_scale=lambda overflow: None), monkeypatch)
    assert numbers(step_result(engine, 1.0, math.inf)) == (math.inf, True, False)


def test_a_rollback_uses_the_newest_checkpoint_before_the_skipped_steps(run: Run) -> None:
    run = short(run, "rollback", threshold_sigmas=20.0)
    _, _, _, engine = train(run, [BAD])
    assert engine.updates == BAD + (STEPS - 12 - 2)  # from the checkpoint after step 12, without steps 15 and 16
    saved = sorted(path.name for path in (Path(run.folder) / "checkpoints").iterdir())
    assert saved == ["step-000000016", "step-000000020"]


def test_a_rollback_without_a_checkpoint_is_refused(run: Run) -> None:
    with pytest.raises(
        Diverged, match=rf"no checkpoint from before step {BAD - 1} to roll back to; raise cluster.keep_checkpoints"
    ):
        train(replace(short(run, "rollback", threshold_sigmas=20.0), save_every=0), [BAD])


@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_too_many_skipped_batches_stop_the_run(run: Run, policy: str) -> None:
    with pytest.raises(
        Diverged, match=r"more than 2 of the last 8 batches were skipped; lower optimizer.learning_rate"
    ):
        train(short(run, policy, threshold_sigmas=20.0, max_skips=2, skip_before=0), [BAD, BAD + 1, BAD + 2])


@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_a_resumed_run_keeps_its_window(run: Run, policy: str) -> None:
    """The checkpoint contains the window, which is one value short of full when the run resumes."""
    whole = short(replace(run, folder=f"{run.folder}-whole"), policy, threshold_sigmas=20.0)
    wanted, weights, _, _ = train(whole, [BAD])
    stopped = short(run, policy, threshold_sigmas=20.0)

    class Dies(Faulty):
        def step(self, rate: float) -> Any:
            if self.updates == BAD - 2:
                raise KeyboardInterrupt
            return super().step(rate)

    with pytest.raises(KeyboardInterrupt):
        pretrain(stopped, Dies(stopped, [BAD]), lambda step, metrics: None)
    resumed, others, _, _ = train(stopped, [BAD])
    assert_same(others, weights)
    assert resumed.state == wanted.state


def test_a_step_that_was_trained_on_cannot_be_skipped_later(run: Run) -> None:
    train(replace(run, phases=(Phase(seq_length=48, global_batch_size=9, steps=8),)))
    with pytest.raises(
        BadInput, match=r"invalid skip_steps: got step 5, but the checkpoint after step 8 was trained on it;"
    ):
        train(replace(run, skip_steps=(5,)))
    result, *_ = train(replace(run, skip_steps=(15,)))
    assert result.state.skip_steps == (15,)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"threshold_sigmas": 0.0},
            r"invalid loss_spikes\.threshold_sigmas: got 0\.0, expected a number of deviations above 0",
        ),
        ({"window_steps": 1}, r"invalid loss_spikes\.window_steps: got 1, expected at least 2 updates"),
        ({"max_skips": 0}, r"invalid loss_spikes\.max_skips: got 0, expected at least 1 batch"),
        ({"skip_before": -1}, r"invalid loss_spikes\.skip_before: got -1, expected at least 0 batches"),
    ],
)
def test_an_invalid_policy_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossSpikes(**keys)


def test_policy_and_skip_steps_survive_json(run: Run) -> None:
    sent = replace(short(run, "skip", max_skips=3), skip_steps=(3, 5))
    assert Run.from_json(sent.to_json()) == sent
