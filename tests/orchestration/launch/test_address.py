"""Where Ray is: a dead address is one line within seconds, and a Ray of our own listens on 127.0.0.1 alone."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from orchestration.launch import address, ray_session, resolve_address
from preprocessing.errors import ResourceError


@pytest.fixture
def listening():
    """The port of a server that never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def refused(where: str) -> str:
    began = time.monotonic()
    with pytest.raises(ResourceError) as error:
        resolve_address(where)
    assert time.monotonic() - began < 15
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_address_where_nothing_listens_is_one_line() -> None:
    assert refused("127.0.0.1:1").startswith("ray_address 127.0.0.1:1: no Ray answers; ")
    assert "no Ray answers" in refused("ray://127.0.0.1:1")


def test_a_port_of_something_else_is_one_line(listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray.init` tried for 122 s, then it ended the process."""
    monkeypatch.setattr(address, "GRPC_S", 0.5)
    assert "the server there is not Ray" in refused(f"127.0.0.1:{listening}")


@pytest.mark.parametrize("wrong", ["a..b:6379", f"{'a' * 70}.example:6379", f"127.0.0.1:{10**30}"])
def test_a_host_or_a_port_that_cannot_be_is_one_line(wrong: str) -> None:
    assert "no Ray answers; check host and port" in refused(wrong)


@pytest.fixture(params=["127.0.0.1", "[::1]"])
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server of gRPC."""
    import grpc

    if request.param == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port(f"{request.param}:0")
    server.start()
    yield f"{request.param}:{port}"
    server.stop(None)


def test_a_proxy_of_the_environment_is_not_asked(answering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good Ray was "something that is no Ray" where http_proxy is set; IPv6 was a target without brackets."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert resolve_address(answering) == answering


@pytest.mark.parametrize("wrong", ["nonsense", "host:port", ":6379"])
def test_what_is_no_address_is_one_line(wrong: str) -> None:
    assert "expected HOST:PORT" in refused(wrong)


def test_auto_takes_the_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert refused("auto").startswith("ray_address auto (127.0.0.1:1): no Ray answers; ")


def test_the_switch_for_loopback_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import ray_constants

    monkeypatch.setenv(address.LOOPBACK, "1")
    with address.bind_to_loopback():
        assert (os.environ[address.LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER) == ("0", False)
    assert (os.environ[address.LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER) == ("1", True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_ray_of_our_own_listens_on_loopback_alone() -> None:
    """All of its processes listened on all interfaces, the store and the raylet too."""
    import ray

    with ray_session(cpus=1):
        assert ray.get(ray.remote(lambda: 1).remote()) == 1
        store = ray.get_runtime_context().gcs_address
        assert resolve_address(store) == store
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        sockets = [each for process in processes for each in process.net_connections("inet") if each.status == "LISTEN"]
        assert len(sockets) > 4
        assert {each.laddr.ip for each in sockets} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
