"""The name of Sesame on a package index, and its version."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "sesame-pretraining"  # the name `sesame` belongs to another project; the import is `sesame`
_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def sesame_version() -> str:
    """The installed version; for a checkout that is not installed, the version in its pyproject.toml.

    >>> sesame_version().count(".")
    2
    """
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        try:
            return str(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"])
        except (OSError, KeyError, ValueError):
            return "unknown"
