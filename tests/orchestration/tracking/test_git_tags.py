"""The tags with the commit of Sesame."""

import os
import subprocess
from pathlib import Path

import pytest

from orchestration.tracking import metadata


def git(folder: Path, *words: str) -> str:
    author = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | author, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_commit_and_changes_are_found_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git status` once left `index.lock` in the checkout when the disk was full."""
    file, index = tmp_path / "module.py", tmp_path / ".git" / "index"
    file.write_text("a")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.setattr(metadata, "__file__", str(file))
    os.utime(file, (0, 0))  # `git status` would now write the index
    before = index.read_bytes()
    expected = {"mlflow.source.git.commit": git(tmp_path, "rev-parse", "HEAD"), "git_dirty": "False"}
    assert metadata.git_tags() == expected
    assert index.read_bytes() == before
    (tmp_path / ".git" / "index.lock").touch()  # a commit of the user
    file.write_text("b")
    assert metadata.git_tags() == expected | {"git_dirty": "True"}


def test_no_repository_has_no_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "__file__", str(tmp_path / "module.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert metadata.git_tags() == {}
