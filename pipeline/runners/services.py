"""Services that a runner of Beam needs: a job server or the master of a cluster, and Java for Beam's own job server.

Beam waits for a service that does not answer, for some of them without a message and without end. So they are checked
before any work, within seconds. Flink, the REST server of Spark and a job server are asked who they are. Of another
service, it is only known that something listens.
"""

import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
    StandardOptions,
)

from preprocessing.errors import ResourceError

CONNECT_SECONDS: Final = 3.0  # a job server that was started with the command may not listen yet
_LOOKUP_SECONDS: Final = 10.0  # the system looks up a host name without a limit of its own
_JAVA: Final = 11  # oldest version that Beam's job servers need
_OWN: Final = "embed"  # value of job_endpoint for a job server that Beam starts in its own process
_GRPC: Final = re.compile(
    r"(?:dns|unix|unix-abstract|ipv4|ipv6|vsock|xds):(?!\d+$)"
)  # names of gRPC, which are not checked
_HERE: Final = ("", "[local]", "[auto]", "[collection]")  # values of flink_master without an address
_PORTS: Final = {"http": 80, "https": 443, "spark": 7077}
_START: Final = "start it or correct the address"
_OTHER: Final = "another program answers there"
_MOST_BYTES: Final = 1 << 16  # of an answer
_CLIENT_ERRORS: Final = range(400, 500)
_LOGIN: Final = (401, 403, 407)  # statuses of HTTP that say nothing about the program behind a login


class Question(NamedTuple):
    """A question over HTTP. The answer of the right program is JSON with its version."""

    path: str
    key: str  # of the version
    program: str


_FLINK: Final = Question("/config", "flink-version", "Flink")
_SPARK: Final = Question("/v1/submissions/status/none", "serverSparkVersion", "Spark")


class Service(NamedTuple):
    """An address that must answer: the option with it, its value, and what is expected there."""

    option: str
    value: str
    what: str
    addresses: tuple[tuple[str, int], ...]  # one of them must answer
    question: Question | None = None
    is_job_server: bool = False


