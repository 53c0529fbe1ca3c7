"""GPUs of this machine, by a driver that is a few lines of shell."""

from pathlib import Path

import pytest

from orchestration.gpus import num_gpus

MIG = "GPU 0: H100 (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-1)\nGPU 1: H100 (UUID: GPU-2)"


@pytest.mark.parametrize(("script", "number"), [(f"cat <<E\n{MIG}\nE", 2), ("exit 9", 0), (None, 0)])
def test_gpus_are_those_that_the_driver_lists(
    script: str | None, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    path = "/usr/bin:/bin" if script else ""
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
    num_gpus.cache_clear()
    try:
        assert num_gpus() == number
    finally:
        num_gpus.cache_clear()
