"""WordPiece (BERT, arXiv:1810.04805) through `tokenizers`: the spec, then training, reading and writing."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization import tokenizer_json
from preprocessing.tokenization.part import (
    SAMPLE_MB,
    Scheme,
    TokenizerBuild,
    describe_padding,
    from_file,
    require_sizes,
    too_small,
)

SPECIALS: Final = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_COVERAGE: Final = 0.9999  # fraction of the text whose characters are tokens; others are [UNK]
_CHARACTERS: Final = 1 / 32  # fraction of the tokens that may always be characters; BERT has 997 of 30,522
_LEAST_COUNT: Final = 2  # pairs that occur once are not merged
_TEXTS_AT_ONCE: Final = 1_000  # number of texts to encode in one call
_LONGEST_WORD: Final = 100  # in characters; longer words are [UNK], as in transformers
# A run that may contain a longer word. White space, ASCII punctuation, and CJK punctuation and characters end words.
_LONG: Final = re.compile(r"[^\s!-/:-@\[-`{-~\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff0f]{101,}")


@spec
class WordPiece:
    """WordPiece: whole words, and tokens inside a word that begin with ## (BERT, arXiv:1810.04805).

    A trained tokenizer numbers its tokens in training order, or by descending frequency, as adaptive token tables
    require.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    vocab_size: int = key(default=30522, doc="Number of tokens, special tokens included.")
    lowercase: bool = key(default=True, doc="Whether text is lower-cased and its accents removed, as in uncased BERT.")
    token_order: Literal["training", "frequency"] = key(
        default="training", doc="Token IDs by training order or corpus frequency."
    )
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(default="", doc="Path to vocab.txt, tokenizer.json or their directory; empty: train a tokenizer.")

    roles: ClassVar[Mapping[str, str]] = dict.fromkeys(SPECIALS, "")
    special_roles: ClassVar[frozenset[str]] = frozenset(SPECIALS)
    extra_ids: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    language_sampling_alpha: ClassVar[float] = 1.0
    strips_marks: ClassVar[str] = "lowercase"
    is_of_bytes: ClassVar[bool] = False
    sample_mb: ClassVar[int] = SAMPLE_MB
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"vocab_size": 4_096, "padded_vocab_size": 0},
        "small": {"vocab_size": 16_384, "padded_vocab_size": 0},
    }

    def __post_init__(self) -> None:
        require_sizes(self)

    def describe(self) -> str:
        case = "lower-cased" if self.lowercase else "cased"
        return f"{self.vocab_size:,} {case} WordPiece tokens{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        if self.path:
            return from_file(self.path, self._read)
        return TokenizerBuild(
            SPECIALS, _files(self._train_ids(_without_long_words(texts, self.lowercase)), self.lowercase)
        )

    def _read(self, path: Path) -> TokenizerBuild:
        if file := tokenizer_json.find(path):
            build = tokenizer_json.require_case(tokenizer_json.read(file, self), self.path, self.lowercase)
            ids = Tokenizer.from_buffer(build.files[tokenizer_json.NAME]).get_vocab(with_added_tokens=False)
            return build._replace(files=build.files | {"vocab.txt": _lines(ids)})
        return TokenizerBuild(SPECIALS, _files(_ids(tokenizer_json.inside(path, "vocab.txt")), self.lowercase))

    def _train_ids(self, texts: Sequence[str]) -> dict[str, int]:
        ids = _train(texts, self.vocab_size, self.lowercase)
        return _by_frequency(ids, texts, self.lowercase) if self.token_order == "frequency" else ids

    def least_size(self, texts: Iterable[str]) -> int:
        if self.path:
            return 0
        tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), self.lowercase)
        return len(
            _initial_tokens(
                _alphabet(_without_long_words(texts, self.lowercase), self.vocab_size, tokenizer), tokenizer
            )
        )

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return scheme.model == "WordPiece" and scheme.inside in (None, "##")

    @staticmethod
    def starts_word(piece: str) -> bool:
        return not piece.startswith("##")

    @staticmethod
    def ends_word(piece: str) -> bool:
        return False

    @staticmethod
    def utf8(piece: str) -> bytes:
        return (piece[2:] if piece.startswith("##") and len(piece) > 2 else f" {piece}").encode()


