"""Documentation of Python and installed packages as prose: English text on every machine, without a network.

No package is imported: files in the standard library and in site-packages are parsed. Only paragraphs of sentences are
kept, without doctests, code, tables and signatures.
"""

import ast
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pipeline.readers.file_ranges import FileRange, pieces_at
from pipeline.readers.files import InputFile, Sides
from pipeline.readers.reader import FileProbe
from pipeline.readers.record import BETWEEN, Record
from preprocessing.characters import pin_characters
from preprocessing.errors import BadInput
from preprocessing.spec import key, spec

STANDARD: Final = "python"
_OTHER: Final = {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "dist-packages", "_vendor"}
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_TOPICS: Final = "pydoc_data/topics.py"

# Parsing is slow (5 MB/s). A quick search therefore selects files in which long strings make up a large fraction.
_LONG_STRING: Final = re.compile(rb'"""([^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*)"""', re.DOTALL)
_LONG: Final = 150  # bytes
_WORTH_PARSING: Final = 0.3  # fraction of the bytes of a file in long strings

_FENCE: Final = re.compile(r"^ *(```|~~~).*?(^ *\1|\Z)", re.DOTALL | re.MULTILINE)
_UNDERLINE: Final = re.compile(r"^[^\n]*\n *([-=~^\"'*#+.])\1{2,} *$", re.MULTILINE)  # a heading and its underline
_HEADING: Final = re.compile(r"\w+:")  # Args:, Returns:
# :param x: | @param | .. note:: | - item | x (int): or *args:
_FIELD: Final = re.compile(r"\s*(:\w[^:\n]*:|@\w+|\.\. .*|[-*+]\s|\*{0,2}\w+( \([^)\n]*\))?:\s)\s*")
_ROLE: Final = re.compile(r":[\w:+-]+:`~?([^`<]*?)\s*(?:<[^`>]*>)?`_*")
_MARKUP: Final = re.compile(r"[`*]{1,2}([^`*\n]+)[`*]{1,2}_*")
_WORD: Final = re.compile(r"\b[A-Za-z][a-z']*\b")
_CODE: Final = re.compile(r"[=_{}\[\]<>|\\/@#$%^~+]")


@spec
class PythonDocsReader:
    """Documentation of installed Python packages: pydoc topics and docstrings.

    No package is imported.
    """

    names: ClassVar[tuple[str, ...]] = ("python_docs",)
    located: ClassVar[tuple[str, ...]] = ()
    leads: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[str, ...]] = ()
    of_folder: ClassVar[bool] = False
    metadata_fields: ClassVar[tuple[str, ...] | None] = ()
    has_urls: ClassVar[bool] = False

    kind: Literal["python_docs"] = "python_docs"
    packages: tuple[str, ...] = key(
        default=(), doc="Top-level package names, python for the standard library; []: all packages."
    )

    @property
    def place(self) -> str:
        return ",".join(self.packages)

    @classmethod
    def from_name(cls, name: str, place: str) -> Self:
        return cls(packages=tuple(filter(None, place.split(","))))

    @classmethod
    def looks_like(cls, sample: FileProbe) -> Self | None:
        """Returns None: this source has no path."""
        return None

    def describe(self) -> str:
        return f"installed documentation of {', '.join(self.packages) or 'Python and all its packages'}"

    def resolve_paths(self, folder: Path) -> Self:
        return self

    def files(self) -> list[Sides]:
        return [(file,) for file in find_modules(self.packages)]

    def pieces(self, sides: Sides, step: int) -> Iterator[FileRange]:
        return pieces_at(sides[0], [])

    def records(self, piece: FileRange, limit: int) -> Iterator[Record]:
        return documentation(piece.file)


