"""Is this machine fit for work? One finding per thing that has broken a run before, each with its remedy."""

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
    """What was looked at, what was found, and what to do about it; no remedy: nothing to do.

    `fatal` says that a run on this machine will fail until the remedy is taken.
    """

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False


Ask = Callable[[str], str]
"""`host:port` of the Ray at an address; ResourceError where none answers."""
AskStore = Callable[[str], tuple[str, str]]
"""What the store of MLflow at an address says to a request, and the remedy; "" where there is nothing to do."""


def run_checks(
    out: Path,
    address: str = "",
    tracking_uri: str = "",
    port: int = 5000,
    ask: Ask | None = None,
    ask_store: AskStore | None = None,
) -> list[HealthCheck]:
    """All findings for a run that writes under `out`; nothing is started or changed, and imported by those that
    ask alone."""
    return [
        *versions(),
        compiler(),
        cores_and_memory(),
        shared_memory(Path("/dev/shm")),
        disk(out),
        open_files(),
        gpu(),
        ui_port(port),
        ray_address(address, ask),
        tracking(tracking_uri, out, ask_store),
    ]


def versions() -> Iterator[HealthCheck]:
    """Python and the libraries that runs depend on, without importing them."""
    ok = (3, 11) <= sys.version_info < (3, 13)
    remedy = "" if ok else "use Python 3.11 or 3.12: `make setup PYTHON=python3.11`"
    yield HealthCheck("python", sys.version.split()[0], remedy, fatal=not ok)
    for name in LIBRARIES:
        try:
            yield HealthCheck(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield HealthCheck(name, "not installed", "run `make setup`", fatal=True)


def compiler() -> HealthCheck:
    """DeepSpeed builds its shared-memory all-reduce with g++ and ninja; without it gloo does the work."""
    missing = [name for name in ("g++", "ninja") if not shutil.which(name) and not _beside_python(name)]
    if not missing:
        return HealthCheck("compiler", str(shutil.which("g++")))
    return HealthCheck("compiler", f"no {' and no '.join(missing)}", "nothing must be built: training runs without")


def cores_and_memory() -> HealthCheck:
    """What this process may use: of the machine, or of the control groups that it is in."""
    core, memory = limits.cores(), limits.memory()
    found = f"{core.number:.3g} core{'s' * (core.number != 1)}"
    found += f" by the quota of {core.where}" if core.where else ""
    found += f", {memory.free / GB:.1f} GB of memory free"
    found += f" of {memory.limit / GB:.1f} GB, the limit of {memory.where}" if memory.where else ""
    more = "raise the limit" if memory.where else "close something"
    remedy = (
        "" if memory.free > 4 * GB else f"a worker of a tiny recipe takes 1 GB: {more}, or set cluster.num_workers=1"
    )
    return HealthCheck("machine", found, remedy)


def shared_memory(path: Path) -> HealthCheck:
    """Ray's object store lives there; containers often give 64 MB."""
    if not path.is_dir():
        return HealthCheck(str(path), "absent", "Ray falls back to /tmp, slowly; in a container give --shm-size=2g")
    free = shutil.disk_usage(path).free
    remedy = "" if free > 0.5 * GB else "Ray falls back to /tmp, slowly; in a container give --shm-size=2g"
    return HealthCheck(str(path), f"{free / GB:.1f} GB free", remedy)


def disk(out: Path) -> HealthCheck:
    """Room and permission to write under `out`, or under the nearest folder that is there already."""
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        return HealthCheck("disk", f"{there} is no folder", "give another one: --output-dir DIR", fatal=True)
    if not os.access(there, os.W_OK):
        return HealthCheck("disk", f"{there} cannot be written", "give another folder: --output-dir DIR", fatal=True)
    free = shutil.disk_usage(there).free
    remedy = "" if free > 5 * GB else "free some, or give a folder on another disk: --output-dir DIR"
    return HealthCheck("disk", f"{free / GB:.1f} GB free at {there}", remedy, fatal=free < 0.5 * GB)


def open_files() -> HealthCheck:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HealthCheck("open files", f"at most {soft:,}", "" if soft >= 1024 else "raise the limit: `ulimit -n 4096`")


def gpu() -> HealthCheck:
    """Looked up without torch: the driver's own device files."""
    devices = [path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()]
    return HealthCheck("gpu", f"{len(devices)} found") if devices else HealthCheck("gpu", "none; use `--cluster local`")


def ui_port(port: int) -> HealthCheck:
    if _answers("127.0.0.1", port):
        return HealthCheck("ui port", f"{port} is taken", f"`sesame ui --port {port + 1}`, or stop what listens there")
    return HealthCheck("ui port", f"{port} is free")


def ray_address(address: str, ask: Ask | None = None) -> HealthCheck:
    """An address of a running cluster answers (`auto`: the one of this machine), or Ray is started here by the run."""
    if not address or ask is None:
        return HealthCheck("ray", "no address: each run starts its own on this machine")
    try:
        found = ask(address)
    except ResourceError as error:
        what, _, remedy = str(error).partition("; ")
        return HealthCheck("ray", what, remedy, fatal=True)
    return HealthCheck("ray", f"{address} answers" if found == address else f"{address}: {found} answers")


def tracking(uri: str, out: Path, ask: AskStore | None = None) -> HealthCheck:
    """MLFLOW_TRACKING_URI answers, to us, or runs are kept in a file under `out`."""
    said = re.sub(r"//[^/\s]*@", "//***@", uri)
    if re.fullmatch(r"[\w.-]+:[0-9]+", uri):
        return HealthCheck("mlflow", f"{said} is no address", f"set MLFLOW_TRACKING_URI to http://{uri}", fatal=True)
    if uri and ask and not _is_broken(uri):
        found, remedy = ask(uri)
        return HealthCheck("mlflow", found, remedy, fatal=bool(remedy))
    if not uri.startswith(("http://", "https://")):
        return HealthCheck("mlflow", said or f"no server: runs are kept in {out / 'mlflow.db'}")
    try:
        split = urlsplit(uri)
        host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    except ValueError:
        return HealthCheck(
            "mlflow", f"{said} is no address", "set MLFLOW_TRACKING_URI to http://HOST:PORT, or unset it"
        )
    if _answers(host, port):
        return HealthCheck("mlflow", f"{said} answers")
    return HealthCheck("mlflow", f"{said} does not answer", "start that server, or unset MLFLOW_TRACKING_URI")


def _is_broken(uri: str) -> bool:
    """Whether an address has a host or a port that can be none."""
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


def _beside_python(name: str) -> bool:
    return (Path(sys.executable).parent / name).exists()
