"""WordPiece (BERT, arXiv:1810.04805) through `tokenizers`: train ids of pieces, read them, write them as files."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from preprocessing.errors import BadInput

SPECIALS: Final = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_COVERAGE: Final = 0.9999  # of the text is written in characters that get a piece, however many; the rest is [UNK]
_CHARACTERS: Final = 1 / 32  # of the pieces, at least, may be characters: BERT has 997 of 30,522
_LEAST_COUNT: Final = 2  # a pair seen once is no pattern
_TEXTS_AT_ONCE: Final = 1_000  # whose ids are in memory together
_LONGEST_WORD: Final = 100  # characters; a longer word is [UNK], as in transformers


def train(texts: Sequence[str], size: int, lowercase: bool) -> dict[str, int]:
    """Ids of at most `size` pieces, specials first; BadInput where the characters of the text alone are more.

    The library's trainer breaks ties by the ids of pieces and numbers the alphabet in the order of a hash table, which
    differs from run to run. So the alphabet is counted and sorted here, and handed over in order, piece by piece.
    """
    tokenizer = _tokenizer(models.WordPiece(unk_token=SPECIALS["unk"]), lowercase)
    alphabet = _alphabet(texts, size, tokenizer)
    inside = ["##" + char for char in alphabet if len(tokenizer.pre_tokenizer.pre_tokenize_str("a" + char)) == 1]
    first = [*SPECIALS.values(), *alphabet, *inside]
    if len(first) > size:
        raise BadInput(f"vocab.size is {size}, the characters of this text alone need {len(first)}; ask for more")
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


def by_frequency(ids: dict[str, int], texts: Sequence[str], lowercase: bool) -> dict[str, int]:
    """The same pieces, numbered by how often the texts have them, the special ones first; equal ones stay in order."""
    tokenizer = Tokenizer.from_str(files(ids, lowercase)["tokenizer.json"].decode())
    tokenizer.encode_special_tokens = True
    count_V = np.zeros(len(ids), np.int64)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + _TEXTS_AT_ONCE], add_special_tokens=False):
            count_V += np.bincount(encoding.ids, minlength=len(ids))
    count_V[[ids[name] for name in SPECIALS.values()]] = np.iinfo(np.int64).max
    rank_V = np.empty_like(count_V)
    rank_V[np.argsort(-count_V, kind="stable")] = np.arange(len(ids))
    return {piece: int(rank_V[id]) for piece, id in ids.items()}


def read(path: Path) -> dict[str, int]:
    """Ids of the pieces of a vocab.txt (one a line) or a tokenizer.json."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        model = json.loads(text)["model"]
        if model["type"] != "WordPiece":
            raise BadInput(
                f"vocab.file: {path}: is {model['type']}, vocab.kind is wordpiece; change the kind or the file"
            )
        return model["vocab"]
    lines = text.removesuffix("\n").split("\n")  # splitlines would cut at characters that are pieces
    return {line.removesuffix("\r"): id for id, line in enumerate(lines)}


def files(ids: dict[str, int], lowercase: bool) -> dict[str, bytes]:
    """tokenizer.json, which splits as the reference BERT does, and vocab.txt."""
    model = models.WordPiece(ids, unk_token=SPECIALS["unk"], max_input_chars_per_word=_LONGEST_WORD)
    tokenizer = _tokenizer(model, lowercase)
    tokenizer.add_special_tokens(list(SPECIALS.values()))
    known = tokenizer.get_vocab()
    sep, cls = SPECIALS["sep"], SPECIALS["cls"]
    tokenizer.post_processor = processors.BertProcessing((sep, known[sep]), (cls, known[cls]))
    tokenizer.decoder = decoders.WordPiece()
    lines = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
    return {"tokenizer.json": tokenizer.to_str().encode(), "vocab.txt": lines.encode()}


def _tokenizer(model: models.WordPiece, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)  # lower case also strips accents, as in BERT
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _alphabet(texts: Sequence[str], size: int, tokenizer: Tokenizer) -> list[str]:
    """The most frequent characters of the text as the tokenizer normalises it, equal counts by code point; sorted."""
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
