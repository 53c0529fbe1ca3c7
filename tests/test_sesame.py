"""`import sesame` is fast and runs the same jobs as the command; the notebook that shows it works."""

import ast
import functools
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sesame
from orchestration.evaluation import eval_target, evaluate, score_plan
from orchestration.evaluation.eval_request import EvalTarget
from orchestration.jobs import JobFlags, open_job, pretrain, run_of
from orchestration.version import DISTRIBUTION, sesame_version
from tests import notebook
from tests.training.corpora import mini_corpus
from training.evaluation.tasks import SelectedTrials, TaskScore

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "sesame.ipynb"
HEAVY = ("apache_beam", "deepspeed", "mlflow", "numpy", "pyarrow", "pydantic", "ray", "rich", "torch", "typer", "yaml")


@pytest.fixture
def bert(tmp_path: Path) -> sesame.Session:
    """A session with a finished corpus (copied from another text, so that the tests do not build it)."""
    (tmp_path / "a.txt").write_text("A document about nothing. It has two sentences.\n")
    session = sesame.open(
        "bert_base",
        "cluster.num_workers=1",
        scale="tiny",
        data=tmp_path / "a.txt",
        output_dir=tmp_path / "out",
        progress="none",
    )
    mini_corpus(session.job.plan.corpus.folder)
    session.job.plan.corpus.finish()
    return session


# Arguments

GOOD: dict[str, Any] = {"scale": "tiny", "data": "demo", "progress": "none"}
HUGE = "x" * 100_000


class DataFrame:
    """Like a data frame of an unknown library: iterating over it gives its columns."""

    columns = ("text",)

    def __iter__(self) -> Any:
        return iter(["text"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(
            ("data", value, message)
            for value, message in [
                (None, "invalid data: got None, expected a path"),
                (3, "invalid data: got 3, expected a path"),
                ([], "invalid data: got an empty list, expected one or more paths or texts; fill it or leave it out"),
                ({"text": ["a"]}, "invalid data: got a dict, expected a path.*; pass a list of mappings"),
                (DataFrame(), "invalid data: got a DataFrame, expected a path.*; convert it"),
                ({"One text."}, r"invalid data: got a set, .*; pass sorted\(data\)"),
                (
                    [{"a": "x", "b": "y"}],
                    "invalid data: got a list without the column 'text', expected one of 'a', 'b'",
                ),
                (["no such path"], r"no such path: no such file or directory; .* pass iter\(data\)"),
                (["demo", None], r"invalid data\[1\]: got None"),
                ([["demo"]], r"invalid data\[0\]: got a list"),
                (b"demo", "invalid data: got b'demo'"),
                (
                    HUGE,
                    r"invalid --data: got 'x{40}\.\.\.' \(100,000 characters\), expected a path or a name; write",
                ),
                ("One line.\nAnother one.", "invalid --data: got .*expected a path or a name"),
                ("a\0b", "invalid --data: got "),
            ]
        ),
        *(
            ("recipe", value, message)
            for value, message in [
                (None, "invalid recipe: got None"),
                (["bert_base"], "invalid recipe: got a list"),
                ({}, "invalid recipe: got a dict"),
                (HUGE, "invalid recipe: got 'x{40}"),
                (b"bert_base", "invalid recipe: got b'bert_base'"),
                ("a\0b", "invalid recipe: got "),
            ]
        ),
        *(
            ("output_dir", value, "output_dir(:| is)")
            for value in (None, 3, ["x"], {}, True, HUGE, "a\0b", DataFrame())
        ),
        *(("cluster", value, "cluster(:| is)") for value in (None, 3, ["x"], {}, HUGE, b"x")),
        *(("scale", value, "scale(:| is)") for value in (None, 3, ["x"], {}, HUGE, Path("tiny"))),
        *(("seed", value, "invalid seed: got .*, expected an integer") for value in ("3", 1.5, [3], True, HUGE)),
        *(("holdout_ratio", value, "holdout.ratio(:| is)") for value in (".1", [0.1], True, 3, float("nan"))),
        *(("progress", value, "invalid progress: got") for value in (None, "fancy", ["auto"], 3)),
    ],
    ids=lambda value: str(value)[:30].partition(" object at ")[0],
)
def test_an_argument_of_a_wrong_type_is_a_one_line_error(name: str, value: Any, message: str, tmp_path: Path) -> None:
    given = {"output_dir": tmp_path / "out", **GOOD, "recipe": "bert_base"} | {name: value}
    with pytest.raises(sesame.BadInput, match=message.replace("_", ".")) as error:
        sesame.open(given.pop("recipe"), **given)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert not (tmp_path / "out").exists()


