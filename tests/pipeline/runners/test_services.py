"""The services of a runner are checked within seconds, before any work."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pipeline.runners import check_here, describe_services, services
from preprocessing.errors import ResourceError


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java 17, whatever this machine has, and no waiting for a service that starts."""
    monkeypatch.setattr(services, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(services.shutil, "which", lambda name: f"/opt/{name}")
    monkeypatch.setattr(services, "_java_version", lambda path: "17.0.9")


@pytest.fixture
def address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def web_server(status: int, body: str) -> Iterator[str]:
    """A server that answers each GET with this status and body; yield its HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_flink_and_spark_are_asked_for_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CONNECT_SECONDS", 3.0)
    with web_server(200, json.dumps({"flink-version": "1.19.1"})) as at:
        for url in (at, f"http://{at}/"):
            lines = describe_services(["--runner=FlinkRunner", f"--flink_master={url}"])
            assert lines[0] == f"beam: flink_master {url} answers: Flink 1.19.1"
    with web_server(400, json.dumps({"serverSparkVersion": "3.5.0"})) as at:
        lines = describe_services(["--runner=SparkRunner", "--spark_submit_uber_jar", f"--spark_rest_url=http://{at}"])
        assert lines == [f"beam: spark_rest_url http://{at} answers: Spark 3.5.0"]


@pytest.mark.parametrize("option", ["flink_master={}", "spark_rest_url=http://{}", "job_endpoint={}"])
def test_another_program_at_the_address_is_refused(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m http.server` used to count as Flink."""
    monkeypatch.setattr(services, "CONNECT_SECONDS", 1.0)
    runner = "FlinkRunner" if option.startswith("flink") else "SparkRunner"
    for status, body in ((404, "not found"), (200, "<html></html>"), (200, "[1]")):
        with web_server(status, body) as at:
            given = option.format(at)
            with pytest.raises(ResourceError) as caught:
                describe_services([f"--runner={runner}", "--spark_submit_uber_jar", f"--{given}"])
            name, _, value = given.partition("=")
            assert f"invalid {name}: got {value} (another program answers there), expected the " in str(caught.value)


def test_a_server_with_a_login_may_be_the_expected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CONNECT_SECONDS", 3.0)
    with web_server(401, "who are you") as at:
        lines = describe_services(["--runner=FlinkRunner", f"--flink_master={at}"])
        assert lines[0] == f"beam: something listens at flink_master {at}"


def test_a_service_that_answers_is_named_with_java(address: str) -> None:
    java = "beam: Java 17.0.9 at /opt/java"
    assert describe_services(["--runner=FlinkRunner", f"--flink_master={address}"]) == [
        f"beam: something listens at flink_master {address}",
        java,
    ]
    masters = f"spark://127.0.0.1:1,{address}"  # of several masters, one must answer
    assert describe_services(["--runner=SparkRunner", f"--spark_master_url={masters}"]) == [
        f"beam: something listens at spark_master_url {masters}",
        java,
    ]
    kubernetes = ["--runner=SparkRunner", f"--spark_master_url=k8s://https://{address}"]
    assert describe_services(kubernetes)[0] == f"beam: something listens at spark_master_url https://{address}"


def test_a_job_server_or_an_uber_jar_needs_no_java(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services.shutil, "which", lambda name: None)
    for runner, options in (
        ("PortableRunner", [f"--job_endpoint={address}"]),
        ("FlinkRunner", [f"--job_endpoint={address}", "--flink_master=elsewhere:8081"]),
        ("FlinkRunner", [f"--flink_master=http://{address}", "--flink_submit_uber_jar"]),
        ("SparkRunner", ["--spark_submit_uber_jar", f"--spark_rest_url=http://{address}"]),
    ):
        (line,) = describe_services([f"--runner={runner}", *options])
        assert line.startswith("beam: something listens at ")


@pytest.mark.parametrize(
    ("runner", "option", "value", "what"),
    [
        ("FlinkRunner", "flink_master", "{}", "the REST address of a running Flink cluster"),
        ("SparkRunner", "spark_master_url", "spark://{}", "the address of a running Spark master"),
        ("PortableRunner", "job_endpoint", "{}", "the address of a running job server"),
    ],
)
def test_a_cluster_that_does_not_answer_is_refused_in_one_line(
    runner: str, option: str, value: str, what: str, closed: str
) -> None:
    given = value.format(closed)
    with pytest.raises(ResourceError) as caught:
        check_here([f"--runner={runner}", f"--{option}={given}"])
    assert str(caught.value) == (
        f"Beam: invalid {option}: got {given} (Connection refused), expected {what}; start it or correct the address"
    )
    check_here([f"--runner={runner}", f"--{option}={given}"], connect=False)


def test_dataflow_is_asked_at_its_address(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.runners.running._DATAFLOW", "json")  # as if its packages were installed
    with pytest.raises(ResourceError, match=r"^Beam: invalid dataflow_endpoint: got http://127[^\n]+$"):
        check_here(["--runner=DataflowRunner", f"--dataflow_endpoint=http://{closed}"])


def test_an_unknown_host_and_a_hanging_name_server_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(ResourceError, match=r"got nowhere:8081 \(Name or service not known\)"):
        check_here(["--runner=FlinkRunner", "--flink_master=nowhere:8081"])
    monkeypatch.setattr(services, "_LOOKUP_SECONDS", 0)

    def hang(*_: object) -> socket.socket:
        time.sleep(0.3)
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", hang)
    with pytest.raises(ResourceError, match=r"got nowhere:8081 \(no answer from the name server\)"):
        check_here(["--runner=FlinkRunner", "--flink_master=nowhere:8081"])


@pytest.mark.parametrize("version", ["1.8.0_392", "", None])
def test_a_missing_or_old_java_is_refused(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if version is None:
        monkeypatch.setattr(services.shutil, "which", lambda name: None)
    monkeypatch.setattr(services, "_java_version", lambda path: version)
    with pytest.raises(ResourceError, match=r"^Beam: invalid Java: got [^\n]+, expected Java 11 or later, [^\n]+$"):
        check_here(["--runner=FlinkRunner"])
    with pytest.raises(ResourceError, match=r"the job server of spark here; install it, or set job_endpoint"):
        check_here(["--runner=SparkRunner", "--spark_master_url=local[2]"])


def test_the_version_is_that_which_the_program_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    program.chmod(0o755)
    assert services._java_version(str(program)) == "21.0.1"
    assert services._java_version(str(tmp_path / "missing")) == ""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked twice"))
    assert services._java_version(str(program)) == "21.0.1"


def test_a_runner_on_this_machine_needs_no_service() -> None:
    assert describe_services([]) == []
    assert describe_services(["--runner=PortableRunner", "--job_endpoint=embed"]) == []


@pytest.mark.parametrize(
    ("runner", "option", "value", "got"),
    [
        ("FlinkRunner", "flink_master", "http://[::1:8081", r"http://\[::1:8081 \(no HOST:PORT\)"),
        ("FlinkRunner", "flink_master", "a:99999", r"a:99999 \(no HOST:PORT\)"),
        ("FlinkRunner", "flink_master", "http://", r"http:// \(no host\)"),
        ("SparkRunner", "spark_master_url", "spark://[a", r"spark://\[a \(no HOST:PORT\)"),
        ("PortableRunner", "job_endpoint", "localhost", r"localhost \(no HOST:PORT\)"),
        ("PortableRunner", "job_endpoint", "http://localhost:1", r"http://localhost:1 \(no HOST:PORT\)"),
        ("SparkRunner", "spark_submit_uber_jar", "", r"no value \(no host\)"),
    ],
)
def test_an_address_that_is_none_is_refused_in_one_line(runner: str, option: str, value: str, got: str) -> None:
    given = f"--{option}={value}" if value else f"--{option}"
    with pytest.raises(ResourceError, match=rf"^Beam: invalid \w+: got {got}, expected the [^\n]+$"):
        describe_services([f"--runner={runner}", given])


def test_a_name_of_grpc_is_not_checked() -> None:
    for endpoint in ("dns:///localhost:1", "unix:/tmp/job.sock"):
        assert describe_services(["--runner=PortableRunner", f"--job_endpoint={endpoint}"]) == []
    with pytest.raises(ResourceError, match=r"got dns:1 \("):
        describe_services(["--runner=PortableRunner", "--job_endpoint=dns:1"])
