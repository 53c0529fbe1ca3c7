import os
import tempfile
from pathlib import Path

import pytest

from preprocessing import folders
from training.engines import deepspeed_import, ops


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the operator would be built."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / ops.NAME).mkdir()
    return tmp_path / ops.NAME


def test_an_operator_that_was_not_built_is_switched_off() -> None:
    ops.switch()
    assert deepspeed_import.deepspeed().ops.__compatible_ops__[ops.NAME] is False


def test_an_operator_that_was_built_is_switched_on(folder: Path) -> None:
    (folder / f"{ops.NAME}.so").touch()
    ops.switch()
    assert deepspeed_import.deepspeed().ops.__compatible_ops__[ops.NAME] is True


def test_the_lock_of_a_killed_build_switches_it_off(folder: Path) -> None:
    (folder / f"{ops.NAME}.so").touch()
    (folder / "lock").touch()
    assert not ops.ready()


def test_without_ninja_it_is_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loading ended the run: "ninja not being installed", also where a limit of open files kept it from running."""
    (folder / f"{ops.NAME}.so").touch()
    assert ops.ready()
    monkeypatch.setenv("PATH", str(folder))
    assert not ops.ready()


def test_without_a_compiler_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert ops.build() is False


def test_a_build_that_fails_leaves_nothing_and_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_operators_are_built_inside_the_environment_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    assert ops.folder() == tmp_path / ".venv" / "torch_extensions"


def test_in_a_path_with_a_blank_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch hands the linker an unquoted path."""
    monkeypatch.setattr(ops.shutil, "which", lambda name: name)
    monkeypatch.setattr(ops.sys, "prefix", "/a folder/.venv")
    assert ops.build() is False
    assert capsys.readouterr().err == (
        "setup: torch cannot build deepspeed_shm_comm in a path with a space: /a folder/.venv\n"
    )


def test_setup_says_how_it_ended(
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


def _refuse_writing(monkeypatch: pytest.MonkeyPatch, *shut: Path) -> None:
    """As another user sees them, root too: whoever runs these tests may write everywhere."""
    access = os.access
    inside = [str(folder) for folder in shut]

    def asked(path: str | Path, mode: int) -> bool:
        is_shut = mode & os.W_OK and any(str(path).startswith(folder) for folder in inside)
        return not is_shut and access(path, mode)

    monkeypatch.setattr(folders.os, "access", asked)


def test_an_operator_whose_lock_cannot_be_taken_is_switched_off(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation of root's, an image's or a cluster's module: torch locks beside the compiled file."""
    (folder / f"{ops.NAME}.so").touch()
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    assert ops.ready()
    _refuse_writing(monkeypatch, folder)
    assert not ops.ready()
    _refuse_writing(monkeypatch, folder.parent)
    ops.switch()
    assert deepspeed_import.deepspeed().ops.__compatible_ops__[ops.NAME] is False
    assert os.environ["TORCH_EXTENSIONS_DIR"] == str(home / "sesame" / "torch_extensions")


def test_without_a_home_the_cache_is_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert folders.user_cache() == home / ".cache" / "sesame"
    _refuse_writing(monkeypatch, tmp_path)
    assert folders.user_cache() == Path(tempfile.gettempdir()) / f"sesame-cache-{os.getuid()}"