def test_data_may_be_a_path_or_a_list_of_paths(tmp_path: Path) -> None:
    (tmp_path / "odd\nname.txt").write_text("A document about nothing. It has two sentences.\n")
    odd = tmp_path / "odd\nname.txt"
    for data in (odd, str(odd), [odd], (str(odd),)):
        job = sesame.open("bert_base", **GOOD | {"data": data, "output_dir": str(tmp_path)}).job
        assert [source.place for source in job.corpus.sources] == [str(odd)]


def test_texts_of_a_program_are_written_once_and_another_process_finds_them(tmp_path: Path) -> None:
    """The same texts, in any object, are the same text of a corpus; the command line names the file."""
    texts = [f"Document {number} about nothing. It has two sentences.\n" for number in range(3)]
    given = GOOD | {"output_dir": tmp_path / "out"}
    session = sesame.open("bert_base", **given | {"data": iter(texts)})
    (file,) = (tmp_path / "out" / "data").iterdir()
    assert session.command == f"sesame run bert_base --scale tiny --data {file} --output-dir {tmp_path / 'out'}"
    before = file.stat()
    for data in ([{"text": text} for text in texts], ({"body": text} for text in texts), texts, str(file)):
        again = sesame.open("bert_base", **given | {"data": data})
        assert again.job.plan.text.folder == session.job.plan.text.folder
    assert file.stat() == before
    file.unlink()  # another process, or another machine with this directory, writes an equal source
    again = sesame.open("bert_base", **given | {"data": texts})
    assert again.job.plan.run.folder == session.job.plan.run.folder
    manifest = session.corpus()
    assert manifest.ledger.kept.documents == 3
    assert sesame.open("bert_base", **given | {"data": texts}).job.plan.corpus.state == "done"


def test_a_list_of_strings_has_paths_unless_one_cannot_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A document about nothing. It has two sentences.\n")
    given = GOOD | {"output_dir": tmp_path / "out"}
    session = sesame.open("bert_base", **given | {"data": [str(tmp_path / "a.txt")]})
    assert [source.place for source in session.job.corpus.sources] == [str(tmp_path / "a.txt")]
    with pytest.raises(sesame.BadInput, match="expected a path or a name"):  # one is a file, one is a text
        sesame.open("bert_base", **given | {"data": [str(tmp_path / "a.txt"), "Two lines.\nNo path."]})
    assert not (tmp_path / "out" / "data").exists()


def test_the_key_of_the_text_is_that_of_a_path_too(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"body": "A document about nothing.", "title": "None"}\n')
    given = GOOD | {"output_dir": tmp_path / "out", "data": tmp_path / "b.jsonl"}
    session = sesame.open("bert_base", **given, text_key="body")
    assert session.job.corpus.sources[0].text_key == "body"  # type: ignore[union-attr]
    with pytest.raises(sesame.BadInput, match=r"invalid text_key: got 3"):
        sesame.open("bert_base", **given, text_key=3)  # type: ignore[arg-type]


