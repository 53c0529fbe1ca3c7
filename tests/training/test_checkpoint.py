import errno
import json
import logging
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, to_checked_json
from tests.training.together import run_together
from training import checkpoint
from training import saver as saving
from training.engines import CheckpointFragment, Copy, Fragments
from training.saver import Saver, SaverVotes

PART = "rank-00000.safetensors"

TOPOLOGY: checkpoint.Topology = {"recipe": "abc", "workers": 1, "zero": 2, "precision": "fp32"}


class Disk:
    """An engine that consists of 1,000 bytes of one parameter."""

    rank, world = 0, 1

    def __init__(self, content: bytes = b"") -> None:
        self.content = content

    def part(self, copy: Copy) -> CheckpointFragment:
        weights = torch.frombuffer(bytearray(self.content), dtype=torch.float32)
        return CheckpointFragment({"net|weight|0": copy("0", weights)}, {"net": tuple(weights.shape)})

    def load(self, fragments: Fragments, memory: Mapping[str, Tensor]) -> None:
        self.content = fragments.full("net").numpy().tobytes()

    def reduce_sums(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in values]


def content(step: int) -> bytes:
    return np.random.default_rng(step).standard_normal(250, np.float32).tobytes()


def saver(engine: Disk, folder: Path, **keys: int) -> Saver:
    return Saver(engine, folder, TOPOLOGY, {}, **{"keep": 3, "background": False} | keys)


def write(folder: Path, *steps: int, **keys: int) -> None:
    for step in steps:
        saver(Disk(content(step)), folder, **keys).save(step, {"step": step})


def restore(folder: Path, resume: checkpoint.Resume = "allow", **changes: str | int) -> tuple[dict | None, bytes]:
    engine = Disk()
    return checkpoint.restore(engine, folder, TOPOLOGY | changes, resume), engine.content


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_checkpoint_is_restored(tmp_path: Path) -> None:
    write(tmp_path, 5, 10)
    assert restore(tmp_path) == ({"step": 10}, content(10))


def test_the_first_copy_uses_preallocated_memory(tmp_path: Path) -> None:
    """The allocation took seconds for a large model, during the step that saved."""
    engine = Disk(content(4))
    begun = saver(engine, tmp_path, background=True)
    begun.prepare()
    begun.prepare()  # a second call has no effect
    assert begun._allocation
    begun._allocation.result()
    taken = {name: buffer.data_ptr() for name, buffer in begun._copy._buffers.items()}  # type: ignore[union-attr]
    begun.save(7, {"step": 7})
    begun.finish()
    assert {name: buffer.data_ptr() for name, buffer in begun._copy._buffers.items()} == taken  # type: ignore[union-attr]
    assert list(taken) == ["0"]
    assert restore(tmp_path) == ({"step": 7}, content(4))


def test_a_synchronous_save_preallocates_no_memory(tmp_path: Path) -> None:
    begun = saver(Disk(content(4)), tmp_path)
    begun.prepare()
    assert begun._allocation is None


def test_without_a_checkpoint_training_starts_from_scratch(tmp_path: Path) -> None:
    assert restore(tmp_path / "absent") == (None, b"")


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4, keep=2)
    assert names(tmp_path) == ["step-000000003", "step-000000004"]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    write(tmp_path, 1)
    saver(Disk(content(9)), tmp_path, keep=1).save(1, {})
    assert restore(tmp_path) == ({}, content(9))


@pytest.mark.parametrize("file", [PART, "state.json", "spec.json"])
def test_every_flipped_bit_is_detected_and_the_file_named(tmp_path: Path, file: str) -> None:
    write(tmp_path, 1)
    path = tmp_path / "step-000000001"
    whole = (path / file).read_bytes()
    for bit in np.random.default_rng(0).integers(8 * len(whole), size=50):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / file).write_bytes(flipped)
        fault = checkpoint.find_fault(path)
        assert fault == f"{path}: {file} is damaged: its sha256 differs from the one in manifest.json"


def test_every_flipped_bit_of_the_manifest_is_detected(tmp_path: Path) -> None:
    """Without a checksum, one in six flipped bits was missed: another format, other workers, one file fewer."""
    write(tmp_path, 1)
    path = tmp_path / "step-000000001"
    whole = (path / "manifest.json").read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / "manifest.json").write_bytes(flipped)
        assert "cannot read manifest.json" in str(checkpoint.find_fault(path)), (bit, flipped)


