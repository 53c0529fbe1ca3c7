"""However training ends, its saver ends with it, and a checkpoint in progress is finished or removed."""

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import BadInput, Diverged, MiscountedLoss
from preprocessing.files import remove_tree
from tests.outliving import outliving
from tests.training.corpora import mini_run
from tests.training.test_checkpoint import TOPOLOGY, Disk, content, names, restore, saver
from training import checkpoint, loop
from training import saver as saving
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import pretrain
from training.run import CHECKPOINTS, Run
from training.saver import Saver, SaverVotes, finish_all
from training.specs import EngineSettings, LossSpikes


class Fault(Exception):
    """An unexpected exception."""


def fail(error: BaseException) -> Callable[..., Any]:
    def failing(*given: object, **keys: object) -> Any:
        raise error

    return failing


def ignore(*given: object) -> None:
    pass


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return mini_run(corpus, tmp_path / "run", save_every=4)


def fail_in_step(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> None:
    """Raise the error in the update after `at` others."""
    learn = loop.Learner.learn

    def learned(self: Any, step: int, *given: Any) -> Any:
        if step == at:
            raise error
        return learn(self, step, *given)

    monkeypatch.setattr(loop.Learner, "learn", learned)


def delay_writing(monkeypatch: pytest.MonkeyPatch) -> list[threading.Event]:
    """Writing a checkpoint waits for the event."""
    write, may_continue = saving.write, [threading.Event()]

    def slowly(*given: Any) -> Any:
        assert may_continue[0].wait(60)
        return write(*given)

    monkeypatch.setattr(saving, "write", slowly)
    return may_continue


ENDS: dict[str, Callable[[pytest.MonkeyPatch, Run], Run]] = {
    "bug": lambda patch, run: fail_in_step(patch, 6, Fault()) or run,
    "killed": lambda patch, run: fail_in_step(patch, 6, KeyboardInterrupt()) or run,
    "diverged": lambda patch, run: fail_in_step(patch, 6, Diverged("spike")) or run,
    "miscounted": lambda patch, run: patch.setattr(loop, "_check_counts", fail(MiscountedLoss("half"))) or run,
    "evaluation": lambda patch, run: patch.setattr(loop, "evaluate", fail(Fault())) or replace(run, eval_every=5),
    "rows": lambda patch, run: patch.setattr("training.data.Loader.at", fail(Fault())) or run,
    "rows of a data loader process": lambda patch, run: (
        patch.setattr("training.data.Loader.at", fail(Fault()))
        or replace(run, engine=EngineSettings(dataloader_num_workers=1))
    ),
    "rows made ahead": lambda patch, run: (
        fail_in_step(patch, 6, Fault()) or replace(run, engine=EngineSettings(dataloader_num_workers=1))
    ),
    "profile": lambda patch, run: fail_in_step(patch, 6, Fault()) or replace(run, profile_steps=10),
    "full disk": lambda patch, run: patch.setattr(saving, "write", fail(OSError(28, "No space left"))) or run,
    "spikes": lambda patch, run: (
        fail_in_step(patch, 6, Fault())
        or replace(run, loss_spikes=LossSpikes(policy="skip", threshold_sigmas=3.0, window_steps=4))
    ),
    "end": lambda patch, run: run,
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("end", ENDS)
def test_no_thread_process_or_file_remains_after_training(
    run: Run, end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    pretrain(replace(run, folder=str(tmp_path / "warm")), engine, ignore)  # libraries open files that they keep open
    run = ENDS[end](monkeypatch, run)
    caught: list[BaseException] = []  # its traceback keeps the objects of the frames alive
    with outliving(("/dev/", "pipe", run.corpus)) as left:  # pipes and mapped shards are closed with the traceback
        try:
            pretrain(run, LocalEngine(build_model(run), run.optimizer, run.engine), ignore)
        except BaseException as error:
            caught.append(error)
    assert (left.threads, left.processes, left.files) == ([], [], [])
    assert bool(caught) == (end != "end"), caught
    assert not list((tmp_path / "run" / CHECKPOINTS).glob(".tmp-*"))


@pytest.mark.parametrize("error", [Fault(), Diverged("spike"), MiscountedLoss("half"), KeyboardInterrupt()])
def test_a_checkpoint_in_progress_is_finished_after_an_error(
    run: Run, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_continue = delay_writing(monkeypatch)
    learn = loop.Learner.learn

    def learned(self: Any, step: int, *given: Any) -> Any:
        if step == 5:
            may_continue[0].set()
            raise error
        return learn(self, step, *given)

    monkeypatch.setattr(loop.Learner, "learn", learned)
    with pytest.raises(type(error)):
        pretrain(run, LocalEngine(build_model(run), run.optimizer, run.engine), ignore)
    assert names(Path(run.folder) / CHECKPOINTS) == [checkpoint.name(4)]
    assert checkpoint.find_fault(Path(run.folder) / CHECKPOINTS / checkpoint.name(4)) is None


def test_a_checkpoint_that_cannot_be_finished_after_an_error_is_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail_in_step(monkeypatch, 4, Fault())
    may_continue = threading.Event()

    def full(*given: Any) -> Any:
        assert may_continue.wait(60)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "write", full)
    finish = Saver.finish_alone
    monkeypatch.setattr(Saver, "finish_alone", lambda self: may_continue.set() or finish(self))
    with pytest.raises(Fault), caplog.at_level(logging.WARNING):
        pretrain(run, LocalEngine(build_model(run), run.optimizer, run.engine), ignore)
    assert "the checkpoint of step 4 is incomplete: [Errno 28] No space left on device" in caplog.text
    assert names(Path(run.folder) / CHECKPOINTS) == []


def test_each_attempt_has_its_own_unfinished_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next `pretrain` of a process used the directory of the previous one, or removed it."""
    may_continue = delay_writing(monkeypatch)
    first, second = (saver(Disk(content(step)), tmp_path, background=True) for step in (1, 2))
    first.save(7, {"of": "first"})
    second.save(7, {"of": "second"})
    assert first._unfinished != second._unfinished
    may_continue[0].set()
    first.close()
    assert '"first"' in (tmp_path / checkpoint.name(7) / checkpoint.STATE).read_text()
    second.close()
    assert restore(tmp_path) == ({"of": "second"}, content(2))


def test_a_checkpoint_published_during_removal_stays_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rmtree continues in a directory that is renamed meanwhile: it emptied the published checkpoint."""
    unfinished, final = tmp_path / ".tmp-step-000000012", tmp_path / "step-000000012"
    unfinished.mkdir()
    (unfinished / "manifest.json").write_text("{}")
    remove = shutil.rmtree

    def meanwhile(path: Path, **how: Any) -> None:
        with pytest.raises(FileNotFoundError):
            os.replace(unfinished, final)
        remove(path, **how)

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    remove_tree(unfinished)
    assert names(tmp_path) == []
    unfinished.mkdir()
    (unfinished / "manifest.json").write_text("{}")
    os.replace(unfinished, final)
    remove_tree(unfinished)  # the directory existed a moment ago
    assert names(final) == ["manifest.json"]


class OneOf(Disk):
    """One of two workers; the other one no longer answers."""

    world = 2

    def __init__(self, content: bytes, rank: int) -> None:
        super().__init__(content)
        self.rank = rank

    def part(self, copy: Any) -> Any:
        part = super().part(copy)
        return replace(part, tensors={name.replace("|0", f"|{self.rank}"): one for name, one in part.tensors.items()})


def two_savers(folder: Path) -> list[Saver]:
    """The savers of two workers that have begun to write a checkpoint."""
    savers = [Saver(OneOf(content(rank), rank), folder, TOPOLOGY, {}, keep=3) for rank in (0, 1)]  # type: ignore[arg-type]
    for each in savers:
        each._attempt = "ab"  # both workers received it in a collective call
    return savers


def test_workers_finish_a_checkpoint_that_all_have_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_continue = delay_writing(monkeypatch)
    first, other = two_savers(tmp_path)
    for each in (first, other):
        each.save(3, {"step": 3})
    threading.Timer(0.2, may_continue[0].set).start()
    with outliving():
        ended = threading.Thread(target=other.close)
        ended.start()
        first.close()
        ended.join()
    assert names(tmp_path) == [checkpoint.name(3)]
    assert checkpoint.find_fault(tmp_path / checkpoint.name(3)) is None


def test_a_checkpoint_without_the_files_of_one_worker_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to be discarded silently."""
    monkeypatch.setattr(saving, "QUIET_S", 0.2)
    first, other = two_savers(tmp_path)
    first.save(3, {"step": 3})
    first.close()
    assert names(tmp_path) == []
    assert "step 3 is incomplete: 1 of 2 workers ended before they had written their fragments" in caplog.text
    other.close()


def test_a_worker_with_a_slow_disk_does_not_count_as_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files do not grow while fsync waits for the disk: after two seconds, the checkpoint used to be removed."""
    monkeypatch.setattr(saving, "QUIET_S", 0.0)
    first, other = two_savers(tmp_path)
    first.save(3, {"step": 3})
    wait([first._work])  # type: ignore[list-item]  # wait until the work is done
    first._wrote_s = 60.0
    threading.Timer(0.2, other.save, (3, {"step": 3})).start()
    first.close()
    assert names(tmp_path) == [checkpoint.name(3)]
    other.close()


def test_a_worker_that_cannot_write_its_part_does_not_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*given: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving, "write", full)
    monkeypatch.setattr(Saver, "_wait_for_files", lambda self: pytest.fail("it waits"))
    first, other = two_savers(tmp_path)
    first.save(3, {"step": 3})
    first.close()
    assert names(tmp_path) == []
    assert "the checkpoint of step 3 is incomplete: [Errno 28] No space left on device" in caplog.text
    other.close()


def test_another_thread_finishes_the_checkpoint_of_a_blocked_training(tmp_path: Path) -> None:
    with outliving() as left:
        begun = saver(Disk(content(1)), tmp_path, background=True)
        begun.save(1, {"step": 1})
        finish_all()
        begun.apply_votes(SaverVotes())
        assert restore(tmp_path) == ({"step": 1}, content(1))
        begun.close()
        finish_all()
    assert left.threads == []


def test_a_refused_start_leaves_no_thread(run: Run) -> None:
    with outliving() as left, pytest.raises(BadInput):
        pretrain(replace(run, resume="must"), LocalEngine(build_model(run), run.optimizer, run.engine), ignore)
    assert left.threads == []
