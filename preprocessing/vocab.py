"""Vocabularies: train or load one, turn documents into ids, say where words begin.

A vocabulary is a folder of files and nothing else: specials.json names the kind, the special ids and the sha256 of each
other file, checks itself and is written last. The kinds: wordpiece.py, byte_bpe.py, unigram.py (sentencepiece),
word_level.py.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from preprocessing import byte_bpe, phrases, unigram, word_level, wordpiece
from preprocessing.errors import BadInput
from preprocessing.files import checked_json, from_checked_json, write_atomic
from preprocessing.knob import knob, require
from preprocessing.schema import Bools, Ints

T = TypeVar("T")

_ROLES = ("pad", "unk", "cls", "sep", "mask")
_ABOUT = "specials.json"
_AGAIN = (
    "delete specials.json there (and manifest.json, where the vocabulary is in a corpus), then repeat `sesame corpus`"
)


def _require_size(size: int) -> None:
    require(size >= 1, "vocab.size", size, "a whole number from 1 up")


def _require_rows(rows: int, size: int) -> None:
    require(rows == 0 or rows >= size, "vocab.rows", rows, f"0 (as many as pieces), or vocab.size ({size}) or more")


def _require_sentinels(sentinels: int, size: int) -> None:
    require(0 <= sentinels < size, "vocab.sentinels", sentinels, f"a number from 0 up, below vocab.size ({size})")


@knob
class WordPiece:
    """BERT's vocabulary (arXiv:1810.04805): whole words, and pieces inside a word that begin with ##.

    A trained one numbers its pieces as training found them, or by falling frequency, as adaptive tables want it.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    size: int = 30522
    lowercase: bool = True
    order: Literal["training", "frequency"] = "training"
    rows: int = 0  # of the net's table, where it is filled up beyond `size`; 0: one for each piece
    file: str = ""  # vocab.txt or tokenizer.json; empty: train one

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)


@knob
class ByteBPE:
    """GPT-2's vocabulary over bytes, to which no text is unknown; RoBERTa's has other special tokens."""

    kind: Literal["byte_bpe"] = "byte_bpe"
    size: int = 50257
    specials: byte_bpe.Layout = "gpt2"
    rows: int = 0  # as for WordPiece
    file: str = ""  # tokenizer.json, or a folder with vocab.json + merges.txt or encoder.json + vocab.bpe

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)


@knob
class Unigram:
    """A unigram language model over pieces (arXiv:1804.10959).

    A trained one has the special tokens of ALBERT; what a file has, it says: T5 has neither [CLS] nor [MASK].
    """

    kind: Literal["unigram"] = "unigram"
    size: int = 32000
    lowercase: bool = False  # case is folded, accents stay: sentencepiece's nmt_nfkc_cf
    sentinels: int = 0  # of these, the last ones: what stands for a span of text (T5 has 100)
    rows: int = 0  # as for WordPiece
    file: str = ""  # spiece.model or tokenizer.json

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)
        _require_sentinels(self.sentinels, self.size)


@knob
class SentencePieceBPE:
    """BPE over characters (arXiv:1508.07909) as sentencepiece does it; special tokens as for Unigram.

    Languages are sampled with q proportional to p^alpha (arXiv:1901.07291, 3.1), p being their share of the text: the
    most frequent one is read once at most, the others more often. A language is named by the source of the text, as
    for the segment `parallel`.
    """

    kind: Literal["sentencepiece_bpe"] = "sentencepiece_bpe"
    size: int = 32000
    lowercase: bool = False  # as for Unigram
    sentinels: int = 0  # as for Unigram
    alpha: float = 1.0  # 1: languages in proportion to their text
    languages: tuple[str, ...] = ()  # none named: there is one
    rows: int = 0  # as for WordPiece
    file: str = ""  # spiece.model

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)
        _require_sentinels(self.sentinels, self.size)
        require(0 <= self.alpha <= 1, "vocab.alpha", self.alpha, "a share from 0 to 1")


@knob
class WholeWords:
    """Whole words, split at white space: for text that is tokenised already (Transformer-XL, arXiv:1901.02860)."""

    kind: Literal["words"] = "words"
    size: int = 267735
    rows: int = 0  # as for WordPiece
    file: str = ""  # vocab.txt

    order: ClassVar[str] = "frequency"

    def __post_init__(self) -> None:
        require(self.size >= 3, "vocab.size", self.size, "a whole number from 3 up")
        _require_rows(self.rows, self.size)


@knob
class SingleBytes:
    """The bytes of UTF-8, those that the text has, one by one (Transformer-XL on enwik8)."""

    kind: Literal["bytes"] = "bytes"
    size: int = 258
    rows: int = 0  # as for WordPiece
    file: str = ""  # vocab.txt

    order: ClassVar[str] = "frequency"

    def __post_init__(self) -> None:
        require(self.size >= 3, "vocab.size", self.size, "a whole number from 3 up")
        _require_rows(self.rows, self.size)


VocabSpec = WordPiece | ByteBPE | Unigram | SentencePieceBPE | WholeWords | SingleBytes


