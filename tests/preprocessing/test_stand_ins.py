"""Pointer files and server error pages in place of real files; every reader of user files names them."""

from pathlib import Path

import pytest

from preprocessing.errors import BadInput
from preprocessing.stand_ins import require_itself, stands_in

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"
EXTENDED = LFS.replace(b"oid", b"ext-0-foo sha256:" + b"b" * 64 + b"\noid")
ANNEX = b"/annex/objects/SHA256E-s100--" + b"b" * 64 + b".parquet\n"
LINK = b"../../.git/annex/objects/Fx/8j/SHA256E-s100--" + b"b" * 64 + b"/SHA256E-s100--" + b"b" * 64
DENIED = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>No</Message></Error>'
MISSING = b"<Error xmlns='x'><Message>No</Message><Code>NoSuchKey</Code></Error>"
HUB = b'{"error":"Repository not found"}'
GITHUB = b'{"message": "Not Found", "documentation_url": "https://docs", "status": "404"}'
PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html>\n<html><body>403 Forbidden</body></html>"


@pytest.mark.parametrize(
    ("content", "named", "todo"),
    [
        (LFS, "Git LFS", "git lfs pull"),
        (LFS.replace(b"\n", b"\r\n"), "Git LFS", "git lfs pull"),
        (EXTENDED, "Git LFS", "git lfs pull"),
        (ANNEX, "git-annex", "git annex get"),
        (LINK, "git-annex", "git annex get"),
        (DENIED, "AccessDenied", "credentials"),
        (MISSING, "NoSuchKey", "credentials"),
        (HUB, "error", "download"),
        (GITHUB, "error", "download"),
        (PAGE, "HTML", "download"),
    ],
)
def test_pointers_and_error_pages_are_refused_with_a_remedy(
    tmp_path: Path, content: bytes, named: str, todo: str
) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(BadInput, match=rf"^[^\n]+a\.bin: unexpected content: [^\n]*{named}[^\n]*; [^\n]*{todo}[^\n]*$"):
        require_itself(tmp_path / "a.bin")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1 is what a pointer begins with.",
        b'{"error": "a label", "text": "Words."}',
        b'{"message": "Words."}',
        b'{"title": "A post", "message": "Words."}',
        b'{"type": "mail", "timestamp": "2026-01-01", "message": "Words."}',
        b"{" * 100_000,
        b"<Error>no code</Error>",
        b"\x80\x04",
    ],
)
def test_other_files_are_accepted(content: bytes) -> None:
    assert stands_in(content) is None
