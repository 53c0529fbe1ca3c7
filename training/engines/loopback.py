"""Connect the workers of one machine on 127.0.0.1.

By default, the TCP store of torch 2.13 listens on all interfaces, and anyone who can reach it can read and write. gloo
uses the interface to which the host name resolves.
"""

import ipaddress
import os
import socket
from datetime import timedelta
from typing import Final

from torch import distributed

INTERFACE: Final = "lo"


def is_local_rendezvous() -> bool:
    """Whether MASTER_ADDR is a loopback address, which other machines cannot reach."""
    address = os.environ.get("MASTER_ADDR", "")
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def join(backend: str, timeout: timedelta) -> None:
    """Join the process group of RANK, WORLD_SIZE and MASTER_PORT on 127.0.0.1, unless the process is in a group."""
    if distributed.is_initialized():
        return
    if INTERFACE in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)
    rank, world, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    listen_fd = None
    if rank == 0:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen(world + 1)
            listen_fd = server.detach()  # the store closes it
    store = distributed.TCPStore("127.0.0.1", port, world, rank == 0, timeout, master_listen_fd=listen_fd)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
