"""Epochs of a job: an estimate before the corpus exists, then the number of batches in the corpus."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.cli import main
from orchestration.config import load
from orchestration.jobs import Job, JobFlags, corpus, open_job, submission
from orchestration.jobs.epoch_length import estimate_batches
from orchestration.progress import ignore_progress
from pipeline.readers import recognise
from pipeline.spec import Corpus, MixtureGroup
from preprocessing.errors import BadInput
from preprocessing.rows import ExampleDataset
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"Number {i}. The river runs behind the mill. Who built it?\n\n" for i in range(900)))
    return file


def flags_of(text: Path, *overrides: str, recipe: str = "bert_base", **more: int) -> JobFlags:
    small = ("data.tokenizer.vocab_size=300", "phases.0.global_batch_size=16", "optimizer.warmup_steps=2", *overrides)
    return JobFlags(
        recipe=recipe,
        scale="tiny",
        data=[f"paragraphs:{text}"],
        output_dir=text.parent / "out",
        overrides=small,
        holdout_ratio=0.1,
        **more,
    )


@pytest.fixture(scope="module")
def job(text: Path) -> Job:
    """A job whose corpus exists."""
    before = open_job(flags_of(text, "phases.0.epochs=1.5"))
    assert before.has_estimated_steps
    assert before.recipe.num_steps > 1
    assert "1.5 epochs are about" in "".join(before.notes)
    corpus.build_untracked(before, (), ignore_progress)
    return open_job(flags_of(text, "phases.0.epochs=1.5"))


def test_the_steps_are_those_of_the_sequences_in_the_corpus(job: Job) -> None:
    assert not job.has_estimated_steps
    assert not any(phase.epochs for phase in job.recipe.phases)
    store = TokenStore.open(job.plan.corpus.folder, "train")
    rows = ExampleDataset(store, Vocab.load(store.vocab_dir), job.recipe.sampling, 64).count(0)
    assert job.recipe.num_steps == math.ceil(1.5 * rows / 16)
    assert f"1.5 epochs are {job.recipe.num_steps:,} steps" in "".join(job.notes)
    assert job.pretraining().steps == job.recipe.num_steps


def test_epochs_and_the_same_steps_are_one_run(job: Job, text: Path) -> None:
    same = open_job(flags_of(text, f"phases.0.steps={job.recipe.num_steps}"))
    assert same.plan.run.folder == job.plan.run.folder


def test_epochs_of_tokens_count_the_tokens_of_the_training_split(job: Job, text: Path) -> None:
    by_token = open_job(flags_of(text, "phases.0.epochs=1.5", "phases.0.batch_unit=token"))
    tokens = TokenStore.open(job.plan.corpus.folder, "train").manifest.splits["train"]["tokens"]
    assert by_token.recipe.num_steps == math.ceil(1.5 * tokens / (16 * 64))


def test_max_steps_shortens_epochs(job: Job, text: Path) -> None:
    short = open_job(flags_of(text, "phases.0.epochs=1.5", max_steps=5))
    assert short.recipe.num_steps == 5
    whole = open_job(flags_of(text, "phases.0.epochs=1.5", max_steps=job.recipe.num_steps))
    assert whole.recipe.num_steps == job.recipe.num_steps


def test_an_estimate_does_not_refuse_what_the_corpus_may_allow(job: Job, text: Path, tmp_path: Path) -> None:
    """A long warm-up and more steps than estimated are refused when the corpus exists."""
    long, many = (
        flags_of(text, "phases.0.epochs=1.5", "optimizer.warmup_steps=5000"),
        flags_of(text, "phases.0.epochs=1.5", max_steps=5000),
    )
    for flags, message in (
        (long, r"invalid optimizer.warmup_steps: got 5000, expected less than \d+, the steps of the run; lower it"),
        (many, r"invalid --max-steps: got 5000, expected 2 to \d+, the steps of the recipe; change it"),
    ):
        early = open_job(JobFlags(**{**flags.__dict__, "output_dir": tmp_path / "empty"}))
        assert early.has_estimated_steps
        with pytest.raises(BadInput, match=message):
            open_job(flags)
    early = open_job(JobFlags(**{**long.__dict__, "output_dir": tmp_path / "empty"}))
    assert "the steps of the run; lower it, unless the corpus has more text than estimated" in "".join(early.notes)


def test_a_warmup_of_the_recipe_is_shortened_to_the_epochs_and_one_of_the_user_is_not(
    job: Job, text: Path, tmp_path: Path
) -> None:
    """GPT-2 at this scale has 4,000 steps with a warm-up of 200; the text has far fewer steps."""
    whole = flags_of(text, "phases.0.epochs=1", recipe="gpt2")
    flags = replace(whole, overrides=[each for each in whole.overrides if "warmup" not in each])
    corpus.build_untracked(open_job(flags), (), ignore_progress)
    for out in (text.parent / "out", tmp_path / "empty"):  # with and without the corpus
        one = open_job(replace(flags, output_dir=out))
        steps, warmup = one.recipe.num_steps, one.recipe.optimizer.warmup_steps
        assert warmup == max(1, 200 * steps // 4000)
        assert f"optimizer.warmup_steps: 200 -> {warmup}, because the run has {steps} instead of 4,000 steps;" in str(
            one.notes
        )
        short = open_job(replace(flags, output_dir=out, max_steps=4))
        assert (short.recipe.num_steps, short.recipe.optimizer.warmup_steps) == (4, max(1, warmup * 4 // steps))
    given = replace(flags, overrides=[*flags.overrides, "optimizer.warmup_steps=200"])
    for max_steps in (None, 4):  # the message has the number that the user gave
        with pytest.raises(
            BadInput, match=r"invalid optimizer.warmup_steps: got 200, expected less than \d+, the steps"
        ):
            open_job(replace(given, max_steps=max_steps))
    kept = open_job(replace(flags, overrides=[*flags.overrides, "phases.0.epochs=900"]))
    assert kept.recipe.optimizer.warmup_steps == 200


def test_a_submitted_job_keeps_its_name_when_the_corpus_exists(job: Job, text: Path, tmp_path: Path) -> None:
    flags = flags_of(text, "phases.0.epochs=1.5")
    names = set()
    for out in (text.parent / "out", tmp_path / "empty"):  # with and without the corpus
        one = open_job(JobFlags(**{**flags.__dict__, "output_dir": out}))
        names.add(submission.identity(one, flags, "run"))
    assert len(names) == 1


def test_check_calls_an_estimate_an_estimate(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The corpus may have another number of steps."""
    words = ["check", "gpt2", "--scale", "tiny", "--data", str(text)]
    assert main([*words, "phases.0.epochs=2", "optimizer.warmup_steps=2"]) == 0
    assert re.search(r"about [\d,]+ steps", capsys.readouterr().out)
    assert main([*words, "phases.0.steps=9", "optimizer.warmup_steps=2"]) == 0
    assert "about" not in capsys.readouterr().out


