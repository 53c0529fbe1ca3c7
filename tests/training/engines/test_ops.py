import os
import tempfile
from pathlib import Path

import pytest

from preprocessing import folders
from training.engines import deepspeed_import, ops


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build directory of the operator."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / ops.NAME).mkdir()
    return tmp_path / ops.NAME


def test_an_operator_that_was_not_built_is_disabled() -> None:
    ops.switch()
    assert deepspeed_import.deepspeed().ops.__compatible_ops__[ops.NAME] is False


def test_a_built_operator_is_enabled(folder: Path) -> None:
    (folder / f"{ops.NAME}.so").touch()
    ops.switch()
    assert deepspeed_import.deepspeed().ops.__compatible_ops__[ops.NAME] is True


def test_the_lock_of_a_killed_build_disables_the_operator(folder: Path) -> None:
    (folder / f"{ops.NAME}.so").touch()
    (folder / "lock").touch()
    assert not ops.ready()


def test_the_operator_is_disabled_without_ninja(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading used to stop the run with "ninja not being installed", even if the limit of open files was the cause."""
    (folder / f"{ops.NAME}.so").touch()
    assert ops.ready()
    monkeypatch.setenv("PATH", str(folder))
    assert not ops.ready()


def test_without_a_compiler_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert ops.build() is False


def test_a_failed_build_leaves_no_files_and_raises_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Builder:
        def load(self, verbose: bool) -> None:
            folder.mkdir()
            (folder / "lock").touch()
            raise RuntimeError("Error building extension")

    monkeypatch.setattr(ops.sys, "prefix", "/no_blank")
    monkeypatch.setattr(ops.shutil, "which", lambda name: name)
    accelerator = type(deepspeed_import.deepspeed().get_accelerator())
    monkeypatch.setattr(accelerator, "create_op_builder", lambda self, name: Builder())
    assert ops.build() is False
    assert not folder.exists()


def test_operators_are_built_inside_the_environment_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    assert ops.folder() == tmp_path / ".venv" / "torch_extensions"


def test_nothing_is_built_in_a_path_with_a_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch passes an unquoted path to the linker."""
    monkeypatch.setattr(ops.shutil, "which", lambda name: name)
    monkeypatch.setattr(ops.sys, "prefix", "/a folder/.venv")
    assert ops.build() is False
    assert capsys.readouterr().err == (
        "setup: torch cannot build deepspeed_shm_comm in a path with a space: /a folder/.venv\n"
    )


def test_setup_reports_its_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ops, "build", lambda: False)
    ops.setup()
    (folder / f"{ops.NAME}.so").touch()
    ops.setup()
    assert capsys.readouterr().out.splitlines() == [
        "setup: deepspeed_shm_comm is not built; training does not need it",
        "setup: deepspeed_shm_comm is built",
    ]


def _make_read_only(monkeypatch: pytest.MonkeyPatch, *shut: Path) -> None:
    """Make directories read-only even for root, who may write everywhere."""
    access = os.access
    inside = [str(folder) for folder in shut]

    def asked(path: str | Path, mode: int) -> bool:
        is_shut = mode & os.W_OK and any(str(path).startswith(folder) for folder in inside)
        return not is_shut and access(path, mode)

    monkeypatch.setattr(folders.os, "access", asked)


def test_an_operator_whose_lock_cannot_be_created_is_disabled(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment may belong to root, to an image or to a cluster module: torch creates a lock beside the compiled
    file."""
    (folder / f"{ops.NAME}.so").touch()
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    assert ops.ready()
    _make_read_only(monkeypatch, folder)
    assert not ops.ready()
    _make_read_only(monkeypatch, folder.parent)
    ops.switch()
    assert deepspeed_import.deepspeed().ops.__compatible_ops__[ops.NAME] is False
    assert os.environ["TORCH_EXTENSIONS_DIR"] == str(home / "sesame" / "torch_extensions")


def test_the_cache_is_in_the_temporary_directory_without_a_writable_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert folders.user_cache() == home / ".cache" / "sesame"
    _make_read_only(monkeypatch, tmp_path)
    assert folders.user_cache() == Path(tempfile.gettempdir()) / f"sesame-cache-{os.getuid()}"
