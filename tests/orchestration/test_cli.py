"""The `sesame` command: exit codes, one line per error, JSON on stdout, and light imports for quick answers."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from orchestration import cli, jobs
from orchestration.cli import main
from orchestration.cli.groups import TextOptions
from orchestration.cli.shared import flags_of, job_command
from orchestration.config import list_names, load
from orchestration.evaluation import ray_stages
from orchestration.jobs import JobFlags, model_export, open_job, pretrain
from orchestration.terminal import output, show_wait
from orchestration.tracking import ModelVersion
from orchestration.version import sesame_version
from preprocessing.errors import DataError, Diverged, Preempted, ResourceError
from tests.orchestration.evaluation.runs import finished_run, write_reviews
from tests.pages import ROOT
from tests.training.corpora import mini_corpus
from training.evaluation.tasks import STARTS, SelectedTrials, TaskScore
from training.formats import save_weights
from training.model import Model
from training.model_spec import ModelSpec


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("A document about nothing. It has two sentences.\n")
    return tmp_path / "text"


@pytest.fixture
def flags(tmp_path: Path, text: Path) -> list[str]:
    return ["bert_base", "--scale", "tiny", "--data", str(text), "--output-dir", str(tmp_path / "out")]


@pytest.fixture
def flags_with_corpus(tmp_path: Path, text: Path, flags: list[str]) -> list[str]:
    """Flags of a job whose corpus is finished. The corpus has another text, so that no test has to build it."""
    stage = open_job(
        JobFlags(recipe="bert_base", scale="tiny", data=[str(text)], output_dir=tmp_path / "out")
    ).plan.corpus
    mini_corpus(stage.folder)
    stage.finish()
    return flags


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the exit code and the last line of stderr; stdout must be empty, and no traceback may appear."""
    code = main(words)
    message = capsys.readouterr()
    assert message.out == ""
    assert "Traceback" not in message.err
    assert message.err.splitlines()[-1].startswith("sesame: ")
    return code, message.err.splitlines()[-1].removeprefix("sesame: ")


