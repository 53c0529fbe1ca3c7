"""Find documents of a corpus: by the first digits of a key, or by a piece of their text."""

import json
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestration.jobs.stages import MARK
from orchestration.progress import Report
from preprocessing.dropped import DROPPED, read_dropped
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.shard_cache import CacheSettings
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab

_SHORTEST_KEY: Final = 4  # digits
_LONGEST_KEY: Final = 32
_DIGITS: Final = frozenset(string.hexdigits)
_STAGE: Final = "searching the text"
_AT_ONCE: Final = 1_000  # decoded documents between two reports


@dataclass(frozen=True)
class CorpusDocument:
    """A document that a corpus has or had: its split, or the reason why it was dropped."""

    key: str
    source: str
    split: str = ""  # "" if it was dropped
    shard: int = 0  # index of the shard in its split
    row: int = 0  # index in the shard
    num_tokens: int = 0
    reason: str = ""
    kept_key: str = ""  # of the document that was kept instead
    kept_source: str = ""


@dataclass(frozen=True)
class DocumentSearch:
    """The documents that were found, those of the training split first, and a note on the search."""

    documents: tuple[CorpusDocument, ...]
    note: str = ""


def find_documents(
    corpus: Path, wanted: str, is_text: bool, report: Report, cache: CacheSettings | None = None
) -> DocumentSearch:
    """The documents whose keys begin with the digits `wanted`, or else those that contain it as text.

    With `is_text`, digits are text, too. The text is searched as it was cleaned, if its directory exists, and else as
    it is decoded from the tokens. The shards of a linked corpus are fetched into `cache`.

    Raises BadInput if no document is found, if digits begin several keys, or if only tokens can be searched and a part
    of the text has no token.
    """
    if not wanted.strip():
        raise BadInput("invalid DOCUMENT: got an empty value, expected a key or a piece of text; write one")
    is_key = _SHORTEST_KEY <= len(wanted) <= _LONGEST_KEY and _DIGITS.issuperset(wanted) and not is_text
    if is_key and (found := _find_key(corpus, wanted.lower(), cache)):
        return DocumentSearch(found)
    found, note = _find_text(corpus, wanted, report, cache)
    if not found:
        kinds = "the beginning of a key or a text" if is_key else "a text"
        raise BadInput(
            f"invalid DOCUMENT: got {wanted!r}, expected {kinds} of a document of {corpus.name}"
            f"{f' ({note})' if note else ''}; check case and spaces, or see the dropped documents with "
            "`sesame inspect RUN --dropped all`"
        )
    return DocumentSearch(found, note)


def _find_key(corpus: Path, digits: str, cache: CacheSettings | None) -> tuple[CorpusDocument, ...]:
    """The documents with one key that begins with `digits`, also dropped ones; () if there are none.

    The shards of a linked corpus are searched until a split has a full key, so that the others are not fetched.
    """

    def select(store: TokenStore, number: int) -> list[int]:
        return store.shards[number].find_keys(digits)

    found = tuple(_iterate_documents(corpus, select, cache, is_one_enough=len(digits) == _LONGEST_KEY))
    found = found or tuple(_find_dropped(corpus, (digits,)))
    if len(keys := {each.key for each in found}) > 1:
        named = ", ".join(sorted(keys)[:3])
        raise BadInput(
            f"invalid DOCUMENT: got {digits!r}, the beginning of {len(keys)} keys, expected that of one; give more "
            f"digits, e.g. {named}, or search it as a text with --text"
        )
    return found


def _iterate_documents(
    corpus: Path,
    select: Callable[[TokenStore, int], list[int]],
    cache: CacheSettings | None,
    *,
    is_one_enough: bool = False,
) -> Iterator[CorpusDocument]:
    """The documents that `select` returns as rows of a shard, split by split.

    If `is_one_enough`, the splits after the first one with such a document are not read in a store.
    """
    has_any = False
    for split in Manifest.load(corpus).splits:
        store = TokenStore.open(corpus, split, verify=False, cache=cache)
        if has_any and is_one_enough and store.is_remote:
            return
        for number, shard in enumerate(store.shards):
            for row in select(store, number):
                has_any = True
                key, source, size = shard.key(row).hex(), shard.source(row), int(shard.num_tokens_N[row])
                yield CorpusDocument(key, source, split, number, row, size)


