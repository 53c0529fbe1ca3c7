"""Directories -> all files below them. Each link is followed once.

An unreadable directory raises an error that names it. `os.walk` silently skips unreadable and linked directories.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from pipeline.readers.companions import HIDDEN_COMPANIONS
from preprocessing.errors import BadInput

log = logging.getLogger(__name__)
_IS_OPEN_FILE: Final = re.compile(r"/dev/std(?:in|out|err)|/(?:dev|proc/\w+)/fd/\d+")
_Key = tuple[int, int]  # device and inode: identify a file or directory under any name
_Link = tuple[bytes, str, Path]  # bytes of the label for sorting, label (path relative to the top), path


def walk(top: Path) -> list[tuple[str, Path]]:
    """All files below a directory as (relative path, path), sorted. Hidden files are skipped and reported, except those
    of a hub.

    Each file and directory is returned once. A linked one is returned under the name of the link, unless it is also
    found without a link. Raises BadInput if a directory cannot be read, a link is broken, or an entry is neither a file
    nor a directory.
    """
    found, links, seen = list[tuple[str, Path]](), [_link(".", top)], set[_Key]()
    again, hidden = list[str](), list[str]()
    while links:
        _, label, path = heappop(links)
        facts = facts_of(path)
        if _key(facts) in seen:
            again.append(label)
            continue
        if stat.S_ISDIR(facts.st_mode):
            found += [(_join(label, inside), file) for inside, file in _plain(path, seen, links, label, hidden)]
        else:
            require_file(path, facts)
            seen.add(_key(facts))
            found.append((label, path))
    if again:
        report_skipped(
            f"{top}: {len(again)} links lead to files that are read already, e.g. {again[0]}; each file is read once"
        )
    if hidden:
        report_skipped(f"{top}: {len(hidden)} hidden files or directories are not read, e.g. {min(hidden)}")
    return sorted(found, key=lambda one: os.fsencode(one[0]))


def _plain(top: Path, seen: set[_Key], links: list[_Link], label: str, hidden: list[str]) -> Iterator[tuple[str, Path]]:
    """Files below a directory, without following links. Adds links to the heap `links`, hidden names to `hidden`."""
    folders = [("", top)]
    while folders:
        inside, folder = folders.pop()
        if (key := _key(facts_of(folder))) in seen:
            continue
        seen.add(key)
        for entry in _entries(folder):
            name = _join(inside, entry.name)
            if entry.name.startswith("."):
                hidden += [] if entry.name in HIDDEN_COMPANIONS else [_join(label, name)]
                continue
            if entry.is_symlink():
                heappush(links, _link(_join(label, name), Path(entry.path)))
            elif entry.is_dir():
                folders.append((name, Path(entry.path)))
            elif entry.is_file():
                seen.add(_key(entry.stat()))
                yield name, Path(entry.path)
            else:
                raise BadInput(
                    f"{entry.path}: not a regular file, but a pipe, a socket or a device; remove it from {top}"
                )


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise BadInput(
            f"{folder}: cannot read directory ({error.strerror}); change its permissions, or pass only the readable "
            "files and directories"
        ) from None


def facts_of(path: Path) -> os.stat_result:
    """Status of a path, following links. Raises BadInput if it is missing or inaccessible."""
    try:
        return path.stat()
    except OSError as error:
        if path.is_symlink() and "annex/objects/" in os.readlink(path):
            raise BadInput(f"{path}: git-annex content is missing; fetch it with `git annex get`") from None
        if path.is_symlink() and not os.path.lexists(os.path.realpath(path)):
            raise BadInput(f"{path}: broken link to {os.readlink(path)}; repair or remove it") from None
        raise BadInput(f"{path}: cannot read ({error.strerror}); change its permissions") from None


def require_file(path: Path, facts: os.stat_result) -> None:
    """Raise BadInput if a path is a pipe, socket, device or open file of this process, which cannot be read twice.

    Sesame reads a file several times: to recognize its format, to divide it, and in several processes.
    """
    if stat.S_ISREG(facts.st_mode) and not _IS_OPEN_FILE.fullmatch(os.path.abspath(path)):
        return
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    what = kinds.get(stat.S_IFMT(facts.st_mode), "an open file of this process")
    raise BadInput(f"{path}: {what} cannot be read twice; write its text to a file and pass the file")


def _link(label: str, path: Path) -> _Link:
    return os.fsencode(label), label, path


def _key(facts: os.stat_result) -> _Key:
    return facts.st_dev, facts.st_ino


def _join(above: str, name: str) -> str:
    """Join a path relative to the top; "." and "" stand for the top itself.

    >>> _join(".", "a.txt"), _join("b", "c.txt")
    ('a.txt', 'b/c.txt')
    """
    return name if above in (".", "") else f"{above}/{name}"


@cache
def report_skipped(line: str) -> None:
    """Log a warning once per process, because a command searches for its files several times."""
    log.warning("%s", line)
