"""Errors after which a group of workers restarts from the newest checkpoint."""

import re
from typing import Final

from orchestration.launch.out_of_memory import MemoryUse

DISCONNECTED: Final = re.compile(
    r"Timed out waiting|Socket Timeout|Connection (reset|closed|refused|timed out)|Broken pipe|No route to host"
    r"|gloo.*(Read|Write) error|pair closure|NCCL.*(error|timeout|aborted)|nccl\w*Error",
    re.IGNORECASE,
)
ERROR_TYPES: Final = ("DistBackendError", "DistNetworkError", "DistStoreError")  # error types of torch.distributed
PROCESS_DIED: Final = "the process died in each attempt; check in dmesg whether memory ran out"


class WorkerDied(Exception):
    """The process of a worker is gone, or was ended. `step` is the number of updates that the group had done.

    If memory ran out, `memory` is the memory use of the largest worker, and its limit is the part of one worker.
    """

    def __init__(self, message: str, step: int, memory: MemoryUse | None = None) -> None:
        super().__init__(message)
        self.step, self.memory = step, memory


class NodeDied(WorkerDied):
    """The node of a worker is gone, and so is the worker."""


class WorkersDisconnected(WorkerDied):
    """The connection between the workers failed; their processes were alive."""


def describe_disconnect(error: BaseException) -> str:
    """The first line of an error, if it says that the connection between workers failed; else "".

    >>> describe_disconnect(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:29"))
    'RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:29'
    >>> describe_disconnect(ValueError("mat1 and mat2 shapes cannot be multiplied"))
    ''
    """
    kind, message = type(error).__name__, str(error)
    is_disconnect = kind in ERROR_TYPES or (isinstance(error, RuntimeError | OSError) and DISCONNECTED.search(message))
    return f"{kind}: {next(iter(message.splitlines()), '')}" if is_disconnect else ""
