import logging
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.runners.worker import worker_pool_main

from pipeline.runners import beam, check_here, check_options, loopback, pipeline, report_progress, running, services
from pipeline.runners.running import _processes
from pipeline.steps.output_folder import seal
from preprocessing import limits
from preprocessing.errors import BadInput, DataError, ResourceError
from preprocessing.manifest import Count, Ledger

TWO = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


class Stop(KeyboardInterrupt):
    """An interrupt like `orchestration.signals.Stopped`."""


def fail(kind: str) -> None:
    """Fail in the way that `kind` names."""
    if kind == "ours":
        raise DataError("text/part: holds nothing; give more")
    if kind == "system":
        raise OSError(28, os.strerror(28))
    if kind == "unseen":
        Path("/not/there").read_bytes()
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "stop":
        raise Stop
    if kind == "bug":
        raise ZeroDivisionError("a bug")
    if kind == "no network":
        raise RuntimeError("Unable to fetch remote job server jar at https://host/a.jar: <urlopen error>")
    os._exit(9)


def _run(folder: Path, kind: str, *args: str) -> None:
    with pipeline(folder, 0, args) as graph:
        graph | beam.Create([kind]) | beam.Map(fail)


@pytest.mark.parametrize("args", [(), pytest.param(TWO, marks=pytest.mark.slow)], ids=["one process", "two processes"])
def test_an_error_in_a_worker_keeps_its_type(tmp_path: Path, args: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"^text/part: holds nothing; give more$"):
        _run(tmp_path, "ours", *args)
    with pytest.raises(OSError, match="No space left") as raised:
        _run(tmp_path, "system", *args)
    assert raised.value.errno == 28
    with pytest.raises(
        BadInput, match=r"^Beam: file not found by a worker: No such file or directory: '/not/there'; make"
    ):
        _run(tmp_path, "unseen", *args)
    with pytest.raises(
        ResourceError, match=r"^Beam: the job server jar is not a local file and cannot be downloaded; [^\n]+$"
    ):
        _run(tmp_path, "no network", *args)
    with pytest.raises((ZeroDivisionError, RuntimeError), match="a bug"):
        _run(tmp_path, "bug", *args)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_death_of_a_worker_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"^a Beam worker died[^\n]+$"):
        _run(tmp_path, "death", *TWO)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [("--direct_num_wokers=2",), ("--direct_running_mode=fast",), ("stray",), ("--direct_num_workers=many",)],
)
def test_an_unknown_beam_option_is_a_one_line_error(
    tmp_path: Path, args: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match=r"^Beam options: [^\n]+$"):
        _run(tmp_path, "ours", *args)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("args", "work", "expected"),
    [
        ((), 49e6, 0),
        ((), 151e6, 4),
        (("--direct_num_workers=1",), 151e6, 0),
        (("--direct_num_workers=3",), 1e6, 3),
        (("--direct_num_workers=0",), 1e6, 4),
        (("--direct_running_mode=in_memory",), 151e6, 0),
        (("--direct_running_mode=multi_processing",), 1e6, 4),
        (("--direct_running_mode=multi_processing", "--direct_num_workers=1"), 1e6, 1),
        (("--runner=FlinkRunner",), 151e6, 0),
    ],
)
def test_the_number_of_processes_follows_the_work_and_the_options(
    args: tuple[str, ...], work: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert _processes(args, work) == expected


def note_listening_sockets(number: int, process: int, file: str) -> int:
    """Write the addresses at which a process listens to a file."""
    sockets = psutil.Process(process).net_connections("inet")
    addresses = sorted({one.laddr.ip for one in sockets if one.status == "LISTEN"})
    Path(file).write_text(" ".join(addresses))
    return number


@pytest.mark.slow
def test_servers_for_the_workers_listen_on_loopback_only(tmp_path: Path) -> None:
    """Beam's own servers listen on all interfaces, without authentication; one of them returns any file."""
    code = f"""
import os
from pathlib import Path
from pipeline.runners import beam, pipeline
from tests.pipeline.runners.test_running import TWO, note_listening_sockets
with pipeline(Path({str(tmp_path)!r}), 0, TWO) as graph:
    graph | beam.Create([1]) | beam.Map(note_listening_sockets, os.getpid(), {str(tmp_path / "addresses")!r})
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)
    assert (tmp_path / "addresses").read_text() == "::ffff:127.0.0.1"  # gRPC writes 127.0.0.1 as an IPv6 address


def test_the_worker_pool_of_this_process_listens_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in loopback.MODULES:
        monkeypatch.setattr(module, "grpc", grpc)
    loopback.bind_to_loopback()
    url, server = worker_pool_main.BeamFnExternalWorkerPoolServicer.start()
    try:
        port = int(url.rpartition(":")[2])
        listening = [one.laddr for one in psutil.Process().net_connections("inet") if one.status == "LISTEN"]
        assert {address.ip for address in listening if address.port == port} <= {"127.0.0.1", "::ffff:127.0.0.1"}
        socket.create_connection(("localhost", port), 10).close()
    finally:
        server.stop(0)


def test_an_unknown_runner_is_refused_before_the_run() -> None:
    for known in ("FlinkRunner", "flink", "DirectRunner", "apache_beam.runners.portability.fn_api_runner.FnApiRunner"):
        check_options([f"--runner={known}"])
    with pytest.raises(
        BadInput, match=r"^Beam options: invalid runner: got Nope, expected one of DataflowRunner, [^\n]+$"
    ):
        check_options(["--runner=Nope"])


@pytest.mark.parametrize("name", ["DataflowRunner", "dataflow", "TestDataflowRunner"])
def test_a_missing_dataflow_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_DATAFLOW", "apache_beam.no_such_module")
    with pytest.raises(ResourceError, match=r"run pip install 'apache_beam\[gcp\]'$"):
        check_here([f"--runner={name}"])


def test_an_option_and_its_value_may_be_two_arguments(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        _run(tmp_path, "ours", "--direct_num_workers", "1")


def test_an_interrupt_stays_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, "interrupt")


def test_an_interrupt_of_our_own_class_keeps_its_class(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        _run(tmp_path, "stop")


def test_a_run_prints_nothing_and_leaves_the_loggers_unchanged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("apache_beam")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with pytest.raises(ZeroDivisionError):
        _run(tmp_path, "bug")
    assert capfd.readouterr() == ("", "")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_importing_beam_prints_nothing_and_adds_no_log_handler() -> None:
    code = "import logging, pipeline.runners; print(len(logging.root.handlers))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"0\n", b"")


def test_progress_is_the_sum_of_the_seals(tmp_path: Path) -> None:
    reported: list[dict[str, object]] = []
    for number in range(2):
        part = tmp_path / f"part{number}.arrow"
        part.touch()
        seal(part, ledger=Ledger(kept=Count(3, 20, 5)).to_dict())
    with report_progress("corpus", tmp_path, ["part0.arrow", "part1.arrow", "part2.arrow"], reported.append):
        pass
    assert reported[-1] == {"stage": "corpus", "done": 2, "total": 3, "documents": 6, "bytes": 40, "tokens": 10}


def test_the_time_after_the_last_part_is_reported_as_finishing(tmp_path: Path) -> None:
    reported: list[dict[str, object]] = []
    finishing = threading.Event()

    def report(event: dict[str, object]) -> None:
        reported.append(event)
        if event["stage"] == "finishing text":
            finishing.set()

    part = tmp_path / "part.arrow"
    with report_progress("text", tmp_path, ["part.arrow"], report):
        part.touch()
        seal(part, ledger=Ledger(kept=Count(3, 20, 5)).to_dict())
        assert finishing.wait(250)
    assert [(event["stage"], event.get("done")) for event in reported][-2:] == [("text", 1), ("finishing text", None)]


def test_without_a_listener_nothing_is_watched(tmp_path: Path) -> None:
    with report_progress("corpus", tmp_path / "missing", ["part"], None):
        pass


@pytest.mark.parametrize(("cores", "memory", "expected"), [(0.5, 64e9, 0), (8, 64e9, 8), (8, 2e9, 5), (8, 0.5e9, 0)])
def test_the_number_of_processes_is_limited_by_cores_and_memory(
    cores: float, memory: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "cores", lambda root=limits.ROOT: limits.Cores(cores))
    monkeypatch.setattr(limits, "memory", lambda root=limits.ROOT: limits.MemoryLimit(memory, memory))
    assert _processes((), 151e6) == expected


@pytest.mark.parametrize("runner", ["PortableRunner", "portable", "FlinkRunner", "spark"])
def test_a_job_endpoint_where_nothing_listens_is_refused(runner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam waited for the job server without a message."""
    monkeypatch.setattr(services, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        check_here([f"--runner={runner}", f"--job_endpoint={endpoint}"])
        check_here([f"--runner={runner}", f"--job_endpoint=localhost:{server.getsockname()[1]}"])
    with pytest.raises(
        ResourceError, match=rf"^Beam: invalid job_endpoint: got {endpoint} \(.+\), expected [^\n]+; start "
    ):
        check_here([f"--runner={runner}", f"--job_endpoint={endpoint}"])
    with pytest.raises(ResourceError, match=r"^Beam: invalid job_endpoint: got localhost:70000 "):
        check_here([f"--runner={runner}", "--job_endpoint=localhost:70000"])


@pytest.mark.parametrize("args", [("--runner=PortableRunner", "--job_endpoint=embed"), ("--runner=FlinkRunner",), ()])
def test_no_connection_is_tried_without_the_address_of_a_job_server(
    args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("tried to connect"))
    monkeypatch.setattr(services, "_require_java", lambda *_: "")
    check_here(args)


@pytest.mark.slow
def test_a_job_server_may_start_a_moment_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers: list[socket.socket] = []
    late = threading.Timer(0.7, lambda: servers.append(socket.create_server(("127.0.0.1", port))))
    late.start()
    try:
        check_here(["--runner=PortableRunner", f"--job_endpoint=127.0.0.1:{port}"])
    finally:
        late.join()
        servers[0].close()
