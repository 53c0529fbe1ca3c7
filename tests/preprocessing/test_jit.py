"""Where the machine code of kernels is stored, and when it is used again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

ROOT = Path(__file__).parents[2]
KERNELS = """
from preprocessing.jit import kernel
from callees import HEIGHT, add

@kernel
def double(number):
    return add(number, number) + HEIGHT
"""
CALLEES = """
from preprocessing.jit import kernel
HEIGHT = 0

@kernel
def add(one, other):
    return one + other
"""
PROGRAM = """
import sys
from preprocessing import jit
import kernels
was_compiled = jit.is_compiled(kernels.double)
print(kernels.double(21), was_compiled, "awkward" in sys.modules, "scipy.linalg" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a kernel that calls a kernel of another module."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "callees.py").write_text(CALLEES)
    return tmp_path


def run(folder: Path, program: str = PROGRAM, **variables: str) -> str:
    """What a new process prints that calls the kernel."""
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "HOME": str(folder / "home")} | variables
    environment.pop("XDG_CACHE_HOME", None)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_a_second_process_uses_the_machine_code_and_imports_no_other_package(folder: Path) -> None:
    assert run(folder) == "42 False False False"
    assert run(folder) == "42 True False False"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "result"),
    [
        ("callees.py", "one + other", "one * other", 441),
        ("callees.py", "HEIGHT = 0", "HEIGHT = 3", 45),
        ("kernels.py", "+ HEIGHT", "- 1", 41),
    ],
)
def test_a_change_of_what_a_kernel_uses_compiles_it_again(
    folder: Path, file: str, old: str, new: str, result: int
) -> None:
    run(folder)
    source = (folder / file).read_text()
    (folder / file).write_text(source.replace(old, new))
    assert run(folder) == f"{result} False False False"
    assert run(folder) == f"{result} True False False"


@pytest.mark.slow
def test_a_source_that_changes_between_import_and_call_gives_no_wrong_machine_code(folder: Path) -> None:
    """The stamp was once that of the file at the first call, so the code of the old source had that of the new one."""
    source = (folder / "callees.py").read_text().replace("one + other", "one * other")
    change = f"import kernels, pathlib; pathlib.Path({str(folder / 'callees.py')!r}).write_text({source!r})"
    assert run(folder, f"{change}; print(kernels.double(21))") == "42"
    assert run(folder) == "441 False False False"
    assert run(folder) == "441 True False False"


@pytest.mark.slow
def test_machine_code_of_earlier_sources_is_removed(folder: Path) -> None:
    run(folder)
    (folder / "callees.py").write_text(CALLEES.replace("HEIGHT = 0", "HEIGHT = 7"))
    run(folder)
    assert len([*(folder / "__pycache__").glob("*.nb?")]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"no pickle", None])
def test_damaged_files_are_compiled_again(folder: Path, damage: bytes | None) -> None:
    run(folder)
    found = [*(folder / "__pycache__").glob("*.nb?")]
    assert len(found) == 4  # an index and a file of code for each kernel
    for file in found:
        file.write_bytes(file.read_bytes()[:100] if damage is None else damage)
    assert run(folder).startswith("42 ")
    assert run(folder) == "42 True False False"


READ_ONLY = f"""
import preprocessing.jit as jit
def fail(*words, **more):
    raise PermissionError("read-only")
jit.os.makedirs = fail
{PROGRAM}
"""


@pytest.mark.slow
def test_another_user_of_a_read_only_installation_has_its_machine_code(folder: Path) -> None:
    run(folder)
    assert run(folder, READ_ONLY, HOME="/nonexistent") == "42 True False False"


@pytest.mark.slow
def test_a_kernel_runs_where_nothing_can_be_written(folder: Path) -> None:
    assert run(folder, READ_ONLY, HOME="/nonexistent") == "42 False False False"
    assert run(folder, READ_ONLY, HOME="/nonexistent") == "42 False False False"


@pytest.mark.slow
def test_machine_code_in_a_directory_of_the_user(folder: Path) -> None:
    run(folder, NUMBA_CACHE_DIR=str(folder / "cache"))
    assert len([*(folder / "cache").rglob("*.nbc")]) == 2
    assert not [*(folder / "__pycache__").glob("*.nbc")]
    assert run(folder, NUMBA_CACHE_DIR=str(folder / "cache")) == "42 True False False"
    assert run(folder).split()[1] == "False"
