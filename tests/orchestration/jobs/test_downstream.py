"""Downstream tasks of a cluster file: what is refused before training, and the sample of questions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import Cluster, load, load_cluster
from orchestration.jobs.downstream import check_downstream_tasks, task_names, write_downstream_sample
from preprocessing.errors import BadInput
from tests.training.corpora import mini_corpus
from training.evaluation import read_samples
from training.run import DOWNSTREAM

TASK = """
name: chairs
description: what to sit on
citation: my own
files:
  dev: {paths: [chairs.jsonl], format: {kind: jsonl}}
task: {kind: loglikelihood_choice, context: "{goal}", choices: ["{a}", "{b}"], label: gold}
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    rows = [{"goal": f"To sit {n},", "a": "use a chair", "b": "use a cloud", "gold": n % 2} for n in range(30)]
    (tmp_path / "chairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "chairs.yaml").write_text(TASK)
    return tmp_path / "chairs.yaml"


def cluster(*tasks: str | Path, **more: object) -> Cluster:
    return replace(load_cluster("local"), downstream_tasks=tuple(map(str, tasks)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            ("sst2",),
            "got sst2, which has kind classification, expected loglikelihood_choice or cloze; evaluate it with",
        ),
        (("next_sentence",), "got next_sentence, expected cloze or tasks of kind loglikelihood_choice"),
        (("wikitext2",), "got wikitext2, which has kind perplexity, expected loglikelihood_choice or cloze"),
        (("story_cloze_few",), "which has num_fewshot 70, expected 0; use the zero-shot task"),
        (("piqa",), "got piqa, but its files are not known; name their directory with cluster.downstream_data_dir=DIR"),
    ],
)
def test_tasks_that_training_cannot_score_are_refused_in_one_line(tasks: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_downstream_tasks(load("gpt2", scale="tiny"), cluster(*tasks))
    assert str(caught.value).startswith("invalid cluster.downstream_tasks: got ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_directory_and_missing_files_are_named(tmp_path: Path) -> None:
    gpt2 = load("gpt2", scale="tiny")
    with pytest.raises(BadInput, match=r"nowhere is no directory; correct cluster\.downstream_data_dir"):
        check_downstream_tasks(gpt2, cluster("piqa", downstream_data_dir="nowhere"))
    with pytest.raises(BadInput, match=r"has no piqa/.*name their directory with cluster\.downstream_data_dir"):
        check_downstream_tasks(gpt2, cluster("piqa", downstream_data_dir=str(tmp_path)))


def test_no_tasks_need_nothing() -> None:
    check_downstream_tasks(load("bert_base", scale="tiny"), load_cluster("local"))
    assert task_names(load_cluster("local")) == ()
    write_downstream_sample(load_cluster("local"), Path("/nowhere"), Path("/nowhere"))


def test_the_sample_is_fixed_bounded_and_warns_if_it_changes(
    tmp_path: Path, task: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = mini_corpus(tmp_path / "corpus", num_train=3, num_validation=1)
    run = tmp_path / "run"
    run.mkdir()
    of = cluster(task, downstream_examples=7)
    check_downstream_tasks(load("gpt2", scale="tiny"), of)
    write_downstream_sample(of, run, corpus)
    (first,) = read_samples(run / DOWNSTREAM)
    assert (first.name, len(first.items), task_names(of)) == ("chairs", 7, ("chairs",))
    write_downstream_sample(of, run, corpus)
    assert read_samples(run / DOWNSTREAM) == [first]
    assert not caplog.records
    write_downstream_sample(replace(of, downstream_examples=100), run, corpus)
    (whole,) = read_samples(run / DOWNSTREAM)
    assert len(whole.items) == 30
    assert {item.place for item in first.items} < {item.place for item in whole.items}
    assert "differ from those of the earlier steps, so their curves have a break" in caplog.text