def use_previous_format(path: Path, **changes: object) -> None:
    """Give a checkpoint the manifest of the previous format, which had neither a checksum nor an index."""
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "index.jsonl").unlink()
    del manifest["checksum"], manifest["files"]["index.jsonl"]
    written = {key: value for key, value in (manifest | {"format": 2} | changes).items() if value is not None}
    (path / "manifest.json").write_text(json.dumps(written))


def test_a_checkpoint_of_the_previous_format_is_read(tmp_path: Path) -> None:
    write(tmp_path, 1)
    use_previous_format(tmp_path / "step-000000001")
    assert restore(tmp_path, workers=2) == ({"step": 1}, content(1))


def test_a_checkpoint_of_a_later_format_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 9)
        write(tmp_path, 1)
    with pytest.raises(BadInput, match="invalid format: got 9, expected at most 3; use the version that wrote it"):
        restore(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 999])
def test_a_truncated_file_is_detected_and_named(tmp_path: Path, size: int) -> None:
    write(tmp_path, 1)
    file = tmp_path / "step-000000001" / PART
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    fault = checkpoint.find_fault(tmp_path / "step-000000001")
    assert fault
    assert fault.endswith(f"{PART} has {size} bytes instead of the {len(whole)} bytes in manifest.json")


def test_a_missing_file_is_detected_and_named(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "step-000000001" / PART).unlink()
    assert str(checkpoint.find_fault(tmp_path / "step-000000001")).endswith(f"{PART} is missing")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"files": []}', '{"files": {"state.json": 1}}', "\x80"])
def test_an_unreadable_manifest_invalidates_the_checkpoint(tmp_path: Path, text: str | None) -> None:
    write(tmp_path, 1)
    manifest = tmp_path / "step-000000001" / "manifest.json"
    manifest.unlink() if text is None else manifest.write_bytes(text.encode("latin-1"))
    assert "cannot read manifest.json" in str(checkpoint.find_fault(tmp_path / "step-000000001"))


def test_a_broken_checkpoint_is_skipped_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 1, 2)
    (tmp_path / "step-000000002" / "state.json").write_text("")
    with caplog.at_level(logging.WARNING):
        assert restore(tmp_path) == ({"step": 1}, content(1))
    assert "step-000000002: state.json has 0 bytes" in caplog.text


def test_a_broken_checkpoint_does_not_replace_a_complete_one(tmp_path: Path) -> None:
    write(tmp_path, 1, 9)
    (tmp_path / "step-000000009" / "state.json").write_text("")
    restore(tmp_path)
    write(tmp_path, 2, keep=1)
    assert restore(tmp_path) == ({"step": 2}, content(2))
    assert names(tmp_path) == ["broken-step-000000009", "step-000000002"]


def test_only_broken_checkpoints_are_an_error_and_not_a_new_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "step-000000001" / "state.json").write_text("")
    with pytest.raises(BadInput, match=r"none of its 1 checkpoints is complete; restore one, or .* --resume never"):
        restore(tmp_path)


def test_the_option_resume_must_requires_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no checkpoint to resume from; start with --resume allow"):
        restore(tmp_path, "must")


def test_the_option_resume_never_renames_old_checkpoints(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path / "checkpoints", 7)
        assert restore(tmp_path / "checkpoints", "never") == (None, b"")
    assert names(tmp_path) == ["checkpoints-old", "checkpoints-old-2"]


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("recipe", "xyz", "written with recipe abc, but this run has recipe xyz"),
        ("precision", "bf16", "written with precision fp32, but this run has precision bf16"),
    ],
)
def test_a_checkpoint_of_another_recipe_or_precision_is_refused(
    tmp_path: Path, key: str, value: str | int, line: str
) -> None:
    write(tmp_path, 1)
    with pytest.raises(BadInput, match=line):
        restore(tmp_path, **{key: value})


@pytest.mark.parametrize(("key", "value"), [("workers", 2), ("zero", 3)])
def test_other_workers_and_another_stage_resume(tmp_path: Path, key: str, value: int) -> None:
    write(tmp_path, 1)
    assert restore(tmp_path, **{key: value}) == ({"step": 1}, content(1))


