"""A filter of the user: one Python file with a function `reject`, named in `clean.filters` of a corpus file.

The code itself goes to the workers of Beam, and its hash is part of the identity of the text. So a worker needs no copy
of the file, and another code makes another corpus.
"""

import hashlib
import importlib.abc
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from preprocessing.errors import BadInput

ENDING: Final = ".py"
_FUNCTION: Final = "reject"
_STEM: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
_REASON: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_MODULE: Final = "sesame_filter_"  # start of the name of the module, so that it hides no other module


def is_file_of_filter(name: str) -> bool:
    """Whether an entry of `clean.filters` is a file, not the name of a filter of Sesame."""
    return name.endswith(ENDING)


class OwnFilter(NamedTuple):
    """A filter as text: its name, which is that of its file, its path for messages, and its code."""

    name: str
    path: str
    code: str

    @property
    def digest(self) -> str:
        """SHA-256 of the code, as hexadecimal digits."""
        return hashlib.sha256(self.code.encode()).hexdigest()

    def find_reason(self, text: str) -> str:
        """The reason to drop a text, which begins with the name of the filter; "" to keep it.

        Raises BadInput if the function raises an exception, or returns neither a truth value nor the name of a reason.
        """
        try:
            found = _load(self)(text)
        except (Exception, SystemExit) as error:  # sys.exit() would end the command without a message
            raise BadInput(
                f"{self.path}{_line(error, self.path)}: {_FUNCTION} failed for a text of {len(text):,} characters "
                f"({type(error).__name__}: {' '.join(str(error).split())}); correct the filter"
            ) from None
        if isinstance(found, np.bool_):  # of a comparison with a mean, for example
            found = bool(found)
        if found is None or found is False or found == "":
            return ""
        if found is True:
            return self.name
        if isinstance(found, str) and _REASON.fullmatch(found):
            return f"{self.name}_{found}"
        raise BadInput(
            f"{self.path}: invalid result of {_FUNCTION}: got {found!r:.60}, expected True, False, or a reason of "
            "letters, digits, _, . and -; correct the filter"
        )


def read_own_filter(path: str) -> OwnFilter:
    """The filter in a file. Raises BadInput if the file is missing, is not Python, or does not define `reject`.

    A file that did not change is read once.
    """
    try:
        facts = os.stat(path)
    except OSError as error:
        raise BadInput(f"clean.filters: {path}: cannot read the file ({error.strerror}); correct the path") from None
    return _read(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _read(path: str, changed: int, size: int) -> OwnFilter:
    stem = Path(path).stem
    if not _STEM.fullmatch(stem):
        raise BadInput(
            f"clean.filters: {path}: invalid file name: got {stem!r}, expected letters, digits and _; rename the file"
        )
    try:
        found = OwnFilter(stem, path, Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"clean.filters: {path}: cannot read the file ({error}); save it as UTF-8") from None
    _load(found)
    return found


@lru_cache(maxsize=64)
def _load(found: OwnFilter) -> Callable[[str], Any]:
    """The function of a filter. Its module is made from the code, because a worker may not have the file."""
    loader = _CodeLoader(found)
    try:
        module = importlib.util.module_from_spec(ModuleSpec(_MODULE + found.name, loader, origin=found.path))
        sys.modules[module.__name__] = module  # dataclasses of the module need it
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else _line(error, found.path)
        why = error.msg if isinstance(error, SyntaxError) else error
        raise BadInput(
            f"clean.filters: {found.path}{line}: cannot load the filter ({type(error).__name__}: "
            f"{' '.join(str(why).split())}); correct it"
        ) from None
    function: Any = getattr(module, _FUNCTION, None)
    if not callable(function):
        raise BadInput(
            f"clean.filters: {found.path}: missing function {_FUNCTION}, expected "
            f"`def {_FUNCTION}(text: str) -> bool`; define it"
        )
    return function


class _CodeLoader(importlib.abc.InspectLoader):
    """Loader of a module from the text of its code."""

    def __init__(self, found: OwnFilter) -> None:
        self.found = found

    def get_source(self, fullname: str) -> str:
        return self.found.code

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.found.code.encode(), self.found.path)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None


def _line(error: BaseException, path: str) -> str:
    """The last line of the file in the traceback of an error, as the end of a place; "" if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f", line {lines[-1]}" if lines else ""
