import os
from collections.abc import Callable
from pathlib import Path

import pytest

from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import (
    TEMPORARY,
    from_checked_json,
    from_json,
    is_new,
    parse_json,
    read_json,
    read_object,
    remove_unfinished,
    whole_folder,
    write_atomic,
    xxh3_file,
)
from preprocessing.lock import hold_lock


def _write(to: Path) -> None:
    write_atomic(to / "file", b"content")


def _write_directory(to: Path) -> None:
    with whole_folder(to):
        pass


def _hold(to: Path) -> None:
    with hold_lock(to):
        pass


@pytest.mark.parametrize("write", [_write, _write_directory, _hold])
def test_an_impossible_directory_is_a_one_line_error(write: Callable[[Path], None]) -> None:
    """`--output-dir /proc/x` used to end in a traceback."""
    with pytest.raises(BadInput, match=r"^/proc/.*: cannot create this directory; give a directory on a disk$"):
        write(Path("/proc/x"))


def test_write_atomic_creates_the_parent_directory(tmp_path: Path) -> None:
    write_atomic(tmp_path / "new" / "file", b"content")
    assert (tmp_path / "new" / "file").read_bytes() == b"content"


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fill_the_disk(file: object) -> None:
        file.write(b"half of the n")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, fill_the_disk)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_readers_never_see_a_half_written_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    seen = []

    def write(file: object) -> None:
        file.write(b"new")  # type: ignore[attr-defined]
        seen.append(path.read_bytes())

    write_atomic(path, write)
    assert [*seen, path.read_bytes()] == [b"old", b"new"]


def test_remove_unfinished_removes_only_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / f"{TEMPORARY}a-0").write_bytes(b"half")
    (tmp_path / "deep" / f"{TEMPORARY}b-1").write_bytes(b"half")
    (tmp_path / "whole").write_bytes(b"whole")
    assert remove_unfinished(tmp_path) == 2
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["whole"]


def test_hashes_are_xxh3_with_128_bits(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert xxh3_file(tmp_path / "empty") == "99aa06d3014798d86001c324468d497f"  # the value from the specification


@pytest.mark.parametrize("before", ["missing", "empty", "left by a killed command"])
def test_a_directory_appears_only_when_complete(tmp_path: Path, before: str) -> None:
    to = tmp_path / "to"
    if before == "empty":
        to.mkdir()
    elif before.startswith("left"):
        (tmp_path / ".to.unfinished").mkdir()
        (tmp_path / ".to.unfinished" / "old").touch()
    with whole_folder(to) as folder:
        (folder / "new").touch()
        assert not list(to.glob("new"))
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "new"]


