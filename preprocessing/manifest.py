"""manifest.json of a corpus: its shards, how they were produced, and the counts of kept and dropped documents.

It is written last, by an atomic rename. A directory without it is not a corpus, and files that it does not list do not
belong to the corpus. It contains no time and no machine path, so equal corpora have equal digests.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, is_beside, parse_json, to_checked_json, write_atomic
from preprocessing.schema import SCHEMA_VERSION, SPLITS

FILE_NAME: Final = "manifest.json"
AGAIN: Final = "make the corpus again with `sesame corpus`"  # the remedy for most faults of a corpus


@dataclass(frozen=True)
class Count:
    """The number of documents, bytes of text and tokens.

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
    """Counts of all documents that were read: seen = kept + dropped, with a reason for each drop.

    >>> ledger = Ledger()
    >>> ledger.see(3, bytes=30); ledger.keep(2, bytes=25); ledger.drop("empty", 1, bytes=4)
    >>> ledger.unexplained
    Count(documents=0, bytes=1, tokens=0)
    >>> ledger.drop("trimmed", 0, bytes=1)
    >>> ledger.is_balanced()
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
        """The sum of two ledgers, as a new ledger."""
        reasons = sorted(self.dropped.keys() | other.dropped.keys())
        dropped = {reason: self.dropped.get(reason, Count()) + other.dropped.get(reason, Count()) for reason in reasons}
        return Ledger(self.seen + other.seen, self.kept + other.kept, dropped)

    @property
    def unexplained(self) -> Count:
        """The counts that were seen but neither kept nor dropped; all 0 if the ledger balances."""
        return self.seen - sum(self.dropped.values(), self.kept)

    def is_balanced(self) -> bool:
        return self.unexplained == Count()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Ledger":
        dropped = {reason: Count(**count) for reason, count in value["dropped"].items()}
        return cls(Count(**value["seen"]), Count(**value["kept"]), dropped)


@dataclass(frozen=True)
class ShardInfo:
    """The entry of one shard: `bytes` is the size of the file, `xxh3` the xxh3-128 of its bytes."""

    name: str
    split: str
    rows: int
    tokens: int
    bytes: int
    xxh3: str


@dataclass(frozen=True)
class MixtureGroupStats:
    """One or more sources with a fraction of the training tokens; `documents` and `tokens` count those of its shards.

    `share` is the weight of the group divided by the sum of all weights. `epochs` is the number of passes over the
    group if the model trains on as many tokens as the training split has. Training twice as long doubles it.
    `ledger` counts all documents of the group before tokenization. `held_out` is the number of its documents in each of
    the other splits. If the corpus file gives `epochs` instead of a weight, they are the `requested_epochs`, and the
    weight is the product of epochs and tokens. They are not written to the file if they are 0.
    """

    weight: float
    share: float
    documents: int
    tokens: int
    epochs: float
    shards: tuple[str, ...]
    ledger: dict[str, Any] = field(default_factory=dict)
    held_out: dict[str, int] = field(default_factory=dict)
    requested_epochs: float = 0.0


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json; `vocab` has kind, size, hash and specials (name -> id) of the tokenizer.

    `mixture` has the groups of the training split by name, if the corpus file gives weights. Otherwise it is empty and
    is not written to the file.
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
        """The number of shards, rows (documents) and tokens of each split that has shards."""
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
        for name, group in self.mixture.items():
            if not group.requested_epochs:
                del plain["mixture"][name]["requested_epochs"]
        return plain

    def save(self, folder: Path | str) -> Path:
        """Write manifest.json, which turns the directory into a corpus; call it when all shards are written."""
        path = Path(folder) / FILE_NAME
        write_atomic(path, to_checked_json(self._plain))
        return path

    @classmethod
    def load(cls, folder: Path | str) -> "Manifest":
        """Read manifest.json; BadInput if it is missing, has changed, or has another schema version."""
        path = Path(folder) / FILE_NAME
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}, so this is not a finished corpus; {AGAIN}") from None
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, path: str) -> "Manifest":
        """The manifest from the content of its file; `path` names it in messages. Raises BadInput like `load`."""
        try:
            version = parse_json(content)["schema_version"]
            if version != SCHEMA_VERSION:
                raise BadInput(f"{path}: invalid schema version: got {version!r}, expected {SCHEMA_VERSION}; {AGAIN}")
            value = from_checked_json(content)
            del value["splits"], value["schema_version"]
            shards = tuple(ShardInfo(**shard) for shard in value.pop("shards"))
            if not all(is_beside(shard.name) for shard in shards):
                raise ValueError("shards must be files in the directory of the manifest")
            if not shards:
                raise BadInput(f"{path}: lists no shard, so this is not a corpus; {AGAIN}")
            if len({shard.name for shard in shards}) < len(shards):
                raise ValueError("each shard must be listed once")
            groups = value.pop("mixture", {}).items()
            mixture = {name: MixtureGroupStats(**group | {"shards": tuple(group["shards"])}) for name, group in groups}
            if not {name for group in mixture.values() for name in group.shards} <= {shard.name for shard in shards}:
                raise ValueError("the shards of a group must be listed")
            if not isinstance(value["vocab"], dict):
                raise ValueError("`vocab` must have a kind, a size and a hash")
            return cls(shards=shards, mixture=mixture, ledger=Ledger.from_dict(value.pop("ledger")), **value)
        except BadInput:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}: is damaged or not a manifest; {AGAIN}") from None