def test_a_checkpoint_in_deepspeed_s_own_format_is_refused_in_one_line(tmp_path: Path) -> None:
    write(tmp_path, 1)
    use_previous_format(tmp_path / "step-000000001", format=None)
    for read in (restore, lambda folder: checkpoint.weights_of(folder / "step-000000001")):
        with pytest.raises(
            BadInput, match=r"written by an earlier version of Sesame.*init_checkpoint=DIRECTORY/weights-STEP, or"
        ):
            read(tmp_path)


def test_checkpoints_at_multiples_of_keep_every_are_kept_forever(tmp_path: Path) -> None:
    write(tmp_path, 5, 10, 15, 20, 25, 30, keep=2, keep_every=10)
    assert names(tmp_path) == [f"step-{step:09d}" for step in (10, 20, 25, 30)]


def test_a_user_s_copy_is_not_a_checkpoint(tmp_path: Path) -> None:
    """Such a copy used to stop a running training in the thread that removes old checkpoints."""
    write(tmp_path, 1)
    shutil.copytree(tmp_path / "step-000000001", tmp_path / "step-000000001-backup")
    write(tmp_path, 2, 3, keep=1)
    assert restore(tmp_path) == ({"step": 3}, content(3))
    assert names(tmp_path) == ["step-000000001-backup", "step-000000003"]


