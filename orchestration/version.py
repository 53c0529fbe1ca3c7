"""What Sesame is called on a package index, and which version this is."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "sesame-pretraining"  # `sesame` is another project's there; what is imported is called sesame
_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def sesame_version() -> str:
    """The version that is installed; of a checkout that was not installed under this name, that of its pyproject.toml.

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
