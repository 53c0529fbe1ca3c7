"""An inconsistent release is refused, with one line per difference; a consistent release is built and tried."""

import importlib.util
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from orchestration.reports.renames_page import renames_page
from preprocessing.renames import table
from tests import release

ROOT = Path(__file__).parents[1]


def git(root: Path, *words: str) -> None:
    name = (
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@b.example",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    )
    subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that can be released as version 1.2.3."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [1.2.3] - 2026-11-27\n\n- All.\n\n## [1.2.2] - 2026-11-26\n"
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "All")
    git(tmp_path, "tag", "v1.2.3")
    return tmp_path


def commit(root: Path, name: str, text: str) -> None:
    """Commit a new content of a file, and move the tag to this commit."""
    (root / name).write_text(text)
    git(root, "commit", "-qam", "Other")
    git(root, "tag", "-f", "v1.2.3")


def test_a_consistent_checkout_can_be_released(checkout: Path) -> None:
    assert release.differences(checkout) == []
    text = (checkout / "CHANGELOG.md").read_text()
    commit(checkout, "CHANGELOG.md", text.replace("## [1.2.3]", "## [Unreleased]\n\n## [1.2.3]"))
    assert release.differences(checkout) == []


def test_a_tag_that_is_missing_or_of_another_version_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "-d", "v1.2.3")
    wanted = "git: no tag v1.2.3 at this commit: got no tag; commit, then run `git tag v1.2.3`"
    assert release.differences(checkout) == [wanted]
    git(checkout, "tag", "v1.2.2")
    assert release.differences(checkout) == [wanted.replace("got no tag", "got v1.2.2")]


def test_a_tag_of_an_earlier_commit_is_refused(checkout: Path) -> None:
    (checkout / "more.py").write_text("")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "More")
    (found,) = release.differences(checkout)
    assert found.startswith("git: no tag v1.2.3 at this commit")


def test_changes_that_are_not_committed_are_refused(checkout: Path) -> None:
    (checkout / "CITATION.cff").write_text("version: 1.2.3 # more\n")
    (checkout / "new.py").write_text("")
    (found,) = release.differences(checkout)
    assert found == "git: 2 changed or untracked files, such as CITATION.cff; commit them first"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## [1.2.2] - 2026-11-26\n", "invalid newest section: got [1.2.2], expected [1.2.3]"),
        ("## [Unreleased]\n\n- More.\n\n## [1.2.3]\n", "invalid newest section: got [Unreleased], expected [1.2.3]"),
        ("## [1.2.3]\n", "[1.2.3] has no date; write ## [1.2.3] - YYYY-MM-DD"),
        ("# Changelog\n", "no section: expected [1.2.3]"),
    ],
)
def test_a_changelog_with_another_newest_section_is_refused(checkout: Path, text: str, message: str) -> None:
    commit(checkout, "CHANGELOG.md", text)
    assert release.differences(checkout) == [f"CHANGELOG.md: {message}"]


def test_a_citation_of_another_version_is_refused(checkout: Path) -> None:
    commit(checkout, "CITATION.cff", "version: 1.2.2\n")
    assert release.differences(checkout) == ["CITATION.cff: invalid version: got 1.2.2, expected 1.2.3"]


def test_a_development_version_is_refused(checkout: Path) -> None:
    commit(checkout, "pyproject.toml", '[project]\nname = "x"\nversion = "1.3.dev0"\n')
    found = release.differences(checkout)
    assert found[0] == "pyproject.toml: invalid version: got 1.3.dev0, expected MAJOR.MINOR.PATCH"
    assert len(found) == 4  # tag, changelog and citation too


def test_each_difference_is_a_line_and_the_exit_code_is_2(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(checkout, "CITATION.cff", "version: 1.2.2\n")
    git(checkout, "tag", "-d", "v1.2.3")
    assert release.release(checkout) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[:2] for line in error.splitlines()] == [["release", " git"], ["release", " CITATION.cff"]]


def test_a_wheel_that_does_not_work_is_refused(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "sesame"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho sesame 1.2.2\n")
    command.chmod(0o755)
    with pytest.raises(release.ReleaseError, match=r"got 'sesame 1\.2\.2', expected 'sesame 1\.2\.3'"):
        release.try_out(command.parent, "1.2.3", 1)
    command.write_text("#!/bin/sh\necho no module >&2\nexit 1\n")
    with pytest.raises(release.ReleaseError, match=r"sesame --version: exit code 1: no module"):
        release.try_out(command.parent, "1.2.3", 1)


@pytest.mark.slow
def test_this_checkout_is_built_and_tried_in_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("setuptools", reason="builds the wheel with the setuptools of this environment")
    pytest.importorskip("pip", reason="installs the wheel with the pip of this environment")
    assert release.release(dry_run=True, quick=True) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "sesame --version and sesame recipes work there" in out
    assert "so the wheel is not kept" in out


# The files of a release


def test_the_citation_is_of_this_version_and_license() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert str(citation["version"]) == project["version"]
    assert citation["license"] == project["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # required by schema 1.2.0
    allowed = {"type", "version", "date-released", "license", "abstract", "keywords"}
    assert not citation.keys() - {"cff-version", "message", "title", "authors"} - allowed
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", str(citation["date-released"]))
    assert all(author["name"] for author in citation["authors"])


def test_the_changelog_has_this_version_or_unreleased_on_top_and_no_section_twice() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[([^\]]+)\](?: - \d{4}-\d{2}-\d{2})?$", text, re.MULTILINE)
    assert sections == re.findall(r"^## \[?([^\]\n]+)\]?.*$", text, re.MULTILINE)
    assert len(set(sections)) == len(sections)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sections[0] in ("Unreleased", project["version"])


# CONTRIBUTING.md

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SHELL = [
    line.partition("#")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def test_contributing_is_short() -> None:
    assert len(CONTRIBUTING.splitlines()) <= 150


@pytest.mark.parametrize("line", SHELL)
def test_commands_of_contributing_are_valid(line: str) -> None:
    """Only check that targets and modules exist: the commands take minutes to hours, or are hard to undo."""
    program, *words = shlex.split(line)
    if program == "make":
        assert subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True).returncode == 0
    elif program == ".venv/bin/python":
        assert (words[0], importlib.util.find_spec(words[1]) is not None) == ("-m", True)
    else:
        assert program == "git"
        assert all((ROOT / word).exists() for word in words if "/" in word)


def test_paths_and_targets_of_contributing_exist() -> None:
    spans = re.findall(r"`([^`\n]+)`", CONTRIBUTING)
    paths = [
        word
        for span in spans
        for word in span.split()
        if re.fullmatch(r"\.?[\w.]+(/[\w.]+)+/?|\w+/|\w+\.\w{2,4}", word)
    ]
    missing = {path for path in paths if not (ROOT / path).exists() and path.split("/")[-1] not in ("NAME.yaml",)}
    # with `make test-python` alone, there is no .venv
    assert missing <= {"part.py", "__init__.py", "specs.py", "test_facts.py", "dist/", ".venv/bin/python"}
    targets = {span.split()[1] for span in spans if span.startswith("make ")}
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_names_of_the_changelog_are_those_of_the_table() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n### Renamed\n")[2].partition("\n## [")[0]
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE)
    assert len(rows) > 50
    assert not set(rows) - {(row.old, row.new) for row in table()}


def test_the_page_of_all_names_is_that_of_the_table() -> None:
    page = (ROOT / "docs" / "reference" / "renames.md").read_text(encoding="utf-8")
    assert page == renames_page(), "run python -m docs.generate"
    assert not [row for row in table() if f"| `{row.old}` | `{row.new}` |" not in page]
