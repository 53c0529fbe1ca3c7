import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from preprocessing.errors import BadInput
from training import checkpoint

TOPOLOGY: checkpoint.Topology = {"recipe": "abc", "workers": 1, "zero": 2, "precision": "fp32"}


class Disk:
    """An engine that is nothing but a file of 1,000 bytes."""

    rank, world = 0, 1

    def __init__(self, content: bytes = b"") -> None:
        self.content = content

    def save(self, folder: Path) -> None:
        (folder / "parts").mkdir()
        (folder / "parts" / "weights.pt").write_bytes(self.content)

    def load(self, folder: Path) -> None:
        self.content = (folder / "parts" / "weights.pt").read_bytes()

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        return list(values)


def content(step: int) -> bytes:
    return np.random.default_rng(step).bytes(1000)


def write(folder: Path, *steps: int, keep: int = 3) -> None:
    for step in steps:
        checkpoint.save(Disk(content(step)), folder, step, {"step": step}, TOPOLOGY, keep=keep)


def restore(folder: Path, resume: checkpoint.Resume = "allow", **changes: str | int) -> tuple[dict | None, bytes]:
    engine = Disk()
    return checkpoint.restore(engine, folder, TOPOLOGY | changes, resume), engine.content


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    write(tmp_path, 5, 10)
    assert restore(tmp_path) == ({"step": 10}, content(10))


def test_nothing_saved_means_start_from_scratch(tmp_path: Path) -> None:
    assert restore(tmp_path / "absent") == (None, b"")


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4, keep=2)
    assert names(tmp_path) == ["step-000000003", "step-000000004"]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    write(tmp_path, 1)
    checkpoint.save(Disk(b"new"), tmp_path, 1, {}, TOPOLOGY, keep=1)
    assert restore(tmp_path) == ({}, b"new")


@pytest.mark.parametrize("file", ["parts/weights.pt", "state.json"])
def test_every_flipped_bit_is_noticed_and_the_file_named(tmp_path: Path, file: str) -> None:
    write(tmp_path, 1)
    path = tmp_path / "step-000000001"
    whole = (path / file).read_bytes()
    for bit in np.random.default_rng(0).integers(8 * len(whole), size=50):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / file).write_bytes(flipped)
        fault = checkpoint.find_fault(path)
        assert fault == f"{path}: {file} is damaged, its sha256 is not the one in manifest.json"


def test_a_flipped_bit_in_the_manifest_never_lets_another_file_through(tmp_path: Path) -> None:
    write(tmp_path, 1)
    manifest = tmp_path / "step-000000001" / "manifest.json"
    whole = manifest.read_bytes()
    at = whole.index(b"sha256") + 15
    manifest.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert checkpoint.newest(tmp_path) is None


@pytest.mark.parametrize("size", [0, 1, 999])
def test_a_truncated_file_is_noticed_and_named(tmp_path: Path, size: int) -> None:
    write(tmp_path, 1)
    file = tmp_path / "step-000000001" / "parts" / "weights.pt"
    file.write_bytes(file.read_bytes()[:size])
    fault = checkpoint.find_fault(tmp_path / "step-000000001")
    assert fault
    assert fault.endswith(f"parts/weights.pt has {size} bytes, manifest.json says 1000")


def test_a_missing_file_is_noticed_and_named(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "step-000000001" / "parts" / "weights.pt").unlink()
    assert str(checkpoint.find_fault(tmp_path / "step-000000001")).endswith("parts/weights.pt is missing")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"files": []}', '{"files": {"state.json": 1}}', "\x80"])
def test_a_manifest_that_cannot_be_read_makes_no_checkpoint(tmp_path: Path, text: str | None) -> None:
    write(tmp_path, 1)
    manifest = tmp_path / "step-000000001" / "manifest.json"
    manifest.unlink() if text is None else manifest.write_bytes(text.encode("latin-1"))
    assert "manifest.json cannot be read" in str(checkpoint.find_fault(tmp_path / "step-000000001"))


def test_a_broken_checkpoint_is_passed_over_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 1, 2)
    (tmp_path / "step-000000002" / "state.json").write_text("")
    with caplog.at_level(logging.WARNING):
        assert restore(tmp_path) == ({"step": 1}, content(1))
    assert "step-000000002: state.json has 0 bytes" in caplog.text


def test_a_broken_checkpoint_does_not_push_a_whole_one_out(tmp_path: Path) -> None:
    write(tmp_path, 1, 9)
    (tmp_path / "step-000000009" / "state.json").write_text("")
    restore(tmp_path)
    write(tmp_path, 2, keep=1)
    assert restore(tmp_path) == ({"step": 2}, content(2))
    assert names(tmp_path) == ["broken-step-000000009", "step-000000002"]


def test_nothing_but_broken_checkpoints_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "step-000000001" / "state.json").write_text("")
    with pytest.raises(BadInput, match=r"none of its 1 checkpoints is whole; bring one back, or .* --resume never"):
        restore(tmp_path)


def test_must_resume_needs_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no checkpoint to resume from; start with --resume allow"):
        restore(tmp_path, "must")


def test_never_resume_puts_the_old_checkpoints_aside(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path / "checkpoints", 7)
        assert restore(tmp_path / "checkpoints", "never") == (None, b"")
    assert names(tmp_path) == ["checkpoints-old", "checkpoints-old-2"]


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("recipe", "xyz", "written with recipe abc, this run has recipe xyz"),
        ("workers", 2, "written with workers 1, this run has workers 2; resume with workers 1, or start again"),
        ("zero", 3, "written with zero 2, this run has zero 3"),
        ("precision", "bf16", "written with precision fp32, this run has precision bf16"),
    ],
)
def test_a_checkpoint_of_another_topology_is_refused(tmp_path: Path, key: str, value: str | int, line: str) -> None:
    write(tmp_path, 1)
    with pytest.raises(BadInput, match=line):
        restore(tmp_path, **{key: value})


class Failure(BaseException):
    """Stands for a full disk, or Ctrl-C."""


@pytest.mark.parametrize("function", ["engine", "json.dumps", "_sha256", "_sync", "os.replace"])
def test_a_failure_at_any_moment_of_a_save_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    write(tmp_path, 1)
    engine = Disk(content(2))

    def fail(*given: object, **named: object) -> None:
        raise Failure

    with monkeypatch.context() as patch:
        target = {"json.dumps": (json, "dumps"), "os.replace": (checkpoint.os, "replace"), "engine": (engine, "save")}
        patch.setattr(*target.get(function, (checkpoint, function)), fail)
        with pytest.raises(Failure):
            checkpoint.save(engine, tmp_path, 2, {"step": 2}, TOPOLOGY, keep=1)
    assert names(tmp_path) == ["step-000000001"]
    assert restore(tmp_path) == ({"step": 1}, content(1))


def test_what_a_killed_process_left_is_cleared_at_the_next_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    shutil.copytree(tmp_path / "step-000000001", tmp_path / ".tmp-step-000000002")
    assert restore(tmp_path) == ({"step": 1}, content(1))
    assert names(tmp_path) == ["step-000000001"]


def test_a_checkpoint_may_be_copied_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "here", 1)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert restore(tmp_path / "there") == ({"step": 1}, content(1))
