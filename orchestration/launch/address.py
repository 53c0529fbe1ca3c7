"""Where a running Ray is, whether it answers, and where a Ray of our own listens."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from preprocessing.errors import ResourceError

TCP_S = 4.0  # for a connection to the port
GRPC_S = 6.0  # for its first frame; with the imports a dead address is said within 15 s
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: Ray takes 127.0.0.1 as this machine's address


def resolve_address(address: str) -> str:
    """`host:port` of the Ray at `address`: of host and port, `ray://host:port`, or `auto`, the one of this machine.

    ResourceError in one line where none is found or none answers: by itself `ray.init` tries for two minutes and then
    ends the process.
    """
    import grpc

    found = _of_this_machine() if address == "auto" else address
    said = address if found == address else f"{address} ({found})"
    host, _, port = found.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ResourceError(
            f"address is {address}, allowed are HOST:PORT, ray://HOST:PORT and auto; mend the cluster file"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=TCP_S).close()
    except (OSError, UnicodeError, OverflowError):  # the name a..b, a port of 30 digits
        raise ResourceError(
            f"address {said}: no Ray answers there; check host and port, and `ray start --head` there"
        ) from None
    # IPv6 in brackets; by itself grpc asks the proxy of the environment, which Ray does not
    channel = grpc.insecure_channel(f"{host}:{port}", options=(("grpc.enable_http_proxy", 0),))
    try:
        grpc.channel_ready_future(channel).result(timeout=GRPC_S)
    except grpc.FutureTimeoutError:
        raise ResourceError(
            f"address {said}: something listens there that is no Ray; check the port (6379, not the dashboard's 8265)"
        ) from None
    finally:
        channel.close()
    return found


def is_loopback(address: str) -> bool:
    """
    >>> is_loopback("127.0.0.1:6379"), is_loopback("ray://localhost:10001"), is_loopback("10.0.0.1:6379")
    (True, True, False)
    """
    return address.removeprefix("ray://").rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")


@contextmanager
def bind_to_loopback(wanted: bool = True) -> Iterator[None]:
    """In the block, Ray takes 127.0.0.1 as the address of this machine, and so do the processes that it starts.

    By itself Ray replaces 127.0.0.1 by an address that others reach, and listens on all interfaces (Ray 2.60,
    services.resolve_ip_for_localhost). The switch is the one of its releases for Windows and macOS, read at its import.
    """
    if not wanted:
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
    """The address of the Ray that runs here, or that RAY_ADDRESS names."""
    from ray._private import services

    try:
        return str(services.get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise ResourceError(
            "address auto: no Ray runs on this machine; start one with `ray start --head`, or set RAY_ADDRESS"
        ) from None
