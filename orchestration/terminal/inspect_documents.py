"""Documents of a corpus or of its cleaned text, as they are stored. No recipe is needed."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from preprocessing.errors import BadInput
from preprocessing.manifest import FILE_NAME, Manifest
from preprocessing.schema import SPLITS
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab, display_text

_TEXT = "text.json"  # file of a directory of cleaned text
_QUIET = "dim"


@dataclass(frozen=True)
class StoredDocument:
    """A document: its split, its index there, its file, its text, and its number of tokens if it has any."""

    split: str
    number: int
    source: str
    text: str
    tokens: int | None = None

    def plain(self) -> dict[str, Any]:
        """The values for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def has_documents(folder: Path) -> bool:
    """Whether a directory is a corpus or a directory of cleaned text."""
    return any((folder / name).is_file() for name in (FILE_NAME, _TEXT))


def read_documents(folder: Path, first: int, count: int) -> list[StoredDocument]:
    """`count` documents from index `first`: training, then validation, then test. Raises BadInput if there are none."""
    found = _of_corpus(folder) if (folder / FILE_NAME).is_file() else _of_text(folder)
    documents = list(islice(found, first, first + count))
    if not documents:
        raise BadInput(f"{folder}: invalid step: got no document from number {first:,}, expected fewer; choose another")
    return documents


def _of_corpus(folder: Path) -> Iterator[StoredDocument]:
    for split in Manifest.load(folder).splits:
        store = TokenStore.open(folder, split, verify=False)
        vocab, number = Vocab.load(store.vocab_dir), 0
        for shard in store.shards:
            for at in range(len(shard)):
                ids = shard.tokens(at).tolist()
                yield StoredDocument(split, number, shard.source(at), display_text(vocab, ids), len(ids))
                number += 1


def _of_text(folder: Path) -> Iterator[StoredDocument]:
    from pipeline.steps import TextDirectory  # imports Beam

    texts = TextDirectory.load(folder)
    counts = dict.fromkeys(SPLITS, 0)
    for shard in texts.shards:
        split = next(split for split in SPLITS if shard.name.startswith(split))
        for document in texts.documents(shard.start, shard.stop):
            yield StoredDocument(split, counts[split], document.source, document.text)
            counts[split] += 1


def render_documents(documents: list[StoredDocument]) -> Group:
    """The documents as text, each below a line with its split, number, file and tokens."""
    return Group(*(_format(document) for document in documents))


def _format(document: StoredDocument) -> Text:
    tokens = "" if document.tokens is None else f", {document.tokens:,} tokens"
    head = f"{document.split}, document {document.number}, {document.source}{tokens}\n"
    return Text(head, _QUIET).append(document.text, "not dim").append("\n")
