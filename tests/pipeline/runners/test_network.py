"""The job server and the workers run on separate machines, simulated by network namespaces."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from preprocessing.manifest import Manifest
from tests.pipeline.faults import HERE, build, write_stories

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the pool starts the program named python
ROOT = Path(__file__).parents[3]
JOBS, WORKERS = 8099, 50000  # ports


class Machine(NamedTuple):
    """A network namespace; its end of the virtual cable has the same name."""

    name: str
    address: str

    def run(self, *command: str) -> str:
        """Run a command in the namespace and return its output."""
        done = subprocess.run(["ip", "netns", "exec", self.name, *command], check=True, capture_output=True, text=True)
        return done.stdout

    def start(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a Python module in the namespace, in its own session."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": PATH},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if module.startswith("tests") else subprocess.DEVNULL,
            text=True,
        )

    def listens(self, port: int) -> bool:
        """Whether something listens at a port in the namespace."""
        probe = f"import socket; socket.create_connection(('localhost', {port}), 1)"
        command = ["ip", "netns", "exec", self.name, sys.executable, "-c", probe]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    """Two connected machines that can resolve each other's names; skip the test if they cannot be created."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` here (Debian: iproute2)")
    first, second = (Machine(f"sesame{os.getpid()}{end}", f"10.77.0.{end}") for end in (1, 2))
    hosts = "127.0.0.1 localhost\n"
    hosts += f"{first.address} jobs.sesame {socket.gethostname()}\n{second.address} workers.sesame\n"
    link = ["ip", "link", "add", first.name, "netns", first.name, "type", "veth"]
    link += ["peer", "name", second.name, "netns", second.name]
    made = []
    try:
        for machine in (first, second):
            added = subprocess.run(["ip", "netns", "add", machine.name], capture_output=True, check=False, text=True)
            if added.returncode:
                pytest.skip(f"may not make network namespaces here: {added.stderr.strip()}")
            made.append(machine)
            files = Path("/etc/netns", machine.name)  # `ip netns exec` shows these files as those of /etc
            files.mkdir(parents=True)
            (files / "hosts").write_text(hosts)
        subprocess.run(link, check=True)
        for machine in made:
            machine.run("ip", "link", "set", "lo", "up")
            machine.run("ip", "address", "add", f"{machine.address}/24", "dev", machine.name)
            machine.run("ip", "link", "set", machine.name, "up")
        yield first, second
    finally:
        for machine in made:
            subprocess.run(["ip", "netns", "delete", machine.name], check=True)
            shutil.rmtree(Path("/etc/netns", machine.name), ignore_errors=True)


@pytest.mark.slow
def test_a_job_server_and_workers_on_two_networks_make_the_same_corpus(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    server, pool = machines
    source = write_stories(tmp_path / "stories.jsonl", kb=2000)
    arguments = ("--runner=PortableRunner", f"--job_endpoint=localhost:{JOBS}", "--environment_type=EXTERNAL")
    arguments += (f"--environment_config=workers.sesame:{WORKERS}",)
    beam = "apache_beam.runners"
    started = [
        server.start(f"{beam}.portability.local_job_service_main", "--job_port", str(JOBS)),
        pool.start(f"{beam}.worker.worker_pool_main", "--service_port", str(WORKERS)),
    ]
    try:
        for machine, port in ((server, JOBS), (pool, WORKERS)):
            wait_until_it_listens(machine, port)
        job = server.start("tests.pipeline.faults", str(source), str(tmp_path / "there"), "300", *arguments)
        _, actual = job.communicate()
        assert job.returncode == 0, actual
        received = int(pool.run("cat", f"/sys/class/net/{pool.name}/statistics/rx_bytes"))
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert received > 50_000, "the workers had no work over the network"
    here = build(str(source), str(tmp_path / "here"), "300", *HERE)
    assert Manifest.load(tmp_path / "there" / "corpus").digest == here.digest


def wait_until_it_listens(machine: Machine, port: int) -> None:
    """Wait until a server listens."""
    for _ in range(1500):
        if machine.listens(port):
            return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens at {machine.address}:{port}")
