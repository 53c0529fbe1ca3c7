"""Fast encoders of other packages for byte-level BPE and WordPiece, which return the IDs of `tokenizers`.

`tokenizers` is the reference. Another encoder is used only if its version was tested (TESTED), if it supports all parts
of tokenizer.json, and if it passes a trial (parity.py). The extra `[fast]` installs the packages; without them, corpora
have the same bytes.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.schema import Ints

REFERENCE: Final = "tokenizers"
TESTED: Final = {REFERENCE: "0.23.3", "nanotoken": "0.1.0", "gigatoken": "0.10.0"}
"""Versions whose IDs were compared for all code points and for millions of strings (tests/preprocessing)."""

# Characters that Unicode 17 added. They are letters or digits for gigatoken 0.10, but not for tokenizers 0.23.
_NEW: Final = re.compile(
    r"[\u088f\u0c5c\u0cdc\ua7ce-\ua7cf\ua7d2\ua7d4\ua7f1\U00010940-\U00010959\U00010ec5-\U00010ec7"
    r"\U00011db0-\U00011ddb\U00011de0-\U00011de9\U00016ea0-\U00016eb8\U00016ebb-\U00016ed3"
    r"\U00016ff2-\U00016ff6\U000187f8-\U000187ff\U00018d09-\U00018d1e\U00018d80-\U00018df2"
    r"\U0001e6c0-\U0001e6de\U0001e6e0-\U0001e6e2\U0001e6e4-\U0001e6e5\U0001e6e7-\U0001e6ed"
    r"\U0001e6f0-\U0001e6f4\U0001e6fe-\U0001e6ff\U0002b73a-\U0002b73f\U0002cea2-\U0002cead"
    r"\U000323b0-\U00033479]"
)
_FIRST_BYTES: Final = (b"\xf0", b"\xea\x9f", b"\xe0\xa2", b"\xe0\xb1", b"\xe0\xb3")  # of them in UTF-8

_RENEWED_AFTER: Final = (
    1 << 28
)  # characters; the caches of words grow to hundreds of MB, that of gigatoken without limit
_WORDPIECE: Final = {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "type", "vocab"}
_BPE: Final = {
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
"""The keys of a BPE model that change its IDs, with the values that byte-level BPE has."""


class BatchEncoder(Protocol):
    """Encodes many texts at once, in the calling thread."""

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The IDs of all texts, int32 [T], and their ends: text i has the IDs [ends[i], ends[i + 1]), int64 [N + 1]."""
        ...


@dataclass(frozen=True)
class ListEncoder:
    """An encoder that returns a list of IDs for each text."""

    encode_texts: Callable[[list[str]], list[list[int]]]

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        found = self.encode_texts(list(texts))
        end_N = np.cumsum([0, *map(len, found)])
        return np.fromiter(chain.from_iterable(found), np.int32, int(end_N[-1])), end_N


@dataclass(frozen=True)
class WithoutSpecialTokens:
    """An encoder that replaces special tokens, whose names are words of a text, by the unknown token."""

    encoder: BatchEncoder
    special: Collection[int]
    unk: int

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        ids_T, end_N = self.encoder.encode(texts)
        ids_T[np.isin(ids_T, list(self.special))] = self.unk
        return ids_T, end_N


@dataclass(frozen=True)
class WithNewCharacters:
    """An encoder that leaves texts with new characters of Unicode 17 to the reference."""

    encoder: BatchEncoder
    reference: BatchEncoder

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        in_utf8 = "".join(texts).encode()
        if not any(first in in_utf8 for first in _FIRST_BYTES):
            return self.encoder.encode(texts)
        odd = [place for place, text in enumerate(texts) if not text.isascii() and _NEW.search(text)]
        if not odd:
            return self.encoder.encode(texts)
        plain = list(texts)
        for place in odd:
            plain[place] = ""
        ids_T, end_N = self.encoder.encode(plain)
        parts = np.split(ids_T, end_N[1:-1])
        other_T, other_N = self.reference.encode([texts[place] for place in odd])
        for place, ids in zip(odd, np.split(other_T, other_N[1:-1]), strict=True):
            parts[place] = ids
        return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


