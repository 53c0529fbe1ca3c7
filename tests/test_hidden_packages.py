"""User files with the names of Sesame's packages cause a message of one line, and workers import Sesame's packages."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestration.tracking import server
from orchestration.tracking.runs import query_store, tracking_store

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestration", "pipeline", "preprocessing", "training")
TRAP = "raise SystemError('code of the user was run')\n"


def run(place: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in this directory; it finds Sesame after the files of the directory, like an installed package."""
    code = f"import sys; sys.path.append({str(ROOT)!r}); "
    if words[0] == "-c":
        words = ("-c", code + words[1])
    else:  # python -m
        words = (
            "-c",
            code + f"import runpy; sys.argv[1:] = {words[2:]!r}; runpy.run_module('sesame', None, '__main__')",
        )
    paths = [path for path in sys.path if Path(path).name == "site-packages"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | more
    return subprocess.run(
        [sys.executable, "-S", *words], cwd=place, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("is_package", [False, True], ids=["file", "package"])
def test_a_file_that_hides_a_package_is_named_in_one_line(tmp_path: Path, name: str, is_package: bool) -> None:
    hiding = tmp_path / (name if is_package else f"{name}.py")
    if is_package:
        hiding.mkdir()
    (hiding / "__init__.py" if is_package else hiding).write_text(TRAP)
    line = f"cannot import Sesame: {hiding} hides its package {name}; rename it, or run from another directory"
    done = run(tmp_path, "-c", "import sesame")
    assert done.stderr.splitlines()[-1] == f"ImportError: {line}"
    assert "exception" not in done.stderr  # no chained exceptions
    done = run(tmp_path, "-m", "sesame", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"sesame: {line}\n")


def test_several_files_in_a_directory_of_the_path_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("pipeline.py", "training.py"):
        (tmp_path / "there" / name).write_text(TRAP)
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'there')!r}); import sesame"
    assert run(tmp_path, "-c", code).stderr.splitlines()[-1] == (
        f"ImportError: cannot import Sesame: {tmp_path}/there/pipeline.py and {tmp_path}/there/training.py hide "
        f"packages of it; rename them, or remove {tmp_path}/there from the Python path"
    )


def test_the_installed_command_prints_the_message(tmp_path: Path) -> None:
    """The environment variable PYTHONPATH puts the directory of the user first."""
    (tmp_path / "training.py").write_text(TRAP)
    script = tmp_path / "bin" / "sesame"
    script.parent.mkdir()
    script.write_text("import sys\nfrom sesame import command\nsys.exit(command())\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, script, "--version"], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"sesame: cannot import Sesame: {tmp_path}/training.py hides its package training; ")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_directory_without_code_hides_no_package(tmp_path: Path, name: str) -> None:
    """With an editable installation, whose finder is the last one, Python used to import the directory as a package."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "notes.txt").write_text("mine")
    finder = f"""
        import importlib.abc, importlib.machinery, sys
        sys.path.remove({str(ROOT)!r})
        class Last(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                return importlib.machinery.PathFinder.find_spec(name, [{str(ROOT)!r}]) if path is None else None
        sys.meta_path.append(Last())
        import sesame, {name}
        print({name}.__file__, len(sesame.recipes()) > 80, sep="\\n")
    """
    (tmp_path / "look.py").write_text(textwrap.dedent(finder))
    done = run(tmp_path, "-c", "exec(open('look.py').read())")
    assert done.stdout.splitlines() == [str(ROOT / name / "__init__.py"), "True"], done.stderr


def test_a_module_of_the_user_that_is_imported_already_is_named(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text("mine = 1\n")
    done = run(tmp_path, "-c", "import training, sesame")
    assert re.search(r"^ImportError: .*/training.py hides its package training", done.stderr, re.MULTILINE)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a file for each package."""
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_workers_of_ray_import_sesame(trap: Path) -> None:
    """They used to die "without a known cause", because Ray puts the current directory first on their path."""
    import ray

    from orchestration.launch import ray_session

    @ray.remote
    def where() -> list[str]:
        import orchestration.launch
        import training

        return [str(training.__file__), str(orchestration.launch.__file__)]

    with ray_session(cpus=1):
        found = ray.get(where.remote())
    assert found == [str(ROOT / "training" / "__init__.py"), str(ROOT / "orchestration" / "launch" / "__init__.py")]


def test_workers_of_beam_import_sesame(trap: Path) -> None:
    from pipeline.runners import workers

    process, address = workers._forkserver()
    try:
        assert address
        assert process.poll() is None
    finally:
        workers._stop(process)
        workers._forkserver.cache_clear()


def test_the_server_of_the_ui_imports_sesame(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(server.os, "execve", lambda path, command, environment: started.extend(command))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    query_store(tracking_store(trap), lambda client: None)
    server.ui(trap, 0)
    words = [word.replace(":app", ":no_such_app") for word in started]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert 'Attribute "no_such_app" not found in module "orchestration.tracking.server"' in done.stderr
