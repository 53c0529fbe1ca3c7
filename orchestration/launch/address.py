"""The address of a running Ray, and the network interface on which our own Ray listens."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from preprocessing.errors import ResourceError

TCP_S = 4.0  # timeout of the connection to the port
GRPC_S = 6.0  # timeout of the first answer; with the imports, a dead address raises within 15 s
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # with the value 0, Ray uses 127.0.0.1 as the address of this machine


def resolve_address(address: str) -> str:
    """Check that a Ray answers at `address`, and return its `host:port`; `auto` means the Ray of this machine.

    Raises ResourceError within 15 s if no Ray answers. Without this check, `ray.init` would try for two minutes and
    then end the process.
    """
    import grpc

    resolved = _of_this_machine() if address == "auto" else address
    shown = address if resolved == address else f"{address} ({resolved})"
    host, _, port = resolved.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ResourceError(
            f"invalid cluster.ray_address: got {address}, expected HOST:PORT, ray://HOST:PORT or auto; correct the "
            "cluster file"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TCP_S).close()
    except (OSError, UnicodeError, OverflowError):  # also for invalid names (a..b) and ports (30 digits)
        raise ResourceError(
            f"ray_address {shown}: no Ray answers; check host and port, and run `ray start --head` on that host"
        ) from None
    # An IPv6 host stays in brackets. Without the option, grpc would use the proxy of the environment; Ray does not.
    channel = grpc.insecure_channel(f"{host}:{port}", options=(("grpc.enable_http_proxy", 0),))
    try:
        grpc.channel_ready_future(channel).result(timeout=GRPC_S)
    except grpc.FutureTimeoutError:
        raise ResourceError(
            f"ray_address {shown}: the server there is not Ray; check the port (6379, not 8265 of the dashboard)"
        ) from None
    finally:
        channel.close()
    return resolved


def is_loopback(address: str) -> bool:
    """
    >>> is_loopback("127.0.0.1:6379"), is_loopback("ray://localhost:10001"), is_loopback("10.0.0.1:6379")
    (True, True, False)
    """
    return address.removeprefix("ray://").rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")


@contextmanager
def bind_to_loopback(enabled: bool = True) -> Iterator[None]:
    """Inside the block, Ray and the processes that it starts use 127.0.0.1 as the address of this machine.

    Without this block, Ray replaces 127.0.0.1 by an address that is reachable from other machines, and listens on all
    interfaces. `ray.init(_node_ip_address="127.0.0.1")` does not help, because services.resolve_ip_for_localhost
    replaces this address too (checked in Ray 2.60). The environment variable LOOPBACK is Ray's switch for Windows and
    macOS. Ray reads this variable only at its import, and may be imported already, so its copy in ray_constants is set,
    too.
    """
    if not enabled:
        yield
        return
    from ray._private import ray_constants

    before, variable = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(LOOPBACK)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[LOOPBACK] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(LOOPBACK)
        if variable is not None:
            os.environ[LOOPBACK] = variable


def _of_this_machine() -> str:
    """The address in RAY_ADDRESS; if it is not set, the address of the Ray on this machine."""
    # Ray 2.60 has no public function for it: only `ray.init("auto")` finds the address, and it connects at once.
    from ray._private import services

    try:
        return str(services.get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise ResourceError(
            "ray_address auto: no Ray runs on this machine; start one with `ray start --head`, or set RAY_ADDRESS"
        ) from None
