"""Execute docs/extending/: write its files and lines to a copy of the checkout, and run its commands there."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.golden import text

ROOT = Path(__file__).parents[1]
PAGES = (
    "index",
    "masking",
    "objective",
    "loss",
    "attention",
    "reader",
    "filter",
    "optimizer",
    "task",
    "recipe",
    "other-parts",
)
PAGE = "\n".join((ROOT / "docs" / "extending" / f"{name}.md").read_text() for name in PAGES)
FLOORS = ("orchestration", "pipeline", "preprocessing", "training")
FEW_STEPS = {"phases": [{"seq_length": 48, "global_batch_size": 16, "steps": 12}]}
PROGRAM = """
import json, shlex, sys
from orchestration import cli
from orchestration.config import recipe, scales

def shrink(document, scale, root, shrunk=scales.shrink):  # a run of seconds
    shrunk(document, scale, root)
    document.update(json.loads(sys.argv[1]))
    document["data"]["tokenizer"]["vocab_size"], document["optimizer"]["warmup_steps"] = 600, 4

scales.shrink = shrink
for line in sys.argv[2:]:
    print("$", line, flush=True)
    if code := cli.main(shlex.split(line)[1:]):
        sys.exit(f"{line}: exit code {code}")
"""


class Block(NamedTuple):
    """A fenced block: its language, its label after the language, and its lines."""

    language: str
    label: str
    code: str


def blocks(language: str, label: str = "") -> Iterator[Block]:
    for match in re.finditer(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        block = Block(*match.groups())
        if block.language == language and block.label.startswith(label):
            yield block


def commands(label: str) -> list[str]:
    chosen = (block for block in blocks("sh") if block.label == label)
    return [line for block in chosen for line in block.code.splitlines() if line]


def join_union(path: Path, code: str) -> None:
    """Add an import and a member to a union in an `__init__.py`, unless the union already has the member."""
    line, union = code.strip().split("\n\n")
    name, members = union.split(" = ")
    member = members.replace("...", "").strip(" |")
    door = path.read_text(encoding="utf-8")
    if line in door:
        assert re.search(rf"^{name} = [^=]*\b{member}\b", door, re.MULTILINE)
        return
    first = members.startswith(member)
    begin = re.search(rf"^{name} = \(?\s*", door, re.MULTILINE)
    assert begin, f"{path} has no union {name}"
    old = re.compile(r"\(.*?^\)|[^\n]*", re.MULTILINE | re.DOTALL).match(door, begin.start() + len(f"{name} = "))
    assert old
    bare = old[0].strip("()\n ")
    new = f"(\n    {member}\n    | {bare}\n)" if first else f"(\n    {bare}\n    | {member}\n)"
    door = f"{door[: old.start()]}{new}{door[old.end() :]}"
    imports = door.index("\nfrom ") + 1
    path.write_text(f"{door[:imports]}{line}\n{door[imports:]}", encoding="utf-8")


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the files and lines of the pages, and text as a treebank."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copy(ROOT / "sesame.py", folder)
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, folder / floor, ignore=shutil.ignore_patterns("__pycache__"))
    for language in ("python", "yaml"):
        for block in blocks(language, "file="):
            path = folder / block.label.removeprefix("file=")
            assert not path.exists(), f"{path} is there already: show it with is="
            path.write_text(block.code)
    for block in blocks("python", "door="):
        join_union(folder / block.label.removeprefix("door="), block.code)
    (folder / "my text").mkdir()
    text.write(folder / "text.jsonl", num_documents=6_000)
    documents = [json.loads(line)["text"] for line in (folder / "text.jsonl").read_text().splitlines()]
    bank = "".join(f"# newdoc\n# text = {' '.join(document.split())}\n1\ta\n\n" for document in documents)
    (folder / "my text" / "bank.conllu").write_text(bank)
    return folder


def run(copy: Path, *lines: str) -> str:
    """Run the commands, which must succeed, and return their output."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(FEW_STEPS), *lines]
    environment = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return f"{done.stdout}\n{done.stderr}"


def test_the_pages_are_those_of_the_directory() -> None:
    assert {file.stem for file in (ROOT / "docs" / "extending").glob("*.md")} == set(PAGES)


