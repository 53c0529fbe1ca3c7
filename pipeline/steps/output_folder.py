"""The output directory of a job: one writer, sealed parts, and a one-line error for a full disk.

A part is a file with a seal, a small JSON file of the same name with its size, its hash and facts about it. The seal is
written when the part is complete. A killed job leaves complete parts, which the next job reuses, and unfinished
files, which it removes.
"""

import errno
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from preprocessing.files import (
    TEMPORARY,
    from_checked_json,
    remove_unfinished,
    to_checked_json,
    write_atomic,
    xxh3_file,
)
from preprocessing.lock import hold_lock

SPARE: Final = 1.2  # required disk space as a multiple of the estimate
REJECTS: Final = "rejects"  # directory of unreadable records: one file for each part that has any
_PARTS: Final = re.compile(  # files that `sweep` may remove; files beside a text part have its number
    r"(?:(?:text|lines|substrings|(?P<beside>near|dropped))-(?P<number>[0-9a-f]{16})|ngrams-[0-9a-f]{16}"
    r"|(?:train|validation|test|rows)-\d{5}-of-\d{5})\.(?:arrow|npy|jsonl?)"
)


@contextmanager
def lock_directory(folder: Path, need: int) -> Iterator[None]:
    """Lock `folder` (created if missing) for one writer, with disk space for `need` more bytes.

    Raises ResourceError if another process holds the lock, and BadInput if the disk is too small or becomes full.
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
    """The error for a full disk. If the estimate was too low, the message requires more than the available space."""
    wanted, there = f"{max(need, have) / 1e6:,.1f} MB", f"{have / 1e6:,.1f} MB"
    return BadInput(
        f"{folder}: not enough disk space: got {there}, expected over {wanted}; free space or write to another disk"
    )


def sample_file(part: Path) -> Path:
    """The file with a sample of the documents that cleaning drops from the input of a part."""
    return part.with_name(f"dropped-{part.stem.partition('-')[2]}.arrow")


def seal(part: Path, **facts: Any) -> None:
    """Mark a part as complete: write its size, its hash and `facts` to its seal."""
    sealed = {"bytes": part.stat().st_size, "xxh3": xxh3_file(part), **facts}
    write_atomic(part.with_suffix(".json"), to_checked_json(sealed))


def read_seal(part: Path, **wanted: Any) -> dict[str, Any] | None:
    """The facts in a seal; None if the part is missing or damaged, or if the facts differ from `wanted`."""
    try:
        facts = from_checked_json(part.with_suffix(".json").read_bytes())
        whole = facts["bytes"] == part.stat().st_size and facts["xxh3"] == xxh3_file(part)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if whole and wanted.items() <= facts.items() else None


def reuse_part(part: Path, folders: Sequence[Path], **wanted: Any) -> bool:
    """Take a complete part with these facts from one of `folders`, as a hard link, or as a copy on another disk.

    Returns whether one of them has it.
    """
    for other in (folder / part.name for folder in folders):
        if read_seal(other, **wanted) is not None:
            for name in (part.name, part.with_suffix(".json").name):
                target = part.with_name(name)
                target.unlink(missing_ok=True)
                try:
                    os.link(other.with_name(name), target)
                except OSError:  # another disk, or a file system without hard links
                    copied = target.with_name(f"{TEMPORARY}{name}")
                    shutil.copy2(other.with_name(name), copied)
                    copied.replace(target)
            return True
    return False


def sweep(folder: Path, parts: Collection[str]) -> None:
    """Remove parts of other inputs or sizes: all that are not among `parts`, with their additional files."""
    kept = {Path(part).stem for part in parts}
    numbers = {stem.partition("-")[2] for stem in kept}
    for path in [*folder.iterdir(), *(folder / REJECTS).glob("*.jsonl")]:
        if found := _PARTS.fullmatch(path.name):
            beside = found["beside"] is not None and found["number"] in numbers
            if path.stem not in kept and not beside:
                path.unlink()