@pytest.mark.parametrize("given", [".", "link", "there", "a/b/c", "n" * 250, "é" * 125, ".unfinished", "s3:"])
def test_a_directory_can_be_written_at_any_path(tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "." used to be a ValueError, a link was not accepted as a directory, and a name of 250 letters was too long."""
    (tmp_path / "shell").mkdir()
    (tmp_path / "shell" / "there").mkdir() if given in ("link", "there") else None
    monkeypatch.chdir(tmp_path / "shell")
    (tmp_path / "shell" / "link").symlink_to("there") if given == "link" else None
    with whole_folder(Path(given)) as folder:
        (folder / "new").touch()
    assert [path.name for path in Path(given).iterdir()] == ["new"]
    assert (tmp_path / "shell").samefile(".")  # a shell inside this directory stays inside it
    assert not [path for path in tmp_path.rglob("*.unfinished") if path.name != given]


def test_an_existing_empty_directory_is_filled_in_place_without_its_parent(tmp_path: Path) -> None:
    """A mount point cannot be replaced, and its parent directory may belong to another user."""
    to = tmp_path / "to"
    to.mkdir()
    before = to.stat()
    (to / ".unfinished").mkdir()
    (to / ".unfinished" / "old").touch()
    assert is_new(to)
    with whole_folder(to) as folder:
        (folder / "new").touch()
        assert [path.name for path in tmp_path.iterdir()] == ["to"]
    assert os.path.samestat(before, to.stat())
    assert [path.name for path in to.iterdir()] == ["new"]
    assert not is_new(to)


def _write_while_another_command_creates_it(to: Path) -> None:
    """Write a directory that another command creates at the same time."""
    with whole_folder(to):
        to.mkdir()
        (to / "theirs").touch()


@pytest.mark.parametrize("is_there", [False, True])
def test_two_commands_that_write_one_directory_do_not_disturb_each_other(tmp_path: Path, is_there: bool) -> None:
    """The second command used to remove the files of the first, and both failed."""
    to = tmp_path / "to"
    if is_there:
        to.mkdir()
    with whole_folder(to) as folder:
        (folder / "first").touch()
        with pytest.raises(ResourceError, match="another command is writing to it"), whole_folder(to):
            pass
    assert [path.name for path in to.iterdir()] == ["first"]
    with pytest.raises(BadInput, match="created by another command"):
        _write_while_another_command_creates_it(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["theirs"]


def _write_half(to: Path) -> None:
    """Write half of a directory, then fail."""
    with whole_folder(to) as folder:
        (folder / "half").touch()
        raise OSError("no room")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_directory_that_cannot_be_written_leaves_nothing(tmp_path: Path, is_there: bool) -> None:
    to = tmp_path / "to"
    if is_there:
        to.mkdir()
    with pytest.raises(OSError, match="no room"):
        _write_half(to)
    assert [path.name for path in tmp_path.rglob("*")] == ["to"] * is_there
    with pytest.raises(OSError, match="no room"):
        _write_half(tmp_path / "to" / "a" / "b")
    assert [path.name for path in tmp_path.rglob("*")] == ["to"] * is_there  # nor a directory that was created for it


UNREADABLE = {
    "brackets": b"[" * 200_000,
    "objects": b'{"a":' * 200_000,
    "digits": b"1" * 5_000,
    "no text": b"\xff\xfe\xfa",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_unreadable_json_is_always_a_value_error(kind: str) -> None:
    """200,000 brackets used to be a RecursionError."""
    for read in (parse_json, from_json, from_checked_json):
        with pytest.raises(ValueError):  # noqa: PT011  # its words are the library's
            read(UNREADABLE[kind])


def test_a_number_with_too_many_digits_has_a_clear_message() -> None:
    with pytest.raises(ValueError, match=r"^a number has more than 4,300 digits$"):
        parse_json('{"a": ' + "1" * 5_000 + "}")


@pytest.mark.parametrize("depth", range(50, 1_000, 50))
def test_a_checked_object_of_any_depth_is_read_or_refused(depth: int) -> None:
    """JSON that can be parsed may be nested too deeply to be serialized again, which the checksum test needs."""
    content = b'{"checksum": "0", "a": ' + b"[" * depth + b"]" * depth + b"}"
    with pytest.raises(ValueError, match="changed after it was written"):
        from_checked_json(content)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_json_file_is_a_one_line_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.json").write_bytes(UNREADABLE[kind])
    with pytest.raises(BadInput, match=r"a\.json: is damaged \(.*\); make it anew") as found:
        read_json(tmp_path / "a.json", "make it anew")
    assert "\n" not in str(found.value)
    with pytest.raises(BadInput, match=r"b\.json: No such file or directory; make it anew"):
        read_json(tmp_path / "b.json", "make it anew")


OTHER = {"list": b"[]", "number": b"5", "words": b'["a"]', "other keys": b'{"x": 5}', "other types": b'{"step": []}'}


@pytest.mark.parametrize("kind", OTHER)
def test_json_with_unexpected_content_is_a_one_line_error(tmp_path: Path, kind: str) -> None:
    """This used to be a TypeError or a KeyError."""
    (tmp_path / "a.json").write_bytes(OTHER[kind])
    with pytest.raises(BadInput, match=r"a\.json: is damaged \(.*\); make it anew") as found:
        read_object(tmp_path / "a.json", "make it anew", step=int)
    assert "\n" not in str(found.value)


def test_read_object_returns_the_requested_keys(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"step": 5, "x": null}')
    assert read_object(tmp_path / "a.json", "", step=int) == {"step": 5, "x": None}
