"""Test README.md, CONTRIBUTING.md and docs/: execute or check every block, follow every link, regenerate pages.

A block that no rule covers fails. test_extending.py runs the blocks of docs/extending/.

- sh: lines of `sesame` run in a directory with `my text/`, `my.csv` and the YAML files of the page; lines of `make` run
  with -n; other commands are parsed by bash.
- yaml: a recipe, corpus, cluster or task file, or a part of one; it is loaded.
- python: runs after the blocks above it.
- console: the verbs, options and targets of commands after `$` must exist.
- json is parsed; text is ignored.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from docs import conf, generate
from orchestration import cli, config
from tests import pages
from tests.for_all import for_all
from tests.pages import ROOT, Block, name_of

PAGES = [page for page in pages.pages() if not page.is_relative_to(pages.DOCS / "extending")]
ALL_PAGES = pages.pages()
COMMAND: Any = typer.main.get_command(cli.app)
LANGUAGES = ("sh", "yaml", "python", "console", "json", "text", "{toctree}")
SLOW_PYTHON = re.compile(r"sesame\.open|from_pretrained|load_model")  # makes a corpus or loads a model
LARGEST_PICTURE = 300_000  # bytes
CLI_PAGES = [page for page in PAGES if pages.blocks(page, "sh")]


def sesame_lines(page: Path) -> list[str]:
    found = [line for block in pages.blocks(page, "sh") for line in pages.commands(block)]
    return [line for line in found if line.startswith("sesame ")]


def run(line: str) -> int:
    return cli.main(shlex.split(line)[1:])


# Blocks


@for_all(ALL_PAGES, name=name_of)
def test_each_block_has_a_language_that_a_test_covers(page: Path) -> None:
    unknown = [f"{block}: {block.language!r}" for block in pages.blocks(page) if block.language not in LANGUAGES]
    assert not unknown, f"expected one of {LANGUAGES}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Page -> the directory in which its quick commands have run."""
    return {}


