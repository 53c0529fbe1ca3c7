"""The GPUs that this machine has, as its driver says; no torch."""

import shutil
import subprocess
from functools import cache


@cache
def list_gpus() -> tuple[tuple[str, float], ...]:
    """Name and bytes of each; none where there is no `nvidia-smi`, or it fails."""
    if not (tool := shutil.which("nvidia-smi")):
        return ()
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = [line.rpartition(",") for line in said.splitlines() if "," in line]
    return tuple((name.strip(), float(mib) * 2**20) for name, _, mib in found)
