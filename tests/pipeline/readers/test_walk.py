"""Directory walks: each link is followed once, and unreadable entries are reported."""

import os
from pathlib import Path

import pytest

from pipeline.readers.walk import walk
from preprocessing.errors import BadInput


def labels(top: Path) -> list[str]:
    return [label for label, _ in walk(top)]


def write_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name, encoding="utf-8")
    return path


def test_files_of_a_linked_directory_are_found(tmp_path: Path) -> None:
    write_file(tmp_path / "elsewhere" / "deep" / "b.txt")
    write_file(tmp_path / "top" / "a.txt")
    (tmp_path / "top" / "linked").symlink_to(tmp_path / "elsewhere")
    assert labels(tmp_path / "top") == ["a.txt", "linked/deep/b.txt"]
    assert walk(tmp_path / "top")[1][1].read_text() == "b.txt"


def test_a_linked_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link.txt").symlink_to(write_file(tmp_path / "a.txt"))
    assert labels(tmp_path / "top") == ["link.txt"]


def test_the_top_directory_may_be_a_link(tmp_path: Path) -> None:
    write_file(tmp_path / "text" / "a.txt")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    assert labels(tmp_path / "link") == ["a.txt"]


def test_links_to_files_in_the_tree_are_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_file(tmp_path / "z" / "a.txt")
    (tmp_path / "b").symlink_to(tmp_path / "z")
    (tmp_path / "a").symlink_to(tmp_path / "z" / "a.txt")
    assert labels(tmp_path) == ["z/a.txt"]
    assert caplog.messages == [
        f"{tmp_path}: 2 links lead to files that are read already, e.g. a; each file is read once"
    ]


def test_circular_links_end(tmp_path: Path) -> None:
    """Two nested directories, a link back and another link cause 163 visits of os.walk with followlinks."""
    write_file(tmp_path / "one" / "two" / "a.txt")
    (tmp_path / "one" / "two" / "back").symlink_to(tmp_path)
    (tmp_path / "aside").symlink_to(tmp_path / "one")
    assert labels(tmp_path) == ["one/two/a.txt"]


def test_of_two_links_to_one_outside_directory_the_first_is_used(tmp_path: Path) -> None:
    write_file(tmp_path / "outside" / "a.txt")
    (tmp_path / "top").mkdir()
    for name in ("y", "x"):
        (tmp_path / "top" / name).symlink_to(tmp_path / "outside")
    assert labels(tmp_path / "top") == ["x/a.txt"]


def test_hidden_files_and_directories_are_skipped_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path / ".git" / "a.txt")
    write_file(tmp_path / ".b.txt")
    write_file(tmp_path / "c.txt")
    assert labels(tmp_path) == ["c.txt"]
    assert caplog.messages == [
        f"{tmp_path}: 2 hidden files or directories are not read, e.g. .b.txt",
    ]


def test_an_unreadable_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a.txt")
    closed = write_file(tmp_path / "closed" / "b.txt").parent
    scandir = os.scandir

    def scandir_with_error(folder: Path) -> object:
        if Path(folder) == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scandir_with_error)
    with pytest.raises(BadInput, match=rf"^{closed}: cannot read directory \(Permission denied\); change its"):
        walk(tmp_path)


def test_a_broken_link_is_named_with_its_target(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").symlink_to("no such file")
    with pytest.raises(BadInput, match=r"gone\.txt: broken link to no such file; repair or remove it"):
        walk(tmp_path)


def test_a_link_to_itself_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    with pytest.raises(BadInput, match="self: "):
        walk(tmp_path)


def test_a_special_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="pipe: not a regular file, but a pipe, a socket or a device; remove it from"):
        walk(tmp_path)