def test_a_session_requires_flags_and_overrides_as_text() -> None:
    with pytest.raises(
        sesame.BadInput, match=r"invalid flags: got a dict, expected JobFlags .*; call sesame\.open instead"
    ):
        sesame.Session({"recipe": "bert_base"})  # type: ignore[arg-type]
    with pytest.raises(sesame.BadInput, match="invalid overrides: got 3, expected text"):
        sesame.open("bert_base", 3, **GOOD)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bert: bert.examples("1"), "invalid step: got '1', expected an integer"),
        (lambda bert: bert.examples(0, None), "invalid count: got None"),
        (lambda bert: bert.batch(1.5), "invalid step: got 1.5"),
        (lambda bert: bert.train("20"), "invalid steps: got '20'"),
        (lambda bert: bert.train(True), "invalid steps: got True"),
        (lambda bert: bert.train(20, resume="maybe"), "invalid resume: got 'maybe', expected allow, never or must"),
        (lambda bert: bert.export(None), "invalid folder: got None, expected the path"),
        (lambda bert: bert.export({}), "invalid folder: got a dict"),
        (lambda bert: bert.export("x", license=3), "invalid license: got 3"),
        (lambda bert: bert.evaluate("glue", task_data_dir=3), "invalid task_data_dir: got 3"),
        (lambda bert: bert.evaluate(3), "invalid tasks: got 3"),
    ],
    ids=range(11),
)
def test_arguments_of_session_methods_are_checked(bert: sesame.Session, call: Any, message: str) -> None:
    with pytest.raises(sesame.BadInput, match=message) as error:
        call(bert)
    assert "\n" not in str(error.value)


# The module


