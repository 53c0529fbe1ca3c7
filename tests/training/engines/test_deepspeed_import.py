"""Which modules are imported with the engines, and when."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
from importlib.util import find_spec
import training.engines
by_the_door = [name for name in ("deepspeed", "mlflow", "pandas") if name in sys.modules]
from training.engines import deepspeed_import
deepspeed_import.deepspeed()
by_need = [name for name in ("deepspeed", "mlflow", "pandas") if name in sys.modules]
findable = [name for name in ("mlflow", "pandas") if find_spec(name)]
print(json.dumps({"by_the_door": by_the_door, "by_need": by_need, "findable": findable}))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """The modules that a new process has imported, first with the engines and then with DeepSpeed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"DS_ACCELERATOR": "cpu"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_engines_are_imported_without_deepspeed(imported: dict[str, list[str]]) -> None:
    assert imported["by_the_door"] == []


def test_deepspeed_is_imported_without_mlflow_and_pandas(imported: dict[str, list[str]]) -> None:
    assert imported["by_need"] == ["deepspeed"]


def test_mlflow_and_pandas_can_still_be_imported(imported: dict[str, list[str]]) -> None:
    assert imported["findable"] == ["mlflow", "pandas"]
