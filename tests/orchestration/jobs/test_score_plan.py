"""What an evaluation is asked for, and what of it cannot be done: one line each, before anything runs."""

import json
import logging
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pytest

from orchestration.cli import main
from orchestration.config import load
from orchestration.jobs import JobFlags, cluster_of, eval_target, score_plan, stages
from orchestration.jobs.eval_request import EvalRequest, EvalTarget, tasks_from_words
from orchestration.jobs.score_plan import plan_supported_tasks, plan_tasks
from preprocessing.errors import BadInput, DataError
from tests.orchestration.jobs.runs import (
    QUICK,
    folder_of_transformers,
    questions,
    scored,
    wanted,
)
from training.run import load_run
from training.tasks import TaskFile


def test_rows_that_are_longer_than_those_of_the_pretraining_are_told(
    net: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = replace(net, longest_row=64)
    (plan,) = plan_tasks(short, wanted(data))
    said = "task sst2: its sequences have up to 128 tokens, but the sequences of the pretraining had 64: "
    said += "later positions start untrained"
    assert said in caplog.text
    assert {cell.length for cell in plan.cells} == {128}
    caplog.clear()
    (cut,) = plan_tasks(short, wanted(data, max_seq_length=64))
    assert ({cell.length for cell in cut.cells}, "positions" in caplog.text) == ({64}, False)
    assert cut.stage.folder != plan.stage.folder
    for grid in ("roberta", "bert"):  # one says its own length
        (plan,) = plan_tasks(short, wanted(data, grid=grid, max_seq_length=48))
        assert {cell.how["length"] for cell in plan.cells} == {48}


LONG: Final = """
name: long
description: what stands behind a long text
citation: test
files: FILES
task: KIND
"""


@pytest.mark.parametrize(
    ("kind", "said"),
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
def test_positions_that_were_never_trained_are_told_however_a_net_is_asked(
    net: EvalTarget, tmp_path: Path, kind: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Word perplexity was a quarter higher for them, without a word."""
    for name, times in (("train", 4), ("test", 4), ("long", 20)):
        rows = [json.dumps({"text": "the film " * times}) + "\n"] * 3
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    of = {"train": "train", "test": "long"}
    files = {split: {"paths": [f"{name}.jsonl"], "format": {"kind": "jsonl"}} for split, name in of.items()}
    (tmp_path / "long.yaml").write_text(LONG.replace("FILES", json.dumps(files)).replace("KIND", kind))
    asked = wanted(tmp_path, f"{tmp_path}/long.yaml")
    plan_tasks(net, asked)
    assert "positions" not in caplog.text
    for row in (32, 40):
        caplog.clear()
        (plan,) = plan_tasks(replace(net, longest_row=row), asked)
        note = plan.notes[0]
        assert note.startswith(
            f"task long: {said}, but the sequences of the pretraining had {row}: later positions are untrained; "
        )
        assert note in caplog.text
    (plan,) = plan_tasks(replace(net, longest_row=64), asked)
    assert not any("positions" in note for note in plan.notes)


def test_a_perplexity_reads_as_many_tokens_at_once_as_were_trained(net: EvalTarget, tmp_path: Path) -> None:
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2/wiki.test.tokens").write_text("the film is good\n" * 40)
    (whole,), (plan,) = (plan_tasks(one, wanted(tmp_path, "wikitext2")) for one in (net, replace(net, longest_row=16)))
    assert (whole.kind.window, plan.kind.window, plan.notes) == (0, 16, ())
    assert (
        "windows have 16 tokens, like the longest sequence of the pretraining: later positions are untrained"
        in plan.remarks
    )
    assert plan.stage.hash != whole.stage.hash
    (cell,) = plan.cells
    assert isinstance(cell.task, TaskFile)
    assert cell.task.task == plan.kind
    (given,) = plan_tasks(replace(net, longest_row=16), wanted(tmp_path, "wikitext2_sliding"))
    assert given.kind.window == 256  # what a task says stays, and is told
    assert (
        "task wikitext2_sliding: its windows have 256 tokens, but the sequences of the pretraining had 16"
        in given.notes[0]
    )


@pytest.mark.parametrize("labels", [(1,), (200, -5)])
def test_numbers_of_labels_below_two_are_one_line(labels: tuple[int, ...], data: Path) -> None:
    with pytest.raises(BadInput, match=r"invalid --max-train-samples: got .*, expected integers of at least 2"):
        wanted(data, max_train_samples=labels)


def test_the_verb_on_a_folder_of_transformers(
    data: Path, tmp_path: Path, done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(folder_of_transformers(tmp_path / "bert-base-uncased"))
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
        "--max-steps",
        "2",
        "--num-seeds",
        "1",
    ]
    assert main(["eval", folder, "--tasks", "sst2", *how, *quick, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert Path(found["folder"]).parent == tmp_path / "out" / "evals"
    assert [(score["task"], score["paper"]) for score in found["scores"]] == [("sst2", {"glue.sst2 (test)": 93.5})]
    assert done == ["sst2, pretrained, 0.003 x 8 x 2 steps, seed 0"]
    assert "sesame export" not in said.err + said.out
    refused = ["eval", folder, "--tasks", "blimp", *how, "--task-data-dir", str(data / "b"), "--grid", "nonsense"]
    rows = {"sentence_good": "it is", "sentence_bad": "is it", "UID": "x", "field": "y", "linguistics_term": "z"}
    (data / "b/blimp/data").mkdir(parents=True)
    (data / "b/blimp/data/x.jsonl").write_text(json.dumps(rows) + "\n")
    assert main(refused) == 2
    said = "sesame: --grid: no effect on blimp (no fine-tuning, or fine-tuning on held-out text,"
    assert said in capsys.readouterr().err


def test_a_row_of_too_few_tokens_and_a_folder_that_is_not_there_are_one_line(data: Path) -> None:
    with pytest.raises(BadInput, match="invalid --max-seq-length: got 4, expected at least 8 tokens"):
        wanted(data, max_seq_length=4)
    with pytest.raises(BadInput, match=r"^--task-data-dir /nope: no such directory; check the path$"):
        wanted(Path("/nope"), tasks="glue")


def test_what_python_gives_is_checked_as_what_the_command_gives(net: EvalTarget, data: Path) -> None:
    for name in ("max_steps", "num_seeds"):
        with pytest.raises(
            BadInput, match=f"^invalid --{name.replace('_', '-')}: got -1, expected an integer of at least 0; raise it$"
        ):
            wanted(data, **{name: -1})
    with pytest.raises(
        BadInput, match=r"^task sst2, grid .*: invalid frozen_features: got 'mean', expected none or last or "
    ):
        plan_tasks(net, wanted(data, frozen_features="mean"))


def test_a_flag_that_no_task_obeys_is_refused_and_one_that_some_do_not_is_told(
    net: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = EvalRequest(tasks=tasks_from_words("sst2"), task_data_dir=data)
    (sst2,) = plan_tasks(net, asked)
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
    score_plan.check_flags([sst2], replace(asked, **every | some | {"epochs": ()}))  # or steps, one of the two
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
    ("missing", "said"),
    [
        ("train.tsv", "has no train split; looked for glue/SST-2/train.tsv"),
        ("dev.tsv", "has no labeled dev or test split; looked for glue/SST-2/dev.tsv"),
    ],
)
def test_a_missing_split_is_one_line(net: EvalTarget, data: Path, missing: str, said: str) -> None:
    (data / "SST-2" / missing).unlink()
    with pytest.raises(BadInput, match=said) as caught:
        plan_tasks(net, wanted(data))
    assert "\n" not in str(caught.value)


def test_a_net_that_is_to_learn_to_write_wants_something_to_learn_from(
    net: EvalTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was asked as it is, without a word, and stood beside figures of nets that had learned."""
    asked = EvalRequest(
        tasks=tasks_from_words("squad1_text"),
        task_data_dir=questions(tmp_path / "data"),
        learning_rates=(1e-3,),
        num_seeds=1,
    )
    assert [cell.tuning is not None for cell in plan_tasks(net, asked)[0].cells] == [True]
    (tmp_path / "data/train-v1.1.json").unlink()
    with pytest.raises(BadInput, match=r"^task squad1_text: .* has no train split; looked for .*zero_shot: true"):
        plan_tasks(net, asked)
    assert plan_supported_tasks(net, asked) == []  # `sesame run`
    assert "left out: task squad1_text: " in caplog.text
    (task,) = asked.tasks
    zero_shot = replace(task.task, generation=replace(task.task.generation, zero_shot=True))  # type: ignore[union-attr]
    (plan,) = plan_tasks(net, replace(asked, tasks=[replace(task, task=zero_shot)]))  # type: ignore[type-var]
    assert [cell.tuning for cell in plan.cells] == [None]


@pytest.mark.parametrize(
    ("kind", "trunk", "said"),
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
def test_what_a_net_cannot_do_is_one_line_before_anything_runs(
    net: EvalTarget, tmp_path: Path, kind: str, trunk: str, said: str
) -> None:
    """It was told once Ray had begun, and the command ended with 0."""
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "the film"}) + "\n")
    files = {"test": {"paths": ["test.jsonl"], "format": {"kind": "jsonl"}}}
    (tmp_path / "long.yaml").write_text(LONG.replace("FILES", json.dumps(files)).replace("KIND", kind))
    run = load_run(net.folder) | {"model": asdict(load(trunk).model)}
    (net.folder / "pretrain.json").write_text(json.dumps(run))
    asked = wanted(tmp_path, f"{tmp_path}/long.yaml")
    if said:
        with pytest.raises(BadInput, match=f"^task long: {said}"):
            plan_tasks(net, asked)
    else:
        assert plan_tasks(net, asked)


@pytest.mark.parametrize("task", ["xsum", "cnndm"])
def test_a_sample_of_summaries_is_no_score_beside_the_papers(net: EvalTarget, tmp_path: Path, task: str) -> None:
    row = {"document": "it is a film", "summary": "a film"} | {"article": "it is a film", "highlights": "a film"}
    for name in ("fixtures/hf/tests_samples/xsum/sample.json", "xsum/train.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    for name, member in (("cnn_dailymail/train.csv", ""), ("summaries/cnndm_sample.zip", "train_sample.csv")):
        (tmp_path / name).parent.mkdir(parents=True)
        table = f"{','.join(row)}\n{','.join(row.values())}\n"
        if member:
            zipfile.ZipFile(tmp_path / name, "w").writestr(member, table)
        else:
            (tmp_path / name).write_text(table)
    with pytest.raises(
        BadInput, match=f"task {task}: its score is computed on test, but .* has no labeled file of these"
    ):
        plan_tasks(net, wanted(tmp_path, task))


def test_a_split_to_learn_from_wants_labels(net: EvalTarget, data: Path) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    unlabelled = replace(task.files["train"], columns={"label": ""})
    asked = replace(wanted(data), tasks=[replace(task, files={**task.files, "train": unlabelled})])
    said = r"looked for .*; train: none of its 24 questions has an answer \(the first is at .*train.tsv:2\); add .*"
    with pytest.raises(BadInput, match=rf"^task sst2: .* has no labeled train split; {said}$"):
        plan_tasks(net, asked)


def test_an_own_task_whose_answers_to_learn_from_are_kept_back_is_named_with_its_folder(
    net: EvalTarget, tmp_path: Path
) -> None:
    """The folder was ".", and that the answers are blank was not said."""
    questions = [{"id": str(n), "question": "what", "answers": [{"text": "", "answer_start": 0}]} for n in range(3)]
    (tmp_path / "h.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "so", "qas": questions}]}]}))
    for name in ("train", "dev"):
        (tmp_path / f"{name}.json").write_bytes((tmp_path / "h.json").read_bytes())
    split = ", ".join(f"{name}: {{paths: [{name}.json], format: {{kind: squad}}}}" for name in ("train", "dev"))
    (tmp_path / "mine.yaml").write_text(
        f"name: mine\ndescription: t\ncitation: s\nfiles: {{{split}}}\ntask: "
        f"{{kind: extractive_qa, squad_version: 1}}\n"
    )
    none = r"none of its 3 questions has an answer \(the first is at \S*{}.json:1\)"
    said = f"has no labeled train and no labeled dev or test split; train: {none.format('train')}; dev: "
    with pytest.raises(BadInput, match=f"^task mine: {tmp_path} {said}{none.format('dev')}; add the files"):
        plan_tasks(net, wanted(None, tasks=str(tmp_path / "mine.yaml")))


def test_without_a_folder_of_data_the_option_is_named(net: EvalTarget) -> None:
    with pytest.raises(
        BadInput, match="task sst2: its files are not known; name the directory that has them with --task-data-dir"
    ):
        plan_tasks(net, wanted(None))


def test_tasks_without_files_are_left_out_in_one_line(
    net: EvalTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan_supported_tasks(net, wanted(None, tasks="glue,sst5,squad1")) == []
    assert caplog.text.count("left out: ") == 1
    assert "left out: glue, sst5, squad1: name the directory of their files with --task-data-dir DIR" in caplog.text


def test_a_wrong_label_of_many_costs_its_row_and_is_named(
    net: EvalTarget, data: Path, done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = data / "SST-2/train.tsv"
    file.write_text(file.read_text().replace("\t1\n", "\t7\n", 1))
    assert (
        scored(net, wanted(data))
        .notes[0]
        .startswith("train: malformed rows are left out: SST-2/train.tsv:3: invalid 1: got '7', expected 0 or 1")
    )
    assert "task sst2, train: malformed rows are left out: SST-2/train.tsv:3: invalid 1: got '7'" in caplog.text


def table(path: Path, rows: int) -> None:
    lines = (f"the film is {number}\t{number % 2}" for number in range(rows))
    path.write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("test", "dev", "split"), [(1, 40, "dev"), (29, 30, "dev"), (1, 2, "dev"), (30, 40, "test"), (2, 20, "test")]
)
def test_a_test_split_of_a_few_rows_is_no_headline(
    test: int, dev: int, split: str, net: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    task = replace(task, files={**task.files, "test": replace(task.files["dev"], paths=("SST-2/labelled.tsv",))})
    table(data / "SST-2/dev.tsv", dev)
    table(data / "SST-2/labelled.tsv", test)
    (plan,) = plan_tasks(net, replace(wanted(data), tasks=[task]))
    assert plan.split == split
    said = f"task sst2: its score is computed on dev ({dev} examples), because test has {test} labeled example"
    assert (said in caplog.text) == (split == "dev")
    assert (said in " ".join(plan.notes)) == (split == "dev")


def test_a_split_whose_answers_are_kept_back_is_named(
    net: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = tasks_from_words("sst2")
    assert not isinstance(task, str)
    hidden = replace(task.files["dev"], paths=("SST-2/hidden.tsv",))
    task = replace(task, files={**task.files, "test": hidden})
    (data / "SST-2/hidden.tsv").write_text("sentence\tlabel\nthe film\t-1\nthe book\t-1\n")
    (plan,) = plan_tasks(net, replace(wanted(data), tasks=[task]))
    assert (plan.split, [*plan.items]) == ("dev", ["train", "dev"])
    said = (
        "task sst2, test: none of its 2 questions has an answer (the first is at SST-2/hidden.tsv:2); this split is "
        "not scored"
    )
    assert said in caplog.text


def test_every_task_that_cannot_be_done_is_a_line(net: EvalTarget, data: Path) -> None:
    with pytest.raises(BadInput) as caught:
        plan_tasks(net, wanted(data, tasks="rte,sst2,cola"))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["task rte", "task cola"]


def test_of_the_tasks_of_a_recipe_those_that_cannot_be_done_are_left_out_with_a_word(
    net: EvalTarget, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plans = plan_supported_tasks(net, wanted(data, tasks="rte,sst2"))
    assert [plan.task for plan in plans] == ["sst2"]
    assert "left out: task rte: " in caplog.text


def test_malformed_rows_are_named(
    net: EvalTarget, data: Path, done: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with (data / "SST-2/dev.tsv").open("a") as file:
        file.write("no label\n")
        file.write("nor here\n")
    with caplog.at_level(logging.WARNING):
        score = scored(net, wanted(data))
    assert "task sst2, dev: malformed rows are left out: SST-2/dev.tsv:14" in caplog.text
    assert score.notes[0].startswith("dev: malformed rows are left out: SST-2/dev.tsv:14")
    page = (net.folder / "scores/table.md").read_text()
    assert "* sst2: dev: malformed rows are left out: SST-2/dev.tsv:14" in page
    assert "(and 1 more)" in page


def test_a_table_of_ones_own_is_a_task(net: EvalTarget, tmp_path: Path, done: list[str]) -> None:
    rows = [f"the film number {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(60)]
    (tmp_path / "mine.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    asked = EvalRequest(tasks=tasks_from_words("", [f"{tmp_path}/mine.csv:text,label"]), **QUICK)  # no folder of data
    score = scored(net, asked)
    assert (score.task, score.split) == ("mine", "test")


def test_a_run_that_is_not_finished_is_one_line(net: EvalTarget) -> None:
    (net.folder / stages.MARK).unlink()
    with pytest.raises(BadInput, match="this run is not finished; resume it with `sesame train`"):
        eval_target.subject_of(JobFlags(recipe=str(net.folder)))


def test_held_out_text_that_is_too_little_for_all_tasks_is_one_line_each(
    net: EvalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        score_plan.held_out, "find_too_few", lambda corpus, tasks, labels: {t: f"{t}: few" for t in tasks}
    )
    with pytest.raises(DataError, match="source_classification: few\nnext_sentence: few"):
        plan_tasks(net, wanted(None, tasks="source_classification,next_sentence"))


def test_keys_of_a_recipe_beside_a_run_that_is_trained_are_told_and_those_of_the_cluster_count(
    net: EvalTarget, tmp_path: Path
) -> None:
    with pytest.raises(
        BadInput,
        match=r"optimizer.learning_rate=1: .* is already trained, and its recipe cannot change; leave this key out",
    ):
        eval_target.subject_of(
            JobFlags(recipe=str(net.folder), overrides=("optimizer.learning_rate=1", "cluster.num_workers=2"))
        )
    for name, value in {
        "scale": "tiny",
        "data": ("/nosuch",),
        "holdout_ratio": 0.3,
        "seed": 3,
    }.items():  # they choose another
        option = f"--{name.replace('_', '-')}"
        for folder in (net.folder, folder_of_transformers(tmp_path / name)):
            with pytest.raises(
                BadInput,
                match=f"^{option}: {folder} is already trained, and its recipe cannot change; leave this option out$",
            ):
                eval_target.subject_of(JobFlags(recipe=str(folder), **{name: value}))  # type: ignore[arg-type]
    given = JobFlags(recipe=str(net.folder), overrides=("cluster.finetuning_workers=2", "cluster.engine.cpu_threads=3"))
    assert eval_target.subject_of(given) == net
    cluster = cluster_of(given)
    assert (cluster.finetuning_workers, cluster.engine.cpu_threads) == (2, 3)
    with pytest.raises(BadInput, match="invalid tuning_workers: got 0, expected a number of workers from 1 up"):
        cluster_of(JobFlags(recipe="bert_base", overrides=("cluster.finetuning_workers=0",)))