def test_each_extension_is_one_new_file_and_one_line_in_a_union() -> None:
    files = [block.label for language in ("python", "yaml") for block in blocks(language) if "door=" not in block.label]
    doors = [block.label for block in blocks("python", "door=")]
    assert (len(files), len(doors)) == (
        12,
        8,
    )  # a recipe and a filter have no union; PEGASUS is an objective and a recipe; an attention has a spec and a module


@pytest.mark.parametrize(
    "block", [block for kind in ("python", "yaml") for block in blocks(kind, "is=")], ids=lambda block: block.label
)
def test_blocks_that_show_a_file_of_the_checkout_equal_the_file(block: Block) -> None:
    assert block.code == (ROOT / block.label.removeprefix("is=")).read_text()


@pytest.mark.slow
def test_the_commands_work_and_describe_the_new_parts(copy: Path) -> None:
    output = " ".join(run(copy, *commands("")).split())
    for words in (
        "whole words, rare ones more often",
        "masked tokens, with the focal loss",
        "read as conllu",
        "dropped: few_words",
        "optimizes with NAdam, instead of Adam",
        "of the sentences masked and predicted (highest ROUGE-1 F1)",
    ):
        assert words in output
    assert "None" not in output


ATTENTION = """
import torch
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.architectures import Share
from training.losses import NextToken
from training.model import Model
from training.specs import CausalSlidingWindow, Decoder, RotaryPositions
from training.specs.cosine_attention import CosineAttention

sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
sizes |= {"position_embedding": RotaryPositions(), "hidden_dropout": 0.0, "attention_dropout": 0.0}
plain, trunk = Decoder(**sizes), Decoder(**sizes, attention=CosineAttention())
print(trunk.weights(50).total - plain.weights(50).total)
model, rows = Model(trunk, (NextToken(),), 50, seed=0), random_rows([7, 12], 50)
unpadded, padded = (model(batch)["next_token"].loss for batch in (collate_unpadded(rows), collate_padded(rows, 16)))
torch.testing.assert_close(unpadded, padded)
unpadded.backward()
name = "trunk.blocks.1.attention.scale_of_head"
print(tuple(model.get_parameter(name).grad.shape), bool(model.get_parameter(name).grad.all()))
near = Decoder(**sizes, attention=CosineAttention(), qk_norm=True, attention_window=CausalSlidingWindow(size=40))
normed = Decoder(**sizes, attention=CosineAttention(), qk_norm=True)
states = []
for one in (normed, near):
    model = Model(one, (NextToken(),), 50, seed=0)
    states.append(model.trunk(collate_unpadded(rows)))
torch.testing.assert_close(*states)
model = Model(normed, (NextToken(),), 50, seed=0)
model(collate_unpadded(rows))["next_token"].loss.backward()
norm = "trunk.blocks.0.attention.query_norm.weight"
print(bool(model.get_parameter(norm).grad.any()))
with torch.device("meta"):
    print(tuple(Model(trunk, (NextToken(),), 50, seed=0, share=Share(1, 2)).get_parameter(name).shape))
"""


def test_the_new_attention_has_its_tensors_and_is_split_by_heads(copy: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", ATTENTION], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # four more weights in each of two layers
    assert done.stdout.split("\n")[3] == "(2, 1)"
    assert done.stdout.split("\n")[:3] == ["8", "(4, 1) True", "True"]


@pytest.mark.slow
def test_the_new_parts_train_resume_and_are_scored(copy: Path) -> None:
    output = run(copy, *commands("slow"))
    assert "order" in output
    metrics = next(copy.glob("work/**/metrics.jsonl")).read_text()
    assert "focal_accuracy" in metrics
    assert "the " in output.split("$ sesame generate")[1]
    assert json.loads((copy / "exported" / "config.json").read_text())["architectures"] == ["BertForPreTraining"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_new_parts_pass_formatter_linter_and_type_checker(copy: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", copy)
    files = [block.label.removeprefix("file=") for block in blocks("python", "file=")]
    for command in (["ruff", "format", "--check", *files], ["ruff", "check", *files], ["mypy", *FLOORS]):
        done = subprocess.run([sys.executable, "-m", *command], cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
