"""Byte-level BPE (GPT-2, RoBERTa) through `tokenizers`: the spec, then training, reading and writing."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from preprocessing.characters import pin_characters
from preprocessing.files import parse_json
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
)
from preprocessing.tokenization.word_counts import WordCounts, choose_kernels, count_gpt2_words

Layout = Literal["gpt2", "roberta"]
# The last special token follows the ordinary tokens; the others precede them.
SPECIALS: Final[dict[Layout, dict[str, str]]] = {
    "gpt2": {"sep": "<|endoftext|>"},
    "roberta": {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"},
}
DICTIONARY: Final = "dict.txt"  # fairseq's file: GPT-2's IDs in RoBERTa's order
LINE_ENDS: Final = "\u0109\u010a\u010d"  # tab, line feed and carriage return, as tokens encode these bytes
WHITE: Final = LINE_ENDS + "\u0120"  # and space
_NUM_BYTES: Final = 256
_PRINTABLE: Final = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that GPT-2 does not remap
_OTHERS: Final = (byte for byte in range(_NUM_BYTES) if byte not in _PRINTABLE)
_BYTE_OF: Final = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(_NUM_BYTES + number): byte for number, byte in enumerate(_OTHERS)
}
_LEAST_COUNT: Final = 2  # pairs that occur once are not merged
_LONGEST_WORD: Final = 1_000  # maximum word length in characters, in training
_KINDS: Final = (r"[^\W\d_]", r"\d", r"(?:[^\w\s]|_)", r"\s")  # of GPT-2's words: letters, digits, marks, white space
_LONG_WORD: Final = re.compile("|".join(rf"(?<!{kind}){kind}{{{_LONGEST_WORD + 1},}}" for kind in _KINDS))


@spec
class ByteLevelBPE:
    """Byte-level BPE: no text is unknown to it (GPT-2, RoBERTa).

    GPT-2 and RoBERTa differ in their special tokens.
    """

    kind: Literal["byte_level_bpe"] = "byte_level_bpe"
    vocab_size: int = key(default=50257, doc="Number of tokens, special tokens included.")
    special_tokens: Layout = key(default="gpt2", doc="Special tokens: the one of GPT-2, or those of RoBERTa.")
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(
        default="", doc="Path to tokenizer.json, or to a directory with GPT-2's files; empty: train a tokenizer."
    )

    roles: ClassVar[Mapping[str, str]] = dict.fromkeys(SPECIALS["roberta"], "special_tokens 'roberta'") | {"sep": ""}
    token_order: ClassVar[str] = "training"
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
        require_sizes(self, least=_NUM_BYTES + len(self.special_roles - {"sentinel"}) + self.extra_ids)

    @property
    def special_roles(self) -> frozenset[str]:
        return frozenset(SPECIALS[self.special_tokens])

    def describe(self) -> str:
        return f"{self.vocab_size:,} byte-level BPE tokens{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        if self.path:
            return from_file(self.path, self._read)
        return TokenizerBuild(
            SPECIALS[self.special_tokens],
            _files(_train(texts, self.vocab_size, self.special_tokens), self.special_tokens),
        )

    def _read(self, path: Path) -> TokenizerBuild:
        """Read a tokenizer.json with its own special tokens, or with RoBERTa's if fairseq's dict.txt is beside it."""
        file = tokenizer_json.find(path)
        is_fairseq = (
            self.special_tokens == "roberta" and (path if path.is_dir() else path.parent).joinpath(DICTIONARY).exists()
        )
        if file and not is_fairseq:
            build = tokenizer_json.read(file, self)
            return build._replace(files=build.files | _companions(_from_json(file)))
        return TokenizerBuild(
            SPECIALS[self.special_tokens],
            _files(_read(path, self.vocab_size, self.special_tokens), self.special_tokens),
        )

    def least_size(self, texts: Iterable[str]) -> int:
        return 0

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return scheme.model == "BPE" and scheme.is_of_bytes and not scheme.inside and not scheme.at_end

    @staticmethod
    def starts_word(piece: str) -> bool:
        return piece[0] in WHITE

    @staticmethod
    def ends_word(piece: str) -> bool:
        return piece[-1] in LINE_ENDS  # the next word has no space mark

    @staticmethod
    def utf8(piece: str) -> bytes:
        return utf8_of(piece)


def utf8_of(piece: str) -> bytes:
    """Return the bytes that a token represents; a token that was added as text represents this text.

    >>> utf8_of("\u0120the"), utf8_of("\u00e2\u0124\u00ac"), utf8_of("a b")
    (b' the', b'\\xe2\\x82\\xac', b'a b')
    """
    try:
        return bytes(_BYTE_OF[char] for char in piece)
    except KeyError:
        return piece.encode()


class BPEVocabulary(NamedTuple):
    """Token IDs, including special tokens, and merges in order."""

    ids: dict[str, int]
    merges: list[tuple[str, str]]


def _train(texts: Iterable[str], size: int, layout: Layout) -> BPEVocabulary:
    """Train at most `size` tokens. Every byte is a token, so no text is unknown."""
    by_kernels, texts = choose_kernels(texts)
    if by_kernels:
        from preprocessing.jit import without_extensions

        with without_extensions():
            return _merge(count_gpt2_words(texts, _LONGEST_WORD, _run_kind, _short_words), size, layout)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIALS[layout]),
        min_frequency=_LEAST_COUNT,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((part for text in texts for part in _short_words(text)), trainer)
    model = parse_json(tokenizer.to_str())["model"]
    ordinary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return BPEVocabulary(_with_specials(ordinary, layout), [_pair(merge) for merge in model["merges"]])


def _merge(words: WordCounts, size: int, layout: Layout) -> BPEVocabulary:
    """Train as `_train` does, on counted words."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces, merges = merge_pieces(
        words,
        characters,
        [_BYTE_OF[char] for char in characters],
        prefix="",
        max_pieces=size - len(SPECIALS[layout]),
        least=_LEAST_COUNT,
    )
    return BPEVocabulary(_with_specials(pieces, layout), merges)


