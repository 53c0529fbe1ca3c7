"""The one DeepSpeed operator that a start on a CPU compiles by surprise, and the decision whether to load it.

`deepspeed.init_distributed` on a CPU loads `deepspeed_shm_comm`; where it is missing, it compiles it with g++ (a minute
or more), and where ninja is there but no compiler is, it fails. The operator serves `inference_all_reduce` alone, the
sum in a tensor-parallel layer, which Sesame does not call: training works, and is as fast, without it. So it is loaded
only where `make setup` made it ahead of time, and is off everywhere else: torch takes a lock beside a compiled file
each time it loads it, so that nobody can load it from an installation of someone else's (an image's, a cluster's).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from preprocessing.folders import is_writable, user_cache
from training.engines import deepspeed_import

NAME = "deepspeed_shm_comm"


def folder() -> Path:
    """Where operators are built, locked and loaded: TORCH_EXTENSIONS_DIR, else inside the virtual environment; in the
    user's own cache folder where he cannot write there."""
    given = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path(sys.prefix) / "torch_extensions")
    return given if is_writable(given) else user_cache() / "torch_extensions"


def ready() -> bool:
    """True where the operator was built, its lock can be taken, and no killed build left it: torch waits for ever; and
    where ninja can be started, which torch asks although there is nothing to build."""
    place = folder() / NAME
    is_built = (place / f"{NAME}.so").is_file() and is_writable(place) and not (place / "lock").exists()
    return is_built and _ninja_runs()


def _ninja_runs() -> bool:
    """Whether it is on the PATH, and nothing such as a limit of open files keeps it from running."""
    try:
        return subprocess.run(["ninja", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def build() -> bool:
    """Compile the operator; False where that is not possible, which is no loss."""
    builder = deepspeed_import.deepspeed().get_accelerator().create_op_builder("ShareMemCommBuilder")
    if builder is None or shutil.which(os.environ.get("CXX", "g++")) is None or shutil.which("ninja") is None:
        return False
    if " " in sys.prefix:  # torch writes the linker's -L without quotes
        print(f"setup: torch cannot build {NAME} in a path with a blank, {sys.prefix}", file=sys.stderr)
        return False
    shutil.rmtree(folder() / NAME, ignore_errors=True)
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder())
    try:
        builder.load(verbose=False)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # a compiler that is too old, a full disk
        print(f"setup: {NAME} cannot be built ({str(error).splitlines()[0]})", file=sys.stderr)
        shutil.rmtree(folder() / NAME, ignore_errors=True)
    return ready()


def switch() -> None:
    """Let `init_distributed` load the operator where it is ready, and only there."""
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder())
    deepspeed_import.deepspeed().ops.__compatible_ops__[NAME] = ready()


def setup() -> None:
    """What `make setup` calls: build it where it is not built yet, and say how that ended."""
    print(f"setup: {NAME} is built" if ready() or build() else f"setup: no {NAME}; training runs without it")
