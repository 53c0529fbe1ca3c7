"""The status that a worker reports, and the files that the first worker writes when a run is finished."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import load, load_cluster
from orchestration.jobs import export, model_export
from orchestration.launch import worker
from orchestration.launch.eval_trials import _read_count
from orchestration.launch.heartbeat import STEP
from orchestration.launch.worker import EXPORT, EXPORTED, WEIGHTS, Worker, export_weights
from orchestration.tracking import MetricLog, history
from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from tests.training.corpora import gpt, mini_corpus, mini_run
from training.engines.local import LocalEngine
from training.evaluation.generation import generate_samples
from training.formats import build_model
from training.loop import Callbacks, pretrain
from training.run import Run, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    corpus = mini_corpus(tmp_path / "corpus", num_train=3, num_validation=1)
    return mini_run(corpus, tmp_path / "run")


def engine(run: Run) -> LocalEngine:
    return LocalEngine(build_model(run), run.optimizer, run.engine)


def test_supported_model_is_exported(run: Run) -> None:
    assert export_weights(run, engine(run)) == ""
    assert (Path(run.folder) / EXPORT / "config.json").is_file()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_changed_export_is_refused(run: Run, name: str) -> None:
    """An export with a flipped bit was once copied with exit code 0. Additional files of the user do not matter."""
    folder = Path(run.folder)
    export_weights(run, engine(run))
    (folder / EXPORT / "notes.txt").write_text("mine")
    assert model_export._check_export(folder) == folder / EXPORT
    path = folder / EXPORT / name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        BadInput, match=rf"{name}: has changed since the export; delete stage.json beside export, then "
    ):
        export(folder, folder / "to")
    assert not (folder / "to").exists()
    path.unlink()
    with pytest.raises(BadInput, match=f"{name}: is missing; delete stage.json"):
        export(folder, folder / "to")
    write_run(run)
    (folder / EXPORT).rename(folder / "elsewhere")
    # this once gave a traceback
    with pytest.raises(BadInput, match=r"export: is missing; delete stage\.json beside export"):
        export(folder, folder / "to")
    (folder / "elsewhere").rename(folder / EXPORT)
    (folder / EXPORTED).write_text("{}")
    with pytest.raises(BadInput, match=r"export\.json: is damaged"):
        export(folder, folder / "to")
    export_weights(run, engine(run))
    assert model_export._check_export(folder) == folder / EXPORT


def test_unsupported_model_reports_the_reason_in_one_line(run: Run) -> None:
    run = replace(run, model=replace(run.model, type_vocab_size=0), losses=run.losses[:1])
    message = export_weights(run, engine(run))
    assert re.match(r"export: transformers has no class for this encoder \(.*type_vocab_size 0", message)
    assert "\n" not in message
    assert (Path(run.folder) / WEIGHTS / "spec.json").is_file()
    assert not (Path(run.folder) / EXPORT).exists()


def test_export_sends_a_heartbeat_for_each_tensor_and_file(run: Run) -> None:
    """The files of a large model take hours to write, and the worker sends no other heartbeat meanwhile."""
    beats: list[int] = []
    net = engine(run)
    assert export_weights(run, net, lambda: beats.append(1)) == ""
    # files are hashed when they are read; tensors are hashed while they are written
    tensors, files = len(net.full_state()), 1
    assert len(beats) >= 2 * tensors - 2 + files
    beats.clear()
    worker.keeper(run, net, lambda: beats.append(1))(3)
    assert len(beats) == tensors


def test_first_step_of_a_process_is_named_first_step() -> None:
    current = Worker(0, 1)
    activities = []
    for done, doing in [(7, "samples"), (7, ""), (8, ""), (8, "checkpoint"), (8, ""), (9, "rollback"), (6, "")]:
        current.set_activity(done, doing)
        activities.append(current.activity)
    assert activities == ["samples", "first step", STEP, "checkpoint", STEP, "rollback", "first step"]
    assert current.poll().heartbeat.beats == 7


def test_poll_returns_the_last_event_of_each_stage() -> None:
    current = Worker(0, 1)
    current.events.extend({"stage": stage, "done": done} for done, stage in enumerate(["a", "a", "b", "b", "c"]))
    answer = current.poll()
    assert (answer.step, answer.warnings) == (0, [])
    assert answer.events == [{"stage": "a", "done": 1}, {"stage": "b", "done": 3}, {"stage": "c", "done": 4}]
    assert not current.poll().events


def test_fine_tuning_steps_are_written_at_limited_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(worker, "monotonic", lambda: now_s)
    file = tmp_path / "0"
    assert _read_count(file) == 0
    count, seen = worker.step_counter(file), []
    for done in range(4):
        count(done)
        seen.append(_read_count(file))
        now_s += 0.2
    assert seen == [0, 0, 2, 2]
    with file.open() as reader:
        count(4)
        assert reader.read() == "2"  # a concurrent reader sees the old file, not an empty one
    assert _read_count(file) == 4


def test_fine_tuning_continues_if_steps_cannot_be_written(tmp_path: Path) -> None:
    worker.step_counter(tmp_path / "gone" / "0")(1)
    worker.step_counter(None)(1)


# Samples


def test_samples_are_written_at_each_evaluation_without_changing_training(tmp_path: Path) -> None:
    losses, decoder_run = {}, make_decoder_run(tmp_path)
    for prompts in ((), ("w7 w9", "")):
        run = replace(decoder_run, sample_prompts=prompts, eval_every=8, folder=str(tmp_path / f"run{len(prompts)}"))
        Path(run.folder).mkdir()
        local_engine, metrics = engine(run), MetricLog(Path(run.folder), None, system=False)
        write_samples = worker.sample_writer(run, local_engine, metrics)
        pretrain(run, local_engine, metrics, Callbacks(write_samples=write_samples))
        metrics.close()
        losses[prompts] = history(Path(run.folder))["train/loss"]
        names = sorted(file.name for file in (Path(run.folder) / "samples").glob("*"))
        assert names == (["step-0.txt", "step-16.txt", "step-20.txt", "step-8.txt"] if prompts else [])
    assert losses[()] == losses["w7 w9", ""]
    first, last = ((Path(run.folder) / f"samples/step-{step}.txt").read_text() for step in (0, 20))
    assert first != last
    assert last.count("\n---\n") == 1
    assert last.startswith("w7 w9")
    local_engine.model.train()
    assert generate_samples(local_engine.model, vocab_of(run), run.sample_prompts, seed=run.seed) == last.strip(
        "\n"
    ).split("\n\n---\n\n")
    assert local_engine.model.training


def make_decoder_run(folder: Path) -> Run:
    corpus = mini_corpus(folder / "corpus", num_train=3, num_validation=1)
    return gpt(mini_run(corpus, folder / "run"))


def vocab_of(run: Run) -> Vocab:
    return Vocab.load(Path(run.corpus) / "vocab")


@pytest.mark.parametrize(("zero", "samples"), [(3, ["one prompt"])])
def test_samples_are_refused_with_zero_stage_3_and_have_no_default_there(zero: int, samples: list[str]) -> None:
    usual = load_cluster("local", [f"cluster.engine.zero_stage={zero}"])
    assert usual.samples_of(load("gpt2", scale="tiny")) == ()
    assert len(load_cluster("local").samples_of(load("gpt2", scale="tiny"))) == 3
    assert load_cluster("local").samples_of(load("bert_base", scale="tiny")) == ()
    with pytest.raises(BadInput, match="no worker has all weights"):
        load_cluster("local", [f"cluster.engine.zero_stage={zero}", f"cluster.sample_prompts={samples}"])
