"""Files of object stores and other addresses, by fsspec. Reading retries, because stores answer slowly or not at all.

Credentials are in the environment, where the file systems of fsspec look for them. No message contains a login.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from preprocessing.credentials import HIDDEN, LOGIN
from preprocessing.errors import BadInput, ResourceError

log = logging.getLogger(__name__)

WAITS_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # before each retry of a failed request; about a minute in total
BLOCK: Final = 1 << 22  # bytes per request of a download
_QUIET: Final = 2  # retries without a message, because a store may answer the next request
# errors that another attempt cannot change
_MISSING: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_FINAL: Final = (*_MISSING, BadInput)
# how fsspec names a missing package
_PACKAGE: Final = re.compile(r"[Ii]nstall ([\w-]+) to|requires \"?([\w-]+)\"? to be installed")
Result = TypeVar("Result")


def open_store(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path inside of it. Raises BadInput if there is none."""
    try:
        import fsspec  # takes 80 ms, which local paths do not need

        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise BadInput(
            f"{hide_login(url)}: {_explain_missing_package(error)}, or copy the files to a local disk"
        ) from None
    except ValueError as error:
        known = "file, memory, http, s3, gs and the others of fsspec"
        raise BadInput(f"{hide_login(url)}: {brief(error)}; use one of the protocols {known}") from None
    except Exception as error:  # the file systems of fsspec have no common class of errors
        raise BadInput(
            f"{hide_login(url)}: {brief(error)}; check the URL and the credentials in the environment"
        ) from None


def hide_login(url: str) -> str:
    """A URL without its user and password, for messages.

    >>> hide_login("https://me:secret@host/a"), hide_login("s3://bucket/a@b")
    ('https://***@host/a', 's3://bucket/a@b')
    """
    return LOGIN.sub(f"//{HIDDEN}@", url)


def read_if_exists(url: str, waits_s: Sequence[float] = WAITS_S) -> bytes | None:
    """The content of a small file; None if it is missing, or if the store refuses to read it. See `retry`."""

    def read(store: Any, path: str) -> bytes | None:
        try:
            return bytes(store.cat_file(path))
        except _MISSING:
            return None
        except Exception as error:  # of a web server: it refuses what it does not have in its own way
            if 400 <= getattr(error, "status", 0) < 500:
                return None
            raise

    return retry(url, read, waits_s)


def list_files(url: str) -> list[str]:
    """The names of all files below a directory of a store, relative to it, in order."""

    def find(store: Any, path: str) -> list[str]:
        top = path.rstrip("/")
        return sorted(str(name)[len(top) :].lstrip("/") for name in store.find(top))

    return retry(url, find)


def read_file(url: str) -> bytes:
    """The content of a small file. Raises BadInput if it is missing."""
    return retry(url, lambda store, path: bytes(store.cat_file(path)))


def read_range(url: str, start: int, stop: int) -> bytes:
    """The bytes [start, stop) of a file. Raises ResourceError if the store has fewer."""
    if start == stop:
        return b""

    def read(store: Any, path: str) -> bytes:
        found = bytes(store.cat_file(path, start=start, end=stop))
        if len(found) != stop - start:
            raise OSError(f"got {len(found)} of {stop - start} bytes")
        return found

    return retry(url, read)


def read_blocks(url: str, size: int) -> Iterator[bytes]:
    """The blocks of a file of `size` bytes, in order. Each block is one request, which is repeated if it fails."""
    for start in range(0, size, BLOCK):
        yield read_range(url, start, min(size, start + BLOCK))


def retry(url: str, request: Callable[[Any, str], Result], waits_s: Sequence[float] = WAITS_S) -> Result:
    """The result of a request to the store of a URL; `request` gets the file system and the path inside of it.

    A request that fails is repeated after each of `waits_s`. Raises BadInput at once if the file is missing or may not
    be read, and ResourceError if the last attempt fails.
    """
    last = ""
    for number, wait_s in enumerate((*waits_s, 0.0)):
        store, path = open_store(url)
        try:
            return request(store, path)
        except _FINAL as error:
            if isinstance(error, BadInput):
                raise
            reason = "no such file" if isinstance(error, FileNotFoundError) else brief(error)
            raise BadInput(
                f"{hide_login(url)}: {reason}; check the URL and the credentials in the environment"
            ) from None
        except Exception as error:  # the file systems of fsspec have no common class of errors
            last = brief(error)
        if number == len(waits_s):
            break
        if number >= _QUIET:
            log.warning("%s: the store does not answer (%s); next attempt in %.0f s", hide_login(url), last, wait_s)
        with suppress(Exception):
            store.invalidate_cache()  # listings of the failed request
        time.sleep(wait_s)
    raise ResourceError(
        f"{hide_login(url)}: the store failed {len(waits_s) + 1} times ({last}); check the network, then repeat the "
        "command"
    )


def _explain_missing_package(error: ImportError) -> str:
    """The package that fsspec needs for a store, and how to install it. Only the text of the error names it.

    >>> _explain_missing_package(ImportError("Install s3fs to access S3"))
    'the package s3fs is missing; run `pip install s3fs`'
    >>> _explain_missing_package(ImportError("no libhdfs"))
    'no libhdfs; install what is missing'
    """
    if isinstance(error, ModuleNotFoundError) and error.name == "fsspec":
        return "the package fsspec is missing; run `pip install fsspec`"
    found = _PACKAGE.search(str(error))
    if not found:
        return f"{brief(error)}; install what is missing"
    package = found[1] or found[2]
    return f"the package {package} is missing; run `pip install {package}`"


def brief(error: Exception) -> str:
    """The first line of an error, or its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
