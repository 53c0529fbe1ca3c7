"""What every test may use: a quiet, offline environment, and the public data beside the checkout, if there is any."""

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

# Nothing in a test looks anything up, and two cores are not four: set before any engine is imported.
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
    """What the tests and the libraries under them leave in the folder of temporary files goes when they end.

    Beam's jobs and what MLflow downloads would stay there. Folders of pytest's own and what torch compiled are kept."""
    if hasattr(config, "workerinput"):  # a process of xdist, which is told by the one that began it
        return
    above = tempfile.gettempdir()
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", above)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{above}/torchinductor_{getpass.getuser()}")
    made = tempfile.mkdtemp(prefix="st-")  # short, as sockets stand in it
    os.environ["TMPDIR"] = tempfile.tempdir = made

    def remove() -> None:
        os.environ["TMPDIR"] = tempfile.tempdir = above
        shutil.rmtree(made, ignore_errors=True)

    config.add_cleanup(remove)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Doctests stand in what tests import, never in a file of tests."""
    found = yield
    return [each for each in found if not (isinstance(each, DoctestModule) and file_path.name.startswith("test_"))]


def pytest_collection_finish() -> None:
    """What is imported by now stays: no search for garbage looks at it again. Beam's jobs search at their start."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `one_in` are slow but for one case in so many, beginning with the first.

    Tests marked `shared` read the public data beside the checkout; where it is absent they are skipped, by name."""
    cases = Counter[tuple[Path, str]]()
    for item in items:
        if mark := item.get_closest_marker("one_in"):
            case = (item.path, item.name.partition("[")[0])
            if cases[case] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            cases[case] += 1
    if SHARED.is_dir():
        return
    absent = pytest.mark.skip(reason="reads ../shared/data, which is not beside this checkout")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(absent)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes do not name a test: the processes of a run make them anew, and a gzip header has the time in it."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def without_token(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process has no token of Ray's, which keeps the first one for every cluster that comes."""

    def forget() -> None:
        if "ray" in sys.modules:  # which looks when it is imported whether there are tokens at all
            from ray._raylet import AuthenticationTokenLoader

            AuthenticationTokenLoader.instance().reset_cache()

    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards, whatever the test sets
        monkeypatch.delenv(name)
    forget()
    yield
    forget()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of public data beside the checkout: text/, downstream/, tokenizers/."""
    return SHARED
