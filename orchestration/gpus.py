"""How many GPUs this machine has, as its driver says; no torch."""

import shutil
import subprocess
from functools import cache


@cache
def num_gpus() -> int:
    """Those that `nvidia-smi` lists; 0 where there is no such program, or it fails."""
    if not (tool := shutil.which("nvidia-smi")):
        return 0
    try:
        said = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in said.splitlines())
