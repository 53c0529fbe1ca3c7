"""The source files of a job's parts. A stage stores their digests and reports if a file has changed.

Directories are not named after the code of their parts, so that a new version of Sesame does not repeat all stages.
Results of older code stay, and a message names the changed files.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def compute_digests(*values: Any) -> dict[str, str]:
    """Digest of each source file of the parts in `values`, by its path in the repository.

    Files with the same name in a direct subdirectory belong to the part, too: losses/heads/replaced.py belongs to
    losses/replaced.py. So does the module of a spec: architectures/rotary.py belongs to specs/rotary.py.

    >>> from preprocessing.masking import WholeWordMasking
    >>> list(compute_digests({"choose": WholeWordMasking()}))
    ['preprocessing/masking/whole_word.py']
    """
    digests: dict[str, str] = {}
    for module in sorted({cls.__module__ for part in _parts(values) for cls in type(part).__mro__[:-1]}):
        if (file := getattr(sys.modules.get(module), "__file__", None)) is None:
            continue
        path, folder = Path(file), Path(*module.split(".")[:-1])
        of_spec = path.parent.parent / "architectures" / path.name
        modules = [of_spec] if path.parent.name == "specs" and of_spec.exists() else []
        for each in (path, *sorted(path.parent.glob(f"*/{path.name}")), *modules):
            place = folder.parent / each.relative_to(path.parent.parent)
            digests[place.as_posix()] = hashlib.sha256(each.read_bytes()).hexdigest()[:16]
    return digests


def find_changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files whose code has changed.

    >>> before = {"masking/token.py": "1f", "masking/span.py": "22"}
    >>> find_changed_parts(before, {"masking/token.py": "1f", "masking/span.py": "9a"})
    ['masking/span.py']
    """
    return sorted(file for file, digest in before.items() if now.get(file) != digest)


def _parts(value: Any) -> Iterator[Any]:
    """All values with a `kind` inside `value`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "kind"):
            yield value
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _parts(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _parts(each)