def test_importing_sesame_imports_no_large_package() -> None:
    code = f"import sesame, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_module_contains_no_jobs() -> None:
    """Import contracts cannot check a file outside of a package, so this test does."""
    tree = ast.parse((ROOT / "sesame.py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {module for module in modules if module and module.split(".")[0] not in sys.stdlib_module_names}
    assert ours <= {
        *("orchestration.cli", "orchestration.config", "orchestration.evaluation", "orchestration.jobs"),
        "orchestration.launch",
        *(
            "orchestration.evaluation.eval_request",
            "orchestration.jobs.finetuned_source",
            "orchestration.jobs.generation",
            "orchestration.evaluation.label_prediction",
            "orchestration.evaluation.prediction",
            "orchestration.jobs.stages",
            "orchestration.progress",
            "orchestration.reports",
            "orchestration.terminal",
            "orchestration.terminal.html_page",
            "orchestration.terminal.inspect",
            "orchestration.terminal.where",
        ),
        *("orchestration.version", "preprocessing.errors", "preprocessing.manifest"),
        *("rich.console", "torch"),
        *(
            "training.data",
            "training.evaluation",
            "training.formats",
            "training.model",
            "training.run",
            "training.evaluation.tasks",
        ),
    }


def test_python_m_sesame_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sesame", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"sesame {sesame_version()}\n")
    done = subprocess.run([sys.executable, "-m", "sesame", "chek"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("sesame: invalid command: got chek, expected ")


def test_the_distribution_has_its_own_name_and_contains_the_module() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'name = "{DISTRIBUTION}"' in project
    assert 'py-modules = ["sesame"]' in project
    assert sesame.__version__ == sesame_version() == re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1]  # type: ignore[index]
    with pytest.raises(AttributeError):
        sesame.no_such_name  # noqa: B018


def test_recipes_lists_the_shipped_recipes() -> None:
    assert {"bert_base", "gpt2", "t5_base"} <= set(sesame.recipes())


# A session


def test_a_session_raises_the_errors_of_the_command() -> None:
    with pytest.raises(sesame.SesameError, match="did you mean bert_base") as error:
        sesame.open("bert_bse")
    assert isinstance(error.value, sesame.BadInput)
    with pytest.raises(sesame.BadInput, match=r"name your copy with --data"):
        sesame.open("bert_base").examples()


@pytest.mark.parametrize(
    ("function", "name", "message"),
    [
        ("open", "max_steps", "open: got max_steps, expected an argument of open; use train(steps=...)"),
        (
            "open",
            "learning_rate",
            'open: got learning_rate, expected "optimizer.learning_rate=VALUE", because it is a key; pass this text to '
            "sesame.open",
        ),
        ("open", "scales", "open: got scales, expected an argument of open; did you mean scale?"),
        ("open", "overrides", 'open: got overrides, expected overrides without a name; write them first, as in open("'),
        ("train", "max_steps", "train: got max_steps, expected steps; rename it"),
        ("train", "scale", "train: got scale, expected an argument of train; use sesame.open(scale=...)"),
        ("train", "red", "train: got red, expected one of steps, resume; rename it or leave it out"),
        ("generate", "max_length", "generate: got max_length, expected max_new_tokens; rename it"),
        ("generate", "num_samples", "generate: got num_samples, expected num_return_sequences; rename it"),
        ("generate", "prompt", "generate: got prompt, expected prompts without a name; write them first, as in gen"),
        ("evaluate", "learning_rate", "evaluate: got learning_rate, expected learning_rates; rename it"),
        ("evaluate", "tasks", "evaluate: got tasks, expected tasks without a name; write them first, as in evaluate"),
        ("predict", "k", "predict: got k, expected top_k; rename it"),
        ("export", "licence", "export: got licence, expected an argument of export; did you mean license?"),
        ("examples", "steps", "examples: got steps, expected an argument of examples; did you mean step?"),
        ("batch", "steps", "batch: got steps, expected an argument of batch; did you mean step?"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_right_name(
    bert: sesame.Session, function: str, name: str, message: str
) -> None:
    called = functools.partial(sesame.open, "bert_base") if function == "open" else getattr(bert, function)
    with pytest.raises(sesame.BadInput) as error:
        called(**{name: 3})
    assert str(error.value).startswith(f"invalid argument of {message}")
    assert "\n" not in str(error.value)


def test_the_arguments_are_shown_by_help() -> None:
    assert list(inspect.signature(sesame.Session.train).parameters) == ["self", "steps", "resume"]


def test_a_session_uses_the_same_directories_as_the_command(bert: sesame.Session, tmp_path: Path) -> None:
    flags = JobFlags(
        recipe="bert_base",
        overrides=["cluster.num_workers=1"],
        scale="tiny",
        data=[str(tmp_path / "a.txt")],
        output_dir=tmp_path / "out",
    )
    assert bert.folder == open_job(flags).plan.run.folder
    assert bert.command == flags.command("run")
    assert repr(bert) == "bert_base_tiny on a, 4,000 steps (corpus done, run due)"


def test_files_and_held_out_text_are_reported_before_the_corpus_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.jsonl").write_text('{"text": "A document."}\n')
    (tmp_path / "text" / "b.pdf").write_bytes(b"%PDF-1.7")
    monkeypatch.setattr("orchestration.jobs.corpus.corpus", lambda *more: None)
    sesame.open("bert_base", scale="tiny", data=tmp_path / "text", output_dir=tmp_path / "out").corpus()
    actual = capsys.readouterr().err
    assert "read as jsonl" in actual
    assert "b.pdf" in actual
    assert "held out of text: 0.5 % for validation" in actual


def test_tasks_without_text_are_reported_before_training(
    bert: sesame.Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pretrain, "train", lambda *more: {})
    bert.train()
    assert "no scores: task next_sentence" in caplog.text


def test_examples_equal_those_of_inspect_and_print_as_text(bert: sesame.Session) -> None:
    from orchestration.terminal.inspect import decode_examples

    rows = bert.examples(step=3, count=2)
    assert list(rows) == decode_examples(run_of(bert._flags), 3, 2)
    assert repr(rows).startswith("step 3, sequence 0: ")
    assert "[MASK](" in repr(rows)
    assert rows.html().startswith("<!doctype html>")
    assert rows._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    for step in (4_000, -1):
        with pytest.raises(sesame.BadInput, match="expected a step from 0 to 3999"):
            bert.examples(step=step)


def test_where_finds_the_sequences_that_examples_show(bert: sesame.Session) -> None:
    (example,) = bert.examples(step=3, count=1)
    (document, *_) = example.documents
    (found,) = (each for each in bert.where(document.key, steps=range(5)) if each.document.split == "train")
    (use,) = (use for use in found.uses if (use.step, use.row) == (3, 0))
    assert (document.start, document.stop) in use.ranges
    assert repr(bert.where(document.key)).startswith(f"mini_world, key {document.key}, train, ")
    for steps in ((0, 5), range(0, 9, 2)):
        with pytest.raises(sesame.BadInput, match=r"^invalid steps: got .*, expected a range of consecutive steps"):
            bert.where(document.key, steps=steps)  # type: ignore[arg-type]


def test_a_batch_has_all_sequences_of_its_step_and_is_valid_input_of_the_model(bert: sesame.Session) -> None:
    batch = bert.batch(step=3)
    assert len(batch["lengths"]) == 32
    assert int(batch["lengths"].sum()) == len(batch["input_ids"])
    first = bert.examples(step=3, count=1)[0]
    assert len(first.tokens) == int(batch["lengths"][0])
    scores = bert.model()(batch)
    assert set(scores) == {"masked_tokens", "sentence_pair"}
    assert float(scores["masked_tokens"].count) == len(batch["targets"])
    with pytest.raises(sesame.BadInput, match="invalid step: got 4000, expected a step from 0 to 3999"):
        bert.batch(step=4_000)


def test_a_short_training_is_a_separate_run_with_the_proportions_of_the_recipe(
    bert: sesame.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Any] = []
    monkeypatch.setattr(pretrain, "train", lambda job, resume, report: trained.append(job) or {"step": 20})
    whole = bert.folder
    assert bert.train(steps=20) == {"step": 20}
    (job,) = trained
    assert (job.recipe.num_steps, job.recipe.optimizer.warmup_steps) == (20, bert.recipe.optimizer.warmup_steps)
    assert job.recipe.optimizer.warmup_steps < 20
    assert bert.folder == job.plan.run.folder != whole
    assert bert.train() == {"step": 20}
    assert trained[1].plan.run.folder == bert.folder
    with pytest.raises(sesame.BadInput, match="invalid steps: got 21, expected 2 to 20"):
        bert.train(steps=21)


def test_scores_equal_those_of_eval_and_print_as_a_table(bert: sesame.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sesame.BadInput, match="not trained with these flags"):
        bert.evaluate()
    asked: list[Any] = []

    def scored(folder: Path, plans: Any, *_: Any, command: str, saves: Any) -> Sequence[TaskScore]:
        asked.extend(plans)
        starts = {"pretrained": 0.75, "random": 0.5}
        chosen = {name: SelectedTrials({}, {"test": {"accuracy": (value,)}}) for name, value in starts.items()}
        return [TaskScore("next_sentence", "accuracy", "test", "", chosen, labels=40, chance=0.5)]

    folder = bert.job.plan.run.folder
    net = EvalTarget(folder=folder, hash="of the run", name="bert_base_tiny", parameters=1)
    monkeypatch.setattr(eval_target, "subject_of", lambda flags: net)
    monkeypatch.setattr(score_plan, "plan_tasks", lambda subject, wanted: [wanted])
    monkeypatch.setattr(score_plan, "check_flags", lambda plans, wanted: None)
    monkeypatch.setattr(evaluate, "evaluate", scored)
    scores = bert.evaluate("next_sentence", num_seeds=1, max_train_samples=40)
    assert scores[0].margin == 0.25
    assert "next_sentence" in repr(scores)
    assert "+25.0" in repr(scores)
    assert (asked[0].tasks, asked[0].num_seeds, asked[0].max_train_samples) == (["next_sentence"], 1, (40,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"rate": 3},
            r"^invalid argument of evaluate: got rate, expected one of learning_rates, batch_sizes, epochs, "
            r"max_train_samples, max_steps, ",
        ),
        (
            {"learning_rates": ["x"]},
            r"^invalid learning_rates: got \['x'\], expected numbers; pass one or a list of them$",
        ),
        (
            {"max_train_samples": "x"},
            "^invalid max_train_samples: got 'x', expected integers; pass one or a list of them$",
        ),
        ({"max_steps": "a"}, "^invalid max_steps: got 'a', expected integers"),
        ({"num_seeds": [1, 2]}, r"^invalid num_seeds: got \[1, 2\], expected one value; pass one value$"),
        ({"batch_sizes": 1.5}, "^invalid batch_sizes: got 1.5, expected integers"),
        ({"csv": 3}, "^invalid csv: got 3, expected text"),
        ({"best": 1}, "^invalid best: got 1, expected True or False"),
        ({"num_evaluations": True}, "^invalid num_evaluations: got True, expected integers"),
        ({"tasks": [3]}, r"^invalid tasks: got \[3\], expected text"),
    ],
)
def test_an_evaluate_argument_of_a_wrong_type_is_a_one_line_error(
    bert: sesame.Session, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(sesame.BadInput, match=message):
        bert.evaluate(*([given.pop("tasks")] if "tasks" in given else []), **given)


def test_evaluate_accepts_lists_of_names_single_numbers_and_tables(
    bert: sesame.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    net = EvalTarget(folder=tmp_path, hash="of the run", name="bert_base_tiny", parameters=1)
    monkeypatch.setattr(eval_target, "subject_of", lambda flags: net)
    monkeypatch.setattr(score_plan, "plan_tasks", lambda subject, wanted: asked.append(wanted) or [])
    monkeypatch.setattr(evaluate, "evaluate", lambda *_, command, saves: [])
    (tmp_path / "my.csv").write_text(
        "text,label\n" + "".join(f"a {number},{'bc'[number % 2]}\n" for number in range(40))
    )
    bert.evaluate(
        ["cola", "rte"],
        "next_sentence",
        csv=f"{tmp_path}/my.csv:text,label",
        learning_rates=1,
        batch_sizes=8,
        max_train_samples=(200, 0),
    )
    bert.evaluate(csv=[f"{tmp_path}/my.csv:text,label"], epochs=2)
    (first, second) = asked
    assert [task if isinstance(task, str) else task.name for task in first.tasks] == [
        "cola",
        "rte",
        "next_sentence",
        "my",
    ]
    assert (first.learning_rates, first.batch_sizes, first.max_train_samples, second.epochs) == (
        (1.0,),
        (8,),
        (200,),
        (2.0,),
    )
    assert [task.name for task in second.tasks] == ["my"]


# The notebook


def test_the_notebook_has_small_outputs_and_no_machine_paths() -> None:
    text = NOTEBOOK.read_text()
    assert json.loads(text)["nbformat"] == 4
    assert len(text) < 30_000
    assert not re.search(r"/(home|root|tmp|work|usr|Users)/", text)
    assert all(cell["outputs"] for cell in notebook.cells(NOTEBOOK) if notebook.code(cell))


def test_the_notebook_uses_the_methods_of_a_session() -> None:
    used = set(re.findall(r"bert\.(\w+)\(", "".join(map(notebook.code, notebook.cells(NOTEBOOK)))))
    assert {"examples", "batch", "model", "train", "evaluate", "export"} <= used
    assert used <= set(dir(sesame.Session))


def test_a_cell_returns_its_printed_output_and_its_last_expression() -> None:
    names: dict[str, Any] = {}
    assert notebook.run_cell("x = 2\nprint('a')\nx + 1", names) == "a\n3"
    assert notebook.run_cell("y = x", names) == ""
    with pytest.raises(ZeroDivisionError):
        notebook.run_cell("1 / 0", names)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_cells_of_the_notebook_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(NOTEBOOK, "sesame.ipynb")
    outputs = notebook.run(Path("sesame.ipynb"))
    kept = [cell["outputs"] for cell in notebook.cells(NOTEBOOK) if notebook.code(cell)]
    assert [bool(text) for text in outputs] == [bool(one) for one in kept]
    assert "(20, " in outputs[4]
    assert "next_sentence" in outputs[6]
    assert "README.md" in outputs[7]
    assert "did you mean bert_base" in outputs[8]
