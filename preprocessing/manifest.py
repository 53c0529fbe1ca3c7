"""manifest.json, the commit point of a corpus: what is in it, made of what, and where every document went.

It is written last, by rename: a folder without it is no corpus, and a file it does not list is no part of the corpus.
Nothing in it varies from run to run (no time, no path of a machine), so equal corpora have equal digests.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from preprocessing.files import checked_json, from_checked_json, is_beside, parse_json, write_atomic
from preprocessing.schema import SCHEMA_VERSION, SPLITS

FILE_NAME: Final = "manifest.json"
AGAIN: Final = "make the corpus again with `sesame corpus`"  # what to do about most of what can be wrong with one


@dataclass(frozen=True)
class Count:
    """Documents, bytes of text and tokens.

    >>> Count(2, 10) + Count(1, 5, 3)
    Count(documents=3, bytes=15, tokens=3)
    """

    documents: int = 0
    bytes: int = 0
    tokens: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.documents + other.documents, self.bytes + other.bytes, self.tokens + other.tokens)

    def __sub__(self, other: "Count") -> "Count":
        return Count(self.documents - other.documents, self.bytes - other.bytes, self.tokens - other.tokens)


@dataclass
class Ledger:
    """Where everything that was read went: seen = kept + dropped, each drop with a reason.

    >>> ledger = Ledger()
    >>> ledger.see(3, bytes=30); ledger.keep(2, bytes=25); ledger.drop("empty", 1, bytes=4)
    >>> ledger.unexplained
    Count(documents=0, bytes=1, tokens=0)
    >>> ledger.drop("trimmed", 0, bytes=1)
    >>> ledger.balanced()
    True
    """

    seen: Count = Count()
    kept: Count = Count()
    dropped: dict[str, Count] = field(default_factory=dict)

    def see(self, documents: int = 1, *, bytes: int = 0, tokens: int = 0) -> None:
        self.seen += Count(documents, bytes, tokens)

    def keep(self, documents: int = 1, *, bytes: int = 0, tokens: int = 0) -> None:
        self.kept += Count(documents, bytes, tokens)

    def drop(self, reason: str, documents: int = 1, *, bytes: int = 0, tokens: int = 0) -> None:
        self.dropped[reason] = self.dropped.get(reason, Count()) + Count(documents, bytes, tokens)

    def merge(self, other: "Ledger") -> "Ledger":
        """The two ledgers as one; neither is changed."""
        reasons = sorted(self.dropped.keys() | other.dropped.keys())
        dropped = {reason: self.dropped.get(reason, Count()) + other.dropped.get(reason, Count()) for reason in reasons}
        return Ledger(self.seen + other.seen, self.kept + other.kept, dropped)

    @property
    def unexplained(self) -> Count:
        """What was seen and is neither kept nor dropped; all zeros where the ledger balances."""
        return self.seen - sum(self.dropped.values(), self.kept)

    def balanced(self) -> bool:
        return self.unexplained == Count()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Ledger":
        dropped = {reason: Count(**count) for reason, count in value["dropped"].items()}
        return cls(Count(**value["seen"]), Count(**value["kept"]), dropped)


@dataclass(frozen=True)
class ShardInfo:
    """What the manifest says about one shard: `bytes` is the size of the file, `xxh3` the xxh3-128 of its bytes."""

    name: str
    split: str
    rows: int
    tokens: int
    bytes: int
    xxh3: str


@dataclass(frozen=True)
class MixtureGroupStats:
    """A source, or several, with a share of the training tokens; `documents` and `tokens` are those of its shards.

    `share` is its weight over the sum of all weights. `epochs` is how often it is read while as many tokens are trained
    on as the training split has: a run of twice as many reads it twice as often. `ledger` is of all that the group
    gave, before it is encoded, and `held_out` how many of its documents are in the other splits.
    """

    weight: float
    share: float
    documents: int
    tokens: int
    epochs: float
    shards: tuple[str, ...]
    ledger: dict[str, Any] = field(default_factory=dict)
    held_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A corpus in one page; `vocab` has kind, size, hash and specials (name -> id).

    `mixture` has the groups of the training split by name, where the corpus file gives weights; else it is empty, and
    not in the file.
    """

    name: str
    spec_hash: str
    text_hash: str
    vocab: dict[str, Any]
    versions: dict[str, str]
    shards: tuple[ShardInfo, ...]
    ledger: Ledger
    statistics: dict[str, Any] = field(default_factory=dict)
    mixture: dict[str, MixtureGroupStats] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def splits(self) -> dict[str, dict[str, int]]:
        """Shards, rows and tokens of each split that has any."""
        totals: dict[str, dict[str, int]] = {}
        for split in SPLITS:
            shards = [shard for shard in self.shards if shard.split == split]
            if shards:
                rows, tokens = sum(shard.rows for shard in shards), sum(shard.tokens for shard in shards)
                totals[split] = {"shards": len(shards), "rows": rows, "tokens": tokens}
        return totals

    @property
    def digest(self) -> str:
        """sha256 of the manifest's canonical JSON: the identity of the corpus."""
        return hashlib.sha256(self.to_json(indent=None).encode()).hexdigest()

    def to_json(self, indent: int | None = 1) -> str:
        return json.dumps(self._plain, sort_keys=True, indent=indent)

    @property
    def _plain(self) -> dict[str, Any]:
        plain = asdict(self) | {"splits": self.splits}
        if not self.mixture:
            del plain["mixture"]
        return plain

    def save(self, folder: Path | str) -> Path:
        """Write manifest.json, which makes the folder a corpus: call it when every shard is in place."""
        path = Path(folder) / FILE_NAME
        write_atomic(path, checked_json(self._plain))
        return path

    @classmethod
    def load(cls, folder: Path | str) -> "Manifest":
        """Read manifest.json; BadInput where it is missing, is not as it was written, or has another schema version."""
        path = Path(folder) / FILE_NAME
        try:
            content = path.read_bytes()
            version = parse_json(content)["schema_version"]
            if version != SCHEMA_VERSION:
                raise BadInput(f"{path}: has schema version {version!r}, this Sesame reads {SCHEMA_VERSION}; {AGAIN}")
            value = from_checked_json(content)
            del value["splits"], value["schema_version"]
            shards = tuple(ShardInfo(**shard) for shard in value.pop("shards"))
            if not all(is_beside(shard.name) for shard in shards):
                raise ValueError("a shard is a file beside its manifest")
            if not shards:
                raise BadInput(f"{path}: names no shard, so this is no corpus; {AGAIN}")
            if len({shard.name for shard in shards}) < len(shards):
                raise ValueError("a shard is listed once")
            groups = value.pop("mixture", {}).items()
            mixture = {name: MixtureGroupStats(**group | {"shards": tuple(group["shards"])}) for name, group in groups}
            if not {name for group in mixture.values() for name in group.shards} <= {shard.name for shard in shards}:
                raise ValueError("a group has shards that are listed")
            if not isinstance(value["vocab"], dict):
                raise ValueError("a vocabulary has a kind, a size and a hash")
            return cls(shards=shards, mixture=mixture, ledger=Ledger.from_dict(value.pop("ledger")), **value)
        except BadInput:
            raise
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}, so this is no finished corpus; {AGAIN}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}: is damaged, or no manifest; {AGAIN}") from None
