"""The name of Sesame on a package index, and its version."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "sesame-pretraining"  # the name `sesame` belongs to another project; the import is `sesame`
_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def sesame_version() -> str:
    """The version of this code: from pyproject.toml in a checkout, otherwise of the installed distribution.

    An editable installation keeps the version that it had when it was installed, while the code changes.

    >>> sesame_version().count(".")
    2
    """
    try:
        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        if project["name"] == DISTRIBUTION:
            return str(project["version"])
    except (OSError, KeyError, ValueError):  # no checkout: installed from a wheel
        pass
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
