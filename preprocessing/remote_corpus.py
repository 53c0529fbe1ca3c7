"""A corpus whose shards are in an object store: a local directory with its manifest, its vocabulary and its address.

All of Sesame reads such a directory like a corpus of this machine. Only the shards are fetched when they are read.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from preprocessing.dropped import DROPPED
from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import of_kind, parse_json, read_object, write_atomic
from preprocessing.manifest import FILE_NAME, Manifest, ShardInfo
from preprocessing.object_store import hide_login, list_files, read_file, read_if_exists
from preprocessing.remote_shard import RemoteShard
from preprocessing.shard import Shard
from preprocessing.shard_cache import CacheSettings

_WAITS_S: Final = (1.0,)  # before the next request, if nobody knows whether the store exists
DEFAULT_CACHE: Final = CacheSettings()
REMOTE: Final = "remote.json"  # file with the address of the shards
VOCAB: Final = "vocab"  # directory of the tokenizer
# the beginning of a manifest, as `to_checked_json` writes it
_MANIFEST: Final = re.compile(rb'\{\s*"checksum":\s*"[0-9a-f]{32}",\s*"ledger"')


def is_remote_corpus(address: str) -> bool:
    """Whether a store has a finished corpus at this address. Raises BadInput if its manifest is damaged.

    A store that does not answer twice has none: it cannot be read as text either, and the reader of text says why.
    """
    url = _join(address, FILE_NAME)
    try:
        content = read_if_exists(url, _WAITS_S)
    except ResourceError:
        return False
    try:
        return content is not None and {"schema_version", "shards"} <= parse_json(content).keys()
    except AttributeError:  # JSON, but not an object
        return False
    except ValueError:  # a server may answer every request with a page
        if content is not None and _MANIFEST.match(content):
            raise BadInput(
                f"{hide_login(url)}: is damaged, perhaps incomplete; copy the directory of the corpus to this address "
                "again"
            ) from None
        return False


def fetch_manifest(address: str) -> tuple[Manifest, bytes]:
    """The manifest of a corpus in a store, and its file. Raises BadInput if it is missing or damaged."""
    url = _join(address, FILE_NAME)
    content = read_file(url)
    return Manifest.parse(content, hide_login(url)), content


def link_corpus(address: str, folder: Path, cache: CacheSettings = DEFAULT_CACHE) -> Manifest:
    """Make `folder` a directory of the corpus at `address`: all of it except the shards.

    Commands that name no other cache use `cache` for its shards.
    The manifest is written last. A login in the address is refused, because the address is stored.
    """
    if hide_login(address) != address:
        raise BadInput(f"{hide_login(address)}: contains a login; give credentials in the environment")
    manifest, content = fetch_manifest(address)
    fetch_vocab(address, folder)
    if (sample := read_if_exists(_join(address, DROPPED))) is not None:
        write_atomic(folder / DROPPED, sample)
    write_atomic(folder / REMOTE, json.dumps({"address": address, "cache": asdict(cache)}, indent=1).encode() + b"\n")
    write_atomic(folder / FILE_NAME, content)
    return manifest


def fetch_vocab(address: str, folder: Path) -> None:
    """Copy the tokenizer of the corpus at `address` into `folder`/vocab."""
    for name in list_files(_join(address, VOCAB)):
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise BadInput(f"{address}: invalid file name in its vocabulary: {name}")
        write_atomic(folder / VOCAB / name, read_file(_join(address, VOCAB, name)))


def link_into_cache(address: str, cache: CacheSettings) -> Path:
    """A directory of the corpus at `address` in the cache, named by address and content of its manifest."""
    _, content = fetch_manifest(address)
    digest = hashlib.sha256(address.encode() + b"\n" + content).hexdigest()[:16]
    folder = cache.directory / "corpora" / digest
    if not (folder / FILE_NAME).is_file():
        link_corpus(address, folder, cache)
    return folder


def read_link(folder: Path) -> tuple[str, CacheSettings] | None:
    """The address of the shards of a corpus directory, and their cache; None if they are in the directory."""
    path, remedy = folder / REMOTE, "delete the directory, and repeat `sesame corpus`"
    if not path.is_file():
        return None
    value = read_object(path, remedy, address=str, cache=dict)
    with of_kind(path, remedy):
        return value["address"], CacheSettings(**value["cache"])


def open_remote_shards(
    folder: Path, infos: Sequence[ShardInfo], address: str, cache: CacheSettings
) -> tuple[Shard, ...]:
    """The shards of a split, of which none is fetched yet."""
    shards = tuple(RemoteShard(folder / info.name, info, _join(address, info.name), cache) for info in infos)
    for shard in shards:
        shard.siblings = shards
    return shards


def _join(address: str, *names: str) -> str:
    """
    >>> _join("s3://bucket/wiki/", "vocab", "a.json")
    's3://bucket/wiki/vocab/a.json'
    """
    return "/".join([address.rstrip("/"), *names])