class RenewedEncoder:
    """An encoder that is opened again after many characters, so that its cache of words cannot fill the memory."""

    def __init__(self, open: Callable[[], BatchEncoder]) -> None:
        self._open, self._encoder, self._num_characters = open, open(), 0

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        self._num_characters += sum(map(len, texts))
        if self._num_characters > _RENEWED_AFTER:
            self._num_characters, self._encoder = 0, self._open()
        return self._encoder.encode(texts)


class NanotokenEncoder:
    """WordPiece by nanotoken."""

    def __init__(self, tokenizer: str) -> None:
        from nanotoken import Tokenizer

        self._backend: Any = Tokenizer.from_json(tokenizer).backend

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        ids_T, end_N = self._backend.encode_batch(texts, add_special_tokens=False, parallel=False)
        return ids_T.astype(np.int32), end_N


class GigatokenEncoder:
    """Byte-level BPE by gigatoken."""

    def __init__(self, tokenizer: str) -> None:
        from gigatoken.gigatoken_rs import load_hf_json

        self._backend: Any = load_hf_json(tokenizer)

    def encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        # a call for each text: `encode_batch` returns an array of awkward, whose import takes half a second
        parts = [self._backend.encode(text) for text in texts]
        end_N = np.cumsum([0, *map(len, parts)])
        return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int32), end_N


def choose_encoder(content: Mapping[str, Any]) -> str:
    """The name of the fast encoder for a tokenizer.json, or ""; the package need not be installed.

    >>> choose_encoder({"model": {"type": "Unigram"}})
    ''
    """
    model = content["model"]
    parts = {name: content.get(name) or {} for name in ("normalizer", "pre_tokenizer")}
    kinds = {name: part.get("type") for name, part in parts.items()}
    if any(not token["special"] for token in content.get("added_tokens", ())):
        return ""  # such tokens are found inside of texts
    if model["type"] == "WordPiece" and kinds == {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}:
        return "nanotoken" if model.keys() <= _WORDPIECE else ""
    if model["type"] == "BPE" and kinds == {"normalizer": None, "pre_tokenizer": "ByteLevel"}:
        has_usual_keys = all(model.get(name) in (usual, "") for name, usual in _BPE.items())
        has_usual_words = not parts["pre_tokenizer"]["add_prefix_space"] and parts["pre_tokenizer"].get(
            "use_regex", True
        )
        return "gigatoken" if has_usual_keys and has_usual_words else ""
    return ""


def find_obstacle(name: str) -> str:
    """Why an encoder cannot be used here, or "": it is not installed, or versions have not been tested together."""
    try:
        found = {package: version(package) for package in (name, REFERENCE)}
    except PackageNotFoundError:
        return f"{name} is not installed: run `pip install 'sesame-pretraining[fast]'`"
    other = [package for package in found if found[package] != TESTED[package]]
    return "".join(f"{package} {found[package]} was not tested, only {TESTED[package]}" for package in other[:1])


def open_encoder(name: str, tokenizer: bytes, reference: BatchEncoder) -> BatchEncoder:
    """The encoder for a tokenizer.json. Special tokens in texts are encoded as ordinary text.

    `reference` is the encoder of `tokenizers`, for characters that the other encoder encodes in another way. Raises
    BadInput if the encoder refuses the file.
    """
    content = json.loads(tokenizer)
    content |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    try:
        kind = NanotokenEncoder if name == "nanotoken" else GigatokenEncoder
        encoder = RenewedEncoder(partial(kind, json.dumps(content, ensure_ascii=False)))
        return encoder if name == "nanotoken" else WithNewCharacters(encoder, reference)
    except Exception as error:  # each package has its own kinds of errors
        raise BadInput(f"{name} cannot read this tokenizer.json ({error}); use the encoder of tokenizers") from None
