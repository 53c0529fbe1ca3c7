"""Stages: folders named after the causes of their content; done, begun, due, and those of other causes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import load, load_corpus
from orchestration.jobs import JobStage
from orchestration.jobs.stages import COMMITS, MARK, other_values, plan
from pipeline.spec import Clean


def tiny(*overrides):
    return load("bert_base", overrides, scale="tiny")


def planned(out: Path, *overrides, inputs="the text"):
    return plan(tiny(*overrides), load_corpus("demo"), inputs, out)


def folders(stages):
    return [stage.folder for stage in stages]


def finish(stage):
    stage.folder.mkdir(parents=True)
    for name in COMMITS.values():
        (stage.folder / name).write_text("{}")
    stage.finish()


def differs(before, after):
    return [stage.name for stage, other in zip(before, after, strict=True) if stage.folder != other.folder]


def test_the_same_job_has_the_same_folders_in_every_process(tmp_path: Path):
    assert folders(planned(tmp_path)) == folders(planned(tmp_path))
    assert planned(tmp_path).text.folder.parent == tmp_path / "text"
    assert planned(tmp_path).run.folder.name.startswith("bert_base_tiny-")


@pytest.mark.parametrize(
    ("changes", "redone"),
    [
        ({"overrides": ["optimizer.learning_rate=2e-3"]}, ["run"]),
        ({"overrides": ["seed=5"]}, ["run"]),
        ({"overrides": ["data.tokenizer.vocab_size=500"]}, ["vocab", "corpus", "run"]),
        ({"inputs": "another text"}, ["text", "vocab", "corpus", "run"]),
        ({"overrides": ["eval_tasks=[]"]}, []),
    ],
)
def test_a_change_touches_what_depends_on_it_and_nothing_else(tmp_path: Path, changes, redone):
    changed = planned(tmp_path, *changes.get("overrides", ()), inputs=changes.get("inputs", "the text"))
    assert differs(planned(tmp_path), changed) == redone


@pytest.mark.parametrize(
    ("change", "redone"),
    [
        ({"word_segmentation": "jieba"}, ["corpus", "run"]),
        ({"sentence_boundaries": "lines"}, ["corpus", "run"]),
        ({"clean": Clean(max_unreadable_ratio=0.5)}, []),
        ({"clean": Clean(min_chars=5)}, ["text", "vocab", "corpus", "run"]),
    ],
)
def test_a_key_of_the_corpus_touches_what_depends_on_it(tmp_path: Path, change, redone):
    corpus = load_corpus("demo")
    changed = plan(tiny(), replace(corpus, **change), "the text", tmp_path)
    assert differs(plan(tiny(), corpus, "the text", tmp_path), changed) == redone


def test_another_vocabulary_at_the_same_path_touches_what_depends_on_it(tmp_path: Path):
    file = tmp_path / "vocab.txt"
    file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    before = planned(tmp_path, f"data.tokenizer.path={file}")
    assert differs(before, planned(tmp_path, f"data.tokenizer.path={file}")) == []
    file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    assert differs(before, planned(tmp_path, f"data.tokenizer.path={file}")) == ["vocab", "corpus", "run"]


@pytest.mark.parametrize(
    ("stage", "name"), [("text", "text.json"), ("vocab", "specials.json"), ("corpus", "manifest.json")]
)
def test_a_stage_whose_commit_is_deleted_goes_on(tmp_path: Path, stage: str, name: str):
    found = getattr(planned(tmp_path), stage)
    finish(found)
    assert found.state == "done"
    (found.folder / name).unlink()
    assert found.state == "begun"


def test_one_corpus_serves_recipes_of_one_vocabulary(tmp_path: Path):
    bert = planned(tmp_path)
    spans = planned(tmp_path, "masking={kind: span}", "data.packing={kind: segment_pair, negatives: swapped}")
    assert differs(bert, spans) == ["run"]


def test_a_stage_is_due_then_begun_then_done(tmp_path: Path):
    stage = planned(tmp_path).corpus
    assert stage.state == "due"
    stage.folder.mkdir(parents=True)
    assert stage.state == "begun"
    (stage.folder / "manifest.json").write_text("{}")
    stage.finish()
    assert stage.state == "done"
    assert list(stage.describe()) == [f"corpus: done, skipped ({stage.folder})"]


def test_a_corpus_whose_manifest_was_deleted_is_made_again(tmp_path: Path):
    stage = planned(tmp_path).corpus
    finish(stage)
    (stage.folder / "manifest.json").unlink()
    assert stage.state == "begun"


def test_a_folder_of_other_causes_is_named_with_the_values_that_differ(tmp_path: Path):
    before = planned(tmp_path).run
    finish(before)
    after = planned(tmp_path, "optimizer.learning_rate=2e-3", "model.num_hidden_layers=3").run
    assert after.find_others() == [
        (before.folder, ["recipe.model.num_hidden_layers", "recipe.optimizer.learning_rate"])
    ]
    assert list(after.describe())[1] == (
        f"run: {before.folder.name} has other values of recipe.model.num_hidden_layers, "
        "recipe.optimizer.learning_rate; it stays unchanged"
    )
    assert before.state == "done"


def test_of_several_earlier_scores_there_is_one_line(tmp_path: Path):
    """It was one for each of them, times each that is due."""
    earlier, due = (
        [JobStage("scores", tmp_path, label, {"labels": labels}) for label in ("sst2", "cola") for labels in numbers]
        for numbers in ((1, 2), (3, 4))
    )
    for stage in earlier:
        finish(stage)
    assert [line for stage in due for line in stage.describe()] == [f"scores: to do ({stage.folder})" for stage in due]
    assert other_values(due) == "scores: 4 earlier directories have other values of labels; they stay unchanged"
    assert other_values(due[:1] + earlier[:1]) == (
        f"scores: {earlier[1].folder.name} has other values of labels; it stays unchanged"
    )
    assert other_values(earlier) == ""


def test_the_mark_tells_what_the_folder_was_made_from(tmp_path: Path):
    stage = planned(tmp_path).text
    finish(stage)
    mark = json.loads((stage.folder / MARK).read_text())
    assert mark == {"stage": "text", "hash": stage.hash, "causes": stage.causes}


def test_causes_are_compared_as_json_gives_them_back(tmp_path: Path):
    stage = JobStage("text", tmp_path, "x", {"a": [1, 2]})
    finish(stage)
    assert JobStage("text", tmp_path, "x", {"a": [1, 2]}).find_others() == []


def test_a_stage_of_other_code_is_named_with_its_files(tmp_path: Path):
    stage = planned(tmp_path).run
    assert "preprocessing/masking/token.py" in stage.code
    assert {"training/losses/masked_tokens.py", "training/losses/heads/masked_tokens.py"} <= set(stage.code)
    stage.begin()
    assert stage.changed_code() == []
    edited = replace(stage, code={**stage.code, "preprocessing/masking/token.py": "edited"})
    assert list(edited.describe())[1] == (
        "run: made by different code (preprocessing/masking/token.py changed since); to make it again, delete its "
        "directory"
    )
    edited.finish()  # a run that goes on keeps the code that it began with
    assert edited.changed_code() == ["preprocessing/masking/token.py"]
    edited.begin(anew=True)
    assert edited.changed_code() == []


def test_a_folder_whose_record_of_its_code_is_damaged_says_so(tmp_path: Path):
    stage = planned(tmp_path).run
    stage.begin()
    (stage.folder / "code.json").write_bytes(b'{"a": "\x80')
    assert stage.changed_code() == ["code.json"]


def test_each_stage_remembers_the_code_of_its_own_parts(tmp_path: Path):
    text, vocab, corpus, run = planned(tmp_path)
    assert {file.split("/")[1] for file in text.code} == {"readers"}
    assert {file.split("/")[1] for file in vocab.code} == {"tokenization"}
    assert set(corpus.code) == set(text.code) | set(vocab.code)
    assert not set(run.code) & set(corpus.code)
