"""A Ray cluster on this machine, to test submitted jobs: a head and two raylets on 127.0.0.1, with a token.

`make cluster-up` and `make cluster-down` run `python -m orchestration.launch.local_cluster up|down`. The token, the
process IDs and the logs are in a directory below /tmp that other users cannot read.
"""

import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from orchestration.launch.job_server import JobServer
from orchestration.launch.session import NICENESS, PATIENCE
from preprocessing import limits
from preprocessing.errors import ResourceError, SesameError
from preprocessing.processes import read_start_id

FOLDER = (
    Path(tempfile.gettempdir()) / f"sesame-cluster-{os.getuid()}"
)  # a short path, because Ray creates sockets below it
RAY_PORT, DASHBOARD_PORT = 6379, 8265
RAYLETS = 2
START_S = 180  # timeout for the answer of the whole cluster
END_S = 30  # seconds from SIGTERM to SIGKILL

# The command `ray`, changed so that it uses 127.0.0.1. Ray 2.60 replaces 127.0.0.1 by an address that is reachable from
# other machines (resolve_ip_for_localhost), and has no public option against this. With its switch for Windows and
# macOS, Ray refuses a second raylet.
RAY = """
import os, sys
from ray._private import ray_constants, services
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # for child processes; this process has already read it
services.resolve_ip_for_localhost = lambda host: "127.0.0.1" if host == "localhost" else host
from ray.scripts.scripts import main
sys.exit(main())
"""


def start_cluster(folder: Path = FOLDER, ray_port: int = RAY_PORT, dashboard_port: int = DASHBOARD_PORT) -> str:
    """Start the cluster, wait until its raylets are registered, and return the URL of its dashboard.

    Raises ResourceError if the cluster is already running, if its ports are in use, or if it does not answer within
    START_S.
    """
    _make_private(folder)
    pids = folder / "pids"
    if any(map(read_start_id, _pids(folder))):
        raise ResourceError(f"a local cluster is already running in {folder}; end it with `make cluster-down`")
    token = folder / "token"
    token.unlink(missing_ok=True)
    with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(32))
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    cores = max(1, limits.cores().whole // RAYLETS)
    head = ["--head", f"--port={ray_port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}"]
    head += ["--include-dashboard=true", "--num-cpus=0", f"--temp-dir={folder}/r"]  # Ray makes this directory public
    raylet = [f"--address=127.0.0.1:{ray_port}", f"--num-cpus={cores}"]
    url = f"http://127.0.0.1:{dashboard_port}"
    pids.write_text("")
    try:
        upto = time.monotonic() + START_S
        _start(folder, "head", head)
        server = _wait_for_server(url, folder, upto)
        # The raylets start one after another: if two start at once on one machine, one of them fails. Each raylet has
        # its own temporary directory: in a shared one, they would take the unpacked files of a job from each
        # other.
        for number in range(RAYLETS):
            _start(folder, f"raylet{number}", [*raylet, f"--temp-dir={folder}/{number}"])
            while server.num_nodes() < 2 + number:
                _check_progress(folder, upto)
                time.sleep(1)
    except BaseException:
        stop_cluster(folder)
        raise
    return url


def stop_cluster(folder: Path = FOLDER) -> None:
    """End the processes that `up` started, raylets first. Does nothing if none is running."""
    all_of_them: list[psutil.Process] = []
    for pid in filter(read_start_id, reversed(_pids(folder))):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            all_of_them += [process, *process.children(recursive=True)]
            process.terminate()  # `ray start --block` ends its children; some outlive it for a while
    _, alive = psutil.wait_procs(all_of_them, END_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for name in ("pids", "token"):
        (folder / name).unlink(missing_ok=True)


def _start(folder: Path, name: str, words: list[str]) -> None:
    """Run `ray start --block` in a new session, so that it outlives this process."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "RAY_USAGE_STATS_ENABLED": "0", NICENESS: "0"}
    for variable, seconds in PATIENCE.items():
        environment.setdefault(variable, str(seconds))
    common = ["--block", "--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
    common += ["--dashboard-agent-listen-port=0"]  # the default, 52365, would be the same for all raylets of a machine
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", RAY, "start", *common, *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder,
        )  # fmt: skip
    with (folder / "pids").open("a") as file:
        file.write(f"{process.pid} {read_start_id(process.pid)}\n")


def _wait_for_server(url: str, folder: Path, upto: float) -> JobServer:
    while True:
        try:
            return JobServer(url)
        except ResourceError:
            _check_progress(folder, upto)
            time.sleep(1)


def _check_progress(folder: Path, upto: float) -> None:
    """Raises ResourceError if a process of the cluster has ended, or if the time `upto` has passed."""
    if not all(map(read_start_id, _pids(folder))):
        raise ResourceError(
            f"a process of the cluster ended during its start; read {folder}/*.log (ports {RAY_PORT} and "
            f"{DASHBOARD_PORT} must be free)"
        )
    if time.monotonic() > upto:
        raise ResourceError(f"the cluster does not answer within {START_S} s; read {folder}/*.log for its progress")


def _make_private(folder: Path) -> None:
    """Create the directory for this user only. Raises ResourceError if another user created it, or if others have
    access."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ResourceError(
            f"{folder}: other users have access to this directory, which holds the token of the cluster; remove it"
        )


def _pids(folder: Path) -> list[int]:
    """The IDs of the processes that `up` started, without IDs that now belong to other processes."""
    file = folder / "pids"
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    return [int(pid) for pid, *then in lines if [read_start_id(int(pid))] in (then, [""])]


def describe_cluster(url: str, folder: Path) -> str:
    """The address of a started cluster, and the line that gives its token to later commands.

    >>> print(describe_cluster("http://127.0.0.1:8265", Path("/tmp/mine")))
    dashboard: http://127.0.0.1:8265; submit a recipe with `make submit`
    before sesame status, logs, stop or submit, run
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/tmp/mine/token
    """
    token = shlex.quote(str(folder / "token"))
    return (
        f"dashboard: {url}; submit a recipe with `make submit`\n"
        "before sesame status, logs, stop or submit, run\n"
        f"export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={token}"
    )


def main(words: list[str]) -> int:
    """Run `up` or `down`, and return the exit code."""
    try:
        if words == ["up"]:
            print(describe_cluster(start_cluster(), FOLDER))
        elif words == ["down"]:
            stop_cluster()
        else:
            print(f"invalid arguments: got {' '.join(words)!r}, expected up or down; give one of them", file=sys.stderr)
            return 2
    except SesameError as error:
        print(f"sesame: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