def _without_long_words(texts: Iterable[str], lowercase: bool) -> list[str]:
    """Remove words of more than 100 characters from the texts.

    Such words are always unknown, and the time of the library's trainer is quadratic in the longest word.
    """
    tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), lowercase)

    def remove_long(run: re.Match[str]) -> str:
        words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(run[0]))
        short = [word for word, _ in words if len(word) <= _LONGEST_WORD]
        return run[0] if len(short) == len(words) else f" {' '.join(short)} "

    return [_LONG.sub(remove_long, text) for text in texts]


def _train(texts: Sequence[str], size: int, lowercase: bool) -> dict[str, int]:
    """Train at most `size` tokens, special tokens first. Raises BadInput if there are more characters than that.

    The library's trainer breaks ties by token ID, and numbers the alphabet in the order of a hash table, which differs
    between runs. Therefore the alphabet is counted and sorted here, and given to the trainer as ordered tokens.
    """
    tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), lowercase)
    alphabet = _alphabet(texts, size, tokenizer)
    first = _initial_tokens(alphabet, tokenizer)
    if len(first) > size:
        raise too_small(size, len(first))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_LEAST_COUNT,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]["vocab"]


def _initial_tokens(alphabet: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return the initial tokens: special tokens, characters, and ## forms of characters that can be inside words."""
    inside = ["##" + char for char in alphabet if len(tokenizer.pre_tokenizer.pre_tokenize_str("a" + char)) == 1]
    return [*SPECIALS.values(), *alphabet, *inside]


def _by_frequency(ids: dict[str, int], texts: Sequence[str], lowercase: bool) -> dict[str, int]:
    """Renumber the tokens by descending frequency in the texts, special tokens first; ties keep their order."""
    tokenizer = Tokenizer.from_str(_files(ids, lowercase)["tokenizer.json"].decode())
    tokenizer.encode_special_tokens = True
    count_V = np.zeros(len(ids), np.int64)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + _TEXTS_AT_ONCE], add_special_tokens=False):
            count_V += np.bincount(encoding.ids, minlength=len(ids))
    count_V[[ids[name] for name in SPECIALS.values()]] = np.iinfo(np.int64).max
    rank_V = np.empty_like(count_V)
    rank_V[np.argsort(-count_V, kind="stable")] = np.arange(len(ids))
    return {piece: int(rank_V[id]) for piece, id in ids.items()}


def _ids(path: Path) -> dict[str, int]:
    """Read the token IDs of a vocab.txt with one token per line."""
    lines = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    )  # not splitlines, which also splits at characters inside tokens
    return {line.removesuffix("\r"): id for id, line in enumerate(lines)}


def _files(ids: dict[str, int], lowercase: bool) -> dict[str, bytes]:
    """Return the contents of tokenizer.json, which splits text as the reference BERT does, and vocab.txt."""
    model = models.WordPiece(ids, unk_token=SPECIALS["unk"], max_input_chars_per_word=_LONGEST_WORD)
    tokenizer = _tokenizer(model, lowercase)
    tokenizer.add_special_tokens(list(SPECIALS.values()))
    id_of = tokenizer.get_vocab()
    sep, cls = SPECIALS["sep"], SPECIALS["cls"]
    tokenizer.post_processor = processors.BertProcessing((sep, id_of[sep]), (cls, id_of[cls]))
    tokenizer.decoder = decoders.WordPiece()
    return {"tokenizer.json": tokenizer.to_str().encode(), "vocab.txt": _lines(ids)}


def _lines(ids: dict[str, int]) -> bytes:
    """Return the content of vocab.txt."""
    return "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__)).encode()


def _tokenizer(model: models.WordPiece, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)  # lowercase also removes accents, as in BERT
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _alphabet(texts: Iterable[str], size: int, tokenizer: Tokenizer) -> list[str]:
    """Return the most frequent characters of the normalized texts, sorted; ties are broken by code point."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    count: Counter[str] = Counter()
    for char, times in raw.items():
        for plain in tokenizer.normalizer.normalize_str(char).replace(" ", ""):
            count[plain] += times
    ranked = sorted(count, key=lambda char: (-count[char], char))
    covered = np.cumsum([count[char] for char in ranked])
    enough = np.searchsorted(covered, _COVERAGE * count.total()) + 1
    return sorted(ranked[: max(int(enough), int(_CHARACTERS * size))])
