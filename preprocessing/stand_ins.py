"""Files that stand in place of others: pointers of Git LFS and git-annex, and what servers send instead of a file.

Whoever opens a file that a user names asks here first: its beginning says more than the error of a parser would.
"""

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

from preprocessing.errors import BadInput

LOOKED_AT: Final = 1024  # bytes; no pointer is longer
_LFS: Final = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v\d\r?\n(?:[\w.-]+ [^\n]*\n)*oid \w+:[0-9a-f]{64}"
)
_ANNEX: Final = re.compile(rb"(?:/|(?:\.\./)*\.git/)annex/objects/\S+\s*\Z")
_STORE: Final = re.compile(
    rb"(?:<\?xml[^>]*\?>\s*)?<Error(?:\s[^>]*)?>(?:(?!</Error>).)*?<Code>\s*(\w+)\s*</Code>", re.DOTALL
)
_PAGE: Final = re.compile(rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S)
_ERROR: Final = frozenset(  # keys of what a server says of an error in JSON
    ("code", "detail", "documentation_url", "error", "errors", "message", "path", "requestId", "status", "statusCode",
     "success", "timestamp", "title", "type")
)  # fmt: skip
_TEXTS: Final = frozenset(("detail", "message", "timestamp", "title", "type"))  # those of them that documents have too
_BLANKS: Final = b"\xef\xbb\xbf \t\r\n"


class StandIn(NamedTuple):
    """What a file is, and what to do."""

    what: str
    todo: str

    def error(self, path: Path | str) -> BadInput:
        return BadInput(f"{path}: is {self.what}; {self.todo}")


def stands_in(start: bytes) -> StandIn | None:
    r"""What a file that begins so stands in for; None for a file itself.

    >>> stands_in(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n").what
    'a pointer of Git LFS, not the file itself'
    >>> stands_in(b"<Error><Code>AccessDenied</Code></Error>").what, stands_in(b"version 1")
    ("a store's answer AccessDenied, not the file", None)
    """
    start = start[:LOOKED_AT].lstrip(_BLANKS)
    if _LFS.match(start):
        return StandIn("a pointer of Git LFS, not the file itself", "fetch the files with `git lfs pull`")
    if _ANNEX.match(start):
        return StandIn("a pointer of git-annex, not the file itself", "fetch the files with `git annex get`")
    if answer := _STORE.match(start):
        code = answer[1].decode()
        return StandIn(f"a store's answer {code}, not the file", "download it again, with credentials that may read it")
    if start.startswith(b"{") and _is_error(start):
        return StandIn("a server's answer about an error, not the file", "download it again, and look what it says")
    return None


def _is_error(content: bytes) -> bool:
    """Whether a file is all of what a server says of an error in JSON."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return False
    is_named = isinstance(said, dict) and ("error" in said or ("message" in said and not _TEXTS.issuperset(said)))
    return is_named and _ERROR.issuperset(said)


def is_page(start: bytes) -> bool:
    """Whether a file begins as a page of HTML."""
    return _PAGE.match(start[:LOOKED_AT].lstrip(_BLANKS)) is not None


PAGE: Final = StandIn("a page of HTML, not what its name says", "it may be an error of the server: download it again")


def require_itself(path: Path | str, start: bytes | None = None) -> None:
    """BadInput where a file that is not read as a page is a pointer, a store's answer or a page of HTML.

    `start` is how the file begins, where that was read already. Nothing is said of what is missing or cannot be opened:
    who reads it says so.
    """
    if start is None:
        try:
            with open(path, "rb") as file:
                start = file.read(LOOKED_AT)
        except OSError:
            return
    found = stands_in(start) or (PAGE if is_page(start) else None)
    if found is not None:
        raise found.error(path)
