"""Folders to write to: an installation may be someone else's, a user without a home, and an address is no folder."""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from preprocessing.errors import BadInput

ADDRESS: Final = re.compile(r"\s*(?:file:|[a-z][a-z0-9+.-]*:[:/])", re.IGNORECASE)  # s3://..., which Path makes s3:/...


def is_address(path: Path | str) -> bool:
    """Whether a path is an address, as of an object store: to this machine it would be a folder named `s3:`.

    >>> [is_address(given) for given in ("s3://bucket/x", Path("S3://bucket/x"), "file:x", "/mnt/s3:/x", "a:b")]
    [True, True, True, False, False]
    """
    return ADDRESS.match(str(path)) is not None


def require_local_path(what: str, path: Path | str) -> Path:
    """A path to write to, which `what` names; BadInput where it is an address: results lie on disks of this machine;
    or where it is no text, which neither a store nor JSON could name."""
    if (shown := os.fsencode(str(path)).decode(errors="replace")) != str(path):
        raise BadInput(f"{what} {shown}: a name that is not in UTF-8; give, or rename it to, one that is")
    if not is_address(path):
        return Path(path)
    given = str(path).strip()
    if (scheme := given.partition(":")[0]).lower() == "file":
        raise BadInput(f"{what} {given}: an address; give the path alone, without {scheme}:")
    said = re.sub(r"^([^:/]+):/+", r"\1://", given)
    raise BadInput(
        f"{what} {said}: an address, which nothing is written to; give a folder of this machine, such as one on which "
        "it is mounted"
    )


def make_directory(folder: Path) -> None:
    """Make a folder, and those above it, where it is missing; BadInput where none can be, as below /proc."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        raise BadInput(f"{folder}: no folder can be made there; give one on a disk") from None


def is_writable(path: Path | str) -> bool:
    """Whether this user can write files into a folder, or can make it where it is missing.

    >>> is_writable(__file__ + "/below"), is_writable(tempfile.gettempdir())
    (False, True)
    """
    nearest = next(folder for folder in (Path(path).absolute(), *Path(path).absolute().parents) if folder.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def user_cache() -> Path:
    """The folder for what can be made anew, of this user alone: XDG_CACHE_HOME or ~/.cache, else one in the temporary
    folder, where a container's user has no home."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")
    if home.is_absolute() and is_writable(home):
        return home / "sesame"
    return Path(tempfile.gettempdir()) / f"sesame-cache-{os.getuid()}"