def test_epochs_need_a_text() -> None:
    with pytest.raises(BadInput, match=r"got epochs, expected steps, because the text of corpus .* is not known"):
        open_job(JobFlags(recipe="bert_base", overrides=("phases.0.epochs=1.5",)))


def test_an_estimate_has_the_epochs_of_each_group_that_is_read(tmp_path: Path) -> None:
    """Four bytes per token."""
    sizes = {"a": 4_000, "b": 400}
    for name, size in sizes.items():
        (tmp_path / f"{name}.txt").write_text("x" * (size - 1) + "\n")
    texts = {name: tuple(recognise(str(tmp_path / f"{name}.txt"))) for name in sizes}
    recipe = load("bert_base", (), "tiny")
    phase = replace(recipe.phases[0], seq_length=10, global_batch_size=1)
    whole = {"validation_ratio": 0.0, "test_ratio": 0.0}
    by_epochs = Corpus(
        name="x",
        mixture=tuple(MixtureGroup(name=each, sources=texts[each], epochs=n) for each, n in (("a", 0.5), ("b", 3))),
        **whole,
    )
    by_size = Corpus(
        name="x",
        mixture=tuple(MixtureGroup(name=each, sources=texts[each]) for each in "ab"),
        mixture_sampling_alpha=0.5,
        **whole,
    )
    assert estimate_batches(by_epochs, recipe, phase) == (0.5 * 4_000 + 3 * 400) / 4 / 10
    assert estimate_batches(by_size, recipe, phase) == 4_400 / 4 / 10
    assert estimate_batches(Corpus(name="x", sources=texts["a"], **whole), recipe, phase) == 4_000 / 4 / 10
    assert estimate_batches(by_epochs, recipe, replace(phase, mixture={"b": 1.0})) == 400 / 4 / 10
    of_recipe = replace(recipe, data=replace(recipe.data, mixture={"a": 1.0, "b": 0.0}))
    assert estimate_batches(by_epochs, of_recipe, phase) == 4_000 / 4 / 10
