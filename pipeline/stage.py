"""The folder of a stage: one writer, parts that are sealed when they are whole, a full disk told in one line.

A part is a file and its seal, a small JSON file beside it with size, hash and what there is to say about it. A killed
job leaves whole parts and unfinished files: the next one keeps the first and removes the second.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import remove_unfinished, write_atomic, xxh3_file

SPARE: Final = 1.2  # room to ask for, as a multiple of the estimate
_PARTS: Final = re.compile(
    r"(text-[0-9a-f]{16}|(train|validation|test|rows)-\d{5}-of-\d{5})\.(arrow|json)"
)  # ours to remove


@contextmanager
def owned(folder: Path, need: int) -> Iterator[None]:
    """Hold `folder` (made where missing) as its only writer, with room for `need` more bytes.

    Raises ResourceError while another process holds it, BadInput where the disk is too small or runs full on the way.
    Unfinished files are removed before and after.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"{folder}: is a file, or below one; give a folder to write to") from None
    except PermissionError:
        raise BadInput(f"{folder}: cannot be made; give a folder that you may write to") from None
    with _locked(folder):
        remove_unfinished(folder)
        have = shutil.disk_usage(folder).free
        if have < SPARE * need:
            raise _no_room(folder, SPARE * need, have)
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _no_room(folder, SPARE * need, have) from None
            raise
        finally:
            remove_unfinished(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder itself locked: no file is left over, and the kernel drops the lock however the process ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ResourceError(f"{folder}: another process is writing here; wait for it, or write elsewhere") from None
    try:
        yield
    finally:
        os.close(handle)


def _no_room(folder: Path, need: float, have: int) -> BadInput:
    """The one line about a full disk; an estimate that was too low is corrected by the fact."""
    wanted, there = f"{max(need, have) / 1e6:,.0f} MB", f"{have / 1e6:,.0f} MB"
    return BadInput(f"{folder}: no disk space: need over {wanted}, have {there}; make room or write elsewhere")


def seal(part: Path, **facts: Any) -> None:
    """Say that a part is whole: write size, hash and `facts` beside it."""
    sealed = {"bytes": part.stat().st_size, "xxh3": xxh3_file(part), **facts}
    write_atomic(part.with_suffix(".json"), json.dumps(sealed, sort_keys=True).encode())


def sealed(part: Path, **wanted: Any) -> dict[str, Any] | None:
    """What the seal says, or None where the part is missing, damaged, or not as `wanted`."""
    try:
        facts = json.loads(part.with_suffix(".json").read_bytes())
        whole = facts["bytes"] == part.stat().st_size and facts["xxh3"] == xxh3_file(part)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if whole and wanted.items() <= facts.items() else None


def sweep(folder: Path, parts: Collection[str]) -> None:
    """Remove the parts, and their seals, that are not among `parts`: those of another input or another size."""
    kept = {Path(part).stem for part in parts}
    for path in folder.iterdir():
        if _PARTS.fullmatch(path.name) and path.stem not in kept:
            path.unlink()
