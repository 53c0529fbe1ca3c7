"""What Sesame is called on a package index, and which version this is."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "sesame-pretraining"  # `sesame` is another project's there; what is imported is called sesame
_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def sesame_version() -> str:
    """The version of this code: of a checkout, that of its pyproject.toml, else that of the installed distribution.

    An editable installation keeps the version that it had when it was made; the code goes on.

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
