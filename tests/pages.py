"""Read the pages of the documentation for tests: blocks, links, headings, images, and a directory for commands."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Final

import pytest
import yaml

from orchestration.config import scales
from pipeline.readers.python_docs import prose
from tests.golden import text

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
_FENCE: Final = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=fence)`*[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_LINK: Final = re.compile(
    r"(?<!\\)\[(?P<text>[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)"
)
LIGHT: Final = ("recipes", "keys", "tasks", "check", "plan", "doctor")  # verbs that finish within seconds
SERVERS: Final = ("ui", "submit", "status", "logs", "stop")  # verbs that need a server: only their options are checked


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # line number of the first line of its code
    language: str  # "" if missing
    label: str  # the rest of the info string
    code: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md and all pages of the site."""
    front = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    return [page for page in (*front, *sorted(DOCS.rglob("*.md"))) if page.is_file()]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in order; with `languages`, only blocks of these languages."""
    content = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(content):
        language, _, label = match["info"].strip().partition(" ")
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        found.append(Block(page, content.count("\n", 0, match.start("code")) + 1, language, label.strip(), code))
    return [block for block in found if not languages or block.language in languages]


def prose_of(page: Path) -> str:
    """A page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", _FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.DOTALL)


def links(page: Path) -> list[str]:
    """The targets of the links and images of a page, except those on other hosts."""
    plain = re.sub(r"(`+)[^`]+?\1", "`code`", prose_of(page))
    targets = [match["target"] for match in _LINK.finditer(plain)]
    targets += re.findall(r"<(?:img|a)\b[^>]*?(?:src|href)=\"([^\"]+)\"", plain)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, in the form of GitHub and MyST.

    >>> slug("The `--data` option, in short")
    'the---data-option-in-short'
    """
    found = set[str]()
    for title in re.findall(r"^#+ +(.+?) *#*$", prose_of(page), re.MULTILINE):
        first = slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title))
        number = next(n for n in range(1_000) if (first if n == 0 else f"{first}-{n}") not in found)
        found.add(first if number == 0 else f"{first}-{number}")
    return found


def slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def commands(block: Block) -> list[str]:
    """The command lines of a block, without comments; in a console block, the lines after a dollar sign."""
    joined = re.sub(r"\\\n\s*", "", block.code)
    if block.language == "console":
        joined = "\n".join(line[2:] for line in joined.splitlines() if line.startswith("$ "))
    bare = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in bare if line]


def inline_commands(page: Path) -> list[str]:
    """The commands of `sesame` in the text and the table cells of a page."""
    found = re.findall(r"(?<!`)`(sesame [a-z]+(?: [^`]+)?)`(?!`)", prose_of(page))
    return [line.replace("\\|", "|") for line in found]


def verb_of(line: str) -> str:
    """The verb of a command line of `sesame`; "" if it has none."""
    words = line.split()
    return words[1] if len(words) > 1 and not words[1].startswith("-") else ""


def is_light(line: str) -> bool:
    """Whether a command finishes within seconds, and needs no result of an earlier command."""
    given = set(shlex.split(line))
    return verb_of(line) in ("", *LIGHT) or bool(given & {"--dry-run", "--help", "--version"})


def kind_of_yaml(document: Any) -> str:
    """The kind of file that a YAML document is, or is a part of, from its keys; "" if it is not a file of Sesame."""
    keys = set(document) if isinstance(document, dict) else set()
    kinds = {
        "recipe": {"data", "masking", "objective", "losses", "model", "optimizer", "phases", "eval_tasks"},
        "corpus": {"sources", "mixture", "clean", "dedup", "decontaminate", "word_segmentation", "phrases"},
        "cluster": {"num_workers", "engine", "ray_address", "beam", "loss_spikes", "env", "gpu_type"},
        "task": {"files", "task", "grids", "output_type"},
    }
    return next((kind for kind, names in kinds.items() if keys & names), "")


def yaml_files(page: Path) -> Iterator[tuple[str, Block]]:
    """The complete YAML files on a page, each with its file name from the key `name`; `task` in a file of lm-eval."""
    for block in blocks(page, "yaml"):
        document = yaml.safe_load(block.code)
        if isinstance(document, dict) and (key := "task" if "output_type" in document else "name") in document:
            yield f"{document[key]}.yaml", block


def shrink_to_few_steps(
    document: dict[str, Any], scale: str, root: type, shrink: Callable[..., None] = scales.shrink
) -> None:
    """Apply the scale to a recipe, and limit it to a few steps."""
    shrink(document, scale, root)
    document["data"]["tokenizer"]["vocab_size"], document["optimizer"]["warmup_steps"] = 600, 4
    document["phases"] = [{"seq_length": 48, "global_batch_size": 16, "steps": 12}]


def prepare(folder: Path, page: Path, num_documents: int = 300) -> None:
    """Write text, a table and the YAML files of a page, for its commands."""
    for name, block in yaml_files(page):
        (folder / name).write_text(block.code, encoding="utf-8")
    (folder / "my text").mkdir()
    text.write(folder / "my text" / "text.jsonl", num_documents=num_documents)
    english = [json.dumps({"text": prose(topic)}) for topic in topics.values()]  # quality filters need real prose
    (folder / "my text" / "topics.jsonl").write_text("\n".join(english))
    (folder / "my text" / "held out.txt").write_text("A line of an evaluation set that no document may share with it.")
    rows = [f"the film number {n} is {('bad', 'good')[n % 2]},{('no', 'yes')[n % 2]}" for n in range(60)]
    (folder / "prompts.txt").write_text("The history of\nA house\n")
    (folder / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to this directory, and limit recipes to a few steps."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(scales, "shrink", shrink_to_few_steps)
    monkeypatch.setenv("HF_TOKEN", "a token of the reader")
