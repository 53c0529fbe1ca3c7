import math
import re
import shutil
import typing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput, Diverged, MiscountedLoss
from tests.training.corpora import electra, gpt, mini_run
from training import loop
from training.data import open_loader
from training.engines import StepResult
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import Callbacks, TrainingResult, pretrain
from training.losses import Adversarial, Loss, MaskedTokens, ReplacedTokenDetection, SpanBoundary
from training.optimizers import AdamW
from training.run import RUN, Run, load_stored_run, write_run
from training.specs import Encoder, EngineSettings, Phase

Metrics = dict[int, dict[str, float]]


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return mini_run(corpus, tmp_path / "run")


class Spy(LocalEngine):
    """A local engine with faults: nonfinite gradients before some updates, an interruption before one."""

    def __init__(self, run: Run, poison: Sequence[int] = (), die_at: int = -1) -> None:
        super().__init__(build_model(run), run.optimizer, run.engine)
        self.poison, self.die_at, self.done = poison, die_at, 0

    def backward(self, loss: Tensor) -> None:
        super().backward(loss * math.nan if self.done in self.poison else loss)

    def step(self, rate: float) -> StepResult:
        if self.done == self.die_at:
            raise KeyboardInterrupt
        self.done += 1
        return super().step(rate)


def train(run: Run, poison: Sequence[int] = (), die_at: int = -1, stop_at: int = -1) -> tuple[TrainingResult, Metrics]:
    logged: Metrics = {}
    engine = Spy(run, poison, die_at)
    result = pretrain(
        run,
        engine,
        lambda step, metrics: logged.setdefault(step, {}).update(metrics),
        Callbacks(should_stop=lambda: engine.done == stop_at),
    )
    return result, logged


def losses(logged: Metrics) -> list[float]:
    return [metrics["train/loss"] for metrics in logged.values() if "train/loss" in metrics]


def test_a_run_ends_after_its_last_phase_and_has_learned(run: Run) -> None:
    result, logged = train(
        replace(
            run,
            phases=(
                Phase(seq_length=48, global_batch_size=16, steps=60),
                Phase(seq_length=24, global_batch_size=8, steps=20),
            ),
        )
    )
    assert (result.finished, result.state.step) == (True, 80)
    assert list(logged) == list(range(1, 81))
    assert sum(losses(logged)[-10:]) / 10 < losses(logged)[0] - 0.5


