"""Downstream tasks during training: the same questions at each evaluation, without changing what is learned."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.launch.worker import downstream_scorer
from preprocessing.tokenization import Vocab
from tests.training.corpora import gpt, mini_corpus, mini_run
from training.engines.local import LocalEngine
from training.evaluation import EvaluatedModel, SampledTask, evaluate_likelihoods, read_samples, write_samples
from training.evaluation.tasks import LoglikelihoodChoice, TaskItem
from training.evaluation.tasks.loglikelihood_choice import LikelihoodOptions
from training.formats import build_model
from training.loop import Callbacks, pretrain
from training.run import DOWNSTREAM, Run

Metrics = dict[int, dict[str, float]]
KIND = LoglikelihoodChoice(choices=("{a}", "{b}"), metrics=("accuracy", "accuracy_character"))


def sampled(name: str = "piqa", words: tuple[str, str] = ("the cat", "a dog")) -> SampledTask:
    options = [LikelihoodOptions((f"it is {n}",) * 2, tuple(f" {word}" for word in words), words) for n in range(4)]
    return SampledTask(name, KIND, [TaskItem(f"x:{n}", (each,), n % 2) for n, each in enumerate(options)])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    corpus = mini_corpus(tmp_path / "corpus", num_train=20, num_validation=4)
    run = gpt(mini_run(corpus, tmp_path / "run", eval_every=2, save_every=2))
    run = replace(run, downstream_tasks=("piqa",), downstream_examples=3)
    Path(run.folder).mkdir(parents=True, exist_ok=True)
    write_samples(Path(run.folder) / DOWNSTREAM, [sampled()])
    return run


def train(run: Run, stop_after: float = math.inf) -> tuple[LocalEngine, Metrics]:
    engine, logged = LocalEngine(build_model(run), run.optimizer, run.engine), Metrics()
    done = [0]

    def count() -> None:
        done[0] += 1

    pretrain(
        run,
        engine,
        lambda step, metrics: logged.setdefault(step, {}).update(metrics),
        Callbacks(
            should_stop=lambda: done[0] >= stop_after, on_batch=count, score_downstream=downstream_scorer(run, engine)
        ),
    )
    return engine, logged


def samples_of(logged: Metrics) -> dict[int, dict[str, float]]:
    found = {step: {key: one for key, one in of.items() if "/sample_" in key} for step, of in logged.items()}
    return {step: of for step, of in found.items() if of}


def test_scores_are_logged_at_each_evaluation_and_equal_those_of_the_weights(run: Run) -> None:
    engine, logged = train(run)
    found = samples_of(logged)
    assert list(found) == [0, *[step for step in range(1, run.steps + 1) if step % 2 == 0 or step == run.steps]]
    names = ("accuracy", "accuracy_character", "bits_per_byte", "margin")
    assert set(found[0]) == {f"eval/piqa/sample_{name}" for name in names}
    vocab = run.sampling.adapt_tokenizer(Vocab.load(Path(run.corpus) / "vocab"))
    net = EvaluatedModel(engine.model.spec, dict(engine.weights()), vocab)
    scores = evaluate_likelihoods(net, KIND, {"dev": sampled().items}).scores["dev"]
    assert found[run.steps] == {f"eval/piqa/sample_{name}": scores[name] for name in names}
    assert logged[0]["eval/downstream_seconds"] > 0
    assert found[run.steps] != found[0]


def test_training_learns_the_same_with_and_without_downstream_tasks(run: Run, tmp_path: Path) -> None:
    _, scored = train(run)
    plain = replace(run, downstream_tasks=(), folder=str(tmp_path / "plain"))
    _, logged = train(plain)
    losses = [{step: of["train/loss"] for step, of in each.items() if "train/loss" in of} for each in (scored, logged)]
    assert losses[0] == losses[1] != {}
    assert not samples_of(logged)
    assert not any("downstream" in key for of in logged.values() for key in of)


def test_a_resumed_run_has_the_same_curve(run: Run, tmp_path: Path) -> None:
    _, whole = train(run)
    cut = replace(run, folder=str(tmp_path / "cut"))
    Path(cut.folder).mkdir()
    write_samples(Path(cut.folder) / DOWNSTREAM, [sampled()])
    _, first = train(cut, stop_after=3)
    _, rest = train(cut)
    assert 0 not in samples_of(rest)
    assert samples_of(first) | samples_of(rest) == samples_of(whole)


def test_a_task_that_cannot_be_scored_is_named_and_training_continues(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    long = sampled("long", ("word " * 500, "other " * 500))
    write_samples(Path(run.folder) / DOWNSTREAM, [long, sampled()])
    _, logged = train(replace(run, downstream_tasks=("long", "piqa")))
    assert "no downstream score at step 0: task long: " in caplog.text
    assert set(samples_of(logged)[0]) == {
        f"eval/piqa/sample_{name}" for name in ("accuracy", "accuracy_character", "bits_per_byte", "margin")
    }


def test_the_sample_is_restored_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / DOWNSTREAM
    assert not write_samples(file, [sampled()])
    assert not write_samples(file, [sampled()])
    assert read_samples(file) == [sampled()]
    assert write_samples(file, [sampled(words=("x", "y"))])


def test_the_description_of_a_run_keeps_its_downstream_tasks(run: Run) -> None:
    assert Run.from_json(run.to_json()) == run
