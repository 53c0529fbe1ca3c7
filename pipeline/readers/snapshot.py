"""What the files of sources were when they were planned, and whether they are the same when they have been read.

A corpus of what was written in the meantime is one of no text that ever was: it is refused, with the files by name.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.readers.files import InputFile, is_url, local
from pipeline.readers.reader import Reader
from pipeline.readers.zip_archive import archive_of
from preprocessing.errors import BadInput

_MOST_SHOWN: Final = 3
_WRITTEN: Final = frozenset(  # endings of what a run leaves: rejects, plans, vocabularies, cards, tables, ...
    ("", ".arrow", ".csv", ".db", ".html", ".json", ".jsonl", ".md", ".npy", ".txt", ".yaml")
)
_Inode = tuple[int, int, int, int]  # device, inode, size, time of the last change in ns


class Snapshot:
    """The files of sources at one time."""

    def __init__(self, sources: Sequence[Reader]) -> None:
        self.sources = [source for source in sources if source.located]
        self.files = {file.path: file for source in self.sources for sides in source.files() for file in sides}
        self.inodes = {path: _inode(path) for path in self.files if not is_url(path)}

    def require_apart(self, out: Path) -> None:
        """BadInput where the folder `out` is in one of these sources, so that what is written there would be read."""
        for source in self.sources:
            folder, out = Path(local(source.place)).resolve(), out.resolve()
            endings = getattr(source, "extensions", ()) or source.usual
            is_read = not endings or not _WRITTEN.isdisjoint(endings)
            if not is_read or is_url(local(source.place)) or not folder.is_dir() or not out.is_relative_to(folder):
                continue
            if not any(name.startswith(".") for name in out.relative_to(folder).parts):  # what is hidden is not read
                raise BadInput(
                    f"{out}: is in {source.place}, so that what is written there would be read as text; write to a "
                    "folder outside of it, with --output-dir, or give the text a folder of its own"
                )

    def changes(self, planned: Sequence[InputFile] = ()) -> dict[str, str]:
        """What has changed since, by path: of the files themselves and of their folders; `planned`: as they were before
        this snapshot."""
        found = {file.path: "changed" for file in planned if self.files.get(file.path, file) != file}
        try:
            now = Snapshot(self.sources)
        except (BadInput, OSError) as error:
            gone = [path for path in self.inodes if _inode(path) is None]
            return found | dict.fromkeys(gone, "is gone") or {"": str(error)}
        for path, file in self.files.items():
            if path not in now.files:
                found[path] = "is gone"
            elif (size := now.files[path].size) != file.size:
                found[path] = f"has {size:,} bytes, had {file.size:,}"
            elif (now.files[path], now.inodes.get(path)) != (file, self.inodes.get(path)):
                found[path] = "was written again"
        return found | dict.fromkeys(now.files.keys() - self.files.keys(), "is new")


def _inode(path: str) -> _Inode | None:
    """What a file of this machine, or the archive that holds it, is on its disk; None where it is not there."""
    try:
        facts = os.stat(archive_of(path))
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def changed_error(changes: dict[str, str]) -> BadInput:
    """The error that names what has changed."""
    shown = [f"{path} {how}".strip() for path, how in sorted(changes.items())]
    more = f" and {len(shown) - _MOST_SHOWN:,} more" if len(shown) > _MOST_SHOWN else ""
    return BadInput(
        f"changed while it was read: {'; '.join(shown[:_MOST_SHOWN])}{more}; wait until what writes there has "
        "ended, then repeat the command"
    )
