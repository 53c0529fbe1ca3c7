"""Build and load `deepspeed_shm_comm`, the DeepSpeed operator that a start on a CPU would compile unexpectedly.

On a CPU, `deepspeed.init_distributed` loads this operator. If it is missing, DeepSpeed compiles it with g++, which
takes a minute or more; with ninja but without a compiler, DeepSpeed fails. Only `inference_all_reduce` uses the
operator, for the sum in a tensor-parallel layer. Sesame does not call it, and training is equally fast without it. The
operator is therefore loaded only if `make setup` has built it, and disabled otherwise. Each time torch loads an
operator, it creates a lock in the operator's directory. An installation without write permission, such as an image, can
therefore not load it.
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
    """The directory where operators are built, locked and loaded.

    It is TORCH_EXTENSIONS_DIR, or a directory in the virtual environment; if that is not writable, the user's cache.
    """
    directory = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path(sys.prefix) / "torch_extensions")
    return directory if is_writable(directory) else user_cache() / "torch_extensions"


def ready() -> bool:
    """Whether torch can load the operator without building it.

    The operator must be built, and its directory must be writable and without the lock of a killed build, for which
    torch would wait forever. ninja must also work, because torch calls it even if there is nothing to build.
    """
    place = folder() / NAME
    is_built = (place / f"{NAME}.so").is_file() and is_writable(place) and not (place / "lock").exists()
    return is_built and _ninja_runs()


def _ninja_runs() -> bool:
    """Whether ninja is on the PATH and can be started; a limit of open files, for example, can prevent that."""
    try:
        return subprocess.run(["ninja", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def build() -> bool:
    """Compile the operator; return False if that is not possible. Training does not need it."""
    builder = deepspeed_import.deepspeed().get_accelerator().create_op_builder("ShareMemCommBuilder")
    if builder is None or shutil.which(os.environ.get("CXX", "g++")) is None or shutil.which("ninja") is None:
        return False
    if " " in sys.prefix:  # torch does not quote the path in the linker's option -L
        print(f"setup: torch cannot build {NAME} in a path with a space: {sys.prefix}", file=sys.stderr)
        return False
    shutil.rmtree(folder() / NAME, ignore_errors=True)
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder())
    try:
        builder.load(verbose=False)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # old compiler, full disk and similar
        print(f"setup: cannot build {NAME}: {str(error).splitlines()[0]}", file=sys.stderr)
        shutil.rmtree(folder() / NAME, ignore_errors=True)
    return ready()


def switch() -> None:
    """Make `init_distributed` load the operator if and only if it is ready."""
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder())
    deepspeed_import.deepspeed().ops.__compatible_ops__[NAME] = ready()


def setup() -> None:
    """Build the operator if necessary, and print the result; `make setup` calls this function."""
    print(f"setup: {NAME} is built" if ready() or build() else f"setup: {NAME} is not built; training does not need it")
