"""A vocabulary that is ready to encode: documents become ids, with the places where words begin.

It is a folder of files and nothing else: specials.json names the kind, the special ids and the sha256 of each other
file, has a checksum of its own and is written last.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from preprocessing.errors import BadInput
from preprocessing.files import checked_json, from_checked_json, parse_json, write_atomic
from preprocessing.renames import new_value
from preprocessing.schema import Bools, Ints
from preprocessing.text import Spans, chinese_word_starts, num_without_token, phrase_starts
from preprocessing.tokenization.cuts import Cut, counts, cuts_of, cuts_of_sentencepiece, group_sentences, parts
from preprocessing.tokenization.part import TokenizerPart
from preprocessing.tokenization.specs import KINDS

ROLES: Final = ("pad", "unk", "cls", "sep", "mask")
"""Special tokens that a vocabulary may have one of; their ids are in specials.json under these names."""

_ABOUT: Final = "specials.json"
_AGAIN: Final = (
    "delete specials.json there (and manifest.json, where the vocabulary is in a corpus), then repeat `sesame corpus`"
)
_Counted = tuple[list[int], list[int]]  # the ids of a document, and how many of them each of its sentences has
_Placed = tuple[list[int], list[tuple[int, int]]]  # the ids of a text, and where each begins


class EncodedDocument(NamedTuple):
    """A document: its ids, int32 [S], and whether a sentence, a word and (where asked) a unit begins at each, bool.

    `num_lost`: phrases that are no units, as no token begins in them.
    """

    ids: Ints
    sentence_starts: Bools
    word_starts: Bools
    unit_starts: Bools | None = None
    num_lost: int = 0


class SurroundingTokens(NamedTuple):
    """The special tokens around a text that is a row of its own, and the segment of the last of them."""

    before: tuple[int, ...]
    behind: tuple[int, ...]
    segment: int


@dataclass(frozen=True)
class Vocab:
    """A vocabulary, ready to encode: equal files have an equal `hash` and give equal ids everywhere.

    `pad`, `unk`, `cls`, `sep` and `mask` are ids, None where there is no such token: GPT-2 has only its end of text,
    which is `sep`. `sentinels` is how many of T5's extra ids there are: the last of the vocabulary, counted from the
    end. A special token that is written out in a text is ordinary text there, never that token.
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
    unread: tuple[int, ...] = ()  # special tokens that no row of its net has

    @cached_property
    def around(self) -> SurroundingTokens:
        """What its tokenizer puts around a text; of one that puts nothing there, the end behind it."""
        found = self._tokenizer.encode("a")
        at = [place for place, of in enumerate(found.sequence_ids) if of is not None]
        if len(at) == len(found.ids):
            return SurroundingTokens((), () if self.sep is None else (self.sep,), 0)
        return SurroundingTokens(tuple(found.ids[: at[0]]), tuple(found.ids[at[-1] + 1 :]), found.type_ids[-1])

    @property
    def sentinel(self) -> int | None:
        """Id of the first sentinel; the second is the one below it, and so on."""
        return self.size - 1 if self.sentinels else None

    @property
    def specials(self) -> dict[str, int]:
        """The special tokens that there are, role -> id; of the sentinels, the first."""
        return {role: id for role in (*ROLES, "sentinel") if (id := getattr(self, role)) is not None}

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of the special tokens, in order, all sentinels among them."""
        return tuple(sorted({*self.specials.values(), *self.unread, *range(self.size - self.sentinels, self.size)}))

    @cached_property
    def starts_word_V(self) -> Bools:
        """Whether each piece begins a word, bool [V]: every special one, and of the others what their kind says."""
        starts_V = np.array([self._kind.starts_word(piece) for piece in self._pieces], np.bool_)
        starts_V[list(self.special_ids)] = True
        return starts_V

    @cached_property
    def _ends_word_V(self) -> Bools:
        """Whether a word begins after each piece, whatever follows, bool [V]."""
        return np.array([self._kind.ends_word(piece) for piece in self._pieces], np.bool_)

    @cached_property
    def is_of_bytes(self) -> bool:
        """Whether its pieces are of the bytes of a text as it is."""
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
        tokenizer.encode_special_tokens = True  # as the text that they are; the name of this option misleads
        return tokenizer

    @cached_property
    def _sentencepiece(self) -> SentencePieceProcessor:
        return SentencePieceProcessor(model_proto=self.files["spiece.model"])

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocab._from_files, (self.files,)  # another process builds its own tokenizer

    def encode_documents(
        self,
        texts: Sequence[Sequence[str]],
        *,
        words: Literal["pieces", "jieba"] = "pieces",
        spans: Sequence[Spans] | None = None,
    ) -> list[EncodedDocument]:
        """Encode documents, each given as its sentences (text.sentences), all in one call to the library.

        The ids are those of the whole text: a sentence is a mark in it, at the first token that begins in it, and one
        that lies inside of a token has none.

        `words`: a word begins where the pieces say, or in Chinese where jieba says. `spans`: the phrases of each
        document, ranges of characters of its joined sentences. Both need to know where tokens are, which is slower.
        """
        if words == "pieces" and spans is None:
            return self._documents(self._cut_up(texts))
        placed = self._encode_with_places(["".join(document) for document in texts])
        encoded = self._documents([_counted(each, document) for each, document in zip(placed, texts, strict=True)])
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

    def _cut_up(self, texts: Sequence[Sequence[str]]) -> list[_Counted]:
        """The ids of each document, and how many of them each of its sentences has, without a look at places where the
        lengths of pieces, or blanks between sentences, tell it."""
        if self._bytes_V is not None:
            return self._cut_up_bytes(texts, self._bytes_V)
        found = self._cut_up_blanks(texts)
        if self._cut == "rounding":
            whole = ["".join(document) for document in texts]
            odd = [k for k, ids in enumerate(self._encode(whole)) if ids != found[k][0]]
            for k, placed in zip(odd, self._encode_with_places([whole[k] for k in odd]), strict=True):
                found[k] = _counted(placed, texts[k])
        return found

    def _cut_up_blanks(self, texts: Sequence[Sequence[str]]) -> list[_Counted]:
        """The same, of the parts between which a text can be cut."""
        grouped = [group_sentences(document, self._cut) for document in texts]
        groups = [group for document in grouped for group in document]
        alone = iter(self._encode([group[0] for group in groups if len(group) == 1]))
        placed = iter(self._encode_with_places(["".join(group) for group in groups if len(group) > 1]))
        found = list[_Counted]()
        for document in grouped:
            ids, num_tokens = list[int](), list[int]()
            for group in document:
                if len(group) == 1:
                    some = next(alone)
                    num_some = [len(some)]
                else:
                    some, num_some = _counted(next(placed), group)
                ids += some
                num_tokens += num_some
            found.append((ids, num_tokens))
        return found

    def _cut_up_bytes(self, texts: Sequence[Sequence[str]], bytes_V: Ints) -> list[_Counted]:
        """The same by how many bytes of the text each piece stands for; by places where these do not add up."""
        whole, found = ["".join(document) for document in texts], list[_Counted]()
        for text, document, ids in zip(whole, texts, self._encode(whole), strict=True):
            lengths, bytes_S = [len(sentence.encode()) for sentence in document], bytes_V[np.array(ids, np.int64)]
            if bytes_S.sum() == sum(lengths):
                found.append((ids, counts(np.cumsum(bytes_S) - bytes_S, lengths)))
            else:
                found.append(_counted(self._encode_with_places([text])[0], document))
        return found

    @cached_property
    def _bytes_V(self) -> Ints | None:
        """How many bytes of a text each piece stands for, int64 [V]; None where pieces are not of bytes as they are."""
        if not self.is_of_bytes:
            return None
        added = self._tokenizer.get_added_tokens_decoder()
        lengths_V = np.array([len(piece) for piece in self._pieces], np.int64)  # a character for each byte
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

    def _documents(self, found: Sequence[_Counted]) -> list[EncodedDocument]:
        """The documents of these ids, of which each sentence has so many."""
        num_tokens = np.array([num for _, each in found for num in each], np.int64)  # of each sentence
        stop = np.concatenate([[0], np.cumsum(num_tokens)])
        ids_T = np.fromiter(chain.from_iterable(ids for ids, _ in found), np.int32, stop[-1])
        sentence_starts_T = np.zeros(len(ids_T), np.bool_)
        sentence_starts_T[stop[:-1][num_tokens > 0]] = True
        word_starts_T = self.starts_word_V[ids_T] | sentence_starts_T
        word_starts_T[1:] |= self._ends_word_V[ids_T[:-1]]
        cuts = stop[np.cumsum([0, *(len(each) for _, each in found)])].tolist()
        return [
            EncodedDocument(ids_T[start:end], sentence_starts_T[start:end], word_starts_T[start:end])
            for start, end in pairwise(cuts)
        ]

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special tokens."""
        return self._encode([text])[0]

    def normalised(self, text: str) -> str:
        """The text as it is cut into pieces: without case or accents, where the vocabulary has none."""
        if "spiece.model" in self.files:
            return self._sentencepiece.normalize(text)
        normaliser = self._tokenizer.normalizer
        return text if normaliser is None else normaliser.normalize_str(text)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if "spiece.model" in self.files:  # it is the truth there, and several times faster
            cut_up = [parts(text, self._cut) for text in texts]
            found = iter(self._sentencepiece.encode(list(chain.from_iterable(cut_up)), out_type=int))
            return [list(chain.from_iterable(islice(found, len(each)))) for each in cut_up]
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [self._ordinary(encoding.ids) for encoding in encodings]

    def _ordinary(self, ids: list[int]) -> list[int]:
        """The ids of a text without special tokens, which are unknown where its words would give them."""
        if not self.words_that_are_special or self.unk is None or self.words_that_are_special.isdisjoint(ids):
            return ids
        return [self.unk if id in self.words_that_are_special else id for id in ids]

    @cached_property
    def words_that_are_special(self) -> frozenset[int]:
        """Special tokens that are also words of the model, so that their names, written out in a text, give them.

        Sentencepiece knows its control pieces; `tokenizers` takes them for words of a unigram model.
        """
        added = self._tokenizer.get_added_tokens_decoder()
        special = {*self.special_ids, *(id for id, token in added.items() if token.special)} - {self.unk}
        names = [self.piece(id) for id in sorted(special)]
        encodings = self._tokenizer.encode_batch(names + [f"a {name} b" for name in names], add_special_tokens=False)
        return frozenset(special.intersection(chain.from_iterable(encoding.ids for encoding in encodings)))

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        """The tokens of a text, without special ones: the id of each, its first character and the one behind its last.

        A space before a word may or may not be among the characters of a token. Several tokens may share a character.
        """
        ids, offsets = self._encode_with_offsets([text])[0]
        return [(id, start, stop) for id, (start, stop) in zip(ids, offsets, strict=True)]

    def _encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        if "spiece.model" in self.files:
            cut_up = [parts(text, self._cut) for text in texts]
            found = iter(self._sentencepiece.encode(list(chain.from_iterable(cut_up)), return_type="offset_mapping"))
            return [_joined(each, islice(found, len(each))) for each in cut_up]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(self._ordinary(encoding.ids), encoding.offsets) for encoding in encodings]

    def _encode_with_places(self, texts: list[str]) -> list[_Placed]:
        """Ids of each text, and for each the character with which it begins: with the space before a word, and
        without."""
        return [
            (ids, [(start, start + (stop - start > 1 and text[start].isspace())) for start, stop in offsets])
            for text, (ids, offsets) in zip(texts, self._encode_with_offsets(texts), strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens appear by name."""
        return self._tokenizer.decode([int(id) for id in ids], skip_special_tokens=False)

    def piece(self, id: int) -> str:
        """The piece with this id as the vocabulary writes it, with its ## or space mark."""
        return self._pieces[id]

    def utf8(self, id: int) -> bytes:
        """The text that this piece stands for, in UTF-8: that of several pieces is theirs, joined."""
        return self._kind.utf8(self._pieces[id])

    def save(self, folder: Path | str) -> None:
        """Write the files, specials.json last: it makes the folder a vocabulary."""
        for name in (*self.files.keys() - {_ABOUT}, _ABOUT):
            write_atomic(Path(folder) / name, self.files[name])

    @classmethod
    def load(cls, folder: Path | str, wanted: str = "") -> "Vocab":
        """Read a saved vocabulary; BadInput where files are missing or damaged, or its hash is not the `wanted` one."""
        folder = Path(folder)
        try:
            about = (folder / _ABOUT).read_bytes()
            sha256 = from_checked_json(about)["sha256"]
            files = {name: (folder / name).read_bytes() for name in sha256}
        except OSError as error:
            raise BadInput(f"{error.filename}: {error.strerror}; {_AGAIN}") from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{folder / _ABOUT}: cannot be read; {_AGAIN}") from None
        for name, content in files.items():
            if _sha256(content) != sha256[name]:
                raise BadInput(f"{folder / name}: is damaged, specials.json has another sha256 for it; {_AGAIN}")
        vocab = cls._from_files(files | {_ABOUT: about})
        if wanted not in ("", vocab.hash):
            raise BadInput(
                f"{folder}: is vocabulary {vocab.hash[:12]}, the corpus was made with {wanted[:12]}; {_AGAIN}"
            )
        return vocab

    def remade(self, special: Mapping[str, int | None], unread: tuple[int, ...], files: Mapping[str, bytes]) -> "Vocab":
        """The vocabulary of these files, with other special tokens and the same pieces."""
        kept = {name: content for name, content in files.items() if name != _ABOUT}
        return Vocab.of(self.kind, self.size, special, self.sentinels, kept, unread)

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
        """The vocabulary of these files; `special`: for each of ROLES the id of its token, None where it has none."""
        about = {
            "kind": kind,
            "size": size,
            **special,
            **({"sentinels": sentinels} if sentinels else {}),
            **({"unread": list(unread)} if unread else {}),
            "sha256": {name: _sha256(content) for name, content in sorted(files.items())},
        }
        return cls._from_files({**files, _ABOUT: checked_json(about)})

    @classmethod
    def _from_files(cls, files: dict[str, bytes]) -> "Vocab":
        about = parse_json(files[_ABOUT])
        roles = {role: about[role] for role in ROLES}
        more = {"sentinels": about.get("sentinels", 0), "unread": tuple(about.get("unread", ()))}
        kind = new_value("data.tokenizer", about["kind"], "kind") or about["kind"]  # of version 0.1
        return cls(kind, about["size"], **roles, hash=_sha256(files[_ABOUT]), files=files, **more)


def _counted(placed: _Placed, sentences: Sequence[str]) -> _Counted:
    """The ids of a text, and how many of them each of its sentences has."""
    ids, places = placed
    return ids, counts(np.array([start for start, _ in places], np.int64), list(map(len, sentences)))


def _joined(parts: Sequence[str], found: Iterable[Mapping[str, Any]]) -> _Placed:
    """The ids of a text that was encoded in parts, and which characters each stands for."""
    ids, offsets, base = list[int](), list[tuple[int, int]](), 0
    for part, one in zip(parts, found, strict=True):
        ids += one["ids"]
        offsets += [(base + start, base + stop) for start, stop in one["offsets"]] if base else one["offsets"]
        base += len(part)
    return ids, offsets


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
