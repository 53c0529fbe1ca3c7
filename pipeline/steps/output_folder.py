"""The folder of a stage: one writer, parts that are sealed when they are whole, one line about a full disk.

A part is a file and its seal, a small JSON file beside it with its size, its hash and facts about it. A killed
job leaves whole parts and unfinished files: the next one keeps the first and removes the second.
"""

import errno
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from preprocessing.files import checked_json, from_checked_json, remove_unfinished, write_atomic, xxh3_file
from preprocessing.lock import hold_lock

SPARE: Final = 1.2  # room to ask for, as a multiple of the estimate
REJECTS: Final = "rejects"  # folder of what could not be read, a file for each part of a text that has any
_PARTS: Final = re.compile(  # what `sweep` may remove; a file beside a part of a text has its number
    r"(?:(?:text|lines|(?P<beside>near))-(?P<number>[0-9a-f]{16})|ngrams-[0-9a-f]{16}"
    r"|(?:train|validation|test|rows)-\d{5}-of-\d{5})\.(?:arrow|npy|jsonl?)"
)


@contextmanager
def locked_directory(folder: Path, need: int) -> Iterator[None]:
    """Hold `folder` (made where missing) as its only writer, with room for `need` more bytes.

    Raises ResourceError while another process holds it, BadInput where the disk is too small or runs full on the way.
    Unfinished files are removed before and after.
    """
    have = 0
    try:
        with hold_lock(folder):
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


def _no_room(folder: Path, need: float, have: int) -> BadInput:
    """The error for a full disk; where the estimate was too low, the room that was there is named instead."""
    wanted, there = f"{max(need, have) / 1e6:,.1f} MB", f"{have / 1e6:,.1f} MB"
    return BadInput(f"{folder}: no disk space: need over {wanted}, have {there}; make room or write elsewhere")


def seal(part: Path, **facts: Any) -> None:
    """Mark a part as whole: write its size, its hash and `facts` beside it."""
    sealed = {"bytes": part.stat().st_size, "xxh3": xxh3_file(part), **facts}
    write_atomic(part.with_suffix(".json"), checked_json(sealed))


def read_seal(part: Path, **wanted: Any) -> dict[str, Any] | None:
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
