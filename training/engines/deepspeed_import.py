"""DeepSpeed, imported when an engine first needs it, and without what only its autotuner would use.

Its autotuner imports MLflow, which imports pandas and FastAPI: four fifths of the time of the whole import, in each
process. It does without where there is no MLflow (`try: import mlflow`), so that it finds none here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

UNUSED = ("mlflow", "pandas")


@cache
def deepspeed() -> Any:
    """The module. At its first import it reads DS_ACCELERATOR: the name of the device that it runs on."""
    with _hidden(UNUSED):
        import deepspeed
    return deepspeed


@contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Let an import of these modules fail inside the block, where they are not imported yet."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None stops an import
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
