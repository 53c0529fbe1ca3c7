"""The doctor: each check reports what it found, and a remedy for each problem."""

import socket
from pathlib import Path

import pytest

from orchestration.terminal import doctor
from preprocessing.errors import ResourceError
from preprocessing.limits import Cores, MemoryLimit


@pytest.fixture
def busy_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_every_check_has_a_name_and_a_result(tmp_path: Path):
    found = doctor.run_checks(tmp_path)
    assert all(finding.what and finding.found for finding in found)
    assert {"python", "torch", "compiler", "/dev/shm", "disk", "ui port", "ray", "mlflow"} <= {
        each.what for each in found
    }


def test_fatal_problems_have_a_remedy(tmp_path: Path):
    assert all(finding.remedy for finding in doctor.run_checks(tmp_path) if finding.fatal)


def test_missing_library_is_fatal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "LIBRARIES", ("no-such-library",))
    assert list(doctor.versions())[1:] == [
        doctor.HealthCheck("no-such-library", "not installed", "run `make setup`", fatal=True)
    ]


def test_missing_compiler_is_not_fatal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))
    finding = doctor.compiler()
    assert finding.found == "missing: g++, ninja"
    assert not finding.fatal


def test_port_in_use_suggests_another_port(busy_port, free_port):
    assert doctor.ui_port(busy_port).remedy.startswith(f"run `sesame ui --port {busy_port + 1}`")
    assert doctor.ui_port(free_port).remedy == ""


def test_ray_is_checked_at_its_address():
    def ask(address: str) -> str:
        if address == "dead:1":
            raise ResourceError("address dead:1: no Ray answers there; check host and port")
        return "10.0.0.1:6379" if address == "auto" else address

    assert doctor.ray_address("", ask).remedy == ""
    assert doctor.ray_address("10.0.0.1:6379", ask).found == "10.0.0.1:6379 answers"
    assert doctor.ray_address("auto", ask).found == "auto: 10.0.0.1:6379 answers"
    dead = doctor.HealthCheck("ray", "address dead:1: no Ray answers there", "check host and port", fatal=True)
    assert doctor.ray_address("dead:1", ask) == dead


def test_mlflow_is_checked_at_its_address(tmp_path: Path, busy_port, free_port):
    assert str(tmp_path / "mlflow.db") in doctor.tracking("", tmp_path).found
    assert doctor.tracking(f"http://127.0.0.1:{busy_port}/path", tmp_path).found.endswith("answers")
    assert "unset MLFLOW_TRACKING_URI" in doctor.tracking(f"http://127.0.0.1:{free_port}", tmp_path).remedy
    with_password = doctor.tracking(f"http://ann:secret@127.0.0.1:{busy_port}", tmp_path)
    assert with_password.found == f"http://***@127.0.0.1:{busy_port} answers"
    for uri in ("http://127.0.0.1:seven", "http://[::1", "127.0.0.1:5000"):
        assert doctor.tracking(uri, tmp_path).found == f"invalid address {uri}"
    assert doctor.tracking("mlflow:5000", tmp_path).remedy == "set MLFLOW_TRACKING_URI to http://mlflow:5000"


def test_disk_is_that_of_the_nearest_existing_directory(tmp_path: Path):
    assert doctor.disk(tmp_path / "not" / "yet").found.endswith(f"GB free at {tmp_path}")


def test_unwritable_directory_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    finding = doctor.disk(tmp_path)
    assert finding.fatal
    assert finding.remedy == "give another directory: --output-dir DIR"


def test_file_in_place_of_the_directory_is_fatal(tmp_path: Path):
    (tmp_path / "out").touch()
    for out in (tmp_path / "out", tmp_path / "out" / "deeper"):
        assert doctor.disk(out).fatal


def test_full_disk_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1e8}))
    assert doctor.disk(tmp_path).fatal
    assert doctor.check_shared_memory(tmp_path).remedy


def test_missing_shared_memory_is_reported(tmp_path: Path):
    assert doctor.check_shared_memory(tmp_path / "shm").found == "absent"


def test_limits_of_a_control_group_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit of 2 GB and half a core, the doctor once reported "2 cores, 24.3 GB of memory free"."""
    monkeypatch.setattr(doctor.limits, "cores", lambda: Cores(0.5, "/sys/fs/cgroup/cpu/job"))
    monkeypatch.setattr(doctor.limits, "memory", lambda: MemoryLimit(2e9, 1.5e9, "/sys/fs/cgroup/memory/job"))
    found = doctor.cores_and_memory()
    assert found.found == (
        "0.5 cores (quota of /sys/fs/cgroup/cpu/job), 1.5 GB of memory free of 2.0 GB (limit of "
        "/sys/fs/cgroup/memory/job)"
    )
    assert found.remedy == "each worker of a tiny recipe needs 1 GB; raise the limit, or set cluster.num_workers=1"
    monkeypatch.setattr(doctor.limits, "cores", lambda: Cores(1.0))
    monkeypatch.setattr(doctor.limits, "memory", lambda: MemoryLimit(32e9, 20e9))
    assert doctor.cores_and_memory().found == "1 core, 20.0 GB of memory free"
