"""Results are written to folders of this machine: an address is refused at once, whichever verb or key gets it."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer

import sesame
from orchestration import cli
from orchestration.jobs import evaluate, export
from preprocessing.errors import BadInput
from training.specs.engine_settings import EngineSettings

ADDRESSES = (
    "s3://bucket/x", "S3://bucket/x", "gs://bucket/x", "hdfs://host/x", "hdfs:/x", "abfs://c@host/x", "abfss://c@host/x",
    "file:///tmp/x", "file:/tmp/x", "file:x", "FILE:x", "https://host/x", "memory://x", "dbfs:/x", "az://c/x", "r2://b/x",
    "simplecache::s3://bucket/x", " s3://bucket/x", "C:/x",
)  # fmt: skip
COMMANDS: Any = typer.main.get_command(cli.app)
NEEDS = {
    "recipe": "bert_base",
    "run": "bert_base",
    "prompts": "The",
    "folder": "new",
    "table": "albert-sp",
    "job": "job",
}
MORE = {"register": ("--name", "mine")}
WITH_OUT = [
    verb
    for verb, command in COMMANDS.commands.items()
    if any("--output-dir" in option.opts for option in command.params)
]


def words_of(verb: str) -> list[str]:
    """What a verb cannot do without."""
    arguments = [one for one in COMMANDS.commands[verb].params if one.param_type_name == "argument" and one.required]
    return [verb, *(NEEDS[one.name] for one in arguments), *MORE.get(verb, ())]


def refused(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said, in one line; nothing was written."""
    assert cli.main(words) == 2
    assert os.listdir(folder) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [line for line in captured.err.splitlines() if not line.endswith("...")]
    return line


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_verb_that_writes_is_here() -> None:
    assert {"corpus", "train", "run", "eval", "ablation", "export", "register", "submit", "ui", "doctor"} <= {*WITH_OUT}


@pytest.mark.parametrize("verb", WITH_OUT)
def test_no_verb_writes_to_an_address(verb: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It wrote into a folder named `s3:`, and ended with 0."""
    line = refused([*words_of(verb), "--output-dir", "s3://bucket/x"], elsewhere, capsys)
    assert line.startswith(
        "sesame: invalid --output-dir: got the URL s3://bucket/x, expected a local directory; mount the store"
    )


@pytest.mark.parametrize("address", ADDRESSES)
def test_whatever_address_it_is(address: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "got the URL" in refused(["train", "bert_base", "--output-dir", address], elsewhere, capsys)
    with pytest.raises(BadInput, match=r"^invalid --output-dir: got the URL"):
        sesame.open("bert_base", scale="tiny", data="demo", output_dir=address)
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_other_options_and_keys_that_name_a_folder(
    words: list[str], said: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(words, elsewhere, capsys)


def test_parts_and_functions_refuse_it_too(elsewhere: Path) -> None:
    for nvme_dir in ("s3://bucket/x", "file:///x"):
        with pytest.raises(ValueError, match=r"invalid nvme_path: got .*, expected a directory on a local disk"):
            EngineSettings(zero_stage=3, offload_optimizer="nvme", nvme_path=nvme_dir)
    with pytest.raises(ValueError, match=r"invalid output_file: got .*, expected the path of a local file"):
        EngineSettings(deepspeed={"flops_profiler": {"output_file": "s3://bucket/x"}})
    with pytest.raises(BadInput, match=r"^invalid DIR: got the URL s3://bucket/x"):
        export(elsewhere, Path("s3://bucket/x"))
    with pytest.raises(BadInput, match=r"^invalid --leaderboard-dir: got the URL s3://bucket/x"):
        evaluate.submit([], [], Path("s3://bucket/x"))
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("name", ["a:b", "s3:", "it's 50% #1?", "x@y", "-", "a+b&c"])
def test_a_folder_with_an_odd_name_is_none(name: str) -> None:
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
def test_no_folder_at_all_is_not_this_one(
    words: list[str], elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--output-dir "$OUT"` with a variable that was not set wrote into the current folder."""
    assert "got an empty value, expected a directory; use . for the current directory" in refused(
        words, elsewhere, capsys
    )


@pytest.mark.parametrize(
    "words", [["train", "bert_base", "--output-dir", "caf\udce9"], ["export", "bert_base", "caf\udce9"]]
)
def test_a_name_that_is_no_text_is_refused(
    words: list[str], elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a UnicodeEncodeError."""
    assert "got caf\ufffd, expected a name in UTF-8" in refused(words, elsewhere, capsys)


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
def test_what_can_be_no_path_is_refused(
    option: str, words: list[str], name: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "OSError: File name too long", or "embedded null byte"."""
    message = refused([*words, name], elsewhere, capsys)
    assert f"invalid {option}: got {name[:3]!r}"[:-1] in message
    assert len(message) < 300