@pytest.mark.one_in(6)
@pytest.mark.parametrize("make", [lambda run: run, gpt, electra], ids=["bert", "gpt", "electra"])
@pytest.mark.parametrize(
    "machine",
    [
        EngineSettings(micro_batch_tokens=48),
        EngineSettings(micro_batch_tokens=150),
        EngineSettings(padding="padded"),
        EngineSettings(padding="padded", micro_batch_tokens=200),
        EngineSettings(dataloader_num_workers=1),
    ],
    ids=lambda machine: f"{machine.padding}-{machine.micro_batch_tokens}-{machine.dataloader_num_workers}",
)
def test_machine_settings_do_not_change_the_losses(run: Run, make, machine: EngineSettings) -> None:
    run = replace(make(run), resume="never")
    plain, other = train(run)[1], train(replace(run, engine=machine))[1]
    assert losses(other) == pytest.approx(losses(plain), rel=1e-5)
    assert [m["train/grad_norm"] for m in other.values()] == pytest.approx(
        [m["train/grad_norm"] for m in plain.values()], rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_a_compiled_trunk_learns_the_same(run: Run) -> None:
    run = replace(run, resume="never", engine=EngineSettings(padding="padded"))
    compiled = replace(run, engine=replace(run.engine, torch_compile=True))
    assert losses(train(compiled)[1]) == pytest.approx(losses(train(run)[1]), rel=1e-5)


def test_the_first_loss_is_the_mean_over_all_targets(run: Run) -> None:
    """Computed with plain torch from the sequences of the first step."""
    from training.engines.upload import to_tensors

    (batch,) = open_loader(run, 0, 1).at(0)
    model = build_model(run)
    scores = model(to_tensors(batch, torch.device("cpu")))
    by_hand = scores["masked_tokens"].loss / len(batch["targets"]) + scores["sentence_pair"].loss / len(
        batch["lengths"]
    )
    _, logged = train(replace(run, engine=EngineSettings(micro_batch_tokens=100)))
    assert losses(logged)[0] == pytest.approx(by_hand.item(), rel=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("die_at", [0, 3, 4, 11, 19])
def test_a_restarted_run_ends_with_the_same_weights_bit_for_bit(run: Run, die_at: int, tmp_path: Path) -> None:
    trunk = replace(run.model, hidden_dropout=0.1, attention_dropout=0.1)
    run = replace(run, model=trunk, save_every=4, eval_every=6, async_checkpointing=False)
    whole, all_logged = train(replace(run, folder=str(tmp_path / "whole")))
    with pytest.raises(KeyboardInterrupt):
        train(run, die_at=die_at)
    resumed, logged = train(run)
    assert resumed == whole
    assert min(logged) == die_at // 4 * 4 + 1
    assert losses(logged) == losses(all_logged)[-len(losses(logged)) :]
    assert logged[20]["eval/loss"] == all_logged[20]["eval/loss"]


def test_keep_checkpoint_every_keeps_checkpoints_forever(run: Run) -> None:
    train(replace(run, save_every=6, keep_checkpoints=1, keep_checkpoint_every=8))
    kept = sorted(path.name for path in Path(run.folder).glob("checkpoints/*"))
    assert kept == ["step-000000008", "step-000000016", "step-000000020"]


def test_dropout_differs_between_steps_and_not_between_runs(run: Run) -> None:
    run = replace(run, resume="never")
    dropping = replace(run, model=replace(run.model, hidden_dropout=0.3))
    first, again, without = (losses(train(each)[1]) for each in (dropping, dropping, run))
    assert first == again
    assert first != without


def test_a_stopped_run_saves_and_resumes_later(run: Run, tmp_path: Path) -> None:
    whole, _ = train(replace(run, folder=str(tmp_path / "whole")))
    stopped, logged = train(run, stop_at=7)
    assert (stopped.finished, stopped.state.step, max(logged)) == (False, 7, 7)
    assert train(run)[0] == whole


def test_a_finished_run_is_not_trained_again(run: Run) -> None:
    run = replace(run, eval_every=20)
    result, _ = train(run)
    assert train(run, die_at=0) == (result, {})


def test_metrics_have_their_names_and_are_logged_at_their_intervals(run: Run) -> None:
    _, logged = train(replace(run, log_every=8, eval_every=10, save_every=15))
    assert list(logged) == [8, 10, 15, 16, 20]
    assert set(logged[8]) == {
        "train/loss", "train/masked_tokens/loss", "train/masked_accuracy", "train/perplexity",
        "train/sentence_pair/loss",
        "train/pair_accuracy", "train/learning_rate", "train/grad_norm", "train/skipped_steps", "train/tokens",
        "perf/tokens_per_second", "perf/step_time_s", "perf/data_wait",
    }  # fmt: skip
    assert set(logged[10]) == {
        "eval/loss", "eval/masked_tokens/loss", "eval/masked_accuracy", "eval/perplexity", "eval/sentence_pair/loss",
        "eval/pair_accuracy",
    }  # fmt: skip
    assert set(logged[15]) == {"ckpt/save_s"}
    assert set(logged[20]) >= {"train/loss", "eval/loss", "ckpt/save_s"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [lambda run: run, gpt, electra], ids=["bert", "gpt", "electra"])
def test_a_logged_loss_is_the_mean_over_the_targets_since_the_previous_log(run: Run, make) -> None:
    run = replace(make(run), resume="never", engine=EngineSettings(micro_batch_tokens=100))
    each, seldom = train(run)[1], train(replace(run, log_every=8))[1]
    assert list(seldom) == [8, 16, 20]
    targets = [targets_of(run, step) for step in range(20)]
    for start, stop in ((0, 8), (8, 16), (16, 20)):
        for loss in run.losses:
            key, counts = f"train/{loss.kind}/loss", [count[loss.kind] for count in targets[start:stop]]
            total = sum(each[start + 1 + i][key] * count for i, count in enumerate(counts))
            assert seldom[stop][key] == pytest.approx(total / sum(counts), rel=1e-9)
        weighted = sum(loss.weight * seldom[stop][f"train/{loss.kind}/loss"] for loss in run.losses)
        assert seldom[stop]["train/loss"] == pytest.approx(weighted)


def targets_of(run: Run, step: int) -> dict[str, int]:
    """The number of targets of each loss in a step."""
    batches = open_loader(run, 0, 1).at(step)
    return {loss.kind: sum(loss.count(batch) for batch in batches) for loss in run.losses}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("die_at", [3, 8, 11, 18])
def test_a_run_interrupted_between_logs_logs_the_same_metrics(run: Run, die_at: int, tmp_path: Path) -> None:
    run = replace(run, log_every=7, save_every=4, async_checkpointing=False)
    whole, all_logged = train(replace(run, folder=str(tmp_path / "whole")))
    with pytest.raises(KeyboardInterrupt):
        train(run, die_at=die_at)
    resumed, logged = train(run)
    assert resumed == whole
    points = {step: all_logged[step]["train/loss"] for step in (7, 14, 20)}
    assert losses(logged) == [loss for step, loss in points.items() if step > die_at // 4 * 4]


def test_a_run_stopped_between_logs_logs_the_same_metrics(run: Run, tmp_path: Path) -> None:
    run = replace(run, log_every=10)
    _, whole = train(replace(run, folder=str(tmp_path / "whole")))
    train(run, stop_at=3)
    train(run, stop_at=13)
    assert losses(train(run)[1]) == losses(whole)[1:]


def test_electra_logs_perplexity_of_the_generator_and_accuracy_of_both_models(run: Run) -> None:
    metrics = train(electra(run))[1][20]
    assert metrics["train/perplexity"] == pytest.approx(math.exp(metrics["train/masked_tokens/loss"]))
    assert 0 <= metrics["train/masked_accuracy"] < metrics["train/replaced_accuracy"] <= 1
    assert metrics["train/loss"] == pytest.approx(
        metrics["train/masked_tokens/loss"] + 5 * metrics["train/replaced_token_detection/loss"]
    )


def test_perplexity_is_the_exponential_of_the_token_loss(run: Run) -> None:
    metrics = train(replace(gpt(run), eval_every=20))[1][20]
    assert metrics["eval/perplexity"] == pytest.approx(math.exp(metrics["eval/next_token/loss"]))
    assert metrics["eval/loss"] == metrics["eval/next_token/loss"]


@pytest.mark.parametrize("make", [lambda run: run, electra], ids=["bert", "electra"])
def test_evaluation_has_no_dropout_and_does_not_change_training(run: Run, make) -> None:
    run = make(run)
    run = replace(run, model=replace(run.model, hidden_dropout=0.3))
    often = train(replace(run, eval_every=1, folder=run.folder + "-a"))[1]
    seldom = train(replace(run, eval_every=20, folder=run.folder + "-b"))[1]
    assert losses(often) == losses(seldom)
    assert often[20]["eval/loss"] == seldom[20]["eval/loss"]


def test_weights_of_losses_scale_the_total_loss(run: Run) -> None:
    masked, pair = run.losses
    _, logged = train(replace(run, losses=(masked, replace(pair, weight=0.25))))
    first = logged[1]
    assert first["train/loss"] == pytest.approx(
        first["train/masked_tokens/loss"] + 0.25 * first["train/sentence_pair/loss"]
    )


def test_a_nonfinite_step_is_skipped_and_counted(run: Run) -> None:
    result, logged = train(run, poison=[5, 6])
    assert (result.finished, result.state.skipped) == (True, 2)
    assert [logged[step]["train/skipped_steps"] for step in (5, 6, 7, 8)] == [0, 1, 2, 2]
    assert all(math.isfinite(loss) for loss in losses(logged))


def test_ten_skipped_steps_in_a_row_stop_the_run_without_a_checkpoint(run: Run) -> None:
    with pytest.raises(
        Diverged, match=r"10 updates in a row, of 14, had no finite gradient; lower optimizer.learning_rate"
    ):
        train(replace(run, save_every=2), poison=range(4, 20))
    resumed, _ = train(replace(run, save_every=2))
    assert resumed.finished
    assert math.isfinite(resumed.state.loss)


def test_a_missing_corpus_is_refused_in_one_line(run: Run) -> None:
    with pytest.raises(BadInput, match=r"/nowhere/manifest\.json"):
        train(replace(run, corpus="/nowhere"))


@pytest.mark.parametrize("make", [lambda run: run, gpt, electra], ids=["bert", "gpt", "electra"])
def test_a_run_survives_json(run: Run, make) -> None:
    run = replace(make(run), optimizer=AdamW(learning_rate=1e-4, lr_schedule="cosine", bias_correction=False))
    assert Run.from_json(run.to_json()) == run


def test_a_trunk_keeps_its_class_in_json(run: Run) -> None:
    assert isinstance(Run.from_json(run.to_json()).model, Encoder)


def test_every_flipped_bit_of_the_run_file_is_detected(run: Run, tmp_path: Path) -> None:
    """Changed digits of a rate or a path used to be accepted. Invalid JSON used to raise a traceback in export and
    eval."""
    run = replace(run, folder=str(tmp_path))
    write_run(run)
    assert load_stored_run(tmp_path) == run
    whole = (tmp_path / RUN).read_bytes()
    for place in range(0, 8 * len(whole), 7):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        (tmp_path / RUN).write_bytes(content)
        with pytest.raises(BadInput, match=r"pretrain\.json: (is damaged|has no run)"):
            load_stored_run(tmp_path)
    (tmp_path / RUN).write_text(run.to_json())  # the format without a checksum
    assert load_stored_run(tmp_path) == run


# Counts before the forward pass must equal the counts of the head.

RUNS_OF = {  # a run for each kind of loss
    "masked_tokens": lambda run: run,
    "sentence_pair": lambda run: run,
    "next_token": gpt,
    "span_boundary": lambda run: replace(run, losses=(MaskedTokens(), SpanBoundary())),
    "replaced_token_detection": electra,
    "adversarial": lambda run: replace(electra(run), losses=(Adversarial(), ReplacedTokenDetection(weight=5.0))),
}
FILES = {member().kind: member.__module__.rpartition(".")[2] for member in typing.get_args(Loss)}
KINDS = [member.kind for member in (member() for member in typing.get_args(Loss))]


def with_loss(kind: str, run: Run) -> Run:
    """A run with the loss of this kind; an unknown kind is added to masked language modeling."""
    loss = next(member for member in typing.get_args(Loss) if member().kind == kind)()
    return RUNS_OF[kind](run) if kind in RUNS_OF else replace(run, losses=(MaskedTokens(), loss))


def train_half(run: Run, kind: str) -> None:
    """Train until a step is logged, with a head that scores half of its targets."""
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    name = next(loss.head_name for loss in run.losses if loss.kind == kind)
    engine.model.heads[name].register_forward_hook(
        lambda module, given, score: score._replace(loss=score.loss / 2, count=score.count // 2)
    )
    pretrain(run, engine, lambda step, metrics: pytest.fail(f"step {step} was logged"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_scores_half_of_its_targets_is_refused_at_the_first_step(run: Run, kind: str) -> None:
    with pytest.raises(MiscountedLoss, match=f"loss {kind} counts") as refused:
        train_half(with_loss(kind, run), kind)
    message = str(refused.value)
    counted, scored = (int(number) for number in re.findall(r" (?:counts|scores) (\d+)", message))
    assert scored == counted // 2 < counted
    assert f"training/losses/{FILES[kind]}.py" in message
    assert "\n" not in message


def test_a_head_that_scores_half_of_its_targets_is_refused_when_a_run_resumes(run: Run) -> None:
    run = replace(run, save_every=4)
    train(run, stop_at=8)
    with pytest.raises(MiscountedLoss, match="loss sentence_pair counts"):
        train_half(run, "sentence_pair")


def test_counts_are_compared_only_in_the_first_steps_after_a_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    monkeypatch.setattr(loop, "_check_counts", lambda losses, batch, scores: compared.append(len(batch["lengths"])))
    train(run)
    assert compared == [9] * loop.COUNTED_STEPS


def test_a_metric_of_a_head_is_the_mean_over_the_targets_of_its_loss(run: Run) -> None:
    """Every sample is wrong, so that the replaced tokens are exactly the chosen tokens."""
    run = electra(run)
    run = replace(
        run,
        model=replace(run.model, allow_correct=False),
        losses=(MaskedTokens(), ReplacedTokenDetection(predict_at="masked")),
    )
    _, logged = train(replace(run, eval_every=20, engine=EngineSettings(micro_batch_tokens=100)))
    assert [metrics["train/replaced_share"] for metrics in logged.values()] == [1.0] * 20
    assert logged[20]["eval/replaced_share"] == 1.0


def test_activity_is_reported_before_each_step_evaluation_and_checkpoint(run: Run) -> None:
    reported: list[tuple[int, str]] = []
    run = replace(run, phases=(Phase(seq_length=48, global_batch_size=8, steps=4),), eval_every=2, save_every=3)
    engine = Spy(run)
    pretrain(run, engine, lambda step, metrics: None, Callbacks(report_activity=lambda *each: reported.append(each)))
    evaluation, checkpoint = "evaluation", "checkpoint"
    assert reported == [
        (0, ""), (1, ""),
        (2, evaluation), (2, ""),
        (3, checkpoint), (3, ""),
        (4, evaluation), (4, checkpoint), (4, ""),
        (4, checkpoint),  # it is still being written
    ]  # fmt: skip


def test_everything_that_takes_longer_than_a_step_is_reported(run: Run) -> None:
    """Samples, kept weights and the export of a profile used to look like steps that hang."""
    reported, did = list[tuple[int, str]](), list[tuple[int, str]]()
    run = replace(run, phases=(Phase(seq_length=48, global_batch_size=8, steps=7),), eval_every=4, save_weights_every=5)
    run = replace(run, sample_prompts=("",), profile_steps=2)

    def look(step: int) -> None:
        did.append(reported[-1])

    callbacks = Callbacks(report_activity=lambda *each: reported.append(each), write_samples=look, save_weights=look)
    pretrain(run, Spy(run), lambda step, metrics: None, callbacks)
    assert did == [(0, "samples"), (4, "samples"), (5, "weights"), (7, "samples")]
    assert reported[reported.index((5, "weights")) :][1:4] == [(5, ""), (5, "profile"), (5, "")]


def test_a_run_that_is_asked_to_stop_reports_its_last_checkpoint(run: Run) -> None:
    reported: list[tuple[int, str]] = []
    engine = Spy(run)
    callbacks = Callbacks(should_stop=lambda: engine.done == 2, report_activity=lambda *each: reported.append(each))
    pretrain(run, engine, lambda step, metrics: None, callbacks)
    assert reported[-2:] == [(2, ""), (2, "checkpoint")]
