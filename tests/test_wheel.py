"""The wheel has all files that the command and `import sesame` need, and no others."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from orchestration.version import DISTRIBUTION, sesame_version
from tests.release import PACKAGES, ROOT, build


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools", reason="builds the wheel with the setuptools of this environment")
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_contains_recipes_corpora_clusters_and_the_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for place in ("recipes", "corpora", "clusters", "tasks", "reports/data_card/templates")
        for path in (ROOT / "orchestration" / place).rglob("*")
        if path.is_file()
    }
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert not (wanted | modules | {"sesame.py"}) - names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {*PACKAGES, "sesame.py"}
    assert wheel.name.startswith(f"{DISTRIBUTION.replace('-', '_')}-{sesame_version()}-")


@pytest.mark.slow
def test_the_installed_wheel_works_outside_of_a_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import sys; sys.path = [path for path in sys.path if path]; "
        f"sys.path[:0] = [{str(tmp_path / 'site')!r}]; sys.path.append({sysconfig.get_path('purelib')!r}); "
        "import sesame, runpy; print(sesame.__file__, sesame.__version__, len(sesame.recipes())); "
        "print(sesame.open('bert_base', scale='tiny', data='demo').recipe.name); "
        "sys.argv = ['sesame', '--version']; runpy.run_module('sesame', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(str(tmp_path / "site" / "sesame.py")), done.stderr
    assert lines[1:] == ["bert_base_tiny", f"sesame {sesame_version()}"]
