"""Whole words or single bytes through `tokenizers`: the specs, then training, reading and writing."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization.byte_level_bpe import LINE_ENDS, WHITE, utf8_of
from preprocessing.tokenization.part import (
    SAMPLE_MB,
    Scheme,
    TokenizerBuild,
    describe_padding,
    from_file,
    require_sizes,
)

Unit = Literal["word_level", "bytes"]
SPECIALS: Final = {"unk": "<unk>", "sep": "</s>"}
_LEAST: Final = len(SPECIALS) + 1


@spec
class WordLevel:
    """Whole words, split at white space (Transformer-XL, arXiv:1901.02860).

    Suitable for text that is already tokenized.
    """

    kind: Literal["word_level"] = "word_level"
    vocab_size: int = key(default=267735, doc="Number of tokens, special tokens included.")
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(default="", doc="Path to vocab.txt or its directory; empty: count the words of the corpus.")

    roles: ClassVar[Mapping[str, str]] = dict.fromkeys(SPECIALS, "")
    special_roles: ClassVar[frozenset[str]] = frozenset(SPECIALS)
    token_order: ClassVar[str] = "frequency"
    extra_ids: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    language_sampling_alpha: ClassVar[float] = 1.0
    strips_marks: ClassVar[str] = ""
    is_of_bytes: ClassVar[bool] = False
    sample_mb: ClassVar[int] = 1 << 20  # no limit: training only counts words, and most tokens are rare words
    scale_overrides: ClassVar[ScaleOverrides] = {
        # The demo corpus is not tokenized, so with 4,096 tokens a seventh of its words would be unknown
        "tiny": {"vocab_size": 16_384, "padded_vocab_size": 0},
        "small": {"vocab_size": 16_384, "padded_vocab_size": 0},
    }

    def __post_init__(self) -> None:
        require_sizes(self, least=_LEAST)

    def describe(self) -> str:
        return f"{self.vocab_size:,} whole words{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        return _make(self, texts)

    def least_size(self, texts: Iterable[str]) -> int:
        return 0

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return False

    @staticmethod
    def starts_word(piece: str) -> bool:
        return True

    @staticmethod
    def ends_word(piece: str) -> bool:
        return False

    @staticmethod
    def utf8(piece: str) -> bytes:
        return f" {piece}".encode()


@spec
class SingleBytes:
    """Single UTF-8 bytes that occur in the text (Transformer-XL on enwik8)."""

    kind: Literal["bytes"] = "bytes"
    vocab_size: int = key(default=258, doc="Number of tokens, special tokens included.")
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(default="", doc="Path to vocab.txt or its directory; empty: count the bytes of the corpus.")

    roles: ClassVar[Mapping[str, str]] = dict.fromkeys(SPECIALS, "")
    special_roles: ClassVar[frozenset[str]] = frozenset(SPECIALS)
    token_order: ClassVar[str] = "frequency"
    extra_ids: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    language_sampling_alpha: ClassVar[float] = 1.0
    strips_marks: ClassVar[str] = ""
    is_of_bytes: ClassVar[bool] = True
    sample_mb: ClassVar[int] = SAMPLE_MB
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"vocab_size": 4_096, "padded_vocab_size": 0},
        "small": {"vocab_size": 16_384, "padded_vocab_size": 0},
    }

    def __post_init__(self) -> None:
        require_sizes(self, least=_LEAST)

    def describe(self) -> str:
        return f"{self.vocab_size:,} single bytes{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        return _make(self, texts)

    def least_size(self, texts: Iterable[str]) -> int:
        return 0

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return False

    @staticmethod
    def starts_word(piece: str) -> bool:
        return piece[0] in WHITE

    @staticmethod
    def ends_word(piece: str) -> bool:
        return piece[-1] in LINE_ENDS

    @staticmethod
    def utf8(piece: str) -> bytes:
        return utf8_of(piece)


def _make(spec: WordLevel | SingleBytes, texts: Iterable[str]) -> TokenizerBuild:
    ids = from_file(spec.path, _read) if spec.path else _train(texts, spec.vocab_size, spec.kind)
    return TokenizerBuild(SPECIALS, _files(ids, spec.kind))


def _train(texts: Iterable[str], size: int, unit: Unit) -> dict[str, int]:
    """Number at most `size` tokens: special tokens first, then by descending frequency, ties by code point."""
    tokenizer = _tokenizer({}, unit)
    trainer = trainers.WordLevelTrainer(vocab_size=size, min_frequency=0, special_tokens=[], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    # a text may contain <unk> as a word, as WikiText does
    pieces = dict.fromkeys([*SPECIALS.values(), *sorted(vocabulary, key=vocabulary.__getitem__)])
    return {piece: id for id, piece in enumerate(list(pieces)[:size])}


def _read(path: Path) -> dict[str, int]:
    """Read the token IDs of a vocab.txt with one token per line."""
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return {line.removesuffix("\r"): id for id, line in enumerate(lines)}


def _files(ids: dict[str, int], unit: Unit) -> dict[str, bytes]:
    """Return the contents of tokenizer.json and vocab.txt."""
    tokenizer = _tokenizer(ids, unit)
    tokenizer.add_special_tokens(list(SPECIALS.values()))
    lines = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
    return {"tokenizer.json": tokenizer.to_str().encode(), "vocab.txt": lines.encode()}


def _tokenizer(ids: dict[str, int], unit: Unit) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=SPECIALS["unk"]))
    if unit == "bytes":
        each = pre_tokenizers.Split(
            Regex("(?m)."), "isolated"
        )  # in this regex dialect, with (?m) . also matches line ends
        visible = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([visible, each])
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.normalizer = normalizers.Replace(
            SPECIALS["sep"], SPECIALS["unk"]
        )  # a text must not contain its end token
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer
