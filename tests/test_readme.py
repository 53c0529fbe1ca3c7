"""Every block of the README is executed here; what takes minutes is shortened and marked slow."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from orchestration import cli
from orchestration.config import scales
from orchestration.jobs import corpus as build
from orchestration.progress import ignore_progress
from pipeline.readers.python_docs import prose
from tests.golden import record, text

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
HEAVY = "step by step"  # the section whose commands train


def blocks(language: str) -> list[tuple[str, str]]:
    """(section, code) of each fenced block."""
    found, section = [], ""
    for match in re.finditer(r"^## ([^\n]*)$|^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        section = match[1] or section
        if match[2] == language:
            found.append((section, match[3]))
    return found


def lines(heavy: bool) -> list[str]:
    """Commands of the README, without their comments."""
    chosen = [code for section, code in blocks("sh") if (HEAVY in section) == heavy]
    return [line.split("#")[0].strip() for code in chosen for line in code.splitlines() if line.split("#")[0].strip()]


def shrink_to_few_steps(
    document: dict[str, Any], scale: str, root: type, shrink: Callable[..., None] = scales.shrink
) -> None:
    """The scale, and runs of seconds."""
    shrink(document, scale, root)
    document["data"]["tokenizer"]["vocab_size"], document["optimizer"]["warmup_steps"] = 600, 4
    document["phases"] = [{"seq_length": 48, "global_batch_size": 16, "steps": 12}]


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's own YAML files and some text in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scales, "shrink", shrink_to_few_steps)
    monkeypatch.setenv("HF_TOKEN", "of whoever reads it")
    for _, code in blocks("yaml"):
        (tmp_path / f"{re.match('name: (.*)', code)[1]}.yaml").write_text(code)  # type: ignore[index]
    (tmp_path / "my text").mkdir()
    text.write(tmp_path / "my text" / "text.jsonl")
    english = [json.dumps({"text": prose(topic)}) for topic in topics.values()]  # rules of quality want real prose
    (tmp_path / "my text" / "topics.jsonl").write_text("\n".join(english))
    (tmp_path / "my text" / "held out.txt").write_text(
        "A line of an evaluation set that no document may share with it."
    )
    rows = [f"the film number {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(60)]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return tmp_path


def run(line: str) -> int:
    return cli.main(shlex.split(line)[1:])


@pytest.mark.parametrize("line", [line for line in lines(heavy=False) if line.startswith("make")])
def test_make_targets_of_the_readme_exist(line: str) -> None:
    assert subprocess.run(["make", "-n", *shlex.split(line)[1:]], cwd=ROOT, capture_output=True).returncode == 0


def test_make_eval_takes_a_recipe_or_the_folder_of_a_run(tmp_path: Path) -> None:
    """A run knows its scale; with --scale beside its folder the command refused."""

    def said(recipe: str) -> str:
        return subprocess.run(
            ["make", "-n", "eval", f"RECIPE={recipe}"], cwd=ROOT, capture_output=True, text=True
        ).stdout

    assert "sesame eval gpt2 --scale tiny" in said("gpt2")
    assert f"sesame eval {tmp_path}" in said(str(tmp_path))
    assert "--scale" not in said(str(tmp_path))


COMMANDS = [line for line in lines(heavy=False) if line.startswith("sesame")]
SLOW = ("--cluster two_processes.yaml", "--materialize ")  # seconds each


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=[pytest.mark.slow] * any(word in line for word in SLOW)) for line in COMMANDS]
)
def test_commands_of_the_readme_work(newcomer: Path, line: str) -> None:
    assert run(line) == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_way_from_text_to_scores_works_step_by_step(newcomer: Path) -> None:
    text.write(newcomer / "my text" / "text.jsonl", num_documents=5_000)  # a tenth is held out: enough for 200 labels
    assert [(line, run(line)) for line in lines(heavy=True)] == [(line, 0) for line in lines(heavy=True)]


def test_python_blocks_of_the_readme_run(tmp_path: Path) -> None:
    job, _ = record.made("bert_base", tmp_path, "data.static_masks=2")
    rows = build.rows(job, (), ignore_progress)
    names = {"corpus": job.plan.corpus.folder, "rows": next(iter(rows.values())), "__name__": "readme"}
    for _, code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)


def test_the_picture_is_there() -> None:
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / path).is_file(), path


def test_no_page_calls_a_gain_surer_than_its_test_does() -> None:
    """They said that a gain was "beyond the seeds", which it was in one case of eight without any effect."""
    notebook = json.loads((ROOT / "docs" / "sesame.ipynb").read_text(encoding="utf-8"))
    pages = [README, *("".join(cell["source"]) for cell in notebook["cells"])]
    assert not [page for page in pages if "beyond the seeds" in page]
    assert "the p of a two-sided paired t test over the same seeds" in " ".join(README.split())
