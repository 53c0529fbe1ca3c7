"""How a group of workers ends that begins again from the newest checkpoint."""

import re
from typing import Final

from orchestration.launch.out_of_memory import MemoryUse

LOST: Final = re.compile(
    r"Timed out waiting|Socket Timeout|Connection (reset|closed|refused|timed out)|Broken pipe|No route to host"
    r"|gloo.*(Read|Write) error|pair closure|NCCL.*(error|timeout|aborted)|nccl\w*Error",
    re.IGNORECASE,
)
KINDS: Final = ("DistBackendError", "DistNetworkError", "DistStoreError")  # of torch.distributed


class WorkerDied(Exception):
    """A worker's process is gone, or was ended; `step` is how many updates the group had done.

    `memory` is what the worker with most of it had, and its share of the limit, where it was ended for want of that.
    """

    def __init__(self, message: str, step: int, memory: MemoryUse | None = None) -> None:
        super().__init__(message)
        self.step, self.memory = step, memory


class NodeDied(WorkerDied):
    """The same, with the node that it was on."""


class WorkersDisconnected(WorkerDied):
    """The workers lived, but did not hear each other any more."""


def describe_disconnect(error: BaseException) -> str:
    """The first line of an error that says that a worker did not hear the others; "" where it says something else.

    >>> describe_disconnect(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:29"))
    'RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:29'
    >>> describe_disconnect(ValueError("mat1 and mat2 shapes cannot be multiplied"))
    ''
    """
    kind, said = type(error).__name__, str(error)
    is_so = kind in KINDS or (isinstance(error, RuntimeError | OSError) and LOST.search(said))
    return f"{kind}: {next(iter(said.splitlines()), '')}" if is_so else ""
