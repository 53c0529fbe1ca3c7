"""Task files of lm-eval: the same requests as in lm-eval 0.4.13, and one-line errors for what is not supported.

lm_eval/requests.json has the requests that lm-eval built. `make witness` compares them with lm-eval again.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestration.cli import main
from orchestration.config import load_task, tasks_of
from preprocessing.errors import BadInput
from training.evaluation.tasks import GenerationTask, LoglikelihoodChoice, PerplexityTask, TaskFile

HERE = Path(__file__).parent / "lm_eval"
NAMES = sorted(file.stem for file in HERE.glob("*.yaml"))


def requests(task: TaskFile) -> list[list[Any]]:
    """The number of the question and the texts of each request."""
    (split,) = task.files
    items, records = task.items(split, Path("nowhere"))
    assert not records.malformed
    kind: Any = task.task
    if isinstance(kind, LoglikelihoodChoice):
        asked = kind.make_requests(items)
        return [
            [number, asked.requests[at].context, asked.requests[at].continuation]
            for number, each in enumerate(asked.at)
            for at in each
        ]
    if isinstance(kind, PerplexityTask):
        return [[number, item.texts[0]] for number, item in enumerate(items)]
    return [[number, kind.question(item).text] for number, item in enumerate(items)]


def requests_of_lm_eval(file: Path) -> list[list[Any]]:
    """The same requests, built by lm-eval."""
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks._yaml_loader import load_yaml

    config = load_yaml(file)
    for split, path in config["dataset_kwargs"]["data_files"].items():
        config["dataset_kwargs"]["data_files"][split] = str(file.parent / path)
    task = ConfigurableTask(config={"num_fewshot": 0, **config})
    task.set_fewshot_seed(1234)
    task.build_all_requests()
    only_prompt = task.OUTPUT_TYPE == "generate_until"
    return [[one.doc_id, *(one.args[:1] if only_prompt else one.args)] for one in task.instances]


@pytest.mark.parametrize("name", NAMES)
def test_requests_equal_those_that_lm_eval_built(name: str) -> None:
    recorded = json.loads((HERE / "requests.json").read_text(encoding="utf-8"))
    assert requests(load_task(str(HERE / f"{name}.yaml"))) == recorded[name]
    assert recorded.keys() == {*NAMES}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_lm_eval_builds_the_recorded_requests(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    recorded = json.loads((HERE / "requests.json").read_text(encoding="utf-8"))
    assert requests_of_lm_eval(HERE / f"{name}.yaml") == recorded[name]


def test_keys_of_lm_eval_become_keys_of_the_task() -> None:
    choice = load_task(str(HERE / "choice.yaml"))
    assert (choice.name, choice.task.metrics) == ("my_choice", ("accuracy", "accuracy_character"))
    assert "acc_norm is accuracy_character" in choice.note
    assert [item.gold for item in choice.items("dev", Path())[0]] == [0, 1, 2, 0, 1, 2]
    by_text = load_task(str(HERE / "choice_itself.yaml"))
    assert [item.gold for item in by_text.items("test", Path())[0]] == [0, 1, 2, 0, 1, 2]
    assert [item.gold for item in load_task(str(HERE / "several_contexts.yaml")).items("dev", Path())[0]] == [0, 1, 1]
    assert load_task(str(HERE / "last_word.yaml")).task.metrics == ("perplexity", "last_word")
    generated: Any = load_task(str(HERE / "generated.yaml"))
    kind: GenerationTask = generated.task
    items, _ = generated.items("test", Path())
    assert [item.gold for item in items][:2] == [("mouse", "rat"), ("key",)]
    texts = kind.predictions(items, [" mouse \nQ: x", " a key", " moonQ: \n", "flour"])
    assert texts == ["mouse", "a key", "moon", "flour"]
    assert kind.scores(items, texts) == {"exact_match": 0.75}
    assert (kind.generation.max_new_tokens, kind.generation.tunes) == (16, False)
    assert [task.name for task in tasks_of(f"{HERE / 'choice.yaml'},cola")] == ["my_choice", "cola"]


def test_a_normalized_metric_of_several_contexts_is_remarked(tmp_path: Path) -> None:
    plain = load_task(str(HERE / "several_contexts.yaml"))
    assert not plain.items("dev", Path())[1].remarks
    text = (HERE / "several_contexts.yaml").read_text(encoding="utf-8").replace("metric_list: [{metric: acc}]", "")
    (tmp_path / "both.yaml").write_text(text)
    (tmp_path / "schemas.jsonl").write_bytes((HERE / "schemas.jsonl").read_bytes())
    (remark,) = load_task(str(tmp_path / "both.yaml")).items("dev", tmp_path)[1].remarks[:1]
    assert "are of the continuation, but acc_norm, acc_bytes and acc_mutual_info of lm-eval" in remark


def test_class_labels_stay_numbers_and_a_directory_has_the_splits(tmp_path: Path) -> None:
    label = {"names": ["entailment", "not_entailment"], "_type": "ClassLabel"}
    table = pa.table({"sentence": ["a", "b"], "label": [1, -1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": {"label": label}}})})
    (tmp_path / "glue" / "rte").mkdir(parents=True)
    pq.write_table(table, tmp_path / "glue" / "rte" / "validation-00000-of-00001.parquet")
    (tmp_path / "glue" / "rte" / "train.jsonl").write_text('{"sentence": "c", "label": 0}\n' * 2)
    file = tmp_path / "rte.yaml"
    file.write_text(
        "task: rte\ndataset_path: nyu-mll/glue\ndataset_name: rte\nvalidation_split: validation\n"
        "training_split: train\noutput_type: multiple_choice\ndoc_to_text: '{{sentence}}:'\ndoc_to_target: label\n"
        "doc_to_choice: ['True', 'False']\nnum_fewshot: 1\n"
    )
    task = load_task(str(file))
    assert task.name == "lm_eval_rte"
    items, _ = task.items("dev", tmp_path)
    assert [item.gold for item in items] == [1, None]
    assert items[0].texts[0].contexts == ("c: True\n\na:", "c: True\n\na:")


PLAIN = (HERE / "choice.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "process_docs: !function utils.process_docs",
            "invalid process_docs: got !function utils.process_docs, expected a template of Jinja; rewrite it, since "
            "no code is run",
        ),
        ("process_results: utils.f", "invalid process_results: got a key, expected one of task, output_type, "),
        ("gen_prefix: 'A:'", "invalid gen_prefix: got a key, expected one of "),
        ("use_prompt: promptsource", "invalid use_prompt: got a key, "),
        ("repeats: 2", "invalid repeats: got a key, "),
        (
            "group: mine",
            "invalid group: got a group of tasks, expected a file with one task; name the files of its tasks",
        ),
        ("output_type: greedy", "invalid output_type: got 'greedy', expected multiple_choice or loglikelihood or "),
        (
            "metric_list: [{metric: brier_score}]",
            "invalid metric_list: got 'brier_score', expected acc or acc_norm or ",
        ),
        ("metric_list: [{metric: !function m.f}]", "invalid metric_list: got !function m.f, expected a template of "),
        ("metric_list: [{metric: acc, aggregation: median}]", "invalid acc.aggregation: got 'median', expected mean; "),
        (
            "metric_list: [{metric: acc, ignore_case: true}]",
            "invalid metric_list.acc: got the option ignore_case, expected none; remove this option",
        ),
        ("doc_to_choice: [no, yes]", """invalid doc_to_choice: got False, expected texts; put the choices in quotes"""),
        ("doc_to_text: '{{ query'", "invalid doc_to_text: got a template that is not valid (unexpected end of "),
        ("num_fewshot: -1", "invalid num_fewshot: got -1, expected an integer of at least 0; change the number"),
        ("fewshot_config: {samples: []}", "invalid fewshot_config.samples: got a key, expected sampler or split; "),
        ("filter_list: [{filter: [{function: regex}]}]", "invalid filter_list: got 'regex', expected take_first or "),
        (
            "dataset_kwargs: {field: data}",
            "invalid dataset_kwargs.field: got a key, expected data_files or data_dir or ",
        ),
        ("validation_split: dev", "invalid split: got 'dev', expected validation, since data_files has no other split"),
        (
            "validation_split:",
            "invalid test_split: got no split, expected test_split or validation_split; name a split",
        ),
        ("include: mine.yaml", "invalid include: the file includes itself; remove the include"),
        ("include: absent.yaml", "absent.yaml: cannot be read (No such file or directory); correct the path"),
        ("task: [a, b", "invalid YAML: "),
        ("doc_to_text:", "invalid doc_to_text: got none, expected a template or a column, for multiple_choice; add "),
        ("dataset_kwargs: 5", "invalid dataset_kwargs: got 5, expected keys with values; change the file"),
        ("dataset_kwargs: {data_files: {validation: []}}", "invalid data_files: got 0 files, expected one path, "),
        ("fewshot_config: 5", "invalid fewshot_config: got 5, expected keys with values; change the file"),
        ("metric_list: [{metric: [acc]}]", "invalid metric_list: got ['acc'], expected acc or acc_norm or "),
        ("metric_list: [acc]", "invalid metric_list: got 'acc', expected a list whose elements have keys; change "),
        ("output_type: []", "invalid output_type: got [], expected text; change the file"),
        ("filter_list: 5", "invalid filter_list: got 5, expected a list whose elements have keys; change the file"),
        ("filter_list: [{filter: 5}]", "invalid filter_list.filter: got 5, expected a list whose elements have keys"),
        ("generation_kwargs: 5", "invalid generation_kwargs: got 5, expected keys with values; change the file"),
        ("generation_kwargs: {max_gen_toks: x}", "invalid generation_kwargs.max_gen_toks: got 'x', expected an inte"),
        ("generation_kwargs: {temperature: [1]}", "invalid generation_kwargs.temperature: got [1], expected text; "),
        ("metadata: &a [*a, !function m.f]", "invalid metadata: got !function m.f, expected a template of Jinja; "),
        (f"description: '{{{{ {'(' * 3000}1{')' * 3000} }}}}'", "invalid description: got a template that is not "),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(more: str, message: str, tmp_path: Path) -> None:
    file, name = tmp_path / "mine.yaml", more.partition(":")[0]
    kept = [line for line in PLAIN.splitlines() if not line.startswith(f"{name}:")]
    if name == "metric_list":
        kept = [line for line in kept if not line.startswith("  - ")]
    if name in ("filter_list", "generation_kwargs"):
        kept = [line.replace("multiple_choice", "generate_until") for line in kept if "acc" not in line]
        kept.remove("metric_list:")
    file.write_text("\n".join([*kept, more, ""]))
    with pytest.raises(BadInput) as caught:
        load_task(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("doc_to_text: '{{ absent }}'", "invalid template: UndefinedError: 'absent' is undefined"),
        ("doc_to_text: '{{ query.__class__.__mro__ }}'", "invalid template: SecurityError: access to attribute"),
        ("doc_to_text: '{{ choices.append(1) }}'", "invalid template: SecurityError: "),
        ("description: \"{{ query | regex_replace('(', '') }}\"", "invalid template: regular expression: missing ), "),
        ("description: '{{ 3 | dictsort }}'", "invalid template: AttributeError: 'int' object has no attribute"),
        ("description: '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}'", "invalid template: RecursionError: "),
        ("doc_to_choice: topic", "invalid doc_to_choice: got 'tools', expected a list of texts"),
        ("doc_to_target: topic", "invalid answer: got 'tools', expected an index of 3 choices, or one of them"),
        ("doc_to_target: '7'", "invalid answer: got 7, expected an index of 3 choices, or one of them"),
        ("doc_to_target: '[0, 1]'", "invalid answer: got several correct choices, expected an index of 3 choices"),
        ("num_fewshot: 7", "invalid num_fewshot: got 7, expected at most 5 (the few-shot split has 6 rows); lower it"),
    ],
)
def test_a_template_that_fails_names_the_row(more: str, message: str, tmp_path: Path) -> None:
    kept = [line for line in PLAIN.splitlines() if not line.startswith(f"{more.partition(':')[0]}:")]
    (tmp_path / "mine.yaml").write_text("\n".join([*kept, more, ""]))
    (tmp_path / "questions.jsonl").write_bytes((HERE / "questions.jsonl").read_bytes())
    with pytest.raises(BadInput) as caught:
        load_task(str(tmp_path / "mine.yaml")).items("dev", tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_have_the_types_that_datasets_gives_them(tmp_path: Path) -> None:
    """The same files, read by lm-eval with datasets 5.2: rows with null as answer have no answer."""
    keys = "test_split: test\noutput_type: multiple_choice\ndoc_to_text: '{{a}}|{{b}}'\ndoc_to_target: g\n"
    keys += "doc_to_choice: ['x', 'y']\n"
    (tmp_path / "d.csv").write_text("a,b,g\nNA, 1,0\nnull,2,1\n1_000,,1\n")
    (tmp_path / "csv.yaml").write_text(f"dataset_path: csv\ndataset_kwargs: {{data_files: {{test: d.csv}}}}\n{keys}")
    (tmp_path / "d.jsonl").write_text('{"a": 1, "b": "2020-01-01", "g": 0}\n{"a": 2.5, "b": "2020-01-02", "g": null}\n')
    (tmp_path / "json.yaml").write_text(
        f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: d.jsonl}}}}\n{keys}"
    )
    contexts = {}
    for name in ("csv", "json"):
        items, records = load_task(str(tmp_path / f"{name}.yaml")).items("test", tmp_path)
        assert not records.malformed
        contexts[name] = [(item.texts[0].contexts[0], item.gold) for item in items]
    assert contexts["csv"] == [("None|1.0", 0), ("None|2.0", 1), ("1_000|None", 1)]
    assert contexts["json"] == [("1.0|2020-01-01 00:00:00", 0), ("2.5|2020-01-02 00:00:00", None)]


def test_the_command_shows_a_task_of_lm_eval(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", str(HERE / "choice.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "my_choice  lm-eval task of choice.yaml" in shown
    assert f"dev: 6 {HERE / 'questions.jsonl'}" in shown
