"""WordPiece (BERT, arXiv:1810.04805) through `tokenizers`: the spec, then training, reading and writing."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization import tokenizer_json
from preprocessing.tokenization.bpe import merge_pieces
from preprocessing.tokenization.part import (
    SAMPLE_MB,
    Scheme,
    TokenizerBuild,
    describe_padding,
    from_file,
    require_sizes,
    too_small,
)
from preprocessing.tokenization.word_counts import (
    LONGEST_WORD,
    WordCounts,
    batch_texts,
    choose_kernels,
    count_bert_words,
)

SPECIALS: Final = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_COVERAGE: Final = 0.9999  # fraction of the text whose characters are tokens; others are [UNK]
_CHARACTERS: Final = 1 / 32  # fraction of the tokens that may always be characters; BERT has 997 of 30,522
_NUM_CODES: Final = 0x110000
_LEAST_COUNT: Final = 2  # pairs that occur once are not merged
_TEXTS_AT_ONCE: Final = 1_000  # number of texts to encode in one call
# White space, ASCII punctuation, and CJK punctuation and characters end words.
_INSIDE: Final = r"[^\s!-/:-@\[-`{-~\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff0f]"
_LONG: Final = re.compile(rf"{_INSIDE}{{{LONGEST_WORD + 1},}}")  # a run that may contain a longer word


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
        return TokenizerBuild(SPECIALS, _files(self._train_ids(texts), self.lowercase))

    def _read(self, path: Path) -> TokenizerBuild:
        if file := tokenizer_json.find(path):
            build = tokenizer_json.require_case(tokenizer_json.read(file, self), self.path, self.lowercase)
            ids = Tokenizer.from_buffer(build.files[tokenizer_json.NAME]).get_vocab(with_added_tokens=False)
            return build._replace(files=build.files | {"vocab.txt": _lines(ids)})
        return TokenizerBuild(SPECIALS, _files(_ids(tokenizer_json.inside(path, "vocab.txt")), self.lowercase))

    def _train_ids(self, texts: Iterable[str]) -> dict[str, int]:
        by_kernels, texts = choose_kernels(texts)
        if by_kernels:
            return self.train_with_kernels(texts)
        short = _without_long_words(texts, self.lowercase)
        ids = _train(short, self.vocab_size, self.lowercase)
        if self.token_order == "training":
            return ids
        tokenizer = Tokenizer.from_str(_files(ids, self.lowercase)["tokenizer.json"].decode())
        tokenizer.encode_special_tokens = True
        return _by_frequency(ids, _count_tokens(tokenizer, short, np.ones(len(short))))

    def train_with_kernels(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the token IDs, from kernels that count and merge; needs numba."""
        tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), self.lowercase)
        words, characters = _count_words(texts, self.lowercase)
        ids = _merge(words, characters, self.vocab_size, tokenizer)
        if self.token_order == "training":
            return ids
        return _by_frequency(ids, _count_tokens(Tokenizer(_model(ids)), words.words, words.count_N))

    def least_size(self, texts: Iterable[str]) -> int:
        if self.path:
            return 0
        tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), self.lowercase)
        characters = _count_characters(_without_long_words(texts, self.lowercase))
        return len(_initial_tokens(_alphabet(characters, self.vocab_size, tokenizer), tokenizer))

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
        short = [word for word, _ in words if len(word) <= LONGEST_WORD]
        return run[0] if len(short) == len(words) else f" {' '.join(short)} "

    return [_LONG.sub(remove_long, text) for text in texts]


def _train(texts: Sequence[str], size: int, lowercase: bool) -> dict[str, int]:
    """Train at most `size` tokens, special tokens first. Raises BadInput if there are more characters than that.

    The library's trainer breaks ties by token ID, and numbers the alphabet in the order of a hash table, which differs
    between runs. Therefore the alphabet is counted and sorted here, and given to the trainer as ordered tokens.
    """
    tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), lowercase)
    alphabet = _alphabet(_count_characters(texts), size, tokenizer)
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


