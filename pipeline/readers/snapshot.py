"""State of the source files when a job starts, and a check that they are unchanged when it has read them.

If a file changes in the meantime, the corpus would mix two versions. The job fails and names the changed files.
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
_WRITTEN: Final = frozenset(  # extensions of files that jobs write: rejects, plans, tokenizers, data cards, tables, ...
    ("", ".arrow", ".csv", ".db", ".html", ".json", ".jsonl", ".md", ".npy", ".txt", ".yaml")
)
_Inode = tuple[int, int, int, int]  # device, inode, size, modification time in ns


class Snapshot:
    """The state of the files of some sources at one time."""

    def __init__(self, sources: Sequence[Reader]) -> None:
        self.sources = [source for source in sources if source.located]
        self.files = {file.path: file for source in self.sources for sides in source.files() for file in sides}
        self.inodes = {path: _inode(path) for path in self.files if not is_url(path)}

    def require_apart(self, out: Path) -> None:
        """Raise BadInput if the directory `out` is inside of a source, which would then read the output as text."""
        for source in self.sources:
            folder, out = Path(local(source.place)).resolve(), out.resolve()
            endings = getattr(source, "extensions", ()) or source.usual
            is_read = not endings or not _WRITTEN.isdisjoint(endings)
            if not is_read or is_url(local(source.place)) or not folder.is_dir() or not out.is_relative_to(folder):
                continue
            if not any(name.startswith(".") for name in out.relative_to(folder).parts):  # hidden files are not read
                raise BadInput(
                    f"{out}: output directory is inside of the source {source.place} and would be read as text; pass "
                    "another --output-dir, or move the text to its own directory"
                )

    def changes(self, planned: Sequence[InputFile] = ()) -> dict[str, str]:
        """Changes since this snapshot, by path, including new files. `planned`: the files before this snapshot."""
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
    """Identity of a local file, or of the archive that contains it; None if it does not exist."""
    try:
        facts = os.stat(archive_of(path))
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def make_change_error(changes: dict[str, str]) -> BadInput:
    """The error that names the changed files."""
    shown = [f"{path} {how}".strip() for path, how in sorted(changes.items())]
    more = f" and {len(shown) - _MOST_SHOWN:,} more" if len(shown) > _MOST_SHOWN else ""
    return BadInput(
        f"input changed while it was read: {'; '.join(shown[:_MOST_SHOWN])}{more}; wait until no process writes "
        "to it, then repeat the command"
    )
