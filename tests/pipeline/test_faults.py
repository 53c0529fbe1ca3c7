"""Kills, full disks and two jobs in one directory: the same command resumes, and its result is unchanged."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from orchestration.cli import main
from pipeline.steps import lock_directory
from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import npy, write_atomic
from tests.pipeline.faults import (
    HERE,
    TWO,
    build,
    content,
    num_finished,
    parts,
    session,
    start,
    wait_until,
    workers,
    write_stories,
)

POINTS = 20
LAST = 0.85  # fraction of a job after which there is still a process to kill


class Undisturbed(NamedTuple):
    source: Path
    content: dict[str, bytes]
    events: int


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A corpus of 16 splits and 9 shards, made by two workers without disturbance."""
    folder = tmp_path_factory.mktemp("whole")
    source = write_stories(folder / "stories.jsonl", kb=8000)
    with start(source, folder / "out", 512, *TWO) as job:
        assert job.wait() == 0
    return Undisturbed(source, content(folder / "out"), num_finished(folder / "out"))


def reach(out: Path, job: "subprocess.Popen[str]", after: int, delay: float) -> None:
    """Wait until `after` parts are finished, then `delay` seconds more."""
    assert wait_until(lambda: num_finished(out) >= after or job.poll() is not None)
    time.sleep(delay)


def kill_job(out: Path, job: "subprocess.Popen[str]", rng: np.random.Generator) -> None:
    """After the kill, no child process continues to run."""
    job.kill()
    job.communicate()
    assert job.returncode == -signal.SIGKILL
    assert wait_until(lambda: not session(job.pid)), "workers outlive their job"


def kill_worker(out: Path, job: "subprocess.Popen[str]", rng: np.random.Generator) -> None:
    """The job reports it in one line and ends; the death of a worker without remaining work may have no effect."""
    assert wait_until(lambda: workers(out) or job.poll() is not None)
    os.kill(int(rng.choice(workers(out))), signal.SIGKILL)
    _, actual = job.communicate()
    assert (job.returncode, actual.count("\n")) in [(0, 0), (4, 1)], actual
    assert job.returncode == 0 or actual.startswith("a Beam worker died")
    assert not session(job.pid)
    assert not [path for path in out.rglob(".*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(POINTS))
def test_a_job_with_a_killed_worker_and_a_killed_job_has_the_same_result(
    whole: Undisturbed, tmp_path: Path, number: int
) -> None:
    """Kill both at seeded places, one after the other: first evenly over the job, then in the remaining part."""
    rng = np.random.default_rng([3, number])
    made: dict[Path, tuple[int, int]] = {}
    least = LAST * number / POINTS
    for kill in [kill_job, kill_worker][:: 1 if number % 2 else -1]:
        share = least + (LAST - least if made else LAST / POINTS) * rng.random()
        with start(whole.source, tmp_path, 512, *TWO) as job:
            reach(tmp_path, job, int(share * (whole.events - 1)), delay=0.5 * rng.random())
            kill(tmp_path, job, rng)
        found = parts(tmp_path)
        assert list(found.values()).count(False) <= 2, "more than one unfinished part for each worker"
        now = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path, is_sealed in found.items() if is_sealed}
        assert made.items() <= now.items(), "a finished part was made again"
        made = now
    with start(whole.source, tmp_path, 512, *TWO) as job:
        _, actual = job.communicate()
        assert job.returncode == 0, actual
    assert content(tmp_path) == whole.content
    assert made == {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in made}
    assert not session(job.pid)


QUICK = 20  # kB per split, which gives ten splits of a small text


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The result of three stages, about 0.5 MB."""
    folder = tmp_path_factory.mktemp("small")
    source = write_stories(folder / "stories.jsonl", kb=200)
    build(str(source), str(folder / "out"), str(QUICK), *HERE)
    return Undisturbed(source, content(folder / "out"), num_finished(folder / "out"))


@pytest.mark.slow
def test_a_job_killed_in_two_stages_has_the_same_result(small: Undisturbed, tmp_path: Path) -> None:
    for stage, ending in (("text", "text.json"), ("corpus", "manifest.json")):
        with start(small.source, tmp_path, QUICK, *HERE) as job:
            assert wait_until(lambda folder=tmp_path / stage: list(folder.glob("t*-*.arrow")) or job.poll() is not None)
            kill_job(tmp_path, job, np.random.default_rng())
        assert not (tmp_path / stage / ending).exists()
    build(str(small.source), str(tmp_path), str(QUICK), *HERE)
    assert content(tmp_path) == small.content


def read_line(process: "subprocess.Popen[str]") -> str:
    """Return the next line of the process's output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestOneWriter:
    RIVAL = (
        "import sys; from pathlib import Path; from pipeline.steps import lock_directory\n"
        "from preprocessing.errors import ResourceError\n"
        "for line in sys.stdin:\n"
        "  try:\n"
        "    with lock_directory(Path(line.strip()), 0): print('holds', flush=True); sys.stdin.readline()\n"
        "  except ResourceError as error: print(error, flush=True); sys.stdin.readline()\n"
    )

    @pytest.fixture
    def rivals(self) -> Iterator[list["subprocess.Popen[str]"]]:
        """Two processes that lock a directory on command, and release it on the next command."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", self.RIVAL]
        started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) for _ in range(2)]
        yield started
        for rival in started:
            rival.kill()
            rival.communicate()

    @pytest.mark.slow
    def test_one_of_two_concurrent_writers_is_refused_with_the_name_of_the_other(
        self, rivals: list["subprocess.Popen[str]"], tmp_path: Path
    ) -> None:
        for number in range(15):
            for rival in rivals:
                print(tmp_path / str(number), file=rival.stdin)
            actual = {rival.pid: read_line(rival) for rival in rivals}
            (holder,) = (pid for pid, line in actual.items() if line == "holds")
            (refusal,) = (line for pid, line in actual.items() if pid != holder)
            who = f"process {holder} on {platform.node()} (since {datetime.now().year}-"
            assert refusal.startswith(f"{tmp_path / str(number)}: {who}")
            for rival in rivals:
                print(file=rival.stdin)

    def test_a_job_is_refused_while_another_writes(
        self, rivals: list["subprocess.Popen[str]"], small: Undisturbed, tmp_path: Path
    ) -> None:
        print(tmp_path / "text", file=rivals[0].stdin)
        assert read_line(rivals[0]) == "holds"
        with pytest.raises(ResourceError, match=rf"^{tmp_path}/text: process {rivals[0].pid} on [^\n]+$") as refusal:
            build(str(small.source), str(tmp_path), str(QUICK), *HERE)
        assert refusal.value.exit_code == 4
        assert list((tmp_path / "text").iterdir()) == [tmp_path / "text" / ".owner.json"]

    def test_the_lock_of_a_killed_process_is_free(self, rivals: list["subprocess.Popen[str]"], tmp_path: Path) -> None:
        print(tmp_path, file=rivals[0].stdin)
        assert read_line(rivals[0]) == "holds"
        rivals[0].kill()
        rivals[0].wait()
        assert (tmp_path / ".owner.json").exists()
        with lock_directory(tmp_path, 0):
            assert json.loads((tmp_path / ".owner.json").read_bytes())["pid"] == os.getpid()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("pid", [2**22 + 1, 1, os.getpid()], ids=["dead", "reused", "our own"])
    def test_a_name_without_a_lock_is_ignored(self, tmp_path: Path, pid: int) -> None:
        who = {"pid": pid, "host": platform.node(), "since": "2020-01-01T00:00:00+00:00", "more": "x" * 1000}
        (tmp_path / ".owner.json").write_text(json.dumps(who))
        with lock_directory(tmp_path, 0):
            assert json.loads((tmp_path / ".owner.json").read_bytes())["pid"] == os.getpid()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Yield a function that mounts or resizes an in-memory disk; skip the test if mounting is not allowed."""
    folder, mounted = tmp_path / "disk", list[bool]()
    folder.mkdir()

    def sized(size: str) -> Path:
        options = f"{'remount,' if mounted else ''}size={size}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False, text=True
        )
        if done.returncode:
            pytest.skip(f"may not mount a small disk here: {done.stderr.strip()}")
        mounted.append(True)
        return folder

    yield sized
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)  # MLflow still has a file open