def _count_words(texts: Iterable[str], lowercase: bool) -> tuple[WordCounts, dict[str, int]]:
    """Count the words and the characters of texts without long words."""
    tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), lowercase)
    return count_bert_words(
        texts, tokenizer, re.compile(_INSIDE).match, lambda text: _without_long_words([text], lowercase)[0]
    )


def _merge(words: WordCounts, characters: Mapping[str, int], size: int, tokenizer: Tokenizer) -> dict[str, int]:
    """Train as `_train` does, on the counted words and characters of texts."""
    first = _initial_tokens(_alphabet(characters, size, tokenizer), tokenizer)
    if len(first) > size:
        raise too_small(size, len(first))
    symbols = [-1] * len(SPECIALS) + [ord(piece[-1]) for piece in first[len(SPECIALS) :]]
    pieces, _ = merge_pieces(words, first, symbols, "##", size, _LEAST_COUNT)
    return {piece: id for id, piece in enumerate(pieces)}


def _initial_tokens(alphabet: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return the initial tokens: special tokens, characters, and ## forms of characters that can be inside words."""
    inside = ["##" + char for char in alphabet if len(tokenizer.pre_tokenizer.pre_tokenize_str("a" + char)) == 1]
    return [*SPECIALS.values(), *alphabet, *inside]


def _count_tokens(tokenizer: Tokenizer, texts: Sequence[str], times_N: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Count the tokens of texts, of which each occurs some number of times. Return int64 [V]."""
    num_tokens = tokenizer.get_vocab_size()
    count_V = np.zeros(num_tokens, np.int64)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = slice(start, start + _TEXTS_AT_ONCE)
        encodings = tokenizer.encode_batch_fast(texts[part], add_special_tokens=False)
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64)
        times = np.repeat(times_N[part], [len(encoding) for encoding in encodings])
        count_V += np.bincount(ids, times, num_tokens).astype(np.int64)
    return count_V


def _by_frequency(ids: dict[str, int], count_V: npt.NDArray[np.int64]) -> dict[str, int]:
    """Renumber the tokens by descending frequency, special tokens first; ties keep their order."""
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
    tokenizer = _tokenizer(_model(ids), lowercase)
    tokenizer.add_special_tokens(list(SPECIALS.values()))
    id_of = tokenizer.get_vocab()
    sep, cls = SPECIALS["sep"], SPECIALS["cls"]
    tokenizer.post_processor = processors.BertProcessing((sep, id_of[sep]), (cls, id_of[cls]))
    tokenizer.decoder = decoders.WordPiece()
    return {"tokenizer.json": tokenizer.to_str().encode(), "vocab.txt": _lines(ids)}


def _lines(ids: dict[str, int]) -> bytes:
    """Return the content of vocab.txt."""
    return "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__)).encode()


def _model(ids: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(ids, unk_token=SPECIALS["unk"], max_input_chars_per_word=LONGEST_WORD)


def _tokenizer(model: models.WordPiece, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)  # lowercase also removes accents, as in BERT
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _count_characters(texts: Iterable[str]) -> Counter[str]:
    count_C = np.zeros(_NUM_CODES, np.int64)
    for batch in batch_texts(texts):
        code_S = np.frombuffer("".join(batch).encode("utf-32-le", "surrogatepass"), "<u4")
        count_C += np.bincount(code_S, minlength=_NUM_CODES)
    codes = count_C.nonzero()[0]
    return Counter(dict(zip(map(chr, codes.tolist()), count_C[codes].tolist(), strict=True)))


def _alphabet(characters: Mapping[str, int], size: int, tokenizer: Tokenizer) -> list[str]:
    """Return the most frequent characters after normalization, sorted; ties are broken by code point."""
    count = Counter[str]()
    for char, times in characters.items():
        for plain in tokenizer.normalizer.normalize_str(char).replace(" ", ""):
            count[plain] += times
    ranked = sorted(count, key=lambda char: (-count[char], char))
    covered = np.cumsum([count[char] for char in ranked])
    enough = np.searchsorted(covered, _COVERAGE * count.total()) + 1
    return sorted(ranked[: max(int(enough), int(_CHARACTERS * size))])
