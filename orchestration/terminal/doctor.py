"""The checks of `sesame doctor`: can this machine run Sesame? Each check has a result and, if needed, a remedy."""

import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from preprocessing import limits
from preprocessing.errors import ResourceError

LIBRARIES = ("torch", "deepspeed", "apache-beam", "ray", "mlflow", "pyarrow", "tokenizers", "sentencepiece", "pydantic")
GB = 1e9


@dataclass(frozen=True)
class HealthCheck:
    """The subject of a check, its result, and a remedy; the remedy is "" if nothing must be done.

    `fatal`: a run on this machine fails until the remedy is applied.
    """

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False


Ask = Callable[[str], str]
"""Returns `host:port` of the Ray cluster at an address; raises ResourceError if none answers there."""
AskStore = Callable[[str], tuple[str, str]]
"""Returns the result of a request to the MLflow store at an address, and a remedy, or "" if nothing must be done."""


def run_checks(
    out: Path,
    address: str = "",
    tracking_uri: str = "",
    port: int = 5000,
    ask: Ask | None = None,
    ask_store: AskStore | None = None,
) -> list[HealthCheck]:
    """The results of all checks for a run that writes to the directory `out`.

    The checks start and change nothing. Only `ask` and `ask_store` import heavy libraries.
    """
    return [
        *versions(),
        compiler(),
        cores_and_memory(),
        check_shared_memory(Path("/dev/shm")),
        disk(out),
        open_files(),
        gpu(),
        ui_port(port),
        ray_address(address, ask),
        tracking(tracking_uri, out, ask_store),
    ]


def versions() -> Iterator[HealthCheck]:
    """The versions of Python and of the libraries that runs depend on. The libraries are not imported."""
    ok = (3, 11) <= sys.version_info < (3, 14)
    remedy = "" if ok else "use Python 3.11, 3.12 or 3.13: `make clean`, then `make setup PYTHON=python3.12`"
    yield HealthCheck("python", sys.version.split()[0], remedy, fatal=not ok)
    for name in LIBRARIES:
        try:
            yield HealthCheck(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield HealthCheck(name, "not installed", "run `make setup`", fatal=True)


def compiler() -> HealthCheck:
    """Whether g++ and ninja are installed.

    DeepSpeed builds its shared-memory all-reduce with them. Without it, gloo does the all-reduce.
    """
    missing = [name for name in ("g++", "ninja") if not shutil.which(name) and not _is_beside_python(name)]
    if not missing:
        return HealthCheck("compiler", str(shutil.which("g++")))
    return HealthCheck("compiler", f"missing: {', '.join(missing)}", "optional: training also works without them")


def cores_and_memory() -> HealthCheck:
    """The cores and the memory that this process may use: those of the machine, or the limits of its control groups."""
    core, memory = limits.cores(), limits.memory()
    found = f"{core.number:.3g} core{'s' * (core.number != 1)}"
    found += f" (quota of {core.where})" if core.where else ""
    found += f", {memory.free / GB:.1f} GB of memory free"
    found += f" of {memory.limit / GB:.1f} GB (limit of {memory.where})" if memory.where else ""
    more = "raise the limit" if memory.where else "end other processes"
    remedy = (
        "" if memory.free > 4 * GB else f"each worker of a tiny recipe needs 1 GB; {more}, or set cluster.num_workers=1"
    )
    return HealthCheck("machine", found, remedy)


def check_shared_memory(path: Path) -> HealthCheck:
    """The free shared memory. Ray keeps its object store there; containers often have only 64 MB."""
    if not path.is_dir():
        return HealthCheck(
            str(path), "absent", "Ray uses /tmp instead, which is slow; start a container with --shm-size=2g"
        )
    free = shutil.disk_usage(path).free
    remedy = "" if free > 0.5 * GB else "Ray uses /tmp instead, which is slow; start a container with --shm-size=2g"
    return HealthCheck(str(path), f"{free / GB:.1f} GB free", remedy)


def disk(out: Path) -> HealthCheck:
    """Free space and write permission in `out`, or in its nearest existing parent directory."""
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        return HealthCheck(
            "disk", f"{there} is not a directory", "give another directory: --output-dir DIR", fatal=True
        )
    if not os.access(there, os.W_OK):
        return HealthCheck(
            "disk", f"no permission to write in {there}", "give another directory: --output-dir DIR", fatal=True
        )
    free = shutil.disk_usage(there).free
    remedy = "" if free > 5 * GB else "free some space, or give a directory on another disk: --output-dir DIR"
    return HealthCheck("disk", f"{free / GB:.1f} GB free at {there}", remedy, fatal=free < 0.5 * GB)


def open_files() -> HealthCheck:
    """The limit on the number of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HealthCheck("open files", f"at most {soft:,}", "" if soft >= 1024 else "raise the limit: `ulimit -n 4096`")


def gpu() -> HealthCheck:
    """The number of GPUs, counted by the device files of the driver; torch is not imported."""
    devices = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()]
    return HealthCheck("gpu", f"{len(devices)} found") if devices else HealthCheck("gpu", "none; use `--cluster local`")


def ui_port(port: int) -> HealthCheck:
    """Whether the port of the MLflow UI is free."""
    if _answers("127.0.0.1", port):
        return HealthCheck(
            "ui port", f"{port} is taken", f"run `sesame ui --port {port + 1}`, or end the process that uses it"
        )
    return HealthCheck("ui port", f"{port} is free")


def ray_address(address: str, ask: Ask | None = None) -> HealthCheck:
    """Whether the Ray cluster at an address answers (`auto`: the cluster of this machine).

    Without an address, each run starts Ray on this machine.
    """
    if not address or ask is None:
        return HealthCheck("ray", "no address: each run starts Ray on this machine")
    try:
        found = ask(address)
    except ResourceError as error:
        what, _, remedy = str(error).partition("; ")
        return HealthCheck("ray", what, remedy, fatal=True)
    return HealthCheck("ray", f"{address} answers" if found == address else f"{address}: {found} answers")


def tracking(uri: str, out: Path, ask: AskStore | None = None) -> HealthCheck:
    """Whether MLFLOW_TRACKING_URI answers, with our credentials. If it is unset, runs are saved in a file in `out`."""
    shown = re.sub(r"//[^/\s]*@", "//***@", uri)
    if re.fullmatch(r"[\w.-]+:[0-9]+", uri):
        return HealthCheck("mlflow", f"invalid address {shown}", f"set MLFLOW_TRACKING_URI to http://{uri}", fatal=True)
    if uri and ask and not _is_broken(uri):
        found, remedy = ask(uri)
        return HealthCheck("mlflow", found, remedy, fatal=bool(remedy))
    if not uri.startswith(("http://", "https://")):
        return HealthCheck("mlflow", shown or f"no server: runs are saved in {out / 'mlflow.db'}")
    try:
        split = urlsplit(uri)
        host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    except ValueError:
        return HealthCheck(
            "mlflow", f"invalid address {shown}", "set MLFLOW_TRACKING_URI to http://HOST:PORT, or unset it"
        )
    if _answers(host, port):
        return HealthCheck("mlflow", f"{shown} answers")
    return HealthCheck("mlflow", f"{shown} does not answer", "start this server, or unset MLFLOW_TRACKING_URI")


def _is_broken(uri: str) -> bool:
    """Whether the host or the port of an address is invalid."""
    try:
        return urlsplit(uri).port is not None and not urlsplit(uri).hostname
    except ValueError:
        return True


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def _is_beside_python(name: str) -> bool:
    """Whether a program is in the directory of the Python interpreter."""
    return (Path(sys.executable).parent / name).exists()