def find_modules(packages: tuple[str, ...] = ()) -> list[InputFile]:
    """Python files of these top-level packages in order, labeled with their package. () means all packages."""
    standard = Path(sysconfig.get_path("stdlib"))
    roots = {standard: STANDARD} | {Path(sysconfig.get_path(name)): "" for name in ("purelib", "platlib")}
    found: dict[str, InputFile] = {}
    for root, owner in roots.items():
        for folder, below, names in os.walk(root):
            below[:] = sorted(name for name in below if name not in _OTHER and not name.startswith((".", "__")))
            inside = Path(folder).relative_to(root).parts
            for name in sorted(names):
                label = owner or (inside[0] if inside else name.removesuffix(".py"))
                wanted = name.endswith(".py") and not name.startswith("test_") and (not packages or label in packages)
                if wanted and os.access(path := os.path.join(folder, name), os.R_OK):
                    stat = os.stat(path)
                    found[path] = InputFile(label, path, stat.st_size, stat.st_mtime_ns)
    missing = set(packages) - {file.label for file in found.values()}
    if missing or not found:
        unknown = ", ".join(sorted(missing)) or "nothing"
        raise BadInput(f"python_docs: not installed: {unknown}; name installed packages, or none to read all")
    return sorted(found.values())


def documentation(file: InputFile) -> Iterator[Record]:
    """The docstrings of a Python file, or the topics of pydoc, as prose, and one record for the remaining code."""
    content = Path(file.path).read_bytes()
    rest = len(content)
    for docstring in _texts(file, content):
        size = min(rest, len(docstring.encode(errors="replace")))
        yield Record(file.label, size, prose(docstring), start=len(content) - rest)
        rest -= size
    yield Record(file.label, rest, fault=BETWEEN, start=len(content) - rest)


def _texts(file: InputFile, content: bytes) -> Iterator[str]:
    if file.path.endswith(_TOPICS):
        yield from _topics(_parse(content))
    elif sum(len(text) for text in _LONG_STRING.findall(content) if len(text) > _LONG) > _WORTH_PARSING * len(content):
        yield from _docstrings(_parse(content))


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Docstrings of a module, class or function and, recursively, of the definitions directly inside."""
    if isinstance(node, _DOCUMENTED):
        if docstring := ast.get_docstring(node):
            yield docstring
        for child in node.body:
            yield from _docstrings(child)


def _topics(tree: ast.AST) -> Iterator[str]:
    values = (value for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in node.values)
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def _parse(content: bytes) -> ast.AST:
    """The syntax tree; an empty one if the file is not valid in this Python version (templates, Python 2)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in strings of other packages
        try:
            return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module([], [])


@pin_characters
def prose(docstring: str) -> str:
    r"""The paragraphs of a docstring that consist of sentences, each on one line.

    >>> prose("Add two numbers, whatever their size may be.\n\n>>> add(1, 2)\n3\n\nParameters\n----------\nx : int\n"
    ...       "    The first of the two numbers, which may\n    be :class:`huge`, too.")
    'Add two numbers, whatever their size may be.\n\nThe first of the two numbers, which may be huge, too.'
    """
    text = _UNDERLINE.sub("\n", _FENCE.sub("", docstring.expandtabs()))
    return "\n\n".join(paragraph for block in _blocks(text) if _is_prose(paragraph := _plain(block)))


def _blocks(text: str) -> Iterator[list[str]]:
    """Runs of adjacent lines with equal indentation, without doctests and code after `::`."""
    block: list[str] = []
    indents: set[int] = set()  # indentations allowed in this block; empty: any
    code_below = -1  # indentation of the line whose `::` introduced code, or -1
    example = False
    for line in [*text.split("\n"), ""]:
        words, indent = line.strip(), len(line) - len(line.lstrip())
        words = "" if _HEADING.fullmatch(words) else words
        example = bool(words) and (example or words.startswith((">>>", "In [")))
        if words and indent <= code_below:
            code_below = -1
        field = _FIELD.match(line)
        if block and (not words or field or (indents and indent not in indents)):
            yield block
            block = []
        if words and code_below < 0 and not example:
            block.append(words)
            indents = set() if field else {indent}  # lines below a field may have any indentation
            if words.endswith("::"):
                code_below = indent


def _plain(block: list[str]) -> str:
    text = " ".join(block)
    field = _FIELD.match(text)
    text = _ROLE.sub(r"\1", text[field.end() :] if field else text)
    return _MARKUP.sub(r"\1", text).replace("::", ":").strip()


def _is_prose(text: str) -> bool:
    """Whether a paragraph is prose: it starts and ends like a sentence and consists mostly of words."""
    words = _WORD.findall(text)
    letters = sum(map(len, words))
    few_symbols = len(_CODE.findall(text)) <= 0.02 * len(text)
    return len(words) >= 6 and text[0].isupper() and text[-1] in ".!?" and letters >= 0.7 * len(text) and few_symbols