TRAINED = {"step": 4, "tokens": 5, "loss": 2.5, "evaluation": {}}
RECIPE_ONLY = "invalid --compute-optimal: got {0} too, expected RECIPE and its options at most; remove {0}"
FLOPS = "expected training FLOPs from 1e12 to 1e32; write them like 1e21"
NO_MORE = "invalid --published: got other arguments, expected --json at most; remove the others"
RECIPES = "expected a name that `sesame recipes` lists, or a .yaml file"
CORPORA = "a name that `sesame corpora` lists"
ADDRESSES = "expected HOST:PORT, ray://HOST:PORT or auto, or no value to start Ray on this machine"
WEIGHTS = (
    "expected a directory with config.json, spec.json or manifest.json; use a directory written by `sesame export` or "
    "transformers, or RUN/checkpoints/step-N"
)
ERRORS = {
    "chek": "invalid command: got chek, expected a command that `sesame --help` lists; did you mean check?",
    "check": "missing argument: expected RECIPE; see `sesame check --help`",
    "export gpt2": "missing argument: expected DIR; see `sesame export --help`",
    "doctor extra more": "invalid arguments: got extra more, expected no more arguments; remove them, or see "
    "`sesame doctor --help`",
    "check bert_base --scal tiny": "invalid option: got --scal, expected an option of `sesame check`; did you mean "
    "--scale?",
    "check bert_bse": f"invalid recipe: got bert_bse, {RECIPES}; did you mean bert_base?",
    "eval no_such_run": "invalid RUN: got no_such_run, expected the name or the MLflow ID of a run in work/runs, or a "
    "recipe; name the directory of its results with --output-dir",
    "register nosuch --name x": "invalid RUN: got nosuch, expected the name or the MLflow ID of a run in work/runs, or "
    "a recipe; name the directory of its results with --output-dir",
    "compare nosuch other": "invalid RUN: got nosuch, expected the name or the MLflow ID of a run in work/runs, or a "
    "recipe; name the directory of its results with --output-dir",
    "eval bert_bse": "invalid RUN: got bert_bse, expected the name or the MLflow ID of a run in work/runs, or a "
    "recipe; did you mean bert_base?",
    "check gpt2_tiny-xxxx": "invalid RUN: got gpt2_tiny-xxxx, expected the name or the MLflow ID of a run in "
    "work/runs; name the directory of its results with --output-dir",
    "check no/such.yaml": "no/such.yaml: cannot read the file (No such file or directory); check the path and its "
    "permissions",
    "check gpt2 optimizer.learnig_rate=1": "override optimizer.learnig_rate=1: "
    "invalid key: got optimizer.learnig_rate, expected a key of optimizer; did you mean optimizer.learning_rate?",
    "check gpt2 cluster.num_wokers=1": "override cluster.num_wokers=1: "
    "invalid key: got cluster.num_wokers, expected a key of cluster; did you mean cluster.num_workers?",
    "check gpt2 --cluster gpu": "invalid cluster: got gpu, expected one of 1024xh100, 2240xa100, 64xa100, 64xh100, "
    "8xh100, cpu_cluster, dataflow, flink, local, one_gpu, portable, spark, or a .yaml file; did you mean one_gpu?",
    "check gpt2 -- --direct_num_workers=2": "invalid arguments: got `--` with check, expected options of Beam after "
    "`--` for corpus and run only; remove them",
    "check gpt2 --lr 1e-4": "invalid option: got --lr, expected optimizer.learning_rate=VALUE, because it is a "
    "key; write it after the recipe",
    "check gpt2 --global-batch-size 16": "invalid option: got --global-batch-size, expected "
    "phases.0.global_batch_size=VALUE, because it is a key; write it after the recipe",
    "check gpt2 --tensor-parallel-size 2": "invalid option: got --tensor-parallel-size, expected "
    "cluster.engine.tensor_parallel_size=VALUE, because it is a key; write it after the recipe",
    "check gpt2 --learning-rate 1": "invalid option: got --learning-rate, expected optimizer.learning_rate=VALUE, "
    "because it is a key; write it after the recipe",
    "check gpt2 --masking.rate .1": "invalid option: got --masking.rate, expected masking.rate=VALUE, because it is a "
    "key; write it after the recipe",
    "check gpt2 --training.steps=3": "invalid option: got --training.steps, expected phases.0.steps=VALUE, because it "
    "is a key; write it after the recipe",
    "check gpt2 --validation.seq_len 3": "invalid option: got --validation.seq_len, expected an option of `sesame "
    "check`; see `sesame check --help`",
    "check gpt2 max_steps=60": "override max_steps=60: invalid key: got max_steps, expected the option --max-steps, "
    "which shortens all phases and their warm-up; use this option of check, plan, train and run, or train(steps=N) in "
    "Python",
    "check gpt2 --scale tiny phases.0.steps=60": "gpt2: invalid optimizer.warmup_steps: got 200, expected less than "
    "60, the steps of the run; lower it, or shorten the run with --max-steps instead, which also shortens the warm-up",
    "check gpt2 --steps 60": "invalid option: got --steps, expected --max-steps; rename it",
    "run finetune": f"invalid recipe: got finetune, {RECIPES}; did you mean `sesame eval`?",
    "generate gpt2 x --lr 3": "invalid option: got --lr, expected an option of `sesame generate`; leave it out, "
    "because only eval has --learning-rates",
    "generate gpt2 x --temprature 3": "invalid option: got --temprature, expected an option of `sesame generate`; did "
    "you mean --temperature?",
    "export gpt2 x --steps 3": "invalid option: got --steps, expected an option of `sesame export`; did you mean "
    "--step?",
    "check gpt2 --save-interval 3": "invalid option: got --save-interval, expected cluster.save_every=VALUE, because "
    "it is a key; write it after the recipe",
    "check gpt2 --output-dir x": "invalid option: got --output-dir, expected an option of `sesame check`; leave it "
    "out, because corpus and other commands have --output-dir",
    "check gpt2 --follow": "invalid option: got --follow, expected an option of `sesame check`; leave it out, because "
    "only logs has --follow",
    "train gpt2 --micro-batch-size 4": "invalid option: got --micro-batch-size, expected "
    "cluster.engine.micro_batch_tokens=VALUE (in tokens instead of sequences, without gradient accumulation steps), "
    "because it is a key; write it after the recipe",
    "train gpt2 --fp16": "invalid option: got --fp16, expected cluster.engine.precision=fp16, because it is a key; "
    "write it after the recipe",
    "train gpt2 --load x": "invalid option: got --load, expected init_checkpoint=VALUE (weights of a new run, because "
    "the same command resumes a stopped run), because it is a key; write it after the recipe",
    "train gpt2 --context-parallel-size 2": "invalid option: got --context-parallel-size, expected "
    "cluster.engine.sequence_parallel_size=VALUE (Ulysses instead of ring attention), because it is a key; write it "
    "after the recipe",
    "train gpt2 --num-nodes 2": "invalid option: got --num-nodes, expected cluster.num_workers=VALUE (the number of "
    "devices of all nodes), because it is a key; write it after the recipe",
    "train gpt2 --report_to none": "invalid option: got --report_to, expected no such key, because MLflow records each "
    "run; leave it out",
    "eval gpt2 --weight_decay 1": "invalid option: got --weight_decay, expected grids.NAME.weight_decay of a task "
    "file, because it is a key; write it into your own task file",
    "--quux check gpt2": "invalid option: got --quux, expected a command first; see `sesame --help`",
    "finetune gpt2": "invalid command: got finetune, expected a command that `sesame --help` lists; did you mean eval?",
    "zzzz": "invalid command: got zzzz, expected a command that `sesame --help` lists; see `sesame --help`",
    "keys --jsn": "invalid PART: got jsn, expected a part, a kind or a key of a file; did you mean "
    "corpus.sources.json?",
    "train docs": f"invalid recipe: got docs, a directory, {RECIPES}; use RECIPE --data docs if it contains your text",
    "corpus ./README.md": f"invalid recipe: got ./README.md, a file, {RECIPES}; use RECIPE --data ./README.md if it "
    "contains your text",
    "train FacebookAI/roberta-base": "invalid recipe: got FacebookAI/roberta-base, which is not a file, "
    f"{RECIPES}; use the recipe roberta_base; for these weights, download them and add init_checkpoint=DIR",
    "train EleutherAI/gpt-neo-125m": "invalid recipe: got EleutherAI/gpt-neo-125m, which is not a file, "
    f"{RECIPES}; download the model, because names on a hub are not read, and use RECIPE init_checkpoint=DIR",
    "export roberta_base_tiny-de40f3d1 x": "invalid RUN: got roberta_base_tiny-de40f3d1, expected the name or the "
    "MLflow ID of a run in work/runs; name the directory of its results with --output-dir",
    "train gpt2 --log-every": "invalid --log-every: got no value, expected one; see `sesame train --help`",
    "check gpt2 --quux red": "invalid option: got --quux, expected an option of `sesame check`; see `sesame "
    "check --help`",
    "eval gpt2 --num-seeds 0": "invalid --num-seeds: got '0', expected a number of at least 1; see `sesame eval "
    "--help`",
    "eval gpt2 --max-steps 1.5": "invalid --max-steps: got '1.5', expected an integer; see `sesame eval --help`",
    "generate gpt2 x --temperature hot": "invalid --temperature: got 'hot', expected a number; see `sesame generate "
    "--help`",
    "eval gpt2 --frozen-features middle": "invalid --frozen-features: got 'middle', expected one of none, last, "
    "last_four, scalar_mix; see `sesame eval --help`",
    "check gpt2 engine.precision=bf16": "override engine.precision=bf16: invalid key: got engine, expected a key of "
    "the recipe; write cluster.engine.precision=bf16, because it is a key of the cluster",
    "check gpt2 phases[0].steps=9": "override phases[0].steps=9: invalid key: got phases[0].steps, expected dots "
    "around the number of a list item; write phases.0.steps=9",
    "check gpt2 data.tokenizer.vocab_size=1": "override data.tokenizer.vocab_size=1: "
    "invalid data.tokenizer.vocab_size: got 1, expected an integer of at least 257; see `sesame keys "
    "data.tokenizer.vocab_size`",
    "check gpt2 --scale huge": "invalid --scale: got 'huge', expected one of tiny, small; use one of them",
    "check gpt2 data.corpus=dmo": f"invalid corpus: got dmo, expected {CORPORA}, or a .yaml file; did you mean demo?",
    "check gpt2 --data /no/such": "/no/such: no such file or directory; check the path",
    "check bert_base model.type_vocab_size=1": "bert_base: invalid model.type_vocab_size: got 1, expected 2 or more, "
    "the "
    "number of segments of data.packing segment_pair; use model kind encoder or two_stream or "
    "generator_discriminator with type_vocab_size "
    "2",
    "plan gpt2 --budget 5usd --deadline 1d": "invalid --deadline: got --budget too, expected only one of them; "
    "remove one",
    "plan gpt2 --published": NO_MORE,
    "plan --published --cluster 8xh100": NO_MORE,
    "plan --published --deadline 1d": NO_MORE,
    "plan --compute-optimal many": f"invalid --compute-optimal: got many, {FLOPS}",
    "plan --compute-optimal -1": f"invalid --compute-optimal: got -1, {FLOPS}",
    "plan --compute-optimal nan": f"invalid --compute-optimal: got nan, {FLOPS}",
    "plan --compute-optimal 1e11": f"invalid --compute-optimal: got 1e11, {FLOPS}",
    "plan --compute-optimal 1e33": f"invalid --compute-optimal: got 1e33, {FLOPS}",
    "plan --compute-optimal=": f"invalid --compute-optimal: got an empty value, {FLOPS}",
    "plan gpt2 --compute-optimal 1e21 --budget 5usd": RECIPE_ONLY.format("--budget"),
    "plan --compute-optimal 1e21 --published": RECIPE_ONLY.format("--published"),
    "plan gpt2 --compute-optimal 1e21 --cluster 8xh100": RECIPE_ONLY.format("--cluster"),
    "plan --compute-optimal 1e21 --scale tiny": "invalid --scale: got no RECIPE, expected one; name a recipe, or "
    "remove --scale",
    "plan --compute-optimal 1e21 --max-steps 9": "invalid --max-steps: got no RECIPE, expected one; name a recipe, or "
    "remove --max-steps",
    "plan GPT2 --compute-optimal 1e21": f"invalid recipe: got GPT2, {RECIPES}; did you mean gpt2?",
    "check gpt2 --cluster one_gpu cluster.gpu_type=nonsense": "invalid cluster.gpu_type: got 'nonsense', expected "
    "one of v100_16gb, v100, a100_40gb, a100, h100, h200, b200, l40s, l4, a10g; set one of these, or leave it empty to "
    "use the devices of this machine",
    "check gpt2 cluster.gpu_type=h100": "override cluster.gpu_type=h100: invalid cluster.gpu_type: got 'h100', "
    "expected empty with "
    "device cpu; see `sesame keys cluster.gpu_type`",
    "check gpt2 cluster.ray_address=auto": "gpt2: invalid cluster.num_workers: got 0, which counts the workers of "
    "this machine "
    "only, expected a number of at least 1 with ray_address; set it to the number of workers of the Ray cluster",
    "check GPT2": f"invalid recipe: got GPT2, {RECIPES}; did you mean gpt2?",
    "check gpt2.yaml": "gpt2.yaml: no such file; for the recipe of Sesame, write gpt2",
    "check gpt2 --cluster 8xh100.yaml": "8xh100.yaml: no such file; for the cluster of Sesame, write 8xh100",
    "check gpt2 --data=": "invalid --data: got an empty value, expected a path, GROUP=PATH, or the "
    "name of a corpus; set it or leave it out",
    "check gpt2 init_checkpoint=docs": f"invalid init_checkpoint: got docs, {WEIGHTS}",
    "check gpt2 init_checkpoint=nowhere": f"invalid init_checkpoint: got nowhere (no such directory), {WEIGHTS}",
    "check gpt2 --cluster local cluster.ray_address=http://head:8265": "override cluster.ray_address=http://head:8265: "
    f"invalid cluster.ray_address: got 'http://head:8265', {ADDRESSES}; see `sesame keys cluster.ray_address`",
    "check gpt2 --cluster cpu_cluster cluster.ray_address=head:99999": "override cluster.ray_address=head:99999: "
    f"invalid cluster.ray_address: got 'head:99999', {ADDRESSES}; see `sesame keys cluster.ray_address`",
    "check gpt2 --cluster 8xh100 cluster.usd_per_device_hour=.inf": "override cluster.usd_per_device_hour=.inf: "
    "invalid cluster.usd_per_device_hour: got inf, expected US dollars from 0 to a million; see `sesame keys "
    "cluster.usd_per_device_hour`",
    "check gpt2 cluster.hang_timeout_minutes=.inf": "override cluster.hang_timeout_minutes=.inf: "
    "invalid cluster.hang_timeout_minutes: got inf, expected a number of minutes from 0 (never) up; see `sesame keys "
    "cluster.hang_timeout_minutes`",
    f"check gpt2 model.num_hidden_layers={10**30}": "override model.num_hidden_layers, line 1: "
    "invalid YAML: got a number of 31 digits, expected at most 20; use a smaller one",
    f"check gpt2 model.num_hidden_layers={'9' * 5000}": "override model.num_hidden_layers, line 1: "
    "invalid YAML: got a number of 5000 digits, expected at most 20; use a smaller one",
    "check gpt2 name=../../evil": "override name=../../evil: invalid name: got '../../evil', expected 1 to 100 "
    "letters, digits, _ . + and -, with a letter or digit first; see `sesame keys name`",
    "ui --port 65536": "invalid --port: got '65536', expected a number up to 65535; see `sesame ui --help`",
    "doctor --port 0": "invalid --port: got '0', expected a number of at least 1; see `sesame doctor --help`",
    "status --address http://127.0.0.1:99999": "invalid --address: got http://127.0.0.1:99999, "
    "expected http://HOST:PORT of a Ray dashboard; use port 8265 (6379 and ray:// are not the dashboard)",
    "inspect ./docs": "./docs: has no pretrain.json, so it is not a run; use the directory or name of a run, "
    "or a recipe",
    "train gpt2 --data demo --output-dir README.md": "--output-dir README.md: exists and is not a directory; "
    "use another one",
    "train bert_base --dry-run": "corpus wikipedia_books: its text cannot be distributed; name your copy with "
    "--data PATH, or use --data demo",
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("words", ERRORS)
def test_invalid_command_gives_one_line_and_exit_code_2(capsys, words, tmp_path, monkeypatch):
    """The directory has no `work`: after `make demo`, that of the checkout has runs, which messages name."""
    for name in ("docs", "README.md"):
        (tmp_path / name).symlink_to(Path(__file__).resolve().parents[2] / name)
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, *words.split()) == (2, ERRORS[words])


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("train --save-interval", "--save-every"),
        ("run --save_steps", "--save-every"),
        ("train --checkpoint.interval", "--save-every"),
        ("train --data-path", "--data"),
        ("train --train_file", "--data"),
        ("train --dataset_name", "--data (not a name on a hub)"),
        ("train --output_dir", "--output-dir"),
        ("train --job.dump_folder", "--output-dir"),
        ("eval --num_train_epochs", "--epochs"),
        ("eval --max_steps", "--max-steps"),
        ("eval --num-samples", "--max-train-samples"),
        ("generate --max-length", "--max-new-tokens"),
        ("generate --num-samples", "--num-return-sequences"),
        ("generate --beam_size", "--num-beams"),
        ("eval --per_device_train_batch_size", "--batch-sizes"),
        ("eval --task_name", "--tasks"),
        ("eval --learning_rate", "--learning-rates"),
    ],
)
def test_an_option_of_another_library_is_answered_with_an_option_of_the_command(capsys, line: str, option: str) -> None:
    verb, theirs = line.split()
    answer = f"invalid option: got {theirs}, expected {option}; rename it"
    assert refused(capsys, verb, "gpt2", theirs, "3") == (2, answer)


