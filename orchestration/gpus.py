"""The GPUs of this machine, as reported by the driver, without importing torch."""

import shutil
import subprocess
from functools import cache


@cache
def list_gpus() -> tuple[tuple[str, float], ...]:
    """Name and memory in bytes of each GPU; empty if `nvidia-smi` is missing or fails."""
    if not (tool := shutil.which("nvidia-smi")):
        return ()
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [line.rpartition(",") for line in output.splitlines() if "," in line]
    return tuple((name.strip(), float(mib) * 2**20) for name, _, mib in rows)
