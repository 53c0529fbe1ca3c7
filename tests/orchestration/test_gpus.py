"""Detection of local GPUs, with a shell script in place of the driver's tool."""

from pathlib import Path

import pytest

from orchestration.gpus import list_gpus

TWO = "NVIDIA H100 80GB HBM3, 81559\nNVIDIA H100 80GB HBM3, 81559"


@pytest.mark.parametrize(("script", "number"), [(f"cat <<E\n{TWO}\nE", 2), ("exit 9", 0), (None, 0)])
def test_gpus_are_those_listed_by_the_driver(
    script: str | None, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    path = "/usr/bin:/bin" if script else ""
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
    list_gpus.cache_clear()
    try:
        assert list_gpus() == (("NVIDIA H100 80GB HBM3", 81559.0 * 2**20),) * number
    finally:
        list_gpus.cache_clear()
