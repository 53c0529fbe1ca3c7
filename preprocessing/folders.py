"""Directories to write to: the installation may be read-only, a user may have no home, and a URL is not a directory."""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from preprocessing.errors import BadInput

ADDRESS: Final = re.compile(r"\s*(?:file:|[a-z][a-z0-9+.-]*:[:/])", re.IGNORECASE)  # Path turns s3://... into s3:/...


def is_address(path: Path | str) -> bool:
    """Whether a path is a URL, for example of an object store. As a local path it would be a directory named `s3:`.

    >>> [is_address(path) for path in ("s3://bucket/x", Path("S3://bucket/x"), "file:x", "/mnt/s3:/x", "a:b")]
    [True, True, True, False, False]
    """
    return ADDRESS.match(str(path)) is not None


def require_local_path(what: str, path: Path | str) -> Path:
    """A local path to write to; `what` names it in messages.

    Raises BadInput for a URL, because results are written to disks of this machine. It also raises BadInput for a name
    that is not valid UTF-8, because neither an object store nor JSON can represent it.
    """
    if (printable := os.fsencode(str(path)).decode(errors="replace")) != str(path):
        raise BadInput(f"invalid {what}: got {printable}, expected a name in UTF-8; rename it")
    if not is_address(path):
        return Path(path)
    value = str(path).strip()
    if (scheme := value.partition(":")[0]).lower() == "file":
        raise BadInput(f"invalid {what}: got the URL {value}, expected a path; remove {scheme}:")
    url = re.sub(r"^([^:/]+):/+", r"\1://", value)
    raise BadInput(
        f"invalid {what}: got the URL {url}, expected a local directory; mount the store and give a directory on it"
    )


def make_directory(folder: Path) -> None:
    """Create a directory and its parents if missing; BadInput if that is impossible, for example below /proc."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        raise BadInput(f"{folder}: cannot create this directory; give a directory on a disk") from None


def is_writable(path: Path | str) -> bool:
    """Whether this user can write files into a directory, or can create it if it is missing.

    >>> is_writable(__file__ + "/below"), is_writable(tempfile.gettempdir())
    (False, True)
    """
    nearest = next(folder for folder in (Path(path).absolute(), *Path(path).absolute().parents) if folder.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def user_cache() -> Path:
    """The directory of this user for files that can be created again.

    It is in XDG_CACHE_HOME or ~/.cache, or in the temporary directory for a user without a home, as in a container.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")
    if home.is_absolute() and is_writable(home):
        return home / "sesame"
    return Path(tempfile.gettempdir()) / f"sesame-cache-{os.getuid()}"
