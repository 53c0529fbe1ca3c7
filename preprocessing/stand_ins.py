"""Detect files that replace the real file: pointers of Git LFS and git-annex, and error responses of servers.

Code that opens a file of the user checks its beginning here first, because a parser's error would be less clear.
"""

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

from preprocessing.errors import BadInput

LOOKED_AT: Final = 1024  # bytes; pointers are shorter
_LFS: Final = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v\d\r?\n(?:[\w.-]+ [^\n]*\n)*oid \w+:[0-9a-f]{64}"
)
_ANNEX: Final = re.compile(rb"(?:/|(?:\.\./)*\.git/)annex/objects/\S+\s*\Z")
_STORE: Final = re.compile(
    rb"(?:<\?xml[^>]*\?>\s*)?<Error(?:\s[^>]*)?>(?:(?!</Error>).)*?<Code>\s*(\w+)\s*</Code>", re.DOTALL
)
_PAGE: Final = re.compile(rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S)
_ERROR: Final = frozenset(  # keys of an error response in JSON
    ("code", "detail", "documentation_url", "error", "errors", "message", "path", "requestId", "status", "statusCode",
     "success", "timestamp", "title", "type")
)  # fmt: skip
_TEXTS: Final = frozenset(("detail", "message", "timestamp", "title", "type"))  # keys that documents have too
_BLANKS: Final = b"\xef\xbb\xbf \t\r\n"


class StandIn(NamedTuple):
    """A file that replaces the real file: what it is, and the remedy."""

    what: str
    todo: str

    def error(self, path: Path | str) -> BadInput:
        return BadInput(f"{path}: unexpected content: {self.what}; {self.todo}")


def stands_in(start: bytes) -> StandIn | None:
    r"""What a file with this beginning is instead of the real file; None for a real file.

    >>> stands_in(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n").what
    'a Git LFS pointer, not the file itself'
    >>> stands_in(b"<Error><Code>AccessDenied</Code></Error>").what, stands_in(b"version 1")
    ('the response AccessDenied of an object store, not the file', None)
    """
    start = start[:LOOKED_AT].lstrip(_BLANKS)
    if _LFS.match(start):
        return StandIn("a Git LFS pointer, not the file itself", "fetch the files with `git lfs pull`")
    if _ANNEX.match(start):
        return StandIn("a git-annex pointer, not the file itself", "fetch the files with `git annex get`")
    if answer := _STORE.match(start):
        code = answer[1].decode()
        return StandIn(
            f"the response {code} of an object store, not the file",
            "download it again, with credentials that allow reading it",
        )
    if start.startswith(b"{") and _is_error(start):
        return StandIn("an error response of a server, not the file", "read it, and download the file again")
    return None


def _is_error(content: bytes) -> bool:
    """Whether the whole content is an error response of a server in JSON."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    is_named = isinstance(value, dict) and ("error" in value or ("message" in value and not _TEXTS.issuperset(value)))
    return is_named and _ERROR.issuperset(value)


def is_page(start: bytes) -> bool:
    """Whether a file begins like an HTML page."""
    return _PAGE.match(start[:LOOKED_AT].lstrip(_BLANKS)) is not None


PAGE: Final = StandIn(
    "an HTML page, not a file of the type in its name",
    "download it again, because it may be an error page of the server",
)


def require_itself(path: Path | str, start: bytes | None = None) -> None:
    """Raise BadInput if a file that should not be HTML is a pointer, an error response or an HTML page.

    `start` is the beginning of the file, if it was read already. A file that is missing or cannot be opened raises
    nothing here; reading it will raise the error.
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
