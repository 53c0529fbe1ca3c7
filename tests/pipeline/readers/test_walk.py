"""Folders: links are followed once each, and what cannot be read is said."""

import os
from pathlib import Path

import pytest

from pipeline.readers.walk import walk
from preprocessing.errors import BadInput


def labels(top: Path) -> list[str]:
    return [label for label, _ in walk(top)]


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name, encoding="utf-8")
    return path


def test_files_of_a_linked_folder_are_found(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere" / "deep" / "b.txt")
    written(tmp_path / "top" / "a.txt")
    (tmp_path / "top" / "linked").symlink_to(tmp_path / "elsewhere")
    assert labels(tmp_path / "top") == ["a.txt", "linked/deep/b.txt"]
    assert walk(tmp_path / "top")[1][1].read_text() == "b.txt"


def test_a_linked_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link.txt").symlink_to(written(tmp_path / "a.txt"))
    assert labels(tmp_path / "top") == ["link.txt"]


def test_the_top_may_be_a_link(tmp_path: Path) -> None:
    written(tmp_path / "text" / "a.txt")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    assert labels(tmp_path / "link") == ["a.txt"]


def test_what_is_there_without_a_link_is_not_read_again_by_links(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / "z" / "a.txt")
    (tmp_path / "b").symlink_to(tmp_path / "z")
    (tmp_path / "a").symlink_to(tmp_path / "z" / "a.txt")
    assert labels(tmp_path) == ["z/a.txt"]
    assert caplog.messages == [
        f"{tmp_path}: 2 links lead to files that are read already, e.g. a; each file is read once"
    ]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """Two nested folders, a link back and one aside make 163 visits of os.walk with followlinks."""
    written(tmp_path / "one" / "two" / "a.txt")
    (tmp_path / "one" / "two" / "back").symlink_to(tmp_path)
    (tmp_path / "aside").symlink_to(tmp_path / "one")
    assert labels(tmp_path) == ["one/two/a.txt"]


def test_of_two_links_to_one_folder_outside_the_first_counts(tmp_path: Path) -> None:
    written(tmp_path / "outside" / "a.txt")
    (tmp_path / "top").mkdir()
    for name in ("y", "x"):
        (tmp_path / "top" / name).symlink_to(tmp_path / "outside")
    assert labels(tmp_path / "top") == ["x/a.txt"]


def test_hidden_files_and_folders_are_left_out_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / ".git" / "a.txt")
    written(tmp_path / ".b.txt")
    written(tmp_path / "c.txt")
    assert labels(tmp_path) == ["c.txt"]
    assert caplog.messages == [
        f"{tmp_path}: 2 hidden files or directories are not read, e.g. .b.txt",
    ]


def test_a_folder_that_cannot_be_read_is_named_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "a.txt")
    closed = written(tmp_path / "closed" / "b.txt").parent
    scandir = os.scandir

    def refusing(folder: Path) -> object:
        if Path(folder) == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(BadInput, match=rf"^{closed}: cannot read directory \(Permission denied\); change its"):
        walk(tmp_path)


def test_a_link_that_leads_nowhere_is_named_with_its_target(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").symlink_to("no such file")
    with pytest.raises(BadInput, match=r"gone\.txt: broken link to no such file; repair or remove it"):
        walk(tmp_path)


def test_a_link_to_itself_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    with pytest.raises(BadInput, match="self: "):
        walk(tmp_path)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="pipe: not a regular file, but a pipe, a socket or a device; remove it from"):
        walk(tmp_path)
