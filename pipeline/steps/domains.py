"""Hosts of the documents of a corpus by their URLs: documents, bytes and tokens of each, exact for any number of hosts.

A shard is counted at a time, then a 64th of all hosts, so that no worker holds all of them. The manifest has the hosts
with the most tokens.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash

from pipeline.steps.plan import PlannedShard, TextDirectory
from preprocessing.files import write_atomic
from preprocessing.shards import Shard
from preprocessing.text import host_of

_MOST_LISTED: Final = 100  # hosts in the manifest
_GROUPS: Final = 64
_URL: Final = "url"
_HOST: Final = re.compile(r"[^\x00-\x20/?#@:\[\]]+|\[[0-9a-f:.]+\]")

Counts = tuple[int, int, int]
"""Documents, bytes of text, tokens."""


def find_url_field(fields: Iterable[str]) -> str:
    """The first field that is called `url`, alone or after a dot; "" if there is none.

    >>> find_url_field(("id", "metadata.url")), find_url_field(("title",))
    ('metadata.url', '')
    """
    return next((name for name in sorted(fields) if name.rpartition(".")[2].lower() == _URL), "")


def find_host(url: str | None) -> str:
    """The host of a URL as in the lists of `clean.urls`, but without `www.`; "" if it has none.

    >>> find_host("https://www.Example.org:8080/a"), find_host("http://[bad"), find_host("no url"), find_host(None)
    ('example.org', '', '', '')
    >>> find_host("example.org/a"), find_host("n/a"), find_host("https://b\\u00fccher.example/a")
    ('example.org', '', 'xn--bcher-kva.example')
    """
    host = host_of(url or "").removeprefix("www.")
    is_host = _HOST.fullmatch(host) is not None and ("." in host or "//" in (url or ""))
    return host if is_host else ""


def count_hosts(planned: PlannedShard, text_folder: str, out: str, field: str) -> Iterator[tuple[int, bytes]]:
    """(group, counts by host) of the documents of a shard."""
    shard = Shard(Path(out) / planned.name)
    planned_N = TextDirectory.load(text_folder).plan_N[planned.start : planned.stop]
    size_N = planned_N["bytes"][_find_rows(planned_N, shard)]
    counted = dict[str, Counts]()
    for url, size, tokens in zip(shard.field(field), size_N.tolist(), shard.num_tokens_N.tolist(), strict=True):
        host = find_host(url)
        counted[host] = _add(counted.get(host, (0, 0, 0)), (1, size, tokens))
    groups = dict[int, list[tuple[str, Counts]]]()
    for host, counts in counted.items():
        groups.setdefault(xxhash.xxh3_64_intdigest(host.encode()) % _GROUPS, []).append((host, counts))
    for group, found in sorted(groups.items()):
        yield group, json.dumps(found).encode()


def _find_rows(planned_N: np.ndarray, shard: Shard) -> np.ndarray:
    """The rows of the plan that the shard has; the others have no token. Both are in the same order."""
    if len(planned_N) == len(shard):
        return np.arange(len(shard))
    keys = np.stack([planned_N["high"], planned_N["low"]], axis=1).astype(">u8").tobytes()
    rows, at = list[int](), 0
    for number in range(len(shard)):
        while keys[16 * at : 16 * at + 16] != shard.key(number):
            at += 1
        rows.append(at)
        at += 1
    return np.array(rows, np.int64)


def sum_hosts(group: tuple[int, Iterable[bytes]]) -> dict[str, Any]:
    """The number of hosts of a group, and those with the most tokens."""
    counted = dict[str, Counts]()
    for block in group[1]:
        for host, counts in json.loads(block):
            counted[host] = _add(counted.get(host, (0, 0, 0)), counts)
    without = counted.pop("", (0, 0, 0))
    return {"hosts": len(counted), "without_host": without, "top": _top(counted.items())}


def write_hosts(groups: Sequence[dict[str, Any]], path: str) -> None:
    """Write the number of hosts of all groups, and those with the most tokens, as JSON."""
    without: Counts = (0, 0, 0)
    for group in groups:
        without = _add(without, group["without_host"])
    top = _top((host, (documents, size, tokens)) for group in groups for host, documents, size, tokens in group["top"])
    found = {"hosts": sum(group["hosts"] for group in groups), "without_host": without, "top": top}
    write_atomic(path, json.dumps(found).encode())


def _top(counted: Iterable[tuple[str, Counts]]) -> list[tuple[str, int, int, int]]:
    """The hosts with the most tokens, then by name."""
    found = sorted(counted, key=lambda each: (-each[1][2], each[0]))[:_MOST_LISTED]
    return [(host, *counts) for host, counts in found]


def _add(one: Sequence[int], other: Sequence[int]) -> Counts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
