"""No text for users has a banned phrase; tests/english.py has the phrases and better ones."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from orchestration.cli.app import app
from orchestration.config import parts, tasks_of
from tests.english import BANNED, banned_in, banned_phrases


def help_texts() -> Iterator[tuple[str, str]]:
    """The help of `sesame` and of each verb, argument and option."""
    command = get_command(app)
    yield "sesame --help", command.help or ""
    for verb, each in command.commands.items():  # type: ignore[attr-defined]
        yield f"sesame {verb} --help", each.help or ""
        yield from ((f"sesame {verb} --help, {one.name}", getattr(one, "help", "") or "") for one in each.params)


def key_texts() -> Iterator[tuple[str, str]]:
    """The text that `sesame keys` prints."""
    for part in parts():
        yield f"sesame keys {part.name}", f"{part.doc}\n\n{part.details}"
        yield from ((f"sesame keys {part.path}.{key.name}", key.doc) for key in part.keys)


def task_texts() -> Iterator[tuple[str, str]]:
    """The text that `sesame tasks` prints."""
    for task in tasks_of(""):
        yield f"sesame tasks {task.name}", f"{task.description}\n\n{task.note}"
        yield from ((f"sesame tasks {task.name}, grid {name}", grid.note) for name, grid in task.grids.items())


def page_texts() -> Iterator[tuple[str, str]]:
    """The pages for users, except decisions, which are historical records, and the table of old names."""
    root = Path(__file__).parents[1]
    for page in (root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))):
        name = page.relative_to(root).as_posix()
        if not name.startswith("docs/decisions/") and name != "docs/reference/renames.md":
            yield name, page.read_text(encoding="utf-8")


def test_help_has_no_banned_phrase() -> None:
    texts = dict(help_texts())
    assert len(texts) > 100
    assert banned_in(texts) == []


def test_keys_have_no_banned_phrase() -> None:
    assert banned_in(dict(key_texts())) == []


def test_tasks_have_no_banned_phrase() -> None:
    texts = dict(task_texts())
    assert len(texts) > 100
    assert banned_in(texts) == []


def test_pages_have_no_banned_phrase() -> None:
    pages = dict(page_texts())
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md", "docs/reference/tasks.md"} <= pages.keys()
    assert banned_in(pages) == []


def test_a_failure_names_the_place_the_phrase_and_the_sentence() -> None:
    assert banned_in({"README.md": "Train it. The run goes on\nfrom its checkpoint."}) == [
        "README.md: 'goes on' (write: continue, resume) in: The run goes on from its checkpoint."
    ]


@pytest.mark.parametrize(
    "text",
    [
        "A row of a table, and figure 4a; the figures show losses.",
        "Word pieces, the rows of the token table, workers that share parameters.",
        "There is no key for it; a cell in quotation marks; parallelism; realistic; the network; a dataset.",
        "The tokenizer normalizes text; see `net.folder`.\n>>> net = 1",
        "```sh\ncd folder\n```",
        "Code may continue on the next line: `run --net 2x64\n--rounds 2`.",
        "A worker waits for the others.",
    ],
)
def test_phrases_with_a_correct_use_are_allowed(text: str) -> None:
    assert banned_phrases(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Tokens of so many earlier ones.",
        "Of the formats all are read.",
        "A share of the rows is masked.",
        "All but for the first one.",
        "What is kept of a text.",
        "rate is 2, allowed is a number up to 1",
        "x is no part and no key",
        "The model knows no such token.",
        "Tokenisation of the text.",
        "The run waits for a server.",
        "A stray ` mark.\n\nThe net, and another ` mark.",
        "| a | b |\n|---|---|\n| `net` | its net |",
    ],
)
def test_a_banned_phrase_is_detected(text: str) -> None:
    assert banned_phrases(text) != []


def test_each_phrase_compiles_and_has_a_remedy() -> None:
    assert all(re.compile(phrase) and remedy for phrase, remedy in BANNED.items())