SLOW = pytest.mark.slow


class TestAFullDisk:
    @pytest.mark.parametrize(
        "kb",
        [300, *(pytest.param(kb, marks=SLOW) for kb in (16, *range(252, 440, 4)))],
        ids=lambda kb: f"{kb} kB",
    )
    def test_a_full_disk_is_a_one_line_error_and_the_job_resumes_with_more_space(
        self, small: Undisturbed, disk: Callable[[str], Path], kb: int
    ) -> None:
        folder = disk(f"{kb}k")
        with pytest.raises(BadInput, match=r"^[^\n]+: not enough disk space: got [\d,]+\.\d MB, expected [^\n]+$"):
            build(str(small.source), str(folder), str(QUICK), *HERE)
        names = {path.name for path in folder.rglob("*") if path.is_file()}
        assert not [name for name in names if name.startswith(".")]
        assert "manifest.json" not in names
        disk("64m")
        build(str(small.source), str(folder), str(QUICK), *HERE)
        assert content(folder) == small.content

    @pytest.mark.slow
    @pytest.mark.parametrize("writes", [30, 0])
    def test_a_disk_that_fills_at_any_write_is_a_one_line_error(
        self, small: Undisturbed, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = iter(range(writes))

        def fsync(handle: int, real: Callable[[int], None] = os.fsync) -> None:
            if next(left, None) is None:
                raise OSError(28, "No space left on device")
            real(handle)

        with monkeypatch.context() as patch:
            patch.setattr("preprocessing.files.os.fsync", fsync)
            with pytest.raises(BadInput, match=r"^[^\n]+: not enough disk space: got [\d,]+\.\d MB, expected [^\n]+$"):
                build(str(small.source), str(tmp_path), str(QUICK), *HERE)
        assert not [path for path in tmp_path.rglob(".*") if path.is_file()]
        build(str(small.source), str(tmp_path), str(QUICK), *HERE)
        assert content(tmp_path) == small.content

    def test_an_array_that_does_not_fit_is_an_error_and_not_truncated(self, disk: Callable[[str], Path]) -> None:
        """numpy.save may silently lose up to a page when it writes to a file, or raise an error without errno."""
        folder = disk("8k")
        for size in (1009, 1100):
            with pytest.raises(OSError, match="No space left"):
                write_atomic(folder / "a.npy", npy(np.zeros(size)))
        write_atomic(folder / "a.npy", npy(np.zeros(1008)))

    @pytest.mark.slow
    def test_the_command_exits_with_code_2_on_a_full_disk(
        self, disk: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = write_stories(tmp_path / "stories.jsonl", kb=2000)
        words = ["corpus", "bert_base", "--scale", "tiny", "--data", str(source), "--progress", "none"]
        assert main([*words, "--output-dir", str(disk("3200k"))]) == 2
        actual = capsys.readouterr()
        assert re.fullmatch(
            r"sesame: \S+: not enough disk space: got 2\.\d MB, expected over 2\.\d MB; [^\n]+",
            actual.err.splitlines()[-1],
        )
        assert "Traceback" not in actual.err
        assert main([*words, "--output-dir", str(disk("64m"))]) == 0
