import sys
from pathlib import Path

import pytest

from pipeline.readers.files import InputFile
from pipeline.readers.python_docs import documentation, find_modules, prose
from pipeline.readers.record import BETWEEN
from preprocessing.errors import BadInput

LONG = "This is a sentence of a docstring that goes on for quite a while, so that it looks like documentation. " * 3


def _file(folder: Path, content: str, name: str = "module.py") -> InputFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return InputFile("package", str(path), path.stat().st_size, 0)


def test_modules_have_the_label_of_their_package_and_nothing_is_imported() -> None:
    before = set(sys.modules)
    labels = {file.label for file in find_modules(("python", "numpy"))}
    assert labels == {"python", "numpy"}
    new = set(sys.modules) - before
    assert all(
        name.startswith("_sysconfigdata") for name in new
    )  # Python's own path configuration, if nothing has loaded it before


def test_test_modules_are_not_documentation() -> None:
    assert not [file.path for file in find_modules(("numpy",)) if "/tests/" in file.path]


def test_a_missing_package_is_named() -> None:
    with pytest.raises(BadInput, match=r"^python_docs: not installed: no_such_package[^\n]+$"):
        find_modules(("numpy", "no_such_package"))


def test_docstrings_of_modules_classes_and_functions_are_documents(tmp_path: Path) -> None:
    content = (
        f'"""Module. {LONG}"""\nclass A:\n    """Class. {LONG}"""\n    def f(self):\n        """Function. {LONG}"""\n'
    )
    found = [record.text.split()[0] for record in documentation(_file(tmp_path, content)) if not record.fault]
    assert found == ["Module.", "Class.", "Function."]


@pytest.mark.parametrize("content", [f'"""{LONG}"""\nx = 1\n', f'"""{LONG}"""\nprint "Python 2"\n', "x = 1\n", ""])
def test_each_byte_of_a_module_is_counted(tmp_path: Path, content: str) -> None:
    records = list(documentation(_file(tmp_path, content)))
    assert sum(record.size for record in records) == len(content)
    assert records[-1].fault == BETWEEN
    assert [record.start for record in records] == [sum(r.size for r in records[:at]) for at in range(len(records))]


def test_topics_of_pydoc_are_documents(tmp_path: Path) -> None:
    file = _file(tmp_path, f"topics = {{'assert': {LONG!r}, 'with': {LONG!r}}}\n", "pydoc_data/topics.py")
    assert len([record for record in documentation(file) if record.text]) == 2


@pytest.mark.parametrize(
    "code",
    [
        ">>> print('The answer is what this line prints.')\nThe answer is what this line prints.",
        "Use it in this way, for example::\n\n    The indented block below is code and not a sentence.",
        "```python\nThis line stands inside of a fence of code, so it goes.\n```",
        "Parameters\n----------",
        "x : int, default=3",
        "self.value = other.value[0] + other.value[1] if other else None.",
        "| a | table | of | several | columns | here. |",
        "no capital begins this line, so it is the rest of something.",
    ],
)
def test_lines_that_are_not_sentences_are_removed(code: str) -> None:
    first, last = "The first paragraph stays as it is.", "The last paragraph stays as it is."
    assert prose(f"{first}\n\n{code}\n\n{last}") == f"{first}\n\n{last}"


def test_wrapped_lines_of_a_field_become_one_paragraph() -> None:
    field = ":param x: The first of the numbers that\n    are added here.\n:param y: The second, if there is any."
    assert prose(field).split("\n\n") == [
        "The first of the numbers that are added here.",
        "The second, if there is any.",
    ]
