"""Stages: directories named by a hash of their causes; their states; and directories with other causes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import load, load_corpus
from orchestration.evaluation.score_causes import name_options
from orchestration.jobs import JobStage
from orchestration.jobs.stages import COMMITS, MARK, other_values, plan
from pipeline.spec import Clean


def load_tiny(*overrides):
    return load("bert_base", overrides, scale="tiny")


def make_plan(out: Path, *overrides, inputs="the text"):
    return plan(load_tiny(*overrides), load_corpus("demo"), inputs, out)


def directories(stages):
    return [stage.folder for stage in stages]


def finish_stage(stage):
    stage.folder.mkdir(parents=True)
    for name in COMMITS.values():
        (stage.folder / name).write_text("{}")
    stage.finish()


def changed_stages(before, after):
    return [stage.name for stage, other in zip(before, after, strict=True) if stage.folder != other.folder]


def test_equal_jobs_have_equal_directories(tmp_path: Path):
    assert directories(make_plan(tmp_path)) == directories(make_plan(tmp_path))
    assert make_plan(tmp_path).text.folder.parent == tmp_path / "text"
    assert make_plan(tmp_path).run.folder.name.startswith("bert_base_tiny-")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"overrides": ["optimizer.learning_rate=2e-3"]}, ["run"]),
        ({"overrides": ["seed=5"]}, ["run"]),
        ({"overrides": ["data.tokenizer.vocab_size=500"]}, ["vocab", "corpus", "run"]),
        ({"inputs": "another text"}, ["text", "vocab", "corpus", "run"]),
        ({"overrides": ["eval_tasks=[]"]}, []),
    ],
)
def test_changed_recipe_or_text_changes_only_dependent_stages(tmp_path: Path, changes, expected):
    changed = make_plan(tmp_path, *changes.get("overrides", ()), inputs=changes.get("inputs", "the text"))
    assert changed_stages(make_plan(tmp_path), changed) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"word_segmentation": "jieba"}, ["corpus", "run"]),
        ({"sentence_boundaries": "lines"}, ["corpus", "run"]),
        ({"clean": Clean(max_unreadable_ratio=0.5)}, []),
        ({"clean": Clean(min_chars=5)}, ["text", "vocab", "corpus", "run"]),
    ],
)
def test_changed_corpus_key_changes_only_dependent_stages(tmp_path: Path, change, expected):
    corpus = load_corpus("demo")
    changed = plan(load_tiny(), replace(corpus, **change), "the text", tmp_path)
    assert changed_stages(plan(load_tiny(), corpus, "the text", tmp_path), changed) == expected


def test_changed_vocabulary_file_changes_dependent_stages(tmp_path: Path):
    file = tmp_path / "vocab.txt"
    file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    before = make_plan(tmp_path, f"data.tokenizer.path={file}")
    assert changed_stages(before, make_plan(tmp_path, f"data.tokenizer.path={file}")) == []
    file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    assert changed_stages(before, make_plan(tmp_path, f"data.tokenizer.path={file}")) == ["vocab", "corpus", "run"]


@pytest.mark.parametrize(
    ("stage", "name"), [("text", "text.json"), ("vocab", "specials.json"), ("corpus", "manifest.json")]
)
def test_stage_without_its_commit_file_is_unfinished(tmp_path: Path, stage: str, name: str):
    planned_stage = getattr(make_plan(tmp_path), stage)
    finish_stage(planned_stage)
    assert planned_stage.state == "done"
    (planned_stage.folder / name).unlink()
    assert planned_stage.state == "begun"


def test_recipes_with_one_vocabulary_share_a_corpus(tmp_path: Path):
    bert = make_plan(tmp_path)
    spans = make_plan(tmp_path, "masking={kind: span}", "data.packing={kind: segment_pair, negatives: swapped}")
    assert changed_stages(bert, spans) == ["run"]


def test_stage_is_due_then_begun_then_done(tmp_path: Path):
    stage = make_plan(tmp_path).corpus
    assert stage.state == "due"
    stage.folder.mkdir(parents=True)
    assert stage.state == "begun"
    (stage.folder / "manifest.json").write_text("{}")
    stage.finish()
    assert stage.state == "done"
    assert list(stage.describe()) == [f"corpus: done, skipped ({stage.folder})"]


def test_corpus_without_its_manifest_is_unfinished(tmp_path: Path):
    stage = make_plan(tmp_path).corpus
    finish_stage(stage)
    (stage.folder / "manifest.json").unlink()
    assert stage.state == "begun"


def test_directory_with_other_causes_is_reported_with_the_differing_keys(tmp_path: Path):
    before = make_plan(tmp_path).run
    finish_stage(before)
    after = make_plan(tmp_path, "optimizer.learning_rate=2e-3", "model.num_hidden_layers=3").run
    assert after.find_others() == [
        (before.folder, ["recipe.model.num_hidden_layers", "recipe.optimizer.learning_rate"])
    ]
    assert list(after.describe())[1] == (
        f"run: {before.folder.name} was made earlier with other values of recipe.model.num_hidden_layers, "
        "recipe.optimizer.learning_rate; it is kept"
    )
    assert before.state == "done"


def test_several_earlier_scores_are_reported_in_one_line(tmp_path: Path):
    """Each earlier score once had its own line, repeated for each new one."""
    earlier, due = (
        [JobStage("scores", tmp_path, label, {"labels": labels}) for label in ("sst2", "cola") for labels in numbers]
        for numbers in ((1, 2), (3, 4))
    )
    for stage in earlier:
        finish_stage(stage)
    assert [line for stage in due for line in stage.describe()] == [f"scores: to do ({stage.folder})" for stage in due]
    assert other_values(due) == "scores: 4 directories were made earlier with other values of labels; they are kept"
    assert other_values(due[:1] + earlier[:1]) == (
        f"scores: {earlier[1].folder.name} was made earlier with other values of labels; it is kept"
    )
    assert other_values(earlier) == ""


def test_other_trials_of_a_score_are_reported_as_options(tmp_path: Path):
    """The message once had keys such as cells.1.how.beta2, because one evaluation had more trials."""

    def make_scores(*seeds: int, **how: object) -> JobStage:
        trials = [{"start": "pretrained", "how": {"beta2": 0.98, "seed": seed, "length": 64, **how}} for seed in seeds]
        return JobStage(
            "scores", tmp_path, "my", {"data": "d", "length": 64, "chosen_on": "", "cells": trials}, {}, name_options
        )

    finish_stage(before := make_scores(0, 1, max_steps=60, early_stopping_patience=2))
    words = f"scores: {before.folder.name} was made earlier with other values of "
    now = make_scores(0, max_steps=0, early_stopping_patience=0)
    assert other_values([now]) == f"{words}early_stopping_patience, max_steps, num_seeds; it is kept"
    finish_stage(JobStage("scores", tmp_path, "odd", {"cells": ["h"]}))  # of another version
    assert "other values of the trials; it" in other_values(
        [JobStage("scores", tmp_path, "odd", {"cells": []}, {}, name_options)]
    )


def test_stage_mark_records_the_causes(tmp_path: Path):
    stage = make_plan(tmp_path).text
    finish_stage(stage)
    mark = json.loads((stage.folder / MARK).read_text())
    assert mark == {"stage": "text", "hash": stage.hash, "causes": stage.causes}


def test_causes_are_compared_after_a_json_round_trip(tmp_path: Path):
    stage = JobStage("text", tmp_path, "x", {"a": [1, 2]})
    finish_stage(stage)
    assert JobStage("text", tmp_path, "x", {"a": [1, 2]}).find_others() == []


def test_stage_made_by_other_code_is_reported_with_the_changed_files(tmp_path: Path):
    stage = make_plan(tmp_path).run
    assert "preprocessing/masking/token.py" in stage.code
    assert {"training/losses/masked_tokens.py", "training/losses/heads/masked_tokens.py"} <= set(stage.code)
    stage.begin()
    (stage.folder / "checkpoints/step-000000002").mkdir(parents=True)
    assert stage.find_changed_code() == []
    edited = replace(stage, code={**stage.code, "preprocessing/masking/token.py": "edited"})
    assert list(edited.describe())[1] == (
        "run: made by different code (preprocessing/masking/token.py changed since); to make it again, delete its "
        "directory"
    )
    edited.finish()  # a resumed run keeps its first code record
    assert edited.find_changed_code() == ["preprocessing/masking/token.py"]
    edited.begin(anew=True)
    assert edited.find_changed_code() == []


def test_run_that_stopped_before_its_first_checkpoint_takes_the_code_of_the_next_attempt(tmp_path: Path):
    stage = make_plan(tmp_path).run
    stage.begin()
    mended = replace(stage, code={**stage.code, "preprocessing/masking/token.py": "mended"})
    assert list(mended.describe()) == [f"run: incomplete, resumes ({stage.folder})"]
    mended.begin()
    (stage.folder / "checkpoints/step-000000002").mkdir(parents=True)
    assert mended.find_changed_code() == []
    assert stage.find_changed_code() == ["preprocessing/masking/token.py"]


def test_damaged_code_record_is_reported(tmp_path: Path):
    stage = make_plan(tmp_path).run
    stage.begin()
    (stage.folder / "checkpoints/step-000000002").mkdir(parents=True)
    (stage.folder / "code.json").write_bytes(b'{"a": "\x80')
    assert stage.find_changed_code() == ["code.json"]


def test_each_stage_records_the_code_of_its_own_parts(tmp_path: Path):
    text, vocab, corpus, run = make_plan(tmp_path)
    assert {file.split("/")[1] for file in text.code} == {"readers"}
    assert {file.split("/")[1] for file in vocab.code} == {"tokenization"}
    assert set(corpus.code) == set(text.code) | set(vocab.code)
    assert not set(run.code) & set(corpus.code)
