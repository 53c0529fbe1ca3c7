"""No file contains the marks of an unresolved merge. The changelog once had them for a day."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("*.md", "*.py", "*.sh", "*.toml", "*.tsv", "*.txt", "*.yaml", "*.yml", "Makefile")
MARK = re.compile(r"^(<{7}|>{7}|\|{7}) |^={7}$", re.MULTILINE)


def source_files() -> Iterator[Path]:
    """The text files of the checkout, except those of hidden directories and of outputs."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in ("build", "work")]
    for pattern in SOURCES:
        yield from ROOT.glob(pattern)
        for folder in folders:
            if not folder.name.startswith(".") or folder.name == ".ci":
                yield from folder.rglob(pattern)


def test_no_file_has_the_marks_of_a_merge() -> None:
    files = list(source_files())
    assert len(files) > 1_000  # the files were found
    assert [str(file.relative_to(ROOT)) for file in files if MARK.search(file.read_text(encoding="utf-8"))] == []


def test_each_mark_is_found() -> None:
    marks = ["<" * 7 + " HEAD", "=" * 7, "|" * 7 + " base", ">" * 7 + " main"]
    assert all(MARK.search(f"a\n{mark}\nb") for mark in marks)
    assert not MARK.search("Title\n========\n")
