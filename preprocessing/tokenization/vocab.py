"""A trained tokenizer, which encodes documents as token IDs with the starts of words.

A saved tokenizer is a directory. Its file specials.json has the kind, the IDs of special tokens, the sha256 of each
other file, and its own checksum. It is written last.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.files import from_checked_json, parse_json, to_checked_json, write_atomic
from preprocessing.renames import new_value
from preprocessing.schema import Bools, Ints
from preprocessing.text import Spans, chinese_word_starts, num_without_token, phrase_starts
from preprocessing.tokenization.cuts import Cut, cuts_of, cuts_of_sentencepiece, parts
from preprocessing.tokenization.document_encoder import DocumentEncoder, EncodedBatch, EncodedDocument, PlacedIds
from preprocessing.tokenization.encoders import (
    TESTED,
    BatchEncoder,
    ListEncoder,
    WithoutSpecialTokens,
    choose_encoder,
    find_obstacle,
    open_encoder,
)
from preprocessing.tokenization.parity import NUM_STRINGS, find_difference, make_strings
from preprocessing.tokenization.part import TokenizerPart
from preprocessing.tokenization.specs import KINDS

ROLES: Final = ("pad", "unk", "cls", "sep", "mask")
"""Roles of special tokens, at most one token each. The file specials.json has their IDs under these names."""

_ABOUT: Final = "specials.json"
_REBUILD: Final = (
    "delete specials.json there (and manifest.json, if the tokenizer is part of a corpus), then repeat `sesame corpus`"
)


class EncoderTrial(NamedTuple):
    """The name of a fast encoder that returns the IDs of `tokenizers`, or "" and what prevents its use.

    Both are "" if no encoder is known for a kind of tokenizer.
    """

    name: str
    reason: str


class SurroundingTokens(NamedTuple):
    """Special tokens around a text that forms a sequence, and the token type of the last special token."""

    before: tuple[int, ...]
    behind: tuple[int, ...]
    segment: int


@dataclass(frozen=True)
class Vocab:
    """A trained tokenizer. Tokenizers with equal files have the same `hash` and give the same IDs on every machine.

    `pad`, `unk`, `cls`, `sep` and `mask` are IDs, or None if there is no token with this role. GPT-2 has only its end
    token, which is `sep`. `sentinels` is the number of T5's sentinel tokens, which are the last IDs in descending
    order. The name of a special token in a text is ordinary text and never encoded as this token.
    """

    kind: str
    size: int
    pad: int | None
    unk: int | None
    cls: int | None
    sep: int | None
    mask: int | None
    hash: str
    files: dict[str, bytes] = field(repr=False, compare=False)
    sentinels: int = 0
    unread: tuple[int, ...] = ()  # IDs of special tokens that no pretraining sequence contains
    encoder: str = field(default="", compare=False)  # name of a fast encoder with the same IDs (encoders.py)

    @cached_property
    def around(self) -> SurroundingTokens:
        """Special tokens that the template adds to a text; without a template, the end token after the text."""
        encoding = self._tokenizer.encode("a")
        at = [place for place, of in enumerate(encoding.sequence_ids) if of is not None]
        if len(at) == len(encoding.ids):
            return SurroundingTokens((), () if self.sep is None else (self.sep,), 0)
        return SurroundingTokens(tuple(encoding.ids[: at[0]]), tuple(encoding.ids[at[-1] + 1 :]), encoding.type_ids[-1])

    @property
    def sentinel(self) -> int | None:
        """ID of the first sentinel, which is the highest; the others follow in descending order."""
        return self.size - 1 if self.sentinels else None

    @property
    def specials(self) -> dict[str, int]:
        """Existing special tokens, role -> ID; only the first of the sentinels."""
        return {role: id for role in (*ROLES, "sentinel") if (id := getattr(self, role)) is not None}

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """IDs of all special tokens in ascending order, including all sentinels."""
        return tuple(sorted({*self.specials.values(), *self.unread, *range(self.size - self.sentinels, self.size)}))

    @cached_property
    def starts_word_V(self) -> Bools:
        """Whether each token starts a word, bool [V]; special tokens always do."""
        starts_V = np.array([self._kind.starts_word(piece) for piece in self._pieces], np.bool_)
        starts_V[list(self.special_ids)] = True
        return starts_V

    @cached_property
    def _ends_word_V(self) -> Bools:
        """Whether the token after each token always starts a word, bool [V]."""
        return np.array([self._kind.ends_word(piece) for piece in self._pieces], np.bool_)

    @cached_property
    def is_of_bytes(self) -> bool:
        """Whether tokens consist of the bytes of the unnormalized text."""
        return self._kind.is_of_bytes and self._tokenizer.normalizer is None

    @property
    def _kind(self) -> type[TokenizerPart]:
        return KINDS[self.kind]

    @cached_property
    def _pieces(self) -> list[str]:
        ids = self._tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_buffer(self.files["tokenizer.json"])
        tokenizer.encode_special_tokens = (
            True  # encode names of special tokens as ordinary text, in spite of the name of this option
        )
        return tokenizer

    @cached_property
    def _sentencepiece(self) -> SentencePieceProcessor:
        return SentencePieceProcessor(model_proto=self.files["spiece.model"])

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocab._from_files, (self.files, self.encoder)  # another process builds its own tokenizer

    def use_encoder(self, name: str) -> "Vocab":
        """Return the same tokenizer, which encodes documents with this fast encoder.

        `name` is that of `try_encoder`, perhaps in another process. If its package is missing here, or has another
        version, then `tokenizers` encodes the documents, with the same IDs.
        """
        return self if not name or find_obstacle(name) else replace(self, encoder=name)

    @property
    def encoder_to_try(self) -> str:
        """The fast encoder for this tokenizer with the version that was tested, or ""; it need not be installed."""
        return f"{self._fast_encoder} {TESTED[self._fast_encoder]}" if self._fast_encoder else ""

    @cached_property
    def _fast_encoder(self) -> str:
        return choose_encoder(parse_json(self.files["tokenizer.json"])) if "spiece.model" not in self.files else ""

    def try_encoder(self, sample: Iterable[str]) -> EncoderTrial:
        """Compare the fast encoder for this tokenizer with `tokenizers`, on made-up strings and on a sample."""
        if not (name := self._fast_encoder):
            return EncoderTrial("", "")
        if obstacle := find_obstacle(name):
            return EncoderTrial("", obstacle)
        try:
            encoder = open_encoder(name, self.files["tokenizer.json"], ListEncoder(self._encode))
        except BadInput as error:
            return EncoderTrial("", str(error))
        texts = chain(make_strings(NUM_STRINGS, self._pieces), sample)
        if difference := find_difference(encoder, self._encode, texts):
            return EncoderTrial("", f"{name} {TESTED[name]} differs from tokenizers: {difference}")
        return EncoderTrial(name, "")

    def encode_documents(
        self,
        texts: Sequence[Sequence[str]],
        *,
        words: Literal["pieces", "jieba"] = "pieces",
        spans: Sequence[Spans] | None = None,
    ) -> list[EncodedDocument]:
        """Encode documents in one call to the library. Each document is a list of sentences (text.sentences).

        The IDs are those of the whole text. A sentence is marked at the first token that starts in it. A sentence
        inside a single token has no mark.

        `words`: word starts follow the tokens, or jieba for Chinese. `spans`: the phrases of each document, as
        character ranges of its joined sentences. Both `jieba` and `spans` require token offsets, which are slower to
        compute.
        """
        if words == "pieces" and spans is None:
            return self._document_encoder.encode(texts).split()
        placed = self._encode_with_places(["".join(document) for document in texts])
        encoded = self._document_encoder.encode_placed(placed, texts)
        begins = [np.array([begin for _, begin in places], np.int64) for _, places in placed]
        if words == "jieba":
            encoded = [
                document._replace(
                    word_starts=document.sentence_starts
                    | chinese_word_starts("".join(text), begin_S, document.word_starts)
                )
                for document, text, begin_S in zip(encoded, texts, begins, strict=True)
            ]
        if spans is not None:
            encoded = [
                document._replace(
                    unit_starts=phrase_starts(begin_S, document.word_starts, ranges),
                    num_lost=num_without_token(begin_S, ranges),
                )
                for document, ranges, begin_S in zip(encoded, spans, begins, strict=True)
            ]
        return encoded

    def encode_batch(
        self,
        texts: Sequence[Sequence[str]],
        *,
        words: Literal["pieces", "jieba"] = "pieces",
        spans: Sequence[Spans] | None = None,
    ) -> EncodedBatch:
        """Return the same as `encode_documents`, with all documents end to end."""
        if words == "pieces" and spans is None:
            return self._document_encoder.encode(texts)
        return EncodedBatch.join(self.encode_documents(texts, words=words, spans=spans))

    @cached_property
    def _document_encoder(self) -> DocumentEncoder:
        return DocumentEncoder(
            encoder=self._open_encoder(),
            place=self._encode_with_places,
            cut=self._cut,
            bytes_V=self._bytes_V,
            starts_word_V=self.starts_word_V,
            ends_word_V=self._ends_word_V,
        )

    def _open_encoder(self) -> BatchEncoder:
        reference = ListEncoder(self._encode)
        if not self.encoder:
            return reference
        encoder = open_encoder(self.encoder, self.files["tokenizer.json"], reference)
        if not self.words_that_are_special or self.unk is None:
            return encoder
        return WithoutSpecialTokens(encoder, self.words_that_are_special, self.unk)

    @cached_property
    def _bytes_V(self) -> Ints | None:
        """Number of bytes that each token represents, int64 [V]; None unless tokens consist of unnormalized bytes."""
        if not self.is_of_bytes:
            return None
        added = self._tokenizer.get_added_tokens_decoder()
        lengths_V = np.array([len(piece) for piece in self._pieces], np.int64)  # one character per byte
        for id, token in added.items():
            lengths_V[id] = len(token.content.encode())
        if self.unk is not None:
            lengths_V[self.unk] = 1
        return lengths_V

    @cached_property
    def _cut(self) -> Cut:
        if "spiece.model" in self.files:
            return cuts_of_sentencepiece(self.files["spiece.model"], self._sentencepiece, self._pieces)
        return cuts_of(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the IDs of a text without special tokens."""
        return self._encode([text])[0]

    def normalize(self, text: str) -> str:
        """Return the normalized text, e.g. in lower case or without accents."""
        if "spiece.model" in self.files:
            return self._sentencepiece.normalize(text)
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if "spiece.model" in self.files:  # spiece.model defines the IDs, and is several times faster
            cut_up = [parts(text, self._cut) for text in texts]
            found = iter(self._sentencepiece.encode(list(chain.from_iterable(cut_up)), out_type=int))
            return [list(chain.from_iterable(islice(found, len(each)))) for each in cut_up]
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [self._ordinary(encoding.ids) for encoding in encodings]

    def _ordinary(self, ids: list[int]) -> list[int]:
        """Replace special tokens in the IDs of a text by the unknown token."""
        if not self.words_that_are_special or self.unk is None or self.words_that_are_special.isdisjoint(ids):
            return ids
        return [self.unk if id in self.words_that_are_special else id for id in ids]

    @cached_property
    def words_that_are_special(self) -> frozenset[int]:
        """IDs of special tokens that the encoder would return for their names in a text.

        Sentencepiece never returns control tokens for a text, but `tokenizers` may do so with a unigram model.
        """
        added = self._tokenizer.get_added_tokens_decoder()
        special = {*self.special_ids, *(id for id, token in added.items() if token.special)} - {self.unk}
        names = [self.piece(id) for id in sorted(special)]
        encodings = self._tokenizer.encode_batch(names + [f"a {name} b" for name in names], add_special_tokens=False)
        return frozenset(special.intersection(chain.from_iterable(encoding.ids for encoding in encodings)))

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        """Return (ID, start, stop) of each token of a text, without special tokens; start and stop count characters.

        The characters of a token may or may not include the space before a word. Several tokens may share a character.
        """
        ids, offsets = self._encode_with_offsets([text])[0]
        return [(id, start, stop) for id, (start, stop) in zip(ids, offsets, strict=True)]

    def _encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        if "spiece.model" in self.files:
            cut_up = [parts(text, self._cut) for text in texts]
            found = iter(self._sentencepiece.encode(list(chain.from_iterable(cut_up)), return_type="offset_mapping"))
            return [_join_encodings(each, islice(found, len(each))) for each in cut_up]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(self._ordinary(encoding.ids), encoding.offsets) for encoding in encodings]

    def _encode_with_places(self, texts: list[str]) -> list[PlacedIds]:
        """Return the IDs of each text, and two starts of each token: with and without the space before a word."""
        return [
            (ids, [(start, start + (stop - start > 1 and text[start].isspace())) for start, stop in offsets])
            for text, (ids, offsets) in zip(texts, self._encode_with_offsets(texts), strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of these IDs; special tokens appear by name."""
        return self._tokenizer.decode([int(id) for id in ids], skip_special_tokens=False)

    def piece(self, id: int) -> str:
        """Return the token with this ID in the notation of the tokenizer, with its ## or space mark."""
        return self._pieces[id]

    def utf8(self, id: int) -> bytes:
        """Return the text of this token in UTF-8. Joined, the bytes of several tokens are those of their text."""
        return self._kind.utf8(self._pieces[id])

    def save(self, folder: Path | str) -> None:
        """Write the files, specials.json last: the directory is complete once this file exists."""
        for name in (*self.files.keys() - {_ABOUT}, _ABOUT):
            write_atomic(Path(folder) / name, self.files[name])

    @classmethod
    def load(cls, folder: Path | str, wanted: str = "") -> "Vocab":
        """Load a saved tokenizer. Raises BadInput if files are missing or damaged, or if the hash is not `wanted`."""
        folder = Path(folder)
        try:
            about = (folder / _ABOUT).read_bytes()
            sha256 = from_checked_json(about)["sha256"]
            files = {name: (folder / name).read_bytes() for name in sha256}
        except OSError as error:
            raise BadInput(f"{error.filename}: {error.strerror}; {_REBUILD}") from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"{folder / _ABOUT}: invalid file, expected JSON with a valid checksum; {_REBUILD}"
            ) from None
        for name, content in files.items():
            if _sha256(content) != sha256[name]:
                raise BadInput(f"{folder / name}: damaged file: its sha256 differs from specials.json; {_REBUILD}")
        vocab = cls._from_files(files | {_ABOUT: about})
        if wanted not in ("", vocab.hash):
            raise BadInput(
                f"{folder}: invalid tokenizer: got hash {vocab.hash[:12]}, expected {wanted[:12]} as in the corpus; "
                f"{_REBUILD}"
            )
        return vocab

    def replace_special_tokens(
        self, special: Mapping[str, int | None], unread: tuple[int, ...], files: Mapping[str, bytes]
    ) -> "Vocab":
        """Return a tokenizer with these files and special tokens, and the same vocabulary."""
        contents = {name: content for name, content in files.items() if name != _ABOUT}
        return Vocab.of(self.kind, self.size, special, self.sentinels, contents, unread)

    @classmethod
    def of(
        cls,
        kind: str,
        size: int,
        special: Mapping[str, int | None],
        sentinels: int,
        files: Mapping[str, bytes],
        unread: tuple[int, ...] = (),
    ) -> "Vocab":
        """Return the tokenizer with these files; `special` has the ID of each role in ROLES, or None."""
        about = {
            "kind": kind,
            "size": size,
            **special,
            **({"sentinels": sentinels} if sentinels else {}),
            **({"unread": list(unread)} if unread else {}),
            "sha256": {name: _sha256(content) for name, content in sorted(files.items())},
        }
        return cls._from_files({**files, _ABOUT: to_checked_json(about)})

    @classmethod
    def _from_files(cls, files: dict[str, bytes], encoder: str = "") -> "Vocab":
        about = parse_json(files[_ABOUT])
        roles = {role: about[role] for role in ROLES}
        more = {"sentinels": about.get("sentinels", 0), "unread": tuple(about.get("unread", ()))}
        kind = new_value("data.tokenizer", about["kind"], "kind") or about["kind"]  # of version 0.1
        return cls(kind, about["size"], **roles, hash=_sha256(files[_ABOUT]), files=files, **more, encoder=encoder)


def _join_encodings(parts: Sequence[str], found: Iterable[Mapping[str, Any]]) -> PlacedIds:
    """Join the IDs and character offsets of a text that was encoded in parts."""
    ids, offsets, base = list[int](), list[tuple[int, int]](), 0
    for part, one in zip(parts, found, strict=True):
        ids += one["ids"]
        offsets += [(base + start, base + stop) for start, stop in one["offsets"]] if base else one["offsets"]
        base += len(part)
    return ids, offsets


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
