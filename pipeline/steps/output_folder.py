"""The folder of a stage: one writer, parts that are sealed when they are whole, one line about a full disk.

A part is a file and its seal, a small JSON file beside it with its size, its hash and facts about it. A killed
job leaves whole parts and unfinished files: the next one keeps the first and removes the second.
"""

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import checked_json, from_checked_json, remove_unfinished, write_atomic, xxh3_file

SPARE: Final = 1.2  # room to ask for, as a multiple of the estimate
REJECTS: Final = "rejects"  # folder of what could not be read, a file for each part of a text that has any
_OWNER: Final = ".owner.json"
_PARTS: Final = re.compile(  # what `sweep` may remove; a file beside a part of a text has its number
    r"(?:(?:text|lines|(?P<beside>near))-(?P<number>[0-9a-f]{16})|ngrams-[0-9a-f]{16}"
    r"|(?:train|validation|test|rows)-\d{5}-of-\d{5})\.(?:arrow|npy|jsonl?)"
)


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
    have = 0
    try:
        with _locked(folder):
            remove_unfinished(folder)
            have = shutil.disk_usage(folder).free
            if have < SPARE * need:
                raise _no_room(folder, SPARE * need, have)
            try:
                yield
            finally:
                remove_unfinished(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(folder, SPARE * need, have) from None
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, a file that names its owner: the kernel drops the lock however the process ends."""
    path = folder / _OWNER
    if (handle := _lock(path)) is None:
        raise ResourceError(f"{folder}: {_owner(path)} is writing here; wait for it, or write elsewhere with --out")
    try:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": platform.node(), "since": since}
        os.ftruncate(handle, 0)  # a killed process leaves its name
        os.pwrite(handle, json.dumps(who).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path) -> int | None:
    """A handle on a file with its lock, or None where another process has that."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(handle)):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass
        os.close(handle)  # the owner before has just removed the file


def _owner(path: Path) -> str:
    """The owner of a lock, in words; read again where no name is written yet, or that of a process that has ended."""
    for _ in range(20):
        try:
            who = json.loads(path.read_bytes())
            if who["host"] != platform.node() or Path("/proc", str(who["pid"])).exists():
                return f"process {who['pid']} on {who['host']} (since {who['since']})"
        except (OSError, ValueError, KeyError, TypeError):
            pass
        time.sleep(0.05)
    return "another process"


def _no_room(folder: Path, need: float, have: int) -> BadInput:
    """The error for a full disk; where the estimate was too low, the room that was there is named instead."""
    wanted, there = f"{max(need, have) / 1e6:,.0f} MB", f"{have / 1e6:,.0f} MB"
    return BadInput(f"{folder}: no disk space: need over {wanted}, have {there}; make room or write elsewhere")


def seal(part: Path, **facts: Any) -> None:
    """Mark a part as whole: write its size, its hash and `facts` beside it."""
    sealed = {"bytes": part.stat().st_size, "xxh3": xxh3_file(part), **facts}
    write_atomic(part.with_suffix(".json"), checked_json(sealed))


def sealed(part: Path, **wanted: Any) -> dict[str, Any] | None:
    """The facts of the seal, or None where the part is missing, damaged, or not as `wanted`."""
    try:
        facts = from_checked_json(part.with_suffix(".json").read_bytes())
        whole = facts["bytes"] == part.stat().st_size and facts["xxh3"] == xxh3_file(part)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if whole and wanted.items() <= facts.items() else None


def sweep(folder: Path, parts: Collection[str]) -> None:
    """Remove the parts, and what belongs to them, that are not among `parts`: those of another input or size."""
    kept = {Path(part).stem for part in parts}
    numbers = {stem.partition("-")[2] for stem in kept}
    for path in [*folder.iterdir(), *(folder / REJECTS).glob("*.jsonl")]:
        if found := _PARTS.fullmatch(path.name):
            beside = found["beside"] is not None and found["number"] in numbers
            if path.stem not in kept and not beside:
                path.unlink()
