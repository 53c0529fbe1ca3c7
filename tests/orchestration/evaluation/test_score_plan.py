"""Planning an evaluation: tasks and options that cannot be evaluated give one line each before anything runs."""

import json
import logging
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pytest

from orchestration.cli import main
from orchestration.config import load, tasks_from_words
from orchestration.evaluation import eval_target, score_plan
from orchestration.evaluation.eval_request import EvalRequest, EvalTarget
from orchestration.evaluation.score_plan import plan_supported_tasks, plan_tasks
from orchestration.jobs import JobFlags, cluster_of, stages
from preprocessing.errors import BadInput, DataError
from tests.orchestration.evaluation.runs import (
    QUICK,
    make_request,
    score_one,
    write_questions,
    write_transformers_directory,
)
from training.evaluation.tasks import TaskFile
from training.run import load_run


def test_sequences_longer_than_in_pretraining_give_a_warning(
    target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = replace(target, longest_row=64)
    (plan,) = plan_tasks(short, make_request(data))
    message = "task sst2: its sequences have up to 128 tokens, but the sequences of the pretraining had 64: "
    message += "later positions start untrained"
    assert message in caplog.text
    assert {cell.length for cell in plan.cells} == {128}
    caplog.clear()
    (cut,) = plan_tasks(short, make_request(data, max_seq_length=64))
    assert ({cell.length for cell in cut.cells}, "positions" in caplog.text) == ({64}, False)
    assert cut.stage.folder != plan.stage.folder
    for grid in ("roberta", "bert"):  # one of these grids sets its own length
        (plan,) = plan_tasks(short, make_request(data, grid=grid, max_seq_length=48))
        assert {cell.how["length"] for cell in plan.cells} == {48}


LONG: Final = """
name: long
description: what stands behind a long text
citation: test
files: FILES
task: KIND
"""


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ('{kind: loglikelihood_choice, context: "{text}", choices: [" good"]}', "its sequences have up to 41 tokens"),
        (
            '{kind: loglikelihood_choice, context: "{text}", choices: [" good"], num_fewshot: 1}',
            "its sequences have up to 50 tokens",
        ),
        ("{kind: context_length, lengths: [16, 32]}", "its windows have 64 tokens"),
        ("{kind: perplexity, window: 48}", "its windows have 48 tokens"),
        (
            '{kind: generation, prompt: "{text}", answer: good, generation: {max_new_tokens: 8, zero_shot: true}}',
            "questions and answers have up to 48 tokens",
        ),
    ],
)
def test_untrained_positions_give_a_warning_for_every_task_type(
    target: EvalTarget, tmp_path: Path, kind: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Word perplexity was once a quarter higher at untrained positions, without a warning."""
    for name, times in (("train", 4), ("test", 4), ("long", 20)):
        rows = [json.dumps({"text": "the film " * times}) + "\n"] * 3
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    of = {"train": "train", "test": "long"}
    files = {split: {"paths": [f"{name}.jsonl"], "format": {"kind": "jsonl"}} for split, name in of.items()}
    (tmp_path / "long.yaml").write_text(LONG.replace("FILES", json.dumps(files)).replace("KIND", kind))
    asked = make_request(tmp_path, f"{tmp_path}/long.yaml")
    plan_tasks(target, asked)
    assert "positions" not in caplog.text
    for row in (32, 40):
        caplog.clear()
        (plan,) = plan_tasks(replace(target, longest_row=row), asked)
        note = plan.notes[0]
        assert note.startswith(
            f"task long: {message}, but the sequences of the pretraining had {row}: later positions are untrained; "
        )
        assert note in caplog.text
    (plan,) = plan_tasks(replace(target, longest_row=64), asked)
    assert not any("positions" in note for note in plan.notes)


def test_perplexity_window_is_limited_to_the_trained_length(target: EvalTarget, tmp_path: Path) -> None:
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2/wiki.test.tokens").write_text("the film is good\n" * 40)
    (whole,), (plan,) = (
        plan_tasks(one, make_request(tmp_path, "wikitext2")) for one in (target, replace(target, longest_row=16))
    )
    assert (whole.kind.window, plan.kind.window, plan.notes) == (0, 16, ())
    assert (
        "windows have 16 tokens, like the longest sequence of the pretraining: later positions are untrained"
        in plan.remarks
    )
    assert plan.stage.hash != whole.stage.hash
    (cell,) = plan.cells
    assert isinstance(cell.task, TaskFile)
    assert cell.task.task == plan.kind
    (given,) = plan_tasks(replace(target, longest_row=16), make_request(tmp_path, "wikitext2_sliding"))
    assert given.kind.window == 256  # a window set by the task is kept, and the user is warned
    assert (
        "task wikitext2_sliding: its windows have 256 tokens, but the sequences of the pretraining had 16"
        in given.notes[0]
    )


@pytest.mark.parametrize("labels", [(1,), (200, -5)])
def test_label_counts_below_two_are_refused(labels: tuple[int, ...], data: Path) -> None:
    with pytest.raises(BadInput, match=r"invalid --max-train-samples: got .*, expected integers of at least 2"):
        make_request(data, max_train_samples=labels)


def test_eval_command_accepts_a_transformers_directory(
    data: Path, tmp_path: Path, trial_names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_transformers_directory(tmp_path / "bert-base-uncased"))
    how = ["--output-dir", str(tmp_path / "out"), "--progress", "none"]
    assert main(["eval", folder, *how]) == 2
    assert "has no list of tasks; set --tasks (`sesame tasks` lists them)" in capsys.readouterr().err
    quick = [
        "--task-data-dir",
        str(data),
        "--learning-rates",
        "3e-3",
        "--batch-sizes",
        "8",
        "--epochs",
        "1",
        "--num-seeds",
        "1",
    ]
    assert main(["eval", folder, "--tasks", "sst2", *how, *quick, "--json"]) == 0
    message = capsys.readouterr()
    found = json.loads(message.out)
    assert Path(found["folder"]).parent == tmp_path / "out" / "evals"
    assert [(score["task"], score["paper"]) for score in found["scores"]] == [("sst2", {"glue.sst2 (test)": 93.5})]
    assert trial_names == ["sst2, pretrained, 0.003 x 8 x 1 epoch, seed 0"]
    assert "sesame export" not in message.err + message.out
    refused = ["eval", folder, "--tasks", "blimp", *how, "--task-data-dir", str(data / "b"), "--grid", "nonsense"]
    rows = {"sentence_good": "it is", "sentence_bad": "is it", "UID": "x", "field": "y", "linguistics_term": "z"}
    (data / "b/blimp/data").mkdir(parents=True)
    (data / "b/blimp/data/x.jsonl").write_text(json.dumps(rows) + "\n")
    assert main(refused) == 2
    message = "sesame: --grid: no effect on blimp (no fine-tuning, or fine-tuning on held-out text,"
    assert message in capsys.readouterr().err


def test_short_max_seq_length_and_missing_data_directory_are_refused(data: Path) -> None:
    with pytest.raises(BadInput, match="invalid --max-seq-length: got 4, expected at least 8 tokens"):
        make_request(data, max_seq_length=4)
    with pytest.raises(BadInput, match=r"^--task-data-dir /nope: no such directory; check the path$"):
        make_request(Path("/nope"), tasks="glue")


def test_python_requests_are_checked_like_command_options(target: EvalTarget, data: Path) -> None:
    for name in ("max_steps", "num_seeds"):
        with pytest.raises(
            BadInput, match=f"^invalid --{name.replace('_', '-')}: got -1, expected an integer of at least 0; raise it$"
        ):
            make_request(data, **{name: -1})
    with pytest.raises(
        BadInput, match=r"^task sst2, grid .*: invalid frozen_features: got 'mean', expected none or last or "
    ):
        plan_tasks(target, make_request(data, frozen_features="mean"))


def test_option_without_any_effect_is_refused_and_a_partial_effect_is_noted(
    target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = EvalRequest(tasks=tasks_from_words("sst2"), task_data_dir=data)
    (sst2,) = plan_tasks(target, asked)
    blimp, source = (
        replace(sst2, task="blimp", cells=[replace(sst2.cells[0], tuning=None)]),
        replace(sst2, task="source_classification", kind=None),
    )
    every: dict[str, Any] = {
        "grid": "bert",
        "learning_rates": (1e-3,),
        "batch_sizes": (8,),
        "epochs": (1.0,),
        "max_seq_length": 32,
    }
    every |= {"frozen_features": "last"}
    some: dict[str, Any] = {"max_steps": 2, "num_seeds": 2, "max_train_samples": (8,)}
    caplog.clear()
    # epochs and max_steps exclude each other
    score_plan.check_flags([sst2], replace(asked, **every | some | {"epochs": ()}))
    score_plan.check_flags([source], replace(asked, **some))
    score_plan.check_flags([blimp, source], asked)
    assert caplog.text == ""
    for name, value in every.items():
        with pytest.raises(BadInput, match=f"^--{name.replace('_', '-')}: no effect on blimp, source_classification "):
            score_plan.check_flags([blimp, source], replace(asked, **{name: value}))
    for name, value in some.items():
        with pytest.raises(BadInput, match=f"^--{name.replace('_', '-')}: no effect on blimp "):
            score_plan.check_flags([blimp], replace(asked, **{name: value}))
    score_plan.check_flags([sst2, blimp, source], replace(asked, learning_rates=(1e-3,), num_seeds=2))
    assert "--learning-rates: no effect on blimp, source_classification (" in caplog.text
    assert "--num-seeds: no effect on blimp (" in caplog.text
    caplog.clear()
    score_plan.check_flags([sst2, blimp], replace(asked, learning_rates=(1e-3,), batch_sizes=(8,), epochs=(1.0,)))
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "--learning-rates, --batch-sizes, --epochs: no effect on blimp"
    ]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("train.tsv", "has no train split; looked for glue/SST-2/train.tsv"),
        ("dev.tsv", "has no labeled dev or test split; looked for glue/SST-2/dev.tsv"),
    ],
)
def test_missing_split_gives_a_one_line_error(target: EvalTarget, data: Path, missing: str, message: str) -> None:
    (data / "SST-2" / missing).unlink()
    with pytest.raises(BadInput, match=message) as caught:
        plan_tasks(target, make_request(data))
    assert "\n" not in str(caught.value)


def test_generation_task_requires_a_train_split_unless_zero_shot(
    target: EvalTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a model was once evaluated zero-shot without a warning, beside reported scores of fine-tuned models."""
    asked = EvalRequest(
        tasks=tasks_from_words("squad1_text"),
        task_data_dir=write_questions(tmp_path / "data"),
        learning_rates=(1e-3,),
        num_seeds=1,
    )
    assert [cell.tuning is not None for cell in plan_tasks(target, asked)[0].cells] == [True]
    (tmp_path / "data/train-v1.1.json").unlink()
    with pytest.raises(BadInput, match=r"^task squad1_text: .* has no train split; looked for .*zero_shot: true"):
        plan_tasks(target, asked)
    assert plan_supported_tasks(target, asked) == []  # as `sesame run` plans
    assert "left out: task squad1_text: " in caplog.text
    (task,) = asked.tasks
    zero_shot = replace(task.task, generation=replace(task.task.generation, zero_shot=True))  # type: ignore[union-attr]
    (plan,) = plan_tasks(target, replace(asked, tasks=[replace(task, task=zero_shot)]))  # type: ignore[type-var]
    assert [cell.tuning for cell in plan.cells] == [None]


@pytest.mark.parametrize(
    ("kind", "recipe", "message"),
    [
        ("{kind: perplexity}", "bert_base", "perplexity requires a causal language model, not an encoder;"),
        (
            "{kind: context_length}",
            "t5_base",
            "perplexity requires a causal language model, not an encoder_decoder;",
        ),
        (
            '{kind: generation, prompt: "{text}", answer: ""}',
            "bert_base",
            "an encoder generates text only after fine-tuning",
        ),
        (
            '{kind: generation, prompt: "{text}", answer: ""}',
            "electra_base",
            "a generator_discriminator does not generate text",
        ),
        ("{kind: perplexity}", "gpt2", ""),
        ("{kind: perplexity}", "xlnet_base", ""),
        ('{kind: generation, prompt: "{text}", answer: good}', "t5_base", ""),
    ],
)
def test_unsupported_task_type_is_refused_before_anything_runs(
    target: EvalTarget, tmp_path: Path, kind: str, recipe: str, message: str
) -> None:
    """The error once came after Ray had started, and the command exited with 0."""
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "the film"}) + "\n")
    files = {"test": {"paths": ["test.jsonl"], "format": {"kind": "jsonl"}}}
    (tmp_path / "long.yaml").write_text(LONG.replace("FILES", json.dumps(files)).replace("KIND", kind))
    run = load_run(target.folder) | {"model": asdict(load(recipe).model)}
    (target.folder / "pretrain.json").write_text(json.dumps(run))
    asked = make_request(tmp_path, f"{tmp_path}/long.yaml")
    if message:
        with pytest.raises(BadInput, match=f"^task long: {message}"):
            plan_tasks(target, asked)
    else:
        assert plan_tasks(target, asked)