def _find_dropped(corpus: Path, starts: tuple[str, ...]) -> Iterator[CorpusDocument]:
    """The dropped documents whose keys begin with one of `starts`: all duplicates, and the sample of the others."""
    rows = list[Mapping[str, str]]()
    if folder := _text_folder(corpus):
        from pipeline.steps import find_repeats  # imports Beam

        rows += find_repeats(folder, starts)
    if (corpus / DROPPED).is_file():
        rows += [each._asdict() for each in read_dropped(corpus / DROPPED) if each.key.startswith(starts)]
    for key, row in {row["key"]: row for row in reversed(rows)}.items():
        kept = (row["kept_key"], row["kept_source"])
        yield CorpusDocument(key, row["source"], "", 0, 0, 0, row["reason"], *kept)


def _text_folder(corpus: Path) -> Path | None:
    """The directory of the cleaned text of a corpus, if it is still beside the directories of corpora."""
    try:
        digest = str(json.loads((corpus / MARK).read_bytes())["causes"]["text"])[:8]
    except (OSError, ValueError, LookupError, TypeError):
        return None  # a corpus without a stage, e.g. a copy
    found = sorted((corpus.parent.parent / "text").glob(f"*-{digest}/text.json"))
    return found[0].parent if found else None


def _find_text(
    corpus: Path, words: str, report: Report, cache: CacheSettings | None
) -> tuple[tuple[CorpusDocument, ...], str]:
    """The documents that contain `words`, and which text was searched if it is not the cleaned text."""
    if not (folder := _text_folder(corpus)):
        note = "the cleaned text is not in its directory, so the text of the tokens was searched"
        return tuple(_find_in_tokens(corpus, words, report, cache)), note
    from pipeline.steps import TextDirectory, find_text  # imports Beam

    texts = TextDirectory.load(folder)
    if texts.hash != Manifest.load(corpus).text_hash:
        raise BadInput(f"{folder}: has another text than {corpus}; make the corpus again with `sesame corpus`")
    try:
        found = find_text(texts, words, lambda done, total: report({"stage": _STAGE, "done": done, "total": total}))
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise BadInput(f"{folder}: damaged ({error}); delete its text.json and make the corpus again") from None
    kept = list(_iterate_documents(corpus, lambda store, number: store.shards[number].find_any(found.keys()), cache))
    kept_keys = {each.key for each in kept}
    dropped = tuple(key.hex() for key in found if key.hex() not in kept_keys)
    return (*kept, *(_find_dropped(corpus, dropped) if dropped else ())), ""


def _find_in_tokens(corpus: Path, words: str, report: Report, cache: CacheSettings | None) -> Iterator[CorpusDocument]:
    """The documents whose decoded tokens contain `words`, both as the tokenizer writes them."""
    total = sum(shard.rows for shard in Manifest.load(corpus).shards)
    vocab, done = Vocab.load(corpus / "vocab"), 0
    wanted = _decode_searched(vocab, words)

    def select(store: TokenStore, number: int) -> list[int]:
        nonlocal done
        shard, rows = store.shards[number], list[int]()
        for row in range(len(shard)):
            if wanted in vocab.decode(shard.tokens(row).tolist()):
                rows.append(row)
            done += 1
            if done % _AT_ONCE == 0:
                report({"stage": _STAGE, "done": done, "total": total})
        return rows

    yield from _iterate_documents(corpus, select, cache)


def _decode_searched(vocab: Vocab, words: str) -> str:
    """A text as the tokenizer writes it. Raises BadInput if a part of it has no token, because any text would match."""
    encoded = vocab.encode_with_offsets(words)
    lost = next((words[start:stop] for id, start, stop in encoded if id == vocab.unk), "")
    wanted = vocab.decode(id for id, _, _ in encoded).strip()
    if lost or not wanted or any(id == vocab.unk for id, _, _ in encoded):
        raise BadInput(
            f"invalid DOCUMENT: got {words!r}, expected the beginning of a key, or a text: this tokenizer has no token "
            f"for {(lost or words)!r}, and the text cannot be searched without the cleaned text; search other words"
        )
    return wanted
