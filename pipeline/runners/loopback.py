"""Beam's servers in this process listen on 127.0.0.1.

In a corpus job with several processes, the local runner serves its workers by gRPC. Beam 2.77 lets these servers listen
on all interfaces, without authentication, and has no option against this (`GrpcServer` of worker_handlers.py, and
`SubprocessSdkWorker` of local_job_service.py). One of them returns any file that the process can read to whoever asks.
The server for `--environment_type=LOOPBACK` (worker_pool_main.py) does so too, but its address is given as localhost.
"""

from typing import Any, Final

import grpc
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import worker_pool_main

ALL_INTERFACES, LOOPBACK = "[::]", "127.0.0.1"
MODULES: Final = (worker_handlers, local_job_service, worker_pool_main)


class _LoopbackGrpc:
    """The module grpc, with servers that replace ALL_INTERFACES by LOOPBACK."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> grpc.Server:
        server = grpc.server(*arguments, **options)
        add_port = server.add_insecure_port
        server.add_insecure_port = lambda address: add_port(address.replace(ALL_INTERFACES, LOOPBACK))
        return server


_LOOPBACK_GRPC: Final = _LoopbackGrpc()


def bind_to_loopback() -> None:
    """From now on, the servers that Beam starts in this process listen on LOOPBACK."""
    for module in MODULES:
        module.grpc = _LOOPBACK_GRPC