@pytest.mark.parametrize("background", [False, True])
def test_an_old_checkpoint_that_cannot_be_removed_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, background: bool
) -> None:
    def fail(*given: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", ".nfs0001")

    monkeypatch.setattr(checkpoint, "remove_old", fail)
    begun = saver(Disk(content(2)), tmp_path, background=background)
    begun.save(2, {"step": 2})
    begun.finish()
    assert restore(tmp_path) == ({"step": 2}, content(2))
    assert "an old checkpoint cannot be removed" in caplog.text
    assert "Device or resource busy" in caplog.text


def test_newer_checkpoints_are_removed_if_an_earlier_one_is_complete(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    assert checkpoint.forget_after(Disk(), tmp_path, 2)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_newer_checkpoints_are_kept_if_no_earlier_one_is_complete(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3)
    (tmp_path / "step-000000001" / "state.json").write_text("")
    assert not checkpoint.forget_after(Disk(), tmp_path, 1)
    assert names(tmp_path) == ["step-000000001", "step-000000002", "step-000000003"]


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("function", ["saver.write", "checkpoint.sync", "checkpoint.os.replace"])
def test_a_full_disk_during_a_save_is_reported_in_one_line_and_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, background: bool
) -> None:
    write(tmp_path, 1)

    def fail(*given: object, **named: object) -> None:
        raise FULL

    def save() -> None:
        begun = saver(Disk(content(2)), tmp_path, keep=1, background=background)
        begun.save(2, {"step": 2})
        begun.finish()

    with monkeypatch.context() as patch:
        patch.setattr(f"training.{function}", fail)
        with pytest.raises(BadInput, match=r"step 2 cannot be written \(No space left on device\)"):
            save()
    assert names(tmp_path) == ["step-000000001"]
    assert restore(tmp_path) == ({"step": 1}, content(1))


def test_a_background_save_contains_the_weights_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is paused while the weights change. The directory appears only after all workers have confirmed their
    files."""
    may_continue, written = threading.Event(), saving.write
    monkeypatch.setattr(saving, "write", lambda *given: may_continue.wait(60) and written(*given))
    weights = torch.arange(250.0)
    engine = Disk()
    monkeypatch.setattr(
        engine, "part", lambda copy: CheckpointFragment({"net|weight|0": copy("0", weights)}, {"net": (250,)})
    )
    begun = saver(engine, tmp_path, background=True)
    begun.save(3, {"step": 3})
    weights.zero_()
    assert begun.votes() == SaverVotes()
    begun.apply_votes(SaverVotes())
    assert checkpoint.find_newest(tmp_path) is None
    may_continue.set()
    wait([begun._work])
    assert begun.votes() == SaverVotes(written=1)
    begun.apply_votes(SaverVotes(written=1))
    wait([begun._work])
    assert begun.votes() == SaverVotes(published=1)
    begun.apply_votes(SaverVotes(published=1))
    assert restore(tmp_path) == ({"step": 3}, torch.arange(250.0).numpy().tobytes())


def test_a_process_that_dies_during_a_save_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / ".tmp-step-000000002").mkdir()
    (tmp_path / ".tmp-step-000000002" / PART).write_bytes(b"half of")
    assert restore(tmp_path) == ({"step": 1}, content(1))
    assert names(tmp_path) == ["step-000000001"]


def test_an_error_of_another_worker_also_stops_this_worker(tmp_path: Path) -> None:
    begun = saver(Disk(content(1)), tmp_path, background=True)
    begun.save(1, {})
    with pytest.raises(BadInput, match="No space left on device"):
        begun.apply_votes(SaverVotes(written=1, failed=2, error_number=2 * errno.ENOSPC))


def test_files_of_a_killed_process_are_removed_at_the_next_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    shutil.copytree(tmp_path / "step-000000001", tmp_path / ".tmp-step-000000002")
    assert restore(tmp_path) == ({"step": 1}, content(1))
    assert names(tmp_path) == ["step-000000001"]


def test_a_checkpoint_may_be_copied_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "here", 1)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert restore(tmp_path / "there") == ({"step": 1}, content(1))


def test_a_fault_that_one_worker_finds_is_reported_to_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker finds no fault in its files; the sums over the workers say that another worker did."""
    write(tmp_path, 1, 2)
    engine = Disk()
    sums = iter([[2], [2, 1], [4, 0], [0, 1, 0, 0], [4, 0], [0, 0, 0, 0]])
    monkeypatch.setattr(engine, "reduce_sums", lambda values: next(sums))
    assert checkpoint.restore(engine, tmp_path, TOPOLOGY, "allow") == {"step": 1}
    assert engine.content == content(1)
    assert names(tmp_path) == ["broken-step-000000002", "step-000000001"]


def test_workers_share_the_verification_and_all_learn_of_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    path, hashed, digest = tmp_path / "step-000000001", list[str](), checkpoint._sha256
    monkeypatch.setattr(checkpoint, "_sha256", lambda file: hashed.append(file.name) or digest(file))
    for weights in run_together(3, lambda workers: checkpoint.weights_of(path, workers)):
        assert weights["net"].numpy().tobytes() == content(1)
        assert list(weights) == ["net"]
        assert weights.shapes == {"net": (250,)}
    assert sorted(hashed) == ["index.jsonl", PART, "spec.json", "state.json"]
    (path / "spec.json").write_text("")
    for error in run_together(3, lambda workers: checkpoint.weights_of(path, workers)):
        assert "spec.json has 0 bytes" in str(error)


def test_a_checkpoint_whose_name_has_another_step_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a run would resume from a renamed copy at the copy's own step, and overwrite other checkpoints."""
    write(tmp_path, 1, 2)
    shutil.copytree(tmp_path / "step-000000001", tmp_path / "step-000000009")
    assert restore(tmp_path) == ({"step": 2}, content(2))
    assert "step-000000009: manifest.json names step 1; rename the directory to step-000000001" in caplog.text
    assert names(tmp_path) == ["broken-step-000000009", "step-000000001", "step-000000002"]


def test_a_state_of_another_step_is_refused(tmp_path: Path) -> None:
    saver(Disk(content(1)), tmp_path).save(3, {"step": 4})
    with pytest.raises(
        BadInput, match=r"step-000000003: invalid state\.json: got step 4, expected step 3; remove this directory"
    ):
        restore(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "[]", "1" * 5_000, "\udcff"])
def test_a_manifest_with_invalid_json_invalidates_the_checkpoint(tmp_path: Path, text: str) -> None:
    write(tmp_path, 1, 2)
    (tmp_path / "step-000000002" / "manifest.json").write_text(text, errors="surrogateescape")
    assert "cannot read manifest.json" in str(checkpoint.find_fault(tmp_path / "step-000000002"))
    assert restore(tmp_path) == ({"step": 1}, content(1))


def test_a_manifest_without_files_has_its_own_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The manifest exists and can be read. The message must not say that a worker cannot find it."""
    write(tmp_path, 1)
    path = tmp_path / "step-000000001"
    manifest = from_checked_json((path / "manifest.json").read_bytes())
    (path / "manifest.json").write_bytes(to_checked_json(manifest | {"files": {}}))
    assert checkpoint.find_fault(path) == f"{path}: manifest.json lists no files"
    with pytest.raises(BadInput, match="none of its 1 checkpoints is complete"):
        restore(tmp_path)
    assert f"{path}: manifest.json lists no files; looking for an older checkpoint" in caplog.text
    assert "not all workers" not in caplog.text
