"""Import DeepSpeed when an engine first needs it, without the packages that only its autotuner uses.

The autotuner imports MLflow, which imports pandas and FastAPI. That takes four fifths of the import time, in each
process. The import of MLflow is optional (`try: import mlflow`), so this module makes it fail.

DeepSpeed's Muon, which Sesame does not use, imports torch's compiler. This takes two seconds, also in each process.

On a CPU, `deepspeed.init_distributed` loads the operator `deepspeed_shm_comm`, and compiles it with g++ if it is
missing or out of date, which takes a minute. Only `inference_all_reduce` uses it, which Sesame does not call. So it is
disabled.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

UNUSED = ("mlflow", "pandas")
SHARED_MEMORY = "deepspeed_shm_comm"  # the operator that is disabled


@cache
def deepspeed() -> Any:
    """Return the module. Its first import reads DS_ACCELERATOR, the name of the device that it will use."""
    with _hide(UNUSED):
        import deepspeed
    _import_muon(deepspeed.runtime.compiler)
    deepspeed.ops.__compatible_ops__[SHARED_MEMORY] = False
    return deepspeed


def _import_muon(compiler: Any) -> None:
    """Import DeepSpeed's Muon without compiling its functions."""
    original, compiler.compile = compiler.compile, lambda *_, **__: lambda function: function
    try:
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    finally:
        compiler.compile = original


@contextmanager
def _hide(names: tuple[str, ...]) -> Iterator[None]:
    """Make imports of these modules fail inside the block, unless they are already imported."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
