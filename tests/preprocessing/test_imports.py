import gc
import sys
from pathlib import Path
from types import ModuleType

import pytest

from preprocessing.imports import import_all, without_collection


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package whose module `slow` is imported on use."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "slow.py").write_text("answer, question = 42, '?'")
    (folder / "__init__.py").write_text(
        "from preprocessing.imports import import_on_use\n"
        "__all__ = ['answer', 'question']\n"
        "__getattr__ = import_on_use(__name__, {'slow': ('answer', 'question')})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("lazy_package", "lazy_package.slow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("lazy_package")


def test_a_module_is_imported_when_one_of_its_names_is_used(package: ModuleType) -> None:
    assert "lazy_package.slow" not in sys.modules
    assert package.answer == 42
    assert "lazy_package.slow" in sys.modules


def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'other'"):
        package.other()


def test_all_modules_can_be_imported(package: ModuleType) -> None:
    import_all(package)
    assert "lazy_package.slow" in sys.modules


def test_no_garbage_is_collected_during_imports() -> None:
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()
