"""Results are written to local directories: a URL is refused at once by every command and key."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer

import sesame
from orchestration import cli
from orchestration.evaluation import leaderboard
from orchestration.jobs import export
from preprocessing.errors import BadInput
from training.specs.engine_settings import EngineSettings

ADDRESSES = (
    "s3://bucket/x", "S3://bucket/x", "gs://bucket/x", "hdfs://host/x", "hdfs:/x", "abfs://c@host/x", "abfss://c@host/x",
    "file:///tmp/x", "file:/tmp/x", "file:x", "FILE:x", "https://host/x", "memory://x", "dbfs:/x", "az://c/x", "r2://b/x",
    "simplecache::s3://bucket/x", " s3://bucket/x", "C:/x",
)  # fmt: skip
COMMANDS: Any = typer.main.get_command(cli.app)
ARGUMENTS = {
    "recipe": "bert_base",
    "run": "bert_base",
    "runs": "bert_base",
    "prompts": "The",
    "folder": "new",
    "table": "albert-sp",
    "job": "job",
    "document": "cafe",
}
REQUIRED_OPTIONS = {"register": ("--name", "mine")}
COMMANDS_WITH_OUTPUT = [
    verb
    for verb, command in COMMANDS.commands.items()
    if any("--output-dir" in option.opts for option in command.params)
]


def words_of(verb: str) -> list[str]:
    """Return a command with its required arguments and options."""
    arguments = [one for one in COMMANDS.commands[verb].params if one.param_type_name == "argument" and one.required]
    return [verb, *(ARGUMENTS[one.name] for one in arguments), *REQUIRED_OPTIONS.get(verb, ())]


def error_line(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one-line error; check that nothing was written."""
    assert cli.main(words) == 2
    assert os.listdir(folder) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [line for line in captured.err.splitlines() if not line.endswith("...")]
    return line


@pytest.fixture(autouse=True)
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_writing_command_is_tested() -> None:
    assert {
        "corpus",
        "train",
        "run",
        "eval",
        "compare",
        "ablation",
        "export",
        "register",
        "submit",
        "ui",
        "doctor",
    } <= {*COMMANDS_WITH_OUTPUT}


@pytest.mark.parametrize("verb", COMMANDS_WITH_OUTPUT)
def test_no_command_writes_to_a_url(verb: str, work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command once wrote into a directory named `s3:` and exited with 0."""
    line = error_line([*words_of(verb), "--output-dir", "s3://bucket/x"], work_dir, capsys)
    assert line.startswith(
        "sesame: invalid --output-dir: got the URL s3://bucket/x, expected a local directory; mount the store"
    )


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_kind_of_url_is_refused(address: str, work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "got the URL" in error_line(["train", "bert_base", "--output-dir", address], work_dir, capsys)
    with pytest.raises(BadInput, match=r"^invalid --output-dir: got the URL"):
        sesame.open("bert_base", scale="tiny", data="demo", output_dir=address)
    assert os.listdir(work_dir) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "bert_base", "s3://bucket/x"], "invalid DIR: got the URL s3://bucket/x"),
        (
            ["eval", "bert_base", "--leaderboard-dir", "gs://bucket/x"],
            "invalid --leaderboard-dir: got the URL gs://bucket/x",
        ),
        (
            ["check", "bert_base", "cluster.engine.nvme_path=s3://bucket/x", *["cluster.engine.zero_stage=3"]],
            "nvme_path",
        ),
    ],
)
def test_other_options_and_keys_refuse_a_url(
    words: list[str], message: str, work_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in error_line(words, work_dir, capsys)


def test_settings_and_functions_refuse_a_url(work_dir: Path) -> None:
    for nvme_dir in ("s3://bucket/x", "file:///x"):
        with pytest.raises(ValueError, match=r"invalid nvme_path: got .*, expected a directory on a local disk"):
            EngineSettings(zero_stage=3, offload_optimizer="nvme", nvme_path=nvme_dir)
    with pytest.raises(ValueError, match=r"output_file: got .*, expected the path of a local file"):
        EngineSettings(deepspeed={"flops_profiler": {"output_file": "s3://bucket/x"}})
    with pytest.raises(BadInput, match=r"^invalid DIR: got the URL s3://bucket/x"):
        export(work_dir, Path("s3://bucket/x"))
    with pytest.raises(BadInput, match=r"^invalid --leaderboard-dir: got the URL s3://bucket/x"):
        leaderboard.submit([], [], Path("s3://bucket/x"))
    assert os.listdir(work_dir) == []


@pytest.mark.parametrize("name", ["a:b", "s3:", "it's 50% #1?", "x@y", "-", "a+b&c"])
def test_directory_with_an_unusual_name_is_accepted(name: str) -> None:
    assert sesame.open("bert_base", scale="tiny", data="demo", output_dir=name)._flags.output_dir == Path(name)


@pytest.mark.parametrize(
    "words",
    [
        ["train", "bert_base", "--output-dir", ""],
        ["ui", "--output-dir="],
        ["export", "bert_base", ""],
        ["doctor", "--output-dir", ""],
        ["eval", "bert_base", "--leaderboard-dir", ""],
        ["eval", "bert_base", "--leaderboard-dir="],
    ],
)
def test_empty_directory_option_is_refused(
    words: list[str], work_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--output-dir "$OUT"` with a variable that was not set wrote into the current folder."""
    assert "got an empty value, expected a directory; use . for the current directory" in error_line(
        words, work_dir, capsys
    )


@pytest.mark.parametrize(
    "words", [["train", "bert_base", "--output-dir", "caf\udce9"], ["export", "bert_base", "caf\udce9"]]
)
def test_name_that_is_not_utf8_is_refused(words: list[str], work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such a name once raised UnicodeEncodeError."""
    assert "got caf\ufffd, expected a name in UTF-8" in error_line(words, work_dir, capsys)


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b"], ids=["too long", "with NUL"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("recipe", ["check"]),
        ("--cluster", ["check", "gpt2", "--cluster"]),
        ("--scale", ["check", "gpt2", "--scale"]),
        ("--data", ["corpus", "gpt2", "--dry-run", "--data"]),
        ("--output-dir", ["corpus", "gpt2", "--data", "demo", "--dry-run", "--output-dir"]),
    ],
)
def test_impossible_path_is_refused(
    option: str, words: list[str], name: str, work_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "OSError: File name too long", or "embedded null byte"."""
    message = error_line([*words, name], work_dir, capsys)
    assert f"invalid {option}: got {name[:3]!r}"[:-1] in message
    assert len(message) < 300