TABLES = (ROOT / "docs" / "guides" / "from-other-libraries.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in TABLES.splitlines() if line.startswith("| ") and "`" in line]
FLAGS = [
    ("eval" if len(columns) == 2 else "train", theirs, re.findall("`([^`]+)`", columns[-1])[0])
    for columns in ROWS
    if columns[-1] not in ("Sesame", "`sesame eval`")
    for theirs in re.findall("`([^`]+)`", " ".join(columns[:-1]))
]


def test_the_page_for_users_of_other_libraries_has_many_flags() -> None:
    assert len(FLAGS) > 90


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("verb", "theirs", "ours"), FLAGS, ids=lambda each: each)
def test_each_flag_of_the_page_for_users_of_other_libraries_has_this_answer(
    capsys, verb: str, theirs: str, ours: str
) -> None:
    option = theirs if theirs.startswith("--") else f"--{theirs}"
    if option == ours:  # an option of Sesame
        return
    code, line = refused(capsys, verb, "gpt2", option, "3")
    expected = rf"invalid option: got {re.escape(option)}, expected {re.escape(ours)}(=\w+)?( \(.*\))?(, because.*)?; "
    assert code == 2
    assert re.match(expected, line)


@pytest.mark.parametrize(
    "given", ["optimizer.learning_rate=" + "x" * 1_000_000, "model.num_hidden_layers=[" + "1," * 10_000 + "]"]
)
def test_error_line_is_short_for_long_arguments(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name of five megabytes was once repeated completely."""
    code, line = refused(capsys, "check", "bert_base", given)
    assert (code, len(line) < 5_000) == (2, True)
    assert re.search(
        r" \[[\d,]+ more characters\] .*, expected an? (integer|number); see `sesame keys [a-z_.]+`$", line
    )


def test_train_without_a_corpus_names_the_command_to_build_it(capsys, flags):
    code, line = refused(capsys, "train", *flags)
    assert code == 2
    assert line.endswith(
        "this corpus is not made yet; make it with `sesame corpus`, or run all stages with `sesame run`"
    )


def test_eval_without_a_run_names_the_command_to_train_it(capsys, flags):
    code, line = refused(capsys, "eval", *flags)
    assert code == 2
    assert "not trained with these flags under" in line
    assert line.endswith(f"train it with `sesame train {' '.join(flags)}`")


MT_NLG = ["mt_nlg_530b", "--cluster", "one_gpu", "--data", "demo"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize("verb", ["run", "train"])
def test_job_that_does_not_fit_is_refused_before_any_stage(
    capsys, monkeypatch, tmp_path: Path, verb: str, more: list[str]
) -> None:
    """The corpus was once built first, and a dry run announced stages that could not run."""
    words = [verb, *MT_NLG, "--output-dir", str(tmp_path / "out"), *more]
    assert main(words) == 4
    (line,) = (line for line in capsys.readouterr().err.splitlines() if not line.endswith(" ..."))
    assert "this machine has none" in line
    monkeypatch.setattr("orchestration.planning.run_estimate.refuse_missing_gpus", lambda *given: None)
    assert main(words) == 4
    (line,) = (line for line in capsys.readouterr().err.splitlines() if not line.endswith(" ..."))
    assert "mt_nlg_530b on one_gpu: each device needs" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("verb", ["run", "train"])
def test_assumed_devices_are_reported(capsys, tmp_path: Path, verb: str) -> None:
    words = [
        "bert_base",
        "--cluster",
        "cpu_cluster",
        "--data",
        "demo",
        "--output-dir",
        str(tmp_path / "out"),
        "--dry-run",
    ]
    assert main([verb, *words]) == 0
    assert "assumed: each machine of the cluster is like this one" in capsys.readouterr().err.splitlines()


def test_login_in_a_cluster_address_is_refused_and_hidden(capsys) -> None:
    code, line = refused(
        capsys, "check", "gpt2", "--cluster", "cpu_cluster", "cluster.ray_address=ray://me:secretpw@head:1"
    )
    assert code == 2
    assert line.endswith(f"got an address with a login, {ADDRESSES}; see `sesame keys cluster.ray_address`")
    assert "secretpw" not in line


def test_password_in_a_text_url_is_hidden(capsys) -> None:
    code, line = refused(capsys, "corpus", "gpt2", "--data", "http://me:secretpw@127.0.0.1:1/x.txt")
    assert code == 2
    assert line.startswith("http://***@127.0.0.1:1/x.txt: Cannot connect to host 127.0.0.1:1")


def test_run_of_two_steps_is_allowed(capsys) -> None:
    """Such a run was once refused: it had too few steps for a profile, although no profile was requested."""
    assert main(["check", "bert_tiny", "phases.0.steps=2", "optimizer.warmup_steps=1"]) == 0


def test_finished_run_is_accepted_on_a_cluster_where_it_would_not_fit(capsys, tmp_path: Path, text: Path) -> None:
    words = [
        "bert_base",
        "--scale",
        "tiny",
        "--cluster",
        "one_gpu",
        "--data",
        str(text),
        "--output-dir",
        str(tmp_path / "out"),
    ]
    flags = JobFlags(recipe="bert_base", scale="tiny", cluster="one_gpu", data=[str(text)], output_dir=tmp_path / "out")
    open_job(flags).plan.run.finish()
    assert main(["train", *words, "--dry-run"]) == 0
    assert main(["train", *words, "--dry-run", "--resume", "never"]) == 4


def test_dry_run_of_training_says_that_the_corpus_is_missing(capsys, flags: list[str]) -> None:
    """It once printed "would do: corpus, run", although only `sesame run` makes a corpus."""
    assert main(["train", *flags, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "would do: run\n" in out
    assert "make it first with `sesame corpus`, or use `sesame run`" in err


def test_unfitting_plan_says_how_many_devices_fit(capsys) -> None:
    given = ["plan", "gpt3_175b", "--cluster", "8xh100", "--deadline", "34d"]
    assert json_answer(capsys, *given, code=4)["next"] == []
    assert main(given) == 4
    out = " ".join(capsys.readouterr().out.split())
    assert "no layout of these devices has enough memory; the smallest layout that fits: cluster.num_workers=16" in out
    assert "cost" not in out


def test_suggested_layout_replaces_the_given_keys(capsys) -> None:
    given = ["gpt3_175b", "--cluster", "8xh100", "cluster.num_workers=64", "--deadline", "1000d"]
    answer = json_answer(capsys, "plan", *given, code=4)
    assert answer["goal"] == "the fewest devices that meet the deadline"
    assert answer["next"][0].count("cluster.num_workers=") == 1


def test_suggested_command_keeps_the_cluster(capsys) -> None:
    on = ["gpt2", "cluster.num_workers=4", "--cluster", "8xh100"]
    assert json_answer(capsys, "plan", *on)["next"] == [f"sesame check {' '.join(on)}"]
    assert json_answer(capsys, "check", *on)["next"] == [f"sesame run {' '.join(on)}"]


def test_impossible_plan_is_followed_by_a_check_that_passes(capsys) -> None:
    """The suggested command selects the fastest layout that fits."""
    (command,) = json_answer(capsys, "plan", "gpt3_175b", "--cluster", "1024xh100", code=4)["next"]
    words = shlex.split(command)[1:]
    assert words[:2] == ["check", "gpt3_175b"]
    assert "cluster.engine.tensor_parallel_size=4" in words
    assert main(words) == 0


def test_compute_optimal_plan_names_the_position_of_a_recipe_and_the_nearest_ones(capsys) -> None:
    answer = json_answer(capsys, "plan", "gpt3_175b", "--compute-optimal", "3.14e23")
    assert answer["next"] == ["sesame plan turing_nlg"]
    assert answer["recipe"]["parameters"] == 174_604_259_328
    first = answer["approaches"][0]
    assert first["nearest_recipe"] == {"name": "turing_nlg", "parameters": 17_176_845_728}
    assert first["optimal_tokens_of_recipe"] == pytest.approx(3.7e12, rel=0.02)  # table 3 of arXiv:2203.15556
    assert main(["plan", "gpt3_175b", "--compute-optimal", "3.14e23"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"1 +3\.66 T +undertrained 12\.1x +50\.7 B", line) for line in lines)


def test_compute_optimal_plan_needs_no_recipe_and_no_torch() -> None:
    code = "import sys; from orchestration.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    given = [sys.executable, "-c", code, "plan", "--compute-optimal", "1e21"]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert "compute-optimal sizes for 1e+21 FLOPs" in done.stdout
    assert "recipe" not in done.stdout.partition("next")[0]


def test_plan_says_at_its_top_that_a_layout_is_impossible(capsys) -> None:
    assert main(["plan", "gpt3_175b", "--cluster", "1024xh100"]) == 4
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (impossible,) = [number for number, line in enumerate(lines) if line.startswith("impossible: each device needs")]
    assert impossible < lines.index("memory per device")


def test_check_compares_the_initial_weights_with_the_recipe(capsys, tmp_path: Path) -> None:
    recipe = load("bert_base", (), "tiny")
    model = Model(recipe.model, recipe.losses, 64, seed=1)
    save_weights(
        dict(model.named_parameters()), ModelSpec(model=recipe.model, losses=recipe.losses, vocab_size=64), tmp_path
    )
    words = ["bert_base", "--scale", "tiny", f"init_checkpoint={tmp_path}"]
    assert main(["check", *words]) == 0
    capsys.readouterr()
    code, line = refused(capsys, "check", *words, "model.num_hidden_layers=3")
    assert code == 2
    assert line == (
        f"invalid model.num_hidden_layers: got 3, expected 2 as in {tmp_path}/spec.json; set model.num_hidden_layers=2"
    )


def test_keys_without_effect_are_reported(capsys) -> None:
    assert (
        main(["check", "gpt2", "cluster.scale_up_interval_minutes=3", "cluster.num_workers=2", "cluster.min_workers=2"])
        == 0
    )
    message = [line for line in capsys.readouterr().err.splitlines() if line.startswith("cluster ")]
    alone = "without ray_address, Ray starts on this machine only"
    assert message == [
        f"cluster local: {key} has no effect: {alone}" for key in ("min_workers", "scale_up_interval_minutes")
    ]


@pytest.mark.parametrize("verb", ["corpus", "run"])
def test_unknown_beam_runner_is_refused_in_a_dry_run_too(capsys, flags, verb: str) -> None:
    assert main([verb, *flags, "--dry-run", "--", "--runner=Nope"]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("sesame: Beam options: invalid runner: got Nope, expected one of ")
    )


def test_missing_dataflow_packages_are_reported_before_an_mlflow_run_is_created(
    capsys, monkeypatch, flags, tmp_path: Path
):
    from pipeline.runners import running

    monkeypatch.setattr(running, "_DATAFLOW", "apache_beam.no_such_module")
    for more in ([], ["--dry-run"]):
        assert main(["corpus", *flags, "--cluster", "dataflow", *more]) == 4
        assert capsys.readouterr().err.splitlines()[-1].endswith("run pip install 'apache_beam[gcp]'")
    assert not list((tmp_path / "out").glob("mlflow*"))


def test_step_after_the_last_is_refused(capsys, flags_with_corpus):
    assert refused(capsys, "inspect", *flags_with_corpus, "--step", "99999") == (
        2,
        "invalid step: got 99999, expected a step from 0 to 3999; give a step of this run",
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("too little text"), 3, "too little text"),
        (ResourceError("no port"), 4, "no port"),
        (Diverged("step 7: not finite"), 5, "step 7: not finite"),
        (Preempted("stopped after step 7"), 75, "stopped after step 7"),
        (KeyboardInterrupt("stopped after step 7"), 130, "stopped after step 7"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(13, "No", "/x"), 2, "/x: No; check the path and its permissions, "
            "or give another --output-dir"),
        (OSError(36, "Long", "/x"), 2, "/x: Long; check the path and its permissions, or give another --output-dir"),
    ],
)  # fmt: skip
def test_each_kind_of_failure_has_its_exit_code(capsys, monkeypatch, error, code, message):
    def fail(flags: JobFlags) -> None:
        raise error

    monkeypatch.setattr(jobs, "open_job", fail)
    assert refused(capsys, "check", "bert_base") == (code, message)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "Full", "/x/y"), 2, "no disk space (/x/y): the file system at /"),
        (MemoryError("malloc failed"), 4, "out of memory (malloc failed); raise the limit (ulimit -v)"),
        (OSError(12, "Memory"), 4, "out of memory ([Errno 12] Memory); raise the limit (ulimit -v)"),
        (ImportError("x.so: failed to map segment from shared object"), 4, "out of memory (x.so: failed to map"),
        (OSError(24, "Many"), 4, "[Errno 24] Many; raise the limit: `ulimit -n 4096`"),
        (BlockingIOError(11, "Fork"), 4, "[Errno 11] Fork: no more processes or threads; raise the limit (ulimit -u)"),
        (RuntimeError("can't start new thread"), 4, "can't start new thread: no more processes or threads; raise"),
    ],
)  # fmt: skip
def test_each_exceeded_system_limit_is_named(capsys, monkeypatch, error, code, message):
    """Under `ulimit -v` and `ulimit -n`, a command once ended with a traceback."""

    def fail(flags: JobFlags) -> None:
        raise error

    monkeypatch.setattr(jobs, "open_job", fail)
    found, line = refused(capsys, "check", "bert_base")
    assert (found, line[: len(message)]) == (code, message)


def test_deleted_current_directory_gives_a_one_line_error(capsys, monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(jobs, "open_job", lambda flags: Path("x").absolute())
    message = "the current directory was deleted or moved; change to an existing directory"
    assert refused(capsys, "check", "bert_base") == (2, message)


def test_programming_error_keeps_its_traceback(monkeypatch):
    def fail(flags: JobFlags) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(jobs, "open_job", fail)
    with pytest.raises(AssertionError, match="ours"):
        main(["check", "bert_base"])


def test_check_prints_its_result_and_the_next_command(capsys):
    assert main(["check", "bert_base", "--cluster", "one_gpu"]) == 0
    first, layout, *notes, second = capsys.readouterr().out.splitlines()
    assert layout == "layout  1 device: data 1, bf16, micro-batch 256"
    assert first.startswith("ok  bert_base  1,000,000 steps, 4.3e10 tokens, 1 worker of cluster")
    *notes, chosen = notes
    assert chosen.startswith("micro_batch_tokens: auto -> 131,584 (")
    assert all("assumed" in note for note in notes)  # about the GPU, if this machine has none
    assert second == "next  sesame run bert_base --cluster one_gpu"


@pytest.mark.parametrize("cluster", list_names("clusters"))
def test_each_cluster_file_works_with_a_recipe(capsys, cluster: str):
    """BERT's batches of 256 sequences are too small for 1,024 workers; RoBERTa's of 8,192 are large enough. BERT's 12
    layers cannot form 35 pipeline stages."""
    if cluster == "1024xh100":
        assert main(["check", "roberta_base", "--cluster", cluster]) == 0
        assert main(["check", "bert_base", "--cluster", cluster]) == 2
        assert "expected at least 1024, the number of workers" in capsys.readouterr().err
    elif cluster == "2240xa100":
        assert main(["check", "mt_nlg_530b", "--cluster", cluster]) == 0
        assert main(["check", "bert_base", "--cluster", cluster]) == 2
        assert "each of the 35 stages needs at least one layer); use 10 or 8" in capsys.readouterr().err
    else:
        assert main(["check", "bert_base", "--cluster", cluster]) == 0
        assert f"of cluster {cluster} " in capsys.readouterr().out


def json_answer(capsys, *words, code=0):
    """Return the JSON document that is the only output on stdout."""
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_check_prints_json(capsys):
    values = json_answer(capsys, "check", "gpt2", "cluster.num_workers=2")
    assert (values["workers"], values["next"]) == (2, ["sesame run gpt2 cluster.num_workers=2"])
    assert len(values["hash"]) == 64


def test_recipes_prints_a_table_a_tree_or_a_difference(capsys):
    assert set(json_answer(capsys, "recipes")) == {*list_names("recipes"), "next"}
    assert json_answer(capsys, "recipes", "roberta_base")["parameters"] == 124_697_433
    assert (
        "removes next sentence prediction"
        in json_answer(capsys, "recipes", "bert_base", "--diff", "roberta_base")["differences"]
    )
    assert main(["recipes"]) == main(["recipes", "gpt2"]) == main(["recipes", "bert_base", "--diff", "gpt2"]) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("110,106,428", "124,439,808", "124,697,433", "predicts next token"))


def test_dry_run_writes_nothing(capsys, flags, tmp_path: Path):
    values = json_answer(capsys, "run", *flags, "--dry-run")
    assert {name: stage["state"] for name, stage in values["stages"].items()} == dict.fromkeys(
        ("text", "vocab", "corpus", "run"), "due"
    )
    assert not (tmp_path / "out").exists()


def test_corpus_uses_the_beam_options_of_its_cluster(capsys, flags, tmp_path: Path):
    """Beam parses the options before any work starts, also in a dry run."""
    cluster = tmp_path / "mine.yaml"
    cluster.write_text("name: mine\nbeam: {runner: FlinkRunner, options: {parallelism: 4, flink_mastr: far}}\n")
    for given in ("--direct-num-workers=4", "--dry-run", "--"):
        assert main(["corpus", *flags, "--", given]) == 2
        name = given.partition("=")[0]
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"sesame: Beam options: unknown option {name!r}")
    for more in (["--dry-run"], []):
        assert main(["corpus", *flags, "--cluster", str(cluster), *more]) == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert message.startswith("sesame: Beam options: unknown option 'flink_mastr'")
    assert not list((tmp_path / "out").rglob("*.arrow"))
    cluster.write_text("name: mine\nbeam: {runner: FlinkRunner, options: {parallelism: 4}}\n")
    assert main(["corpus", *flags, "--cluster", str(cluster), "--dry-run"]) == 0
    assert f"--cluster {cluster}" in JobFlags(recipe="gpt2", cluster=str(cluster)).command("corpus")


@pytest.mark.parametrize(
    "more",
    [
        ["corpus", "--data-card", "--materialize", "--", "--direct_num_workers=2"],
        ["run", "--num-seeds=5", "--max-train-samples=50", "--resume=never"],
        ["train", "--resume=must", "--save-every=7"],
    ],
    ids=lambda more: more[0],
)
def test_dry_run_prints_the_command_for_the_real_run(capsys, flags, more: list[str]):
    verb, *rest = more
    assert main([verb, *flags, "--dry-run", "--json", *rest]) == 0
    assert json.loads(capsys.readouterr().out)["next"] == [shlex.join(["sesame", verb, *flags, "--json", *rest])]


def test_text_format_is_reported_if_forced(capsys, flags, text: Path):
    main(["corpus", *flags, "--dry-run"])
    assert f"{text / 'a.txt'}: read as text, one document per" not in capsys.readouterr().err
    main(["corpus", "bert_base", "--scale", "tiny", "--data", f"line:{text}", "--dry-run"])
    assert f"{text}: read as text, one document per line" in capsys.readouterr().err


def test_several_texts_form_one_corpus(capsys, text: Path):
    values = json_answer(
        capsys, "corpus", "bert_base", "--data", str(text), "--data", f"jsonl:{text}/a.txt", "--dry-run"
    )
    assert "/text_and_1_more-" in values["stages"]["text"]["folder"]


def test_text_identity_does_not_depend_on_the_current_directory(capsys, text: Path, monkeypatch):
    far = json_answer(capsys, "corpus", "bert_base", "--data", str(text), "--dry-run")
    monkeypatch.chdir(text.parent)
    assert json_answer(capsys, "corpus", "bert_base", "--data", "text", "--dry-run")["stages"] == far["stages"]


def test_changed_text_changes_its_stage(capsys, flags, text: Path):
    before = json_answer(capsys, "corpus", *flags, "--dry-run")
    (text / "a.txt").write_text("Another document altogether. It is longer than the first one.\n")
    assert json_answer(capsys, "corpus", *flags, "--dry-run")["stages"]["text"] != before["stages"]["text"]


def test_inspect_shows_the_sequences_of_a_step_with_labels(capsys, flags_with_corpus):
    values = json_answer(capsys, "inspect", *flags_with_corpus, "--step", "3", "--rows", "2")
    first, second = values["samples"]
    assert (first["step"], first["row"], second["row"]) == (3, 0, 1)
    assert first["tokens"][0] == "[CLS]"
    masked = [(token, label) for token, label in zip(first["tokens"], first["labels"], strict=True) if label]
    assert len(masked) == max(1, round(0.15 * len(first["tokens"])))
    assert ("[MASK]", masked[0][1]) in masked or any(token == label for token, label in masked)
    assert values == json_answer(capsys, "inspect", *flags_with_corpus, "--step", "3", "--rows", "2")
    assert values["next"][0].endswith("--step 4")


def test_inspect_marks_masked_tokens(capsys, flags_with_corpus):
    assert main(["inspect", *flags_with_corpus, "--rows", "1"]) == 0
    shown = capsys.readouterr().out
    assert "step 0, sequence 0:" in shown
    assert "[MASK](w" in shown


def test_inspect_shows_documents_of_the_corpus(capsys, flags_with_corpus, tmp_path: Path):
    from preprocessing.dropped import DROPPED, DroppedDocument, write_dropped

    found = json_answer(capsys, "inspect", *flags_with_corpus, "--document", "00" * 15 + "07")["document"]
    assert (found["source"], found["metadata"], found["row"]) == ("mini_world", {}, 7)
    (shard,) = (tmp_path / "out").glob("corpora/*/train-*.arrow")
    write_dropped(shard.with_name(DROPPED), [DroppedDocument("too_short", "ab" * 16, "a.txt", 3, "abc")], ())
    (dropped,) = json_answer(capsys, "inspect", *flags_with_corpus, "--dropped", "all")["dropped"]
    assert (dropped["reason"], dropped["text"], dropped["metadata"]) == ("too_short", "abc", None)
    assert main(["inspect", *flags_with_corpus, "--dropped", "too_short"]) == 0
    assert "a.txt, key abababababab, 3 characters" in capsys.readouterr().out


def test_inspect_writes_a_page(capsys, flags_with_corpus, tmp_path: Path):
    values = json_answer(capsys, "inspect", *flags_with_corpus, "--step", "3", "--rows", "2", "--html", str(tmp_path))
    page = tmp_path / "inspect-step-3.html"
    assert values["html"] == str(page)
    assert page.read_text().count("<section") == 2
    (corpus,) = (tmp_path / "out").glob("corpora/*")
    assert main(["inspect", str(corpus), "--html", str(page)]) == 0
    assert capsys.readouterr().out.startswith(f"the page is {page}\n")
    assert page.read_text().count("<section") == 72
    assert refused(capsys, "inspect", *flags_with_corpus, "--html", str(tmp_path / "no" / "page.html"))[0] == 2
    code, message = refused(capsys, "inspect", *flags_with_corpus, "--domains", "--html", "page.html")
    assert (code, "got --html with --domains" in message) == (2, True)


def test_where_lists_the_rows_that_inspect_shows(capsys, flags_with_corpus):
    recipe, *flags = flags_with_corpus
    key = "00" * 15 + "07"
    values = json_answer(capsys, "where", recipe, key, *flags, "--steps", "0:40", "--progress", "none")
    assert (values["num_found"], values["num_trained"]) == (2, 0)
    first = values["documents"][0]["uses"][0]
    shown = json_answer(capsys, *shlex.split(values["next"][0])[1:])["samples"]
    assert [(row["step"], row["row"]) for row in shown] == [(first["step"], first["row"])]
    documents = {each["key"]: [each["start"], each["stop"]] for each in shown[0]["documents"]}
    assert documents[key] in first["ranges"]
    assert main(["where", recipe, key, *flags, "--rows", "1"]) == 0
    assert "not seen yet; will be seen " in capsys.readouterr().out
    assert refused(capsys, "where", recipe, key, *flags, "--steps", "4-5") == (
        2,
        "invalid --steps: got 4-5, expected A:B; write it like 1000:1999",
    )
    assert refused(capsys, "where", recipe, "no such text", *flags)[0] == 2


def test_inspect_refuses_documents_that_the_corpus_does_not_have(capsys, flags_with_corpus):
    code, message = refused(capsys, "inspect", *flags_with_corpus, "--domains")
    assert (code, "invalid --domains: got documents without URLs" in message) == (2, True)
    code, message = refused(capsys, "inspect", *flags_with_corpus, "--domains", "--dropped", "all")
    assert (code, "got --dropped and --domains, expected one of them" in message) == (2, True)
    assert refused(capsys, "inspect", *flags_with_corpus, "--dropped", "all")[0] == 2


def test_doctor_exits_with_4_for_a_fatal_problem(capsys, monkeypatch, tmp_path: Path):
    from orchestration.terminal import doctor

    assert {"what", "found", "remedy", "fatal"} == set(
        json_answer(capsys, "doctor", "--output-dir", str(tmp_path))["findings"][0]
    )
    monkeypatch.setattr(doctor, "LIBRARIES", ("no-such-library",))
    assert main(["doctor", "--output-dir", str(tmp_path)]) == 4


def test_quick_commands_import_no_heavy_module(tmp_path: Path, text: Path):
    program = f"""
import sys
from orchestration.cli import main
from orchestration.cli.groups import TextOptions
from orchestration.cli.shared import flags_of, job_command
assert main(["--help"]) == 0
assert not {{"pydantic", "pyarrow", "numpy"}} & set(sys.modules), "help"
dry_run = ["run", "bert_base", "--data", {str(text)!r}, "--output-dir", {str(tmp_path)!r}, "--dry-run"]
codes = [main(words) for words in (["recipes"], ["check", "bert_base"], dry_run)]
assert codes == [0, 0, 0], codes
main(["doctor"])
heavy = {{"torch", "apache_beam", "ray", "mlflow", "deepspeed", "matplotlib", "transformers"}} & set(sys.modules)
assert not heavy, heavy
nets = ["gpt2", "t5_base", "xlnet_base", "transformer_xl_base", "electra_small", "spanbert_base"]
assert [main(["recipes", name]) for name in nets] == [0] * len(nets)
assert "torch._dynamo" not in sys.modules, "torch's compiler, of seconds"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class StopImport:
    """An import finder that ends the command instead of importing a slow module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, *more: object) -> None:
        if name == self.name:
            raise ResourceError(f"imports {name}")


REQUIRED = {  # further arguments of these commands; with an address, `run` starts no Ray
    "export": ["to"],
    "register": ["--name", "mine"],
    "run": ["cluster.ray_address=127.0.0.1:1", "cluster.num_workers=1"],
}


@contextmanager
def show_wait_at_once(what: str) -> Iterator[None]:
    """`show_wait` without its initial delay."""
    print(f"{what} ...", file=sys.stderr)
    yield


@pytest.mark.parametrize(
    ("verb", "stage", "module"),
    [
        ("corpus", "importing Beam", "corpus"),
        ("run", "importing Beam", "corpus"),
        ("train", "importing", "pretrain"),
        ("inspect", "importing", "runs"),
        ("export", "importing PyTorch", "model_export"),
        ("register", "importing", "model_export"),
    ],
)
def test_slow_import_is_announced(capsys, monkeypatch, flags, verb, stage, module):
    name = f"orchestration.jobs.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(jobs, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [StopImport(name), *sys.meta_path])
    for module in [name for name in sys.modules if name.startswith("orchestration.cli.")]:
        monkeypatch.setattr(sys.modules[module], "show_wait", show_wait_at_once, raising=False)
    assert main([verb, *flags, *REQUIRED.get(verb, ())]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == [f"{stage} ...", f"sesame: imports {name}"]


def test_wait_is_announced_only_after_a_moment(capsys, monkeypatch):
    monkeypatch.setattr(output, "AT_ONCE_S", 60.0)
    with show_wait("importing"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(output, "perf_counter", lambda: 100.0)
    for began_s, waits_s in ((100.0, 1.0), (99.25, 0.25), (9.0, 0.0)):
        token = output.BEGAN_S.set(began_s)
        with show_wait("importing") as timer:
            assert timer.interval == pytest.approx(waits_s)
            timer.join(None if waits_s == 0 else 0)
        output.BEGAN_S.reset(token)
    assert capsys.readouterr().err == "importing ...\n"


def test_keys_prints_text_and_json(capsys):
    values = json_answer(capsys, "keys", "optimizer.adamw")
    (part,) = values["parts"]
    assert part["keys"][0] == {
        "name": "learning_rate", "type": "number", "default": "", "doc": "Peak learning rate.", "choices": []
    }  # fmt: skip
    assert main(["keys", "--fp16"]) == 0
    assert "--fp16 is called cluster.engine.precision=fp16 in Sesame" in capsys.readouterr().out
    for name in ("train-iters", "--train-iters", "training.steps"):
        found = json_answer(capsys, "keys", name)
        assert [part["path"] for part in found["parts"]] == ["phases"]
        assert found["next"] == []
    assert main(["keys", "phases.0.steps"]) == 0
    assert "Number of steps" in capsys.readouterr().out
    assert main(["keys", "masking.none"]) == 0
    assert "no keys" in capsys.readouterr().out
    assert main(["keys"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 140
    assert refused(capsys, "keys", "optimzer") == (
        2,
        "invalid PART: got optimzer, expected a part, a kind or a key of a file; did you mean optimizer?",
    )


@pytest.mark.parametrize("words", ["-h", "check -h", "run --help"])
def test_both_help_options_work(capsys, words):
    assert main(words.split()) == 0
    assert "Usage: sesame" in capsys.readouterr().out


def test_version_is_that_of_the_distribution(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sesame {sesame_version()}\n"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["", "--json"])
def test_closed_stdout_gives_no_error(how):
    command = f"{shlex.quote(sys.executable)} -m orchestration.cli recipes {how} | true"
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=False).stderr == b""


@pytest.mark.slow
def test_run_goes_from_text_to_scores_and_repeats_nothing(capsys, tmp_path: Path):
    text = "the cat dog house tree sees likes near old new red green is was not"
    words = text.split()
    for source in ("north", "south"):
        lines = []
        for number in range(300):
            order = [words[(number * 7 + place * (3 if source == "north" else 5)) % 15] for place in range(40)]
            lines.append(" ".join(order[:20]).capitalize() + f" {number}. " + " ".join(order[20:]).capitalize() + ".")
        (tmp_path / f"{source}.txt").write_text("\n".join(lines))
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntest_ratio: 0.3\nvalidation_ratio: 0.1\n"
        "sources: [{kind: text, path: north.txt, document_unit: line}, "
        "{kind: text, path: south.txt, document_unit: line}]\n"
    )
    job_flags = [
        "bert_base",
        "--scale",
        "tiny",
        "--data",
        str(tmp_path / "mine.yaml"),
        "--output-dir",
        str(tmp_path / "out"),
    ]
    job_flags += [
        "data.tokenizer.vocab_size=200",
        "phases.0.steps=6",
        "phases.0.global_batch_size=8",
        "optimizer.warmup_steps=2",
        "cluster.num_workers=1",
    ]
    small = ["--num-seeds", "1", "--max-train-samples", "8", "--progress", "none"]

    assert main(["run", *job_flags, *small, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["result"]["step"] == 6
    assert {score["task"] for score in first["scores"]} == {"source_classification", "next_sentence", "cloze"}

    assert main(["run", *job_flags, *small, "--json"]) == 0
    message = capsys.readouterr()
    assert json.loads(message.out) == first
    assert message.err.count("done, skipped") == 4

    run = Path(first["folder"]).name
    assert main(["export", run, str(tmp_path / "hf"), "--output-dir", str(tmp_path / "out")]) == 0
    assert (tmp_path / "hf" / "model.safetensors").is_file()
    shown = " ".join(capsys.readouterr().out.split())
    assert 'AutoModelForPreTraining loads all heads; pipeline("fill-mask") and AutoModel report those that' in shown
    assert main(["export", run, str(tmp_path / "hf"), "--output-dir", str(tmp_path / "out")]) == 2
    assert main(["inspect", run, "--output-dir", str(tmp_path / "out"), "--rows", "1"]) == 0
    assert main(["eval", run, "--output-dir", str(tmp_path / "out"), *small, "--json"]) == 0


def test_run_skips_tasks_without_files_and_keeps_the_result(
    capsys, monkeypatch, flags_with_corpus, tmp_path: Path, caplog
) -> None:
    """The training is finished by then, so an unavailable task must not lose its result."""
    scored, failed = [], []

    def fake_train(job, *more):
        finished_run(job.plan.run.folder)
        return TRAINED

    def fake_evaluate(folder, plans, *more, left_out, command):
        scored.extend(plan.task for plan in plans)
        left_out += failed
        splits = {"dev": {"accuracy": (0.5, 0.75)}}
        starts = {start: SelectedTrials({"peak": 1e-3}, splits) for start in STARTS}
        return [TaskScore(plan.task, plan.metric, plan.split, "", starts) for plan in plans]

    for name in ("train", "train_locked"):
        monkeypatch.setattr(pretrain, name, fake_train)
    monkeypatch.setattr(ray_stages.evaluate, "evaluate", fake_evaluate)
    monkeypatch.setattr(ray_stages, "_ray", lambda *more: nullcontext())
    words = [*flags_with_corpus, "eval_tasks=[sst2,glue,squad2,cnndm,wikitext2]", "--progress", "none", "--json"]
    assert (
        main(["run", *words, "--task-data-dir", str(write_reviews(tmp_path / "data")), "--max-train-samples", "8"]) == 0
    )
    (score,) = json.loads(capsys.readouterr().out)["scores"]
    assert (scored, score["task"], score["random"]) == (["sst2"], "sst2", [0.5, 0.75])
    for task in ("cola", "mnli", "squad2", "cnndm", "wikitext2"):
        (line,) = [one for one in caplog.messages if one.startswith(f"left out: task {task}: ")]
        assert str(tmp_path / "data") in line
    # the task started and failed, so the command does not succeed
    failed.append(Diverged("sst2, pretrained: loss nan"))
    assert (
        main(["run", *words, "--task-data-dir", str(tmp_path / "data"), "--max-train-samples", "8"])
        == Diverged.exit_code
    )
    assert json.loads(capsys.readouterr().out)["result"]["step"]


def test_run_without_task_data_dir_names_the_skipped_tasks(capsys, monkeypatch, flags_with_corpus, caplog) -> None:
    for name in ("train", "train_locked"):
        monkeypatch.setattr(pretrain, name, lambda job, *more: finished_run(job.plan.run.folder) and TRAINED)
    monkeypatch.setattr(ray_stages, "_ray", lambda *more: nullcontext())
    assert main(["run", *flags_with_corpus, "eval_tasks=[glue,squad2]", "--progress", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == []
    assert "left out: glue, squad2: name the directory of their files with --task-data-dir DIR" in caplog.messages


@pytest.mark.one_in(2)
@pytest.mark.parametrize("verb", ["train", "run"])
def test_interval_options_change_no_stage(monkeypatch, flags_with_corpus, capsys, verb) -> None:
    asked = []
    for name in ("train", "train_locked"):
        monkeypatch.setattr(pretrain, name, lambda job, *more: asked.append(job) or TRAINED)
    monkeypatch.setattr(ray_stages, "_ray", lambda *more: nullcontext())
    words = [] if verb == "train" else ["eval_tasks=[]"]
    assert main([verb, *flags_with_corpus, *words, "--log-every", "3", "--eval-every", "20", "--save-every", "40"]) == 0
    assert main([verb, *flags_with_corpus, *words]) == 0
    often, seldom = (job.pretraining() for job in asked)
    assert (often.log_every, often.eval_every, often.save_every) == (3, 20, 40)
    assert (seldom.log_every, seldom.eval_every, seldom.save_every) == (10, 1_000, 1_000)
    assert [job.recipe.hash for job in asked[:1]] == [job.recipe.hash for job in asked[1:]]
    assert asked[0].plan.run.hash == asked[1].plan.run.hash
    assert "every" not in "".join(line for line in capsys.readouterr().out.splitlines() if " inspect " in line)


def test_interval_of_zero_steps_is_refused(capsys, flags_with_corpus) -> None:
    code, message = refused(capsys, "train", *flags_with_corpus, "--log-every", "0")
    assert code == 2
    assert "invalid --log-every: " in message
    code, message = refused(capsys, "train", *flags_with_corpus, "cluster.log_every=0")
    assert (code, message) == (
        2,
        "override cluster.log_every=0: invalid cluster.log_every: got 0, expected at least 1 step; "
        "see `sesame keys cluster.log_every`",
    )


def test_profile_steps_must_be_in_range(capsys, flags_with_corpus) -> None:
    code, message = refused(capsys, "train", *flags_with_corpus, "--profile-steps", "0")
    assert (code, "invalid --profile-steps: " in message) == (2, True)
    code, message = refused(
        capsys, "train", *flags_with_corpus, "--profile-steps", "101"
    )  # a trace of many has gigabytes
    assert code == 2
    assert "invalid cluster.profile_steps: got 101, expected a number of steps from 0 (none) to 100; see" in message


def test_command_line_is_recorded_without_passwords(monkeypatch, flags_with_corpus) -> None:
    asked = []
    for name in ("train", "train_locked"):
        monkeypatch.setattr(pretrain, name, lambda job, *more: asked.append(job) or TRAINED)
    assert main(["train", *flags_with_corpus, "--cluster", "local", "eval_tasks=[next_sentence]"]) == 0
    assert asked[0].command.startswith("sesame train bert_base --scale tiny --data ")
    main(["check", "bert_base", "--data", "no://me:secret@host/text"])  # this text does not exist
    assert flags_of("bert_base", (), TextOptions()).command_line == "sesame check bert_base --data 'no://***@host/text'"


def test_register_reports_what_is_missing(capsys, flags_with_corpus, tmp_path: Path) -> None:
    out = ["--name", "mine", "--output-dir", str(tmp_path / "out")]
    assert refused(capsys, "register", "no_such_run", *out) == (
        2,
        f"invalid RUN: got no_such_run, expected the name or the MLflow ID of a run in {out[-1]}/runs, or a recipe; "
        "name the directory of its results with --output-dir",
    )
    code, message = refused(capsys, "register", *flags_with_corpus, "--name", "mine")
    assert code == 2
    assert "not trained with these flags" in message
    folder = tmp_path / "out" / "runs" / "net-0123abcd"
    folder.mkdir(parents=True)
    (folder / "pretrain.json").write_text("{}")
    for name in ("net-0123abcd", "net-0123", str(folder)):
        code, message = refused(capsys, "register", name, *out)
        assert (code, message) == (
            2, f"{folder}: this run is not finished, so it has no model; resume it with `sesame train`"
        )  # fmt: skip
    (folder / "stage.json").write_text("{}")
    store = tmp_path / "gone.db"
    (folder / "mlflow.json").write_text(json.dumps({"uri": f"sqlite:///{store}", "run_id": "0" * 32}))
    code, message = refused(capsys, "register", "net-0123", *out)
    assert (code, message.startswith(f"{store}: no such store")) == (2, True)
    assert not store.exists()
    assert refused(capsys, "register", "net-0123")[1:] == (
        "missing option: expected --name; see `sesame register --help`",
    )


def test_register_prints_the_version_and_a_loading_command(capsys, monkeypatch) -> None:
    found = ModelVersion("mine", "3", "models:/mine/3", "sqlite:////out/mlflow.db", True, "The [MASK] of the town")
    monkeypatch.setattr(model_export, "register", lambda flags, name, alias: found)
    assert main(["register", "net-0123", "--name", "mine"]) == 0
    message = capsys.readouterr().out
    assert message.startswith("mine: version 3\n")
    (line,) = (line.removeprefix("next").strip() for line in message.splitlines() if line.startswith("next"))
    words = shlex.split(line)
    assert words[:4] == ["env", "MLFLOW_TRACKING_URI=sqlite:////out/mlflow.db", "python", "-c"]
    assert 'mlflow.pyfunc.load_model("models:/mine/3").predict("The [MASK] of the town")' in words[4]
    compile(words[4], "next", "exec")
    assert main(["register", "net-0123", "--name", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["number"] == "3"


def test_init_checkpoint_reaches_the_workers_and_must_exist(capsys, tmp_path):
    (tmp_path / "config.json").touch()
    job = open_job(
        JobFlags(recipe="bert_base", overrides=[f"init_checkpoint={tmp_path}"], scale="tiny", output_dir=tmp_path)
    )
    assert job.pretraining().init_checkpoint == str(tmp_path)
    assert refused(capsys, "check", "bert_base", "init_checkpoint=/nowhere") == (
        2,
        f"invalid init_checkpoint: got /nowhere (no such directory), {WEIGHTS}",
    )


UNUSUAL_NAME = "it's a $recipe #1.yaml"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["recipes", UNUSUAL_NAME], ["check", UNUSUAL_NAME]),
        (["recipes", UNUSUAL_NAME, "--diff", "gpt2"], ["check", "gpt2"]),
        (["recipes", "gpt2", "--diff", UNUSUAL_NAME], ["check", UNUSUAL_NAME]),
        (["check", UNUSUAL_NAME], ["run", UNUSUAL_NAME]),
    ],
)
def test_printed_commands_are_quoted_for_a_shell(
    words: list[str],
    printed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A name with spaces was once printed as two words."""
    monkeypatch.chdir(tmp_path)
    recipe = (Path(cli.__file__).parents[1] / "recipes" / "bert_base.yaml").read_text(encoding="utf-8")
    Path(UNUSUAL_NAME).write_text(recipe.replace("name: bert_base", "name: mine"), encoding="utf-8")
    assert main(words) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next")]
    assert shlex.split(line) == ["next", "sesame", *printed]


def test_job_commands_are_quoted_for_a_shell() -> None:
    words = ["sesame", "logs", "a job", "--follow", "--address", "http://host:1/?a b"]
    assert shlex.split(job_command("logs", "a job", "http://host:1/?a b", "--follow")) == words