@pytest.mark.parametrize("task", ["xsum", "cnndm"])
def test_sample_of_summaries_is_not_scored_as_the_test_split(target: EvalTarget, tmp_path: Path, task: str) -> None:
    row = {"document": "it is a film", "summary": "a film"} | {"article": "it is a film", "highlights": "a film"}
    for name in ("fixtures/hf/tests_samples/xsum/sample.json", "xsum/train.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    for name, member in (("cnn_dailymail/train.csv", ""), ("summaries/cnndm_sample.zip", "train_sample.csv")):
        (tmp_path / name).parent.mkdir(parents=True)
        write_table = f"{','.join(row)}\n{','.join(row.values())}\n"
        if member:
            zipfile.ZipFile(tmp_path / name, "w").writestr(member, write_table)
        else:
            (tmp_path / name).write_text(write_table)
    with pytest.raises(
        BadInput, match=f"task {task}: its score is computed on test, but .* has no labeled file of these"
    ):
        plan_tasks(target, make_request(tmp_path, task))


def test_train_split_requires_labels(target: EvalTarget, data: Path) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    unlabelled = replace(task.files["train"], columns={"label": ""})
    asked = replace(make_request(data), tasks=[replace(task, files={**task.files, "train": unlabelled})])
    message = r"looked for .*; train: none of its 24 questions has an answer \(the first is at .*train.tsv:2\); add .*"
    with pytest.raises(BadInput, match=rf"^task sst2: .* has no labeled train split; {message}$"):
        plan_tasks(target, asked)


def test_own_task_with_blank_answers_is_refused_with_its_directory(target: EvalTarget, tmp_path: Path) -> None:
    """The error once named the directory as "." and did not say that the answers are blank."""
    unlabeled = [{"id": str(n), "question": "what", "answers": [{"text": "", "answer_start": 0}]} for n in range(3)]
    (tmp_path / "h.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "so", "qas": unlabeled}]}]}))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.json").write_bytes((tmp_path / "h.json").read_bytes())
    split = ", ".join(f"{name}: {{paths: [{name}.json], format: {{kind: squad}}}}" for name in ("train", "dev"))
    (tmp_path / "mine.yaml").write_text(
        f"name: mine\ndescription: t\ncitation: s\nfiles: {{{split}}}\ntask: "
        f"{{kind: extractive_qa, squad_version: 1}}\n"
    )
    none = r"none of its 3 questions has an answer \(the first is at \S*{}.json:1\)"
    message = f"has no labeled train and no labeled dev or test split; train: {none.format('train')}; dev: "
    with pytest.raises(BadInput, match=f"^task mine: {tmp_path} {message}{none.format('dev')}; add the files"):
        plan_tasks(target, make_request(None, tasks=str(tmp_path / "mine.yaml")))


def test_missing_task_data_dir_is_named_as_the_remedy(target: EvalTarget) -> None:
    with pytest.raises(
        BadInput, match="task sst2: its files are not known; name the directory that has them with --task-data-dir"
    ):
        plan_tasks(target, make_request(None))


def test_tasks_without_files_are_skipped_with_one_line(
    target: EvalTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan_supported_tasks(target, make_request(None, tasks="glue,sst5,squad1")) == []
    assert caplog.text.count("left out: ") == 1
    assert "left out: glue, sst5, squad1: name the directory of their files with --task-data-dir DIR" in caplog.text


def test_invalid_label_skips_its_example_and_is_reported(
    target: EvalTarget, data: Path, trial_names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = data / "SST-2/train.tsv"
    file.write_text(file.read_text().replace("\t1\n", "\t7\n", 1))
    assert (
        score_one(target, make_request(data))
        .notes[0]
        .startswith("train: malformed rows are left out: SST-2/train.tsv:3: invalid 1: got '7', expected 0 or 1")
    )
    assert "task sst2, train: malformed rows are left out: SST-2/train.tsv:3: invalid 1: got '7'" in caplog.text


def write_table(path: Path, rows: int) -> None:
    lines = (f"the film is {number}\t{number % 2}" for number in range(rows))
    path.write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("test", "dev", "split"), [(1, 40, "dev"), (29, 30, "dev"), (1, 2, "dev"), (30, 40, "test"), (2, 20, "test")]
)
def test_small_test_split_is_not_the_main_score(
    test: int, dev: int, split: str, target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    task = replace(task, files={**task.files, "test": replace(task.files["dev"], paths=("SST-2/labelled.tsv",))})
    write_table(data / "SST-2/dev.tsv", dev)
    write_table(data / "SST-2/labelled.tsv", test)
    (plan,) = plan_tasks(target, replace(make_request(data), tasks=[task]))
    assert plan.split == split
    message = f"task sst2: its score is computed on dev ({dev} examples), because test has {test} labeled example"
    assert (message in caplog.text) == (split == "dev")
    assert (message in " ".join(plan.notes)) == (split == "dev")


def test_split_without_answers_is_reported(target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    hidden = replace(task.files["dev"], paths=("SST-2/hidden.tsv",))
    task = replace(task, files={**task.files, "test": hidden})
    (data / "SST-2/hidden.tsv").write_text("sentence\tlabel\nthe film\t-1\nthe book\t-1\n")
    (plan,) = plan_tasks(target, replace(make_request(data), tasks=[task]))
    assert (plan.split, [*plan.items]) == ("dev", ["train", "dev"])
    message = (
        "task sst2, test: none of its 2 questions has an answer (the first is at SST-2/hidden.tsv:2); this split is "
        "not scored"
    )
    assert message in caplog.text


def test_each_unavailable_task_has_its_own_error_line(target: EvalTarget, data: Path) -> None:
    with pytest.raises(BadInput) as caught:
        plan_tasks(target, make_request(data, tasks="rte,sst2,cola"))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["task rte", "task cola"]


def test_unavailable_tasks_of_a_recipe_are_skipped_and_reported(
    target: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plans = plan_supported_tasks(target, make_request(data, tasks="rte,sst2"))
    assert [plan.task for plan in plans] == ["sst2"]
    assert "left out: task rte: " in caplog.text


def test_malformed_examples_are_reported(
    target: EvalTarget, data: Path, trial_names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with (data / "SST-2/dev.tsv").open("a") as file:
        file.write("no label\n")
        file.write("nor here\n")
    with caplog.at_level(logging.WARNING):
        score = score_one(target, make_request(data))
    assert "task sst2, dev: malformed rows are left out: SST-2/dev.tsv:14" in caplog.text
    assert score.notes[0].startswith("dev: malformed rows are left out: SST-2/dev.tsv:14")
    page = (target.folder / "scores/table.md").read_text()
    assert "* sst2: dev: malformed rows are left out: SST-2/dev.tsv:14" in page
    assert "(and 1 more)" in page


def test_own_csv_file_is_a_task(target: EvalTarget, tmp_path: Path, trial_names: list[str]) -> None:
    rows = [f"the film number {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(60)]
    (tmp_path / "mine.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    # no task data directory
    asked = EvalRequest(tasks=tasks_from_words("", [f"{tmp_path}/mine.csv:text,label"]), **QUICK)
    score = score_one(target, asked)
    assert (score.task, score.split) == ("mine", "test")


def test_unfinished_run_is_refused(target: EvalTarget) -> None:
    (target.folder / stages.MARK).unlink()
    with pytest.raises(BadInput, match="this run is not finished; resume it with `sesame train`"):
        eval_target.subject_of(JobFlags(recipe=str(target.folder)))


def test_too_little_held_out_text_gives_one_line_for_each_task(
    target: EvalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_plan, "find_too_few", lambda corpus, tasks, labels: {t: f"{t}: few" for t in tasks})
    with pytest.raises(DataError, match="source_classification: few\nnext_sentence: few"):
        plan_tasks(target, make_request(None, tasks="source_classification,next_sentence"))


def test_trained_run_refuses_recipe_keys_and_accepts_cluster_keys(target: EvalTarget, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput,
        match=r"optimizer.learning_rate=1: .* is already trained, and its recipe cannot change; leave this key out",
    ):
        eval_target.subject_of(
            JobFlags(recipe=str(target.folder), overrides=("optimizer.learning_rate=1", "cluster.num_workers=2"))
        )
    for name, value in {
        "scale": "tiny",
        "data": ("/nosuch",),
        "holdout_ratio": 0.3,
        "seed": 3,
    }.items():  # these options select another run
        option = f"--{name.replace('_', '-')}"
        for folder in (target.folder, write_transformers_directory(tmp_path / name)):
            with pytest.raises(
                BadInput,
                match=f"^{option}: {folder} is already trained, and its recipe cannot change; leave this option out$",
            ):
                eval_target.subject_of(JobFlags(recipe=str(folder), **{name: value}))  # type: ignore[arg-type]
    given = JobFlags(
        recipe=str(target.folder), overrides=("cluster.finetuning_workers=2", "cluster.engine.cpu_threads=3")
    )
    assert eval_target.subject_of(given) == target
    cluster = cluster_of(given)
    assert (cluster.finetuning_workers, cluster.engine.cpu_threads) == (2, 3)
    with pytest.raises(BadInput, match=r"invalid cluster\.finetuning_workers: got 0, expected at least 1 worker"):
        cluster_of(JobFlags(recipe="bert_base", overrides=("cluster.finetuning_workers=0",)))