def table_rows(spec: VocabSpec) -> int:
    """Rows of the token table of a net that reads this vocabulary.

    >>> table_rows(Unigram(size=32_100, rows=32_128)), table_rows(Unigram(size=30_000))
    (32128, 30000)
    """
    return spec.rows or spec.size


class Encoded(NamedTuple):
    """A document: its ids, int32 [S], and whether a sentence, a word and (where asked) a unit begins at each, bool."""

    ids: Ints
    sentence_starts: Bools
    word_starts: Bools
    unit_starts: Bools | None = None


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

    @property
    def sentinel(self) -> int | None:
        """Id of the first sentinel; the second is the one below it, and so on."""
        return self.size - 1 if self.sentinels else None

    @property
    def specials(self) -> dict[str, int]:
        """The special tokens that there are, role -> id; of the sentinels, the first."""
        return {role: id for role in (*_ROLES, "sentinel") if (id := getattr(self, role)) is not None}

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of the special tokens, in order, all sentinels among them."""
        return tuple(sorted({*self.specials.values(), *range(self.size - self.sentinels, self.size)}))

    @cached_property
    def starts_word_V(self) -> Bools:
        """Whether each piece begins a word: special, without ##, or with a white-space byte or space mark in front."""
        match self.kind:
            case "wordpiece":
                starts_V = np.array([not piece.startswith("##") for piece in self._pieces], np.bool_)
            case "words":
                starts_V = np.ones(self.size, np.bool_)
            case "byte_bpe" | "bytes":
                starts_V = np.array([piece[0] in byte_bpe.WHITE for piece in self._pieces], np.bool_)
            case _:
                starts_V = np.array([piece[0] == unigram.SPACE for piece in self._pieces], np.bool_)
        starts_V[list(self.special_ids)] = True
        return starts_V

    @cached_property
    def _ends_word_V(self) -> Bools:
        """Whether a word begins after each piece, whatever follows: byte BPE has no space mark after a line end."""
        is_bytes = self.kind in ("byte_bpe", "bytes")
        return np.array([is_bytes and piece[-1] in byte_bpe.LINE_ENDS for piece in self._pieces], np.bool_)

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
        spans: Sequence[phrases.Spans] | None = None,
    ) -> list[Encoded]:
        """Encode documents, each given as its sentences (text.sentences), all in one call to the library.

        `words`: a word begins where the pieces say, or in Chinese where jieba says. `spans`: the phrases of each
        document, ranges of characters of its joined sentences. Both need to know where tokens are, which is slower.
        """
        flat = [sentence for document in texts for sentence in document]
        if words == "pieces" and spans is None:
            return self._documents(texts, self._encode(flat))
        placed = self._encode_with_places(flat)
        encoded = self._documents(texts, [ids for ids, _ in placed])
        bases = chain.from_iterable(list(accumulate(map(len, document), initial=0))[:-1] for document in texts)
        begin_T = np.array([base + at for (_, places), base in zip(placed, bases, strict=True) for at in places], int)
        begins = np.split(begin_T, np.cumsum([len(document.ids) for document in encoded])[:-1])
        if words == "jieba":
            from preprocessing.words import starts  # jieba is slow to import, and for Chinese only

            encoded = [
                document._replace(
                    word_starts=document.sentence_starts | starts("".join(text), begin_S, document.word_starts)
                )
                for document, text, begin_S in zip(encoded, texts, begins, strict=True)
            ]
        if spans is not None:
            encoded = [
                document._replace(unit_starts=phrases.starts(begin_S, document.word_starts, ranges))
                for document, ranges, begin_S in zip(encoded, spans, begins, strict=True)
            ]
        return encoded

    def _documents(self, texts: Sequence[Sequence[str]], lists: list[list[int]]) -> list[Encoded]:
        """The documents whose sentences have these ids."""
        num_tokens = np.array([len(ids) for ids in lists], np.int64)  # of each sentence
        stop = np.concatenate([[0], np.cumsum(num_tokens)])
        ids_T = np.fromiter(chain.from_iterable(lists), np.int32, stop[-1])
        sentence_starts_T = np.zeros(len(ids_T), np.bool_)
        sentence_starts_T[stop[:-1][num_tokens > 0]] = True
        word_starts_T = self.starts_word_V[ids_T] | sentence_starts_T
        word_starts_T[1:] |= self._ends_word_V[ids_T[:-1]]
        cuts = stop[np.cumsum([0, *(len(document) for document in texts)])].tolist()
        return [
            Encoded(ids_T[start:end], sentence_starts_T[start:end], word_starts_T[start:end])
            for start, end in pairwise(cuts)
        ]

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special tokens."""
        return self._encode([text])[0]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if "spiece.model" in self.files:  # it is the truth there, and several times faster
            return self._sentencepiece.encode(texts, out_type=int)
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _encode_with_places(self, texts: list[str]) -> list[tuple[list[int], list[int]]]:
        """Ids of each text, and the character with which each begins, the space before a word left aside."""
        if "spiece.model" in self.files:
            found = self._sentencepiece.encode(texts, return_type="offset_mapping")
            pairs = [(one["ids"], one["offsets"]) for one in found]
        else:
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
            pairs = [(encoding.ids, encoding.offsets) for encoding in encodings]
        return [
            (ids, [start + (stop - start > 1 and text[start].isspace()) for start, stop in offsets])
            for text, (ids, offsets) in zip(texts, pairs, strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens appear by name."""
        return self._tokenizer.decode([int(id) for id in ids], skip_special_tokens=False)

    def piece(self, id: int) -> str:
        """The piece with this id as the vocabulary writes it, with its ## or space mark."""
        return self._pieces[id]

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

    @classmethod
    def _from_files(cls, files: dict[str, bytes]) -> "Vocab":
        about = json.loads(files[_ABOUT])
        roles = {role: about[role] for role in _ROLES}
        sentinels = about.get("sentinels", 0)
        return cls(about["kind"], about["size"], **roles, hash=_sha256(files[_ABOUT]), files=files, sentinels=sentinels)