def require_services(options: PipelineOptions) -> list[str]:
    """Check that the services of the runner answer, and return a line for each; [] for a runner on this machine.

    Raises ResourceError, a line, if one does not answer within seconds, or if Java is missing or too old.
    """
    runner = (options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower().removesuffix("runner")
    services, needs_java = _list_services(options, runner)
    lines = [_require(service) for service in services]
    launcher = options.view_as(JobServerOptions).job_server_java_launcher or "java"
    return [*lines, *([_require_java(launcher, runner)] if needs_java else [])]


def _list_services(options: PipelineOptions, runner: str) -> tuple[list[Service], bool]:
    """The services of a runner, and whether Beam starts a job server in Java on this machine.

    The job server at `job_endpoint` connects to the master itself, which may have an address of another network.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint or ""
    if runner in ("portable", "flink", "spark") and endpoint:
        if endpoint == _OWN or _GRPC.match(endpoint):
            return [], False
        address = re.fullmatch(r"\[?([^/\[\]]+)\]?:(\d+)", endpoint)
        found = ((address[1], int(address[2])),) if address else ()
        what = "the address of a running job server"
        return [Service("job_endpoint", endpoint, what, found, is_job_server=True)], False
    if runner == "flink":
        flink = options.view_as(FlinkRunnerOptions)
        master = (flink.flink_master or "").strip()
        is_here = master in _HERE
        what = "the REST address of a running Flink cluster"
        services = [] if is_here else [_of_url("flink_master", master, what, _FLINK)]
        return services, is_here or not flink.flink_submit_uber_jar
    if runner == "spark":
        spark = options.view_as(SparkRunnerOptions)
        if spark.spark_submit_uber_jar:
            what = "the REST address of a Spark master"
            return [_of_url("spark_rest_url", spark.spark_rest_url or "", what, _SPARK)], False
        master = (spark.spark_master_url or "").removeprefix("k8s://")
        is_elsewhere = "://" in master  # else local[4], yarn
        return [
            _of_url("spark_master_url", master, "the address of a running Spark master")
        ] if is_elsewhere else [], True
    if runner == "dataflow":
        url = options.view_as(GoogleCloudOptions).dataflow_endpoint or ""
        return [_of_url("dataflow_endpoint", url, "the address of Dataflow")], False
    return [], False


def _of_url(option: str, url: str, what: str, question: Question | None = None) -> Service:
    """The service at HOST:PORT, at a URL, or at one of several hosts: spark://a:7077,b:7077."""
    scheme, _, rest = url.rpartition("://")
    addresses = []
    for host in rest.split(","):
        with suppress(ValueError):  # a port beyond 65535, or a bracket without its partner
            parts = urlsplit(f"//{host}")
            addresses.append((parts.hostname or "", _PORTS.get(scheme, 80) if parts.port is None else parts.port))
    return Service(option, url, what, tuple(addresses), question)


def _require(service: Service) -> str:
    """A line if one of the addresses answers within seconds; otherwise ResourceError, also if another program does."""
    until, why = time.monotonic() + CONNECT_SECONDS, "no HOST:PORT"
    while True:
        for host, port in service.addresses:
            why = _connect(host, port) if host else "no host"
            if not why and (found := _identify(service, host, port)) != _OTHER:
                return (
                    f"beam: {service.option} {service.value} answers: {found}" if found else _describe_listener(service)
                )
            why = why or _OTHER
        if time.monotonic() + 0.5 > until or not service.addresses:
            got = f"{service.value or 'no value'} ({why})"
            raise ResourceError(f"Beam: invalid {service.option}: got {got}, expected {service.what}; {_START}")
        time.sleep(0.5)


def _describe_listener(service: Service) -> str:
    return f"beam: something listens at {service.option} {service.value}"


def _identify(service: Service, host: str, port: int) -> str:
    """The program at an address; "" if it does not say, and _OTHER if it is not the expected one."""
    if service.is_job_server:
        return _ask_job_server(f"{host}:{port}")
    if not service.question:
        return ""
    scheme, _, rest = service.value.rpartition("://")
    connect = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = connect(host, port, timeout=CONNECT_SECONDS)  # without the proxies of the environment
    try:
        connection.request("GET", f"/{rest.partition('/')[2]}".rstrip("/") + service.question.path)
        answer = connection.getresponse()
        status, text = answer.status, answer.read(_MOST_BYTES)
    except http.client.HTTPException:  # it does not speak HTTP
        return _OTHER
    except OSError:  # no answer in time, or a certificate that is unknown here
        return ""
    finally:
        connection.close()
    values: Any = None
    with suppress(ValueError, RecursionError):
        values = json.loads(text)
    if isinstance(values, dict) and service.question.key in values:
        return f"{service.question.program} {values[service.question.key]}"
    is_clear = status == http.client.OK or (status in _CLIENT_ERRORS and status not in _LOGIN)
    return _OTHER if is_clear else ""


def _ask_job_server(address: str) -> str:
    """Like `_identify`, with the first question of Beam to a job server."""
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        try:
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            stub.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=CONNECT_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:  # it does not speak HTTP/2
                return _OTHER
            return "" if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else "a job server"
    return "a job server"


def _connect(host: str, port: int) -> str:
    """Why an address does not answer; "" if it does."""
    result = ["no answer from the name server"]

    def try_once() -> None:
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
            result[0] = ""
        except (OSError, OverflowError, UnicodeError) as error:  # a port above 65535 overflows
            result[0] = str(getattr(error, "strerror", "") or error)

    thread = threading.Thread(target=try_once, name=f"connection to {host}", daemon=True)
    thread.start()
    thread.join(_LOOKUP_SECONDS)
    return result[0]


def _require_java(launcher: str, runner: str) -> str:
    """A line with the version of Java. Raises ResourceError if Java is missing or older than 11."""
    path = shutil.which(launcher)
    found = _java_version(path) if path else ""
    if path is None or not found or _major(found) < _JAVA:
        got = f"{found or 'no version'} at {path}" if path else f"no program {launcher}"
        raise ResourceError(
            f"Beam: invalid Java: got {got}, expected Java {_JAVA} or later, because Beam starts the job server of "
            f"{runner} here; install it, or set job_endpoint to a running job server"
        )
    return f"beam: Java {found} at {path}"


@lru_cache(maxsize=8)
def _java_version(path: str) -> str:
    """The version that a Java program prints, e.g. 17.0.9; "" if it fails."""
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r'version "([\d._]+)', done.stderr + done.stdout)
    return match[1] if match else ""


def _major(version: str) -> int:
    """
    >>> _major("17.0.9"), _major("1.8.0_392")
    (17, 8)
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
