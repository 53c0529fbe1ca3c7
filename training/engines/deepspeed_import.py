"""Import DeepSpeed when an engine first needs it, without the packages that only its autotuner uses.

The autotuner imports MLflow, which imports pandas and FastAPI. That takes four fifths of the import time, in each
process. The import of MLflow is optional (`try: import mlflow`), so this module makes it fail.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

UNUSED = ("mlflow", "pandas")


@cache
def deepspeed() -> Any:
    """Return the module. Its first import reads DS_ACCELERATOR, the name of the device that it will use."""
    with _hide(UNUSED):
        import deepspeed
    return deepspeed


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