def train(spec: VocabSpec, texts: Iterable[str]) -> Vocab:
    """Train the vocabulary that `spec` asks for on whole documents, or load `spec.file` where it names one.

    The same texts give the same bytes in any process and on any number of cores. All but those of sentencepiece may
    end with fewer pieces than asked for. BadInput where the texts or the file cannot give such a vocabulary.
    """
    names: dict[str, str]
    match spec:
        case WordPiece(lowercase=lowercase, file=file):
            ids = _read(file, wordpiece.read) if file else _wordpiece(spec, list(texts))
            names, files = wordpiece.SPECIALS, wordpiece.files(ids, lowercase)
        case ByteBPE(size=size, specials=layout, file=file):
            pieces = _read(file, byte_bpe.read, size, layout) if file else byte_bpe.train(texts, size, layout)
            names, files = byte_bpe.SPECIALS[layout], byte_bpe.files(pieces, layout)
        case Unigram(size=size, file=file) | SentencePieceBPE(size=size, file=file):
            model: unigram.Model = "unigram" if isinstance(spec, Unigram) else "bpe"
            room, lower = size - spec.sentinels, spec.lowercase
            content = _read(file, unigram.read, model, lower) if file else unigram.train(texts, room, model, lower)
            files = unigram.files(content, spec.sentinels)
            names = unigram.specials(Tokenizer.from_buffer(files["tokenizer.json"]))
        case WholeWords(size=size, file=file) | SingleBytes(size=size, file=file):
            ids = _read(file, word_level.read) if file else word_level.train(texts, size, spec.kind)
            names, files = word_level.SPECIALS, word_level.files(ids, spec.kind)
    vocab = _assemble(spec, names, files)
    fits(vocab, spec)
    return vocab


def _wordpiece(spec: WordPiece, texts: list[str]) -> dict[str, int]:
    ids = wordpiece.train(texts, spec.size, spec.lowercase)
    return wordpiece.by_frequency(ids, texts, spec.lowercase) if spec.order == "frequency" else ids


def fits(vocab: Vocab, spec: VocabSpec) -> None:
    """BadInput unless `vocab` is of the kind that `spec` asks for and has no more pieces than it asks for."""
    if vocab.kind != spec.kind:
        raise BadInput(
            f"vocab.kind is {spec.kind}, the vocabulary given is {vocab.kind}; change the kind or the corpus"
        )
    if vocab.size > spec.size:
        raise BadInput(f"vocab.size is {spec.size}, the vocabulary given has {vocab.size} pieces; ask for as many")


def _assemble(spec: VocabSpec, names: dict[str, str], files: dict[str, bytes]) -> Vocab:
    """The vocabulary of these files, with `names` (role -> piece) as its special tokens."""
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    ids = tokenizer.get_vocab()
    given = tokenizer.get_vocab_size(with_added_tokens=False)
    if missing := [name for name in names.values() if ids[name] >= given]:
        raise BadInput(f"vocab.file: {spec.file}: has no {', '.join(missing)}; name a file that has")
    if sorted(ids.values()) != list(range(len(ids))):
        raise BadInput(f"vocab.file: {spec.file}: has a piece twice, or leaves out an id; name another file")
    about = {
        "kind": spec.kind,
        "size": len(ids),
        **{role: ids[names[role]] if role in names else None for role in _ROLES},
        **({"sentinels": spec.sentinels} if isinstance(spec, Unigram | SentencePieceBPE) and spec.sentinels else {}),
        "sha256": {name: _sha256(content) for name, content in sorted(files.items())},
    }
    return Vocab._from_files(files | {_ABOUT: checked_json(about)})


def _read(file: str, read: Callable[..., T], *settings: object) -> T:
    """What `read` makes of a user's file; whatever it stumbles over is BadInput."""
    try:
        return read(Path(file), *settings)
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(f"vocab.file: {error.filename}: {error.strerror}; name a vocabulary that exists") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise BadInput(
            f"vocab.file: {file}: cannot be read as this kind of vocabulary; change the kind or the file"
        ) from None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
