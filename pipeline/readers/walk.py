"""Folders -> the files below them: what cannot be read is an error that names it, and links are followed once each.

`os.walk` leaves out folders that it cannot read and those that are linked, and says nothing.
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

from preprocessing.errors import BadInput

log = logging.getLogger(__name__)
_IS_OPEN_FILE: Final = re.compile(r"/dev/std(?:in|out|err)|/(?:dev|proc/\w+)/fd/\d+")
_Key = tuple[int, int]  # device and inode: what a file or a folder is, whatever it is called
_Link = tuple[bytes, str, Path]  # by the bytes of its label, which is its path from the top; where it is


def walk(top: Path) -> list[tuple[str, Path]]:
    """Every file below a folder, as its path from there and its whole path, sorted by the former; hidden ones apart,
    which is said.

    What is linked is found at the link, unless it is found without one: each file and folder once. Raises BadInput
    where a folder cannot be read, a link leads nowhere, or something is neither a file nor a folder.
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
            found += [(_joined(label, inside), file) for inside, file in _plain(path, seen, links, label, hidden)]
        else:
            require_file(path, facts)
            seen.add(_key(facts))
            found.append((label, path))
    if again:
        report_skipped(
            f"{top}: {len(again)} links lead to what is read already, the first is {again[0]}; each is read once"
        )
    if hidden:
        report_skipped(f"{top}: {len(hidden)} hidden, the first is {min(hidden)}; what begins with a dot is left out")
    return sorted(found, key=lambda one: os.fsencode(one[0]))


def _plain(top: Path, seen: set[_Key], links: list[_Link], label: str, hidden: list[str]) -> Iterator[tuple[str, Path]]:
    """What lies below a folder without following links, which are added to the heap `links`; nor what is `hidden`."""
    folders = [("", top)]
    while folders:
        inside, folder = folders.pop()
        if (key := _key(facts_of(folder))) in seen:
            continue
        seen.add(key)
        for entry in _entries(folder):
            name = _joined(inside, entry.name)
            if entry.name.startswith("."):
                hidden.append(_joined(label, name))
                continue
            if entry.is_symlink():
                heappush(links, _link(_joined(label, name), Path(entry.path)))
            elif entry.is_dir():
                folders.append((name, Path(entry.path)))
            elif entry.is_file():
                seen.add(_key(entry.stat()))
                yield name, Path(entry.path)
            else:
                raise BadInput(f"{entry.path}: is a pipe, a socket or a device, and no file; take it out of {top}")


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise BadInput(
            f"{folder}: this folder cannot be read ({error.strerror}); check its permissions, or name what beside it "
            "is to be read"
        ) from None


def facts_of(path: Path) -> os.stat_result:
    """What a path is or leads to; BadInput where that cannot be looked up, or is not there."""
    try:
        return path.stat()
    except OSError as error:
        if path.is_symlink() and "annex/objects/" in os.readlink(path):
            raise BadInput(
                f"{path}: is a link of git-annex to what is not here; fetch it with `git annex get`"
            ) from None
        if path.is_symlink() and not os.path.lexists(os.path.realpath(path)):
            raise BadInput(f"{path}: a link to {os.readlink(path)}, which is not there; mend it or remove it") from None
        raise BadInput(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def require_file(path: Path, facts: os.stat_result) -> None:
    """BadInput where a path is a pipe, a socket, a device or this process's own input, which cannot be read twice.

    Sesame reads a file several times: to know its format, to cut it, and in processes of their own.
    """
    if stat.S_ISREG(facts.st_mode) and not _IS_OPEN_FILE.fullmatch(os.path.abspath(path)):
        return
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    what = kinds.get(stat.S_IFMT(facts.st_mode), "an open file of this process")
    raise BadInput(f"{path}: is {what}, which cannot be read twice; write its text to a file first, and give that")


def _link(label: str, path: Path) -> _Link:
    return os.fsencode(label), label, path


def _key(facts: os.stat_result) -> _Key:
    return facts.st_dev, facts.st_ino


def _joined(above: str, name: str) -> str:
    """A path from the top: "." and "" are the top itself.

    >>> _joined(".", "a.txt"), _joined("b", "c.txt")
    ('a.txt', 'b/c.txt')
    """
    return name if above in (".", "") else f"{above}/{name}"


@cache
def report_skipped(line: str) -> None:
    """On stderr, once a process: a command looks for its files several times."""
    log.warning("%s", line)
