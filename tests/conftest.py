"""Settings and fixtures of all tests: a quiet, offline environment, and the public data next to the checkout."""

import gc
import getpass
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

# Tests use no network, and one thread per process. These variables must be set before an engine is imported.
os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }
)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Use a new temporary directory for the test run, and remove it at the end.

    Jobs of Beam and downloads of MLflow leave files there. The directories of pytest and of compiled torch code stay in
    the usual temporary directory."""
    if hasattr(config, "workerinput"):  # a worker of xdist inherits the environment of its parent
        return
    above = tempfile.gettempdir()
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", above)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{above}/torchinductor_{getpass.getuser()}")
    directory = tempfile.mkdtemp(prefix="st-")  # short, because paths of sockets are limited
    os.environ["TMPDIR"] = tempfile.tempdir = directory

    def remove() -> None:
        os.environ["TMPDIR"] = tempfile.tempdir = above
        shutil.rmtree(directory, ignore_errors=True)

    config.add_cleanup(remove)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Skip the search for doctests in files of tests; only modules that tests import have doctests."""
    found = yield
    return [each for each in found if not (isinstance(each, DoctestModule) and file_path.name.startswith("test_"))]


def pytest_collection_finish() -> None:
    """Exclude all imported objects from garbage collection, which each job of Beam runs when it starts."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Handle the marks `one_in` and `shared`.

    With `one_in(N)`, every N-th case of a test is fast, beginning with the first; the others are marked slow. Tests
    with `shared` read the public data next to the checkout and are skipped without it."""
    cases = Counter[tuple[Path, str]]()
    for item in items:
        if mark := item.get_closest_marker("one_in"):
            case = (item.path, item.name.partition("[")[0])
            if cases[case] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            cases[case] += 1
    if SHARED.is_dir():
        return
    absent = pytest.mark.skip(reason="reads ../shared/data, which is missing")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(absent)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name test cases with bytes by the name of the argument, because bytes may differ between processes.

    For example, the header of a gzip file contains the time."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def without_token(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a test without a token of Ray, which otherwise uses its first token for all later clusters."""

    def forget() -> None:
        if "ray" in sys.modules:  # when it is imported, it checks for tokens
            from ray._raylet import AuthenticationTokenLoader

            AuthenticationTokenLoader.instance().reset_cache()

    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it even if the test sets it
        monkeypatch.delenv(name)
    forget()
    yield
    forget()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of public data next to the checkout: text/, downstream/, tokenizers/."""
    return SHARED
