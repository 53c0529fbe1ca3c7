"""A Ray cluster of this machine alone, to try what is sent to one: a head and two raylets on 127.0.0.1, with a token.

`python -m orchestration.launch.local_cluster up|down` is what `make cluster-up` and `make cluster-down` run. It lives
in a folder of /tmp that nobody else reads: the token, the processes and what they log.
"""

import os
import secrets
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
from preprocessing.processes import began

FOLDER = Path(tempfile.gettempdir()) / f"sesame-cluster-{os.getuid()}"  # short: Ray puts sockets below it
RAY_PORT, DASHBOARD_PORT = 6379, 8265
RAYLETS = 2
START_S = 180  # for all of it to answer
END_S = 30  # from SIGTERM to SIGKILL
# `ray`, where 127.0.0.1 stays what it is: by itself Ray takes an address that others reach (resolve_ip_for_localhost),
# and its switch for that refuses a second raylet
RAY = """
import os, sys
from ray._private import ray_constants, services
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # to what it starts, once it has been read here
services.resolve_ip_for_localhost = lambda host: "127.0.0.1" if host == "localhost" else host
from ray.scripts.scripts import main
sys.exit(main())
"""


def start_cluster(folder: Path = FOLDER, ray_port: int = RAY_PORT, dashboard_port: int = DASHBOARD_PORT) -> str:
    """Start the cluster and wait until its raylets are there; the URL of its dashboard.

    ResourceError where it runs already, its ports are taken, or it does not answer in START_S.
    """
    _own(folder)
    pids = folder / "pids"
    if any(map(began, _pids(folder))):
        raise ResourceError(f"the cluster of {folder} runs already; end it with `make cluster-down`")
    token = folder / "token"
    token.unlink(missing_ok=True)
    with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(32))
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    cores = max(1, limits.cores().whole // RAYLETS)
    head = ["--head", f"--port={ray_port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}"]
    head += ["--include-dashboard=true", "--num-cpus=0", f"--temp-dir={folder}/r"]  # Ray opens this folder to everybody
    raylet = [f"--address=127.0.0.1:{ray_port}", f"--num-cpus={cores}"]
    url = f"http://127.0.0.1:{dashboard_port}"
    pids.write_text("")
    try:
        upto = time.monotonic() + START_S
        _start(folder, "head", head)
        server = _answering(url, folder, upto)
        for number in range(RAYLETS):  # one after another: of two that begin at once on one machine, one fails
            # each unpacks what a job brings into a folder of its own: in a common one the next takes it from the first
            _start(folder, f"raylet{number}", [*raylet, f"--temp-dir={folder}/{number}"])
            while server.num_nodes() < 2 + number:
                _check(folder, upto)
                time.sleep(1)
    except BaseException:
        stop_cluster(folder)
        raise
    return url


def stop_cluster(folder: Path = FOLDER) -> None:
    """End the processes that `up` has started, raylets first; nothing where none runs."""
    all_of_them: list[psutil.Process] = []
    for pid in filter(began, reversed(_pids(folder))):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            all_of_them += [process, *process.children(recursive=True)]
            process.terminate()  # `ray start --block` ends its own processes, some of which take longer than itself
    _, left = psutil.wait_procs(all_of_them, END_S)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for name in ("pids", "token"):
        (folder / name).unlink(missing_ok=True)


def _start(folder: Path, name: str, words: list[str]) -> None:
    """`ray start --block` in a process group of its own, which outlives this process."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "RAY_USAGE_STATS_ENABLED": "0", NICENESS: "0"}
    for variable, seconds in PATIENCE.items():
        environment.setdefault(variable, str(seconds))
    common = ["--block", "--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
    common += ["--dashboard-agent-listen-port=0"]  # by itself all raylets of a machine want 52365
    with (folder / f"{name}.log").open("w") as log:
        begun = subprocess.Popen(
            [sys.executable, "-c", RAY, "start", *common, *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder,
        )  # fmt: skip
    with (folder / "pids").open("a") as file:
        file.write(f"{begun.pid} {began(begun.pid)}\n")


def _answering(url: str, folder: Path, upto: float) -> JobServer:
    while True:
        try:
            return JobServer(url)
        except ResourceError:
            _check(folder, upto)
            time.sleep(1)


def _check(folder: Path, upto: float) -> None:
    """ResourceError where a process of the cluster has ended, or it is too late."""
    if not all(map(began, _pids(folder))):
        raise ResourceError(
            f"a process of the cluster has ended as it began; {folder}/*.log say why (ports {RAY_PORT} and "
            f"{DASHBOARD_PORT} have to be free)"
        )
    if time.monotonic() > upto:
        raise ResourceError(f"the cluster does not answer within {START_S} s; {folder}/*.log say how far it came")


def _own(folder: Path) -> None:
    """Make the folder, for us alone; ResourceError where somebody else has made it, or others may enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ResourceError(f"{folder}: is not ours alone, and the token of the cluster would lie there; remove it")


def _pids(folder: Path) -> list[int]:
    """The processes that `up` has started and that are still the same ones."""
    file = folder / "pids"
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    return [int(pid) for pid, *then in lines if [began(int(pid))] in (then, [""])]


def main(words: list[str]) -> int:
    """`up` or `down`; the exit code."""
    try:
        if words == ["up"]:
            print(f"{start_cluster()} is its dashboard, {FOLDER}/token its token; send it a recipe with `make submit`")
        elif words == ["down"]:
            stop_cluster()
        else:
            print("allowed is up or down", file=sys.stderr)
            return 2
    except SesameError as error:
        print(f"sesame: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
