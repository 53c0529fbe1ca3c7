"""Workers of one machine meet on 127.0.0.1.

By itself the store of torch, where they meet, listens on all interfaces, and whoever reaches it may read and write
(torch 2.13); gloo takes the interface that the name of the machine leads to.
"""

import ipaddress
import os
import socket
from datetime import timedelta
from typing import Final

from torch import distributed

INTERFACE: Final = "lo"


def is_local_rendezvous() -> bool:
    """Whether MASTER_ADDR is an address of this machine that no other reaches."""
    address = os.environ.get("MASTER_ADDR", "")
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def join(backend: str, timeout: timedelta) -> None:
    """Join the group of RANK, WORLD_SIZE and MASTER_PORT on 127.0.0.1; nothing where this process is in one already."""
    if distributed.is_initialized():
        return
    if INTERFACE in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)
    rank, world, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    listening = None
    if rank == 0:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen(world + 1)
            listening = server.detach()  # the store closes it
    store = distributed.TCPStore("127.0.0.1", port, world, rank == 0, timeout, master_listen_fd=listening)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
