import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.steps import lock_directory, read_seal, sweep
from pipeline.steps.output_folder import seal
from preprocessing.errors import BadInput, ResourceError


def test_a_second_process_is_refused_while_the_first_writes(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from pipeline.steps import lock_directory\n"
        "with lock_directory(Path(sys.argv[1]), 0): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        (tmp_path / ".tmp-of-the-first").touch()
        with (
            pytest.raises(ResourceError, match=rf"process {holder.pid} on \S+ \(since [^\n]+ is writing here"),
            lock_directory(tmp_path, 0),
        ):
            pass
        assert (tmp_path / ".tmp-of-the-first").exists()
        holder.kill()
    with lock_directory(tmp_path, 0):  # the lock is released with its process, however the process ended
        pass


def _write_until_full(folder: Path, need: int) -> None:
    with lock_directory(folder, need):
        (folder / ".tmp-half").write_text("written")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("need", [1 << 60, 1_000_000], ids=["too small from the start", "full while writing"])
def test_a_full_disk_is_a_one_line_error_and_leaves_nothing(tmp_path: Path, need: int) -> None:
    with pytest.raises(
        BadInput, match=r"^\S+: not enough disk space: got [\d,]+\.\d MB, expected over [\d,]+\.\d MB; [^\n]+$"
    ):
        _write_until_full(tmp_path / "out", need)
    assert list((tmp_path / "out").iterdir()) == []


def test_other_system_errors_are_unchanged(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output"), lock_directory(tmp_path, 0):
        raise OSError(errno.EIO, "Input/output error")


def test_a_file_instead_of_the_directory_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadInput, match=r"^[^\n]+give a directory[^\n]+$"), lock_directory(path, 0):
            pass


def test_temporary_files_of_a_killed_writer_are_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / ".tmp-part-1234").touch()
    with lock_directory(tmp_path, 0):
        assert list(tmp_path.iterdir()) == [tmp_path / ".owner.json"]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def part(tmp_path: Path) -> Path:
    path = tmp_path / "train-00000-of-00001.arrow"
    path.write_bytes(b"content")
    seal(path, text="hash", rows=3)
    return path


def test_a_seal_returns_its_facts(part: Path) -> None:
    facts = read_seal(part, text="hash")
    assert facts is not None
    assert facts["rows"] == 3


@pytest.mark.parametrize("content", [b"contenx", b"conten", b""])
def test_a_damaged_part_is_not_sealed(part: Path, content: bytes) -> None:
    part.write_bytes(content)
    assert read_seal(part) is None


def test_a_seal_with_other_causes_does_not_count(part: Path) -> None:
    assert read_seal(part, text="other hash") is None


def test_a_part_with_a_truncated_seal_is_not_sealed(part: Path) -> None:
    part.with_suffix(".json").write_bytes(b'{"bytes": 7')
    assert read_seal(part) is None


def test_sweep_removes_old_parts_and_no_other_files(part: Path) -> None:
    mine = [part.with_name(name) for name in ("thesis.json", "data.arrow", "train.arrow", "train-00000-of-00001.txt")]
    for path in mine:
        path.touch()
    part.with_name("train-00000-of-00002.arrow").touch()
    sweep(part.parent, [part.name])
    assert sorted(part.parent.iterdir()) == sorted([*mine, part, part.with_suffix(".json")])
    sweep(part.parent, [])
    assert sorted(part.parent.iterdir()) == sorted(mine)
