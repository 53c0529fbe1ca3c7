"""Ray addresses: a dead address gives a one-line error within seconds, and a local Ray listens only on loopback."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from orchestration.launch import address, ray_session, resolve_address
from preprocessing.errors import ResourceError


@pytest.fixture
def silent_port():
    """The port of a server that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def address_error(text: str) -> str:
    began = time.monotonic()
    with pytest.raises(ResourceError) as error:
        resolve_address(text)
    assert time.monotonic() - began < 15
    assert "\n" not in str(error.value)
    return str(error.value)


def test_closed_port_gives_a_one_line_error() -> None:
    assert address_error("127.0.0.1:1").startswith("ray_address 127.0.0.1:1: no Ray answers; ")
    assert "no Ray answers" in address_error("ray://127.0.0.1:1")


def test_port_of_another_program_gives_a_one_line_error(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray.init` tried for 122 s and then ended the process."""
    monkeypatch.setattr(address, "GRPC_S", 0.5)
    assert "the server there is not Ray" in address_error(f"127.0.0.1:{silent_port}")


@pytest.mark.parametrize("invalid", ["a..b:6379", f"{'a' * 70}.example:6379", f"127.0.0.1:{10**30}"])
def test_impossible_host_or_port_gives_a_one_line_error(invalid: str) -> None:
    assert "no Ray answers; check host and port" in address_error(invalid)


@pytest.fixture(params=["127.0.0.1", "[::1]"])
def grpc_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a gRPC server."""
    import grpc

    if request.param == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("IPv6 is not available")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port(f"{request.param}:0")
    server.start()
    yield f"{request.param}:{port}"
    server.stop(None)


def test_proxy_variables_are_ignored(grpc_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With http_proxy set, a working Ray was once reported as not Ray. An IPv6 address needs brackets in the gRPC
    target."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert resolve_address(grpc_address) == grpc_address


@pytest.mark.parametrize("invalid", ["nonsense", "host:port", ":6379"])
def test_malformed_address_gives_a_one_line_error(invalid: str) -> None:
    assert "expected HOST:PORT" in address_error(invalid)


def test_auto_uses_ray_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert address_error("auto").startswith("ray_address auto (127.0.0.1:1): no Ray answers; ")


def test_loopback_setting_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import ray_constants

    monkeypatch.setenv(address.LOOPBACK, "1")
    with address.bind_to_loopback():
        assert (os.environ[address.LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER) == ("0", False)
    assert (os.environ[address.LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER) == ("1", True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_local_ray_listens_only_on_loopback() -> None:
    """All processes of Ray, including the GCS and the raylet, once listened on all interfaces."""
    import ray

    with ray_session(cpus=1):
        assert ray.get(ray.remote(lambda: 1).remote()) == 1
        store = ray.get_runtime_context().gcs_address
        assert resolve_address(store) == store
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        sockets = list[tuple[str, str]]()  # addresses with the command of their process, which a failure then shows
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a worker of Ray may end at any time
                listening = [one for one in process.net_connections("inet") if one.status == "LISTEN"]
                sockets += [(one.laddr.ip, " ".join(process.cmdline())) for one in listening]
        assert len(sockets) > 4
        assert not [one for one in sockets if one[0] not in ("127.0.0.1", "::ffff:127.0.0.1", "::1")]