@pin_characters
def _run_kind(char: str) -> int:
    """Return 1, 2, 3 or 4 for a letter, digit, mark or white space.

    >>> list(map(_run_kind, "a1!_ "))
    [1, 2, 3, 3, 4]
    """
    return next(number for number, kind in enumerate(_KINDS, start=1) if re.match(kind, char))


@pin_characters
def _short_words(text: str) -> list[str]:
    """Return the text in parts, cut inside words of more than 1,000 characters.

    The time of the library's trainer is quadratic in the longest word. The cuts lose only a few pairs of such a word.

    >>> [len(part) for part in _short_words("a " + "b" * 2500)]
    [1002, 1000, 500]
    """
    parts, start = list[str](), 0
    for word in _LONG_WORD.finditer(text):
        for stop in range(word.start() + _LONGEST_WORD, word.end(), _LONGEST_WORD):
            parts.append(text[start:stop])
            start = stop
    return [*parts, text[start:]]


def _read(path: Path, size: int, layout: Layout) -> BPEVocabulary:
    """Read a tokenizer.json, or a directory with vocab.json + merges.txt or encoder.json + vocab.bpe.

    If the layout is RoBERTa's and the files are GPT-2's, the tokens get RoBERTa's special tokens. If fairseq's dict.txt
    is beside the files, its order applies to the first `size` tokens, which gives the published IDs.
    """
    pairs = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
    names = next((pair for pair in pairs if (path / pair[0]).exists()), None)
    if path.is_dir() and names:
        ids = parse_json((path / names[0]).read_text(encoding="utf-8"))
        lines = (path / names[1]).read_text(encoding="utf-8").split("\n")
        merges = [_pair(line) for line in lines if line and not line.startswith("#version")]
    else:
        ids, merges = _from_json(tokenizer_json.inside(path, tokenizer_json.NAME, pairs[0][0], pairs[1][0]))
    if layout == "roberta" and SPECIALS["roberta"]["mask"] not in ids:
        ordinary = sorted(ids, key=ids.__getitem__)
        dictionary = path / DICTIONARY if path.is_dir() else path.with_name(DICTIONARY)
        if dictionary.exists():
            lines = dictionary.read_text(encoding="utf-8").removesuffix("\n").split("\n")
            entries = [line.partition(" ")[0] for line in lines]
            entries = entries[: size - len(SPECIALS["roberta"])]
            # an entry is a GPT-2 ID, or a padding word such as madeupword0000
            ordinary = [ordinary[int(entry)] if entry.isdigit() else entry for entry in entries]
        ids = _with_specials(ordinary, layout)
    return BPEVocabulary(ids, merges)


def _from_json(path: Path) -> BPEVocabulary:
    """Read the tokens of a tokenizer.json, including added tokens."""
    content = parse_json(path.read_text(encoding="utf-8"))
    ids = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    return BPEVocabulary(ids, [_pair(merge) for merge in content["model"]["merges"]])


def _files(pieces: BPEVocabulary, layout: Layout) -> dict[str, bytes]:
    """Return the contents of tokenizer.json, vocab.json and merges.txt."""
    tokenizer = Tokenizer(models.BPE(pieces.ids, pieces.merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = SPECIALS[layout]
    # <mask> includes the space before it, as in transformers, because it replaces a whole " word"
    tokenizer.add_special_tokens([AddedToken(name, lstrip=role == "mask") for role, name in names.items()])
    ids = tokenizer.get_vocab()
    if layout == "roberta":
        sep, cls = ((names[role], ids[names[role]]) for role in ("sep", "cls"))
        tokenizer.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=False)
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return {"tokenizer.json": tokenizer.to_str().encode(), **_companions(pieces)}


def _companions(pieces: BPEVocabulary) -> dict[str, bytes]:
    """Return the contents of vocab.json and merges.txt, which repeat the tokens."""
    merges = "".join(f"{left} {right}\n" for left, right in pieces.merges)
    return {
        "vocab.json": json.dumps(pieces.ids, ensure_ascii=False).encode(),
        "merges.txt": f"#version: 0.2\n{merges}".encode(),
    }


def _with_specials(ordinary: Sequence[str], layout: Layout) -> dict[str, int]:
    """Number the ordinary tokens and the special tokens around them.

    >>> _with_specials(["a", "b"], "gpt2")
    {'a': 0, 'b': 1, '<|endoftext|>': 2}
    """
    *first, last = SPECIALS[layout].values()
    plain = [piece for piece in ordinary if piece not in (*first, last)]  # GPT-2's own files include its end token
    return {piece: id for id, piece in enumerate([*first, *plain, last])}


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right