LIGHT = [
    pytest.param(page, line, id=f"{name_of(page)}: {line}")
    for page in PAGES
    for line in dict.fromkeys(sesame_lines(page))
    if pages.is_light(line)
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("page", "line"), LIGHT)
def test_quick_commands_work(
    page: Path,
    line: str,
    prepared: dict[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if page not in prepared:
        prepared[page] = tmp_path_factory.mktemp(page.stem)
        pages.prepare(prepared[page], page)
    pages.enter(prepared[page], monkeypatch)
    assert run(line) == 0


def steps(page: Path) -> list[tuple[str, Block]]:
    """The commands and Python blocks of a page in order, without commands that need a server."""
    found = list[tuple[str, Block]]()
    for block in pages.blocks(page, "sh", "python"):
        if block.language == "python":
            found.append((block.code, block))
            continue
        lines = [line for line in pages.commands(block) if line.startswith("sesame ")]
        found += [(line, block) for line in lines if pages.verb_of(line) not in pages.SERVERS]
    return found


def is_slow(page: Path) -> bool:
    return any(
        SLOW_PYTHON.search(code) if block.language == "python" else not pages.is_light(code)
        for code, block in steps(page)
    )


IN_ORDER = [
    pytest.param(page, marks=[pytest.mark.slow] * is_slow(page), id=name_of(page)) for page in PAGES if steps(page)
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", IN_ORDER)
def test_all_commands_of_a_page_work_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands and Python blocks in order in one directory, with enough text for 200 labeled examples."""
    pages.prepare(tmp_path, page, num_documents=5_000 if is_slow(page) else 300)
    pages.enter(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "docs"}
    for code, block in steps(page):
        if block.language == "sh":
            assert run(code) == 0, f"{block}: {code}"
        else:
            filler = "\n" * (block.line - 1)  # so that a traceback has the line of the page
            exec(compile(filler + code, name_of(page), "exec"), names)


@for_all(ALL_PAGES, name=name_of)
def test_make_targets_exist(page: Path) -> None:
    found = [(line, block) for block in pages.blocks(page, "sh", "console") for line in pages.commands(block)]
    for line, block in found:
        if line.startswith("make "):
            done = subprocess.run(["make", "-n", *shlex.split(line)[1:]], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, f"{block}: {line}: {done.stderr}"


@for_all(ALL_PAGES, name=name_of)
def test_other_commands_are_parsed_by_bash(page: Path) -> None:
    for block in pages.blocks(page, "sh"):
        done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}: {done.stderr}"


def faults(line: str) -> list[str]:
    """The verbs and options of a command line that `sesame` does not have."""
    verb = pages.verb_of(line)
    if not verb:
        return []
    if verb not in COMMAND.commands:
        return [verb] if verb.islower() else []
    known = {option for one in COMMAND.commands[verb].params for option in (*one.opts, *one.secondary_opts)}
    known |= {"--help", "-h"}
    ours = re.split(r"\s--\s", line)[0]  # options after -- are for Beam
    given = re.findall(r"(?<!\S)(--?[a-zA-Z][\w-]*)", re.sub(r"'[^']*'|\"[^\"]*\"", "", ours))
    return [f"{verb} {option}" for option in given if option not in known]


@for_all(ALL_PAGES, name=name_of)
def test_verbs_and_options_exist(page: Path) -> None:
    lines = [line for block in pages.blocks(page, "sh", "console") for line in pages.commands(block)]
    lines = [line[line.index("sesame ") :] for line in lines if re.search(r"(^|[\s/])sesame ", line)]
    if not page.is_relative_to(pages.DOCS / "results"):  # these pages keep the commands of older versions
        lines += pages.inline_commands(page)
    unknown = [f"{line}: {fault}" for line in lines for fault in faults(line)]
    assert not unknown


YAML = [block for page in ALL_PAGES for block in pages.blocks(page, "yaml")]


@pytest.mark.parametrize("block", YAML, ids=str)
def test_a_yaml_block_is_a_file_of_sesame_or_a_part_of_one(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.code)
    kind = pages.kind_of_yaml(document)
    assert kind, f"{block}: no recipe, corpus, cluster or task file has these keys: {list(document)}"
    shipped = {
        "recipe": "recipes/bert_base",
        "corpus": "corpora/demo",
        "cluster": "clusters/local",
        "task": "tasks/sst2",
    }
    if "output_type" in document:  # a task file of lm-eval
        file = tmp_path / "lm_eval.yaml"
        file.write_text(block.code, encoding="utf-8")
        assert config.load_task(str(file)).name == document["task"]
        return
    if "name" not in document:  # a part, completed by a shipped file
        base = yaml.safe_load((ROOT / "orchestration" / f"{shipped[kind]}.yaml").read_text(encoding="utf-8"))
        if "mixture" in document:
            base.pop("sources", None)
        document = base | document
    if document["name"] in ("everything_new", "varied"):  # have the parts that test_extending.py adds
        return
    load = {
        "recipe": config.load,
        "corpus": config.load_corpus,
        "cluster": config.load_cluster,
        "task": config.load_task,
    }[kind]
    file = tmp_path / f"{document['name']}.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    assert load(str(file))


@for_all(ALL_PAGES, name=name_of)
def test_json_blocks_are_valid_json(page: Path) -> None:
    for block in pages.blocks(page, "json"):
        assert json.loads(block.code) is not None


# Links, images, table of contents


@for_all([*ALL_PAGES, ROOT / "CHANGELOG.md"], name=name_of)
def test_links_and_anchors_resolve(page: Path) -> None:
    broken = []
    for target in pages.links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        has_anchor = not anchor or not found.exists() or found.suffix != ".md" or anchor in pages.anchors(found)
        if not (found.exists() and found.is_relative_to(ROOT) and has_anchor):
            broken.append(target)
    assert not broken


@for_all(ALL_PAGES, name=name_of)
def test_pictures_are_small(page: Path) -> None:
    pictures = [page.parent / target for target in pages.links(page) if Path(target).suffix in (".png", ".svg", ".jpg")]
    large = [
        f"{file.name}: {file.stat().st_size:,} bytes" for file in pictures if file.stat().st_size > LARGEST_PICTURE
    ]
    assert not large


def test_each_page_is_in_the_tree_of_contents() -> None:
    listed, waiting = set[str](), ["index"]
    while waiting:
        name = waiting.pop()
        if name in listed:
            continue
        listed.add(name)
        file = pages.DOCS / f"{name}.md"
        if not file.is_file():
            continue
        for block in pages.blocks(file, "{toctree}"):
            entries = [line.strip() for line in block.code.splitlines() if line.strip() and not line.startswith(":")]
            waiting += [(file.parent / entry).relative_to(pages.DOCS).as_posix() for entry in entries]
        below = file.parent.glob(f"{conf.TOCTREES[name]}.md") if name in conf.TOCTREES else ()
        waiting += [one.relative_to(pages.DOCS).with_suffix("").as_posix() for one in below]
    assert listed == {file.relative_to(pages.DOCS).with_suffix("").as_posix() for file in pages.DOCS.rglob("*.md")}


# Generated pages and the site


GENERATED = generate.generated()


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_page_is_what_its_generator_returns(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == GENERATED[path], "run `python -m docs.generate`"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    """Styles, scripts, fonts and images are files of the site, so that a browser contacts no other host."""
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-j",
        "auto",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loads = re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data)=[\"'](?:https?:)?//[^\"']*"
        r"|<link\b(?![^>]*rel=[\"'](?:canonical|author|license)[\"'])[^>]*?href=[\"'](?:https?:)?//[^\"']*"
        r"|url\(\s*[\"']?(?:https?:)?//[^)]*|@import\s+[\"'](?:https?:)?//[^\"']*"
    )
    files = [file for kind in ("html", "css", "svg") for file in tmp_path.rglob(f"*.{kind}")]
    assert files
    found = {found[0] for file in files for found in loads.finditer(file.read_text(encoding="utf-8"))}
    assert not found
    scripts = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.js")]
    assert not [script for script in scripts if re.search(r"(?:fetch|import)\(\s*[\"']https?://", script)]
