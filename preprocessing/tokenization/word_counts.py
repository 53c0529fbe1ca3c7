"""Words of texts and how often they occur, as the pre-tokenizers of BERT and GPT-2 in `tokenizers` split them.

The library says what becomes of each character, once; kernels then split and count. So the result is the library's own.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from preprocessing.imports import has_compiler

LONGEST_WORD: Final = 100  # in characters; longer words are [UNK], as in transformers
_NUM_CODES: Final = 0x110000
_NUM_ASCII: Final = 128
_CHARS_AT_ONCE: Final = 1 << 20
_LEAST_CHARS: Final = 1 << 22  # for less text, the library is done before the compiler has been imported
_WORTH_COMPILING: Final = 1 << 25  # for less text, the library is done before the kernels have been compiled
_OVERLAY: Final = "\u0334"  # a mark of combining class 1, which NFD moves before all marks of other classes


class WordCounts(NamedTuple):
    """Distinct words: symbol_S, the symbols of one after the other, start_N, int64 [N + 1], and count_N, int64."""

    symbol_S: npt.NDArray[Any]
    start_N: npt.NDArray[np.int64]
    count_N: npt.NDArray[np.int64]

    @property
    def words(self) -> list[str]:
        """The words, if symbols are code points."""
        text, bounds = self.symbol_S.astype("<u4").tobytes().decode("utf-32-le"), self.start_N.tolist()
        return [text[start:stop] for start, stop in pairwise(bounds)]


def choose_kernels(texts: Iterable[str]) -> tuple[bool, Iterable[str]]:
    """Return whether kernels should count the words of the texts, and the texts, of which some have been read.

    They should if numba is installed and there is enough text; more of it if the kernels must be compiled first.
    """
    rest, read, num_chars = iter(texts), list[str](), 0
    for least in (_LEAST_CHARS, _WORTH_COMPILING):
        while num_chars < least and (text := next(rest, None)) is not None:
            read.append(text)
            num_chars += len(text)
        if num_chars < least or not has_compiler():
            return False, chain(read, rest)
        if _are_kernels_compiled():
            break
    return True, chain(read, rest)


def _are_kernels_compiled() -> bool:
    """Whether this machine has the machine code of the kernels."""
    from preprocessing.jit import is_compiled
    from preprocessing.tokenization import merges

    return is_compiled(merges.merge_words)


def count_bert_words(
    texts: Iterable[str], tokenizer: Tokenizer, can_be_long: Callable[[str], object], remove_long: Callable[[str], str]
) -> tuple[WordCounts, dict[str, int]]:
    """Count the words and the characters of texts, after remove_long.

    `tokenizer` has the normalizer and the pre-tokenizer of BERT. `remove_long` removes words of more than 100
    characters; it is called if more than 100 characters in a row can be in one: where `can_be_long` is true. The words
    are normalized; their symbols are code points, int32. The characters are not normalized.
    """
    from preprocessing.tokenization import word_kernels

    characters = _BertCharacters(tokenizer, can_be_long)
    times_C = np.zeros(_NUM_CODES, np.int64)
    words = _no_words(np.int32)
    for batch in batch_texts(texts):
        text = "\n".join(batch) + "\n"
        byte_B = characters.add(text)
        if word_kernels.longest_run(byte_B, characters.run_C) > LONGEST_WORD:
            text = remove_long(text)
            byte_B = characters.add(text)
        if ordered := characters.normalize_ordered(text):
            byte_B = characters.add(ordered)
        words = word_kernels.count_bert_words(byte_B, characters.out_C, characters.item_K, times_C, *words)
    codes = times_C.nonzero()[0]
    return _cut_words(*words), dict(zip(map(chr, codes.tolist()), times_C[codes].tolist(), strict=True))


def count_gpt2_words(
    texts: Iterable[str], longest: int, run_kind: Callable[[str], int], shorten: Callable[[str], list[str]]
) -> WordCounts:
    """Count the words of texts. Symbols are bytes, uint8.

    If texts have more than `longest` characters of one kind in a row, their parts shorten(text) are counted instead.
    """
    from preprocessing.tokenization import word_kernels

    characters = _GPT2Characters(run_kind)
    words = _no_words(np.uint8)
    for batch in batch_texts(texts):
        byte_B, end_D = characters.add(batch)
        if word_kernels.longest_run(byte_B, characters.run_C) > longest:
            byte_B, end_D = characters.add([part for text in batch for part in shorten(text)])
        words = word_kernels.count_gpt2_words(byte_B, end_D, characters.kind_C, *words)
    return _cut_words(*words)


class _BertCharacters:
    """What the normalizer and the pre-tokenizer make of each character, for the characters that have occurred.

    `out_C`, `item_K`: as for word_kernels.count_bert_words. `run_C`, uint8: whether a long word may contain it.

    A character becomes the same in every context, except that NFD orders combining marks. Nearly all of them are
    removed with the accents; words with others, `ordered`, are normalized as a whole. In a cased vocabulary there is no
    NFD.
    """

    def __init__(self, tokenizer: Tokenizer, can_be_long: Callable[[str], object]) -> None:
        from preprocessing.tokenization import word_kernels

        self._kernels, self._tokenizer, self._can_be_long = word_kernels, tokenizer, can_be_long
        self._has_order = bool(tokenizer.normalizer.lowercase)
        self._ordered = ""
        self._is_known_C = np.zeros(_NUM_CODES, np.bool_)
        self.out_C = np.full(_NUM_CODES, word_kernels.REMOVED, np.int32)
        self.run_C = np.zeros(_NUM_CODES, np.uint8)
        self._items = [word_kernels.REMOVED]
        self._learn(range(_NUM_ASCII))

    @property
    def item_K(self) -> npt.NDArray[np.int32]:
        return np.array(self._items, np.int32)

    def add(self, text: str) -> npt.NDArray[np.uint8]:
        """Return the UTF-8 of a text, whose characters are then known."""
        byte_B = np.frombuffer(text.encode(), np.uint8)
        self._learn(self._kernels.find_new(byte_B, self._is_known_C).tolist())
        return byte_B

    def normalize_ordered(self, text: str) -> str:
        """Return the text with normalized words where the order of marks matters, or "" if it does nowhere."""
        if not any(char in text for char in self._ordered):
            return ""
        words = re.compile(rf"[^ \t\r\n]*[{self._ordered}][^ \t\r\n]*")
        return words.sub(lambda word: self._tokenizer.normalizer.normalize_str(word[0]), text)

    def _learn(self, codes: Iterable[int]) -> None:
        for code in codes:
            normal = self._tokenizer.normalizer.normalize_str(chr(code))
            self.run_C[code] = bool(self._can_be_long(chr(code)))
            self.out_C[code] = self._value(normal)
            if self._has_order and code >= _NUM_ASCII and _moves(normal):
                self._ordered += chr(code)

    def _value(self, normal: str) -> int:
        kernels, pre_tokenizer = self._kernels, self._tokenizer.pre_tokenizer
        values = list[int]()
        for char in normal:
            num_words = len(pre_tokenizer.pre_tokenize_str(f"a{char}a"))  # a space leaves two, punctuation three
            values.append((ord(char), kernels.SPACE, kernels.PUNCTUATION | ord(char))[num_words - 1])
        if values[:1] == values[2:] == [kernels.SPACE]:  # a Chinese character is a word, like punctuation
            return values[1] | kernels.PUNCTUATION
        if len(values) > 1:
            self._items += [*values, kernels.REMOVED]
            return kernels.SEQUENCE - (len(self._items) - len(values) - 1)
        return values[0] if values else kernels.REMOVED


def _moves(text: str) -> bool:
    """Whether NFD moves another mark before the end of a text."""
    form = normalizers.NFD().normalize_str
    return form(text + _OVERLAY) != form(text) + _OVERLAY


class _GPT2Characters:
    """The kinds of the characters that have occurred.

    `kind_C`, uint8: the kind in GPT-2's pattern. `run_C`, uint8: the kind in `run_kind`.
    """

    def __init__(self, run_kind: Callable[[str], int]) -> None:
        from preprocessing.tokenization import word_kernels

        self._kernels, self._run_kind = word_kernels, run_kind
        self._split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
        self._is_known_C = np.zeros(_NUM_CODES, np.bool_)
        self.kind_C, self.run_C = np.zeros(_NUM_CODES, np.uint8), np.zeros(_NUM_CODES, np.uint8)
        self._learn(range(_NUM_ASCII))

    def add(self, texts: list[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the UTF-8 of the texts, and where each ends, int64 [D]. Their characters are then known."""
        encoded = [text.encode() for text in texts]
        byte_B = np.frombuffer(b"".join(encoded), np.uint8)
        self._learn(self._kernels.find_new(byte_B, self._is_known_C).tolist())
        return byte_B, np.cumsum([len(each) for each in encoded], dtype=np.int64)

    def _learn(self, codes: Iterable[int]) -> None:
        kernels = self._kernels
        like = (("a", kernels.LETTER), ("1", kernels.DIGIT), ("!", kernels.MARK))
        for code in codes:
            same = (kind for other, kind in like if len(self._split(other + chr(code))) == 1)
            self.kind_C[code], self.run_C[code] = next(same, kernels.WHITE), self._run_kind(chr(code))


def batch_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Return the texts in lists of about a million characters; a longer text ends one."""
    batch, num_chars = list[str](), 0
    for text in texts:
        batch.append(text)
        num_chars += len(text)
        if num_chars >= _CHARS_AT_ONCE:
            yield batch
            batch, num_chars = [], 0
    if batch:
        yield batch


def _no_words(dtype: npt.DTypeLike) -> tuple[tuple[npt.NDArray[Any], ...], int]:
    """Return the arrays of the kernels before the first word, and the number of words."""
    slots, types = 1 << 16, (dtype, np.int64, np.int64, np.uint64)
    return (*(np.zeros(slots, each) for each in types), np.full(slots, -1, np.int32)), 0


def _cut_words(words: tuple[npt.NDArray[Any], ...], num: int) -> WordCounts:
    symbol_S, start_N, count_N, *_ = words
    return WordCounts(symbol_S[: start_N[num]], start_N[: num + 1], count_N[:num])
