"""Whole words, or single bytes, through `tokenizers`: the most frequent ones; all others are unknown."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from preprocessing.text import sentences

Unit = Literal["words", "bytes"]
SPECIALS: Final = {"unk": "<unk>", "sep": "</s>"}


def train(texts: Iterable[str], size: int, unit: Unit) -> dict[str, int]:
    """Ids of at most `size` pieces, specials first, then by falling frequency; equal ones by code point."""
    tokenizer = _tokenizer({}, unit)
    trainer = trainers.WordLevelTrainer(vocab_size=size, min_frequency=0, special_tokens=[], show_progress=False)
    tokenizer.train_from_iterator((sentence for text in texts for sentence in sentences(text)), trainer)
    found = json.loads(tokenizer.to_str())["model"]["vocab"]
    # a text may have words that it calls <unk>, as WikiText does
    pieces = dict.fromkeys([*SPECIALS.values(), *sorted(found, key=found.__getitem__)])
    return {piece: id for id, piece in enumerate(list(pieces)[:size])}


def read(path: Path) -> dict[str, int]:
    """Ids of the pieces of a vocab.txt, one a line."""
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return {line.removesuffix("\r"): id for id, line in enumerate(lines)}


def files(ids: dict[str, int], unit: Unit) -> dict[str, bytes]:
    """tokenizer.json and vocab.txt."""
    tokenizer = _tokenizer(ids, unit)
    tokenizer.add_special_tokens(list(SPECIALS.values()))
    lines = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
    return {"tokenizer.json": tokenizer.to_str().encode(), "vocab.txt": lines.encode()}


def _tokenizer(ids: dict[str, int], unit: Unit) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=SPECIALS["unk"]))
    if unit == "bytes":
        each = pre_tokenizers.Split(Regex("(?m)."), "isolated")  # in this dialect, m lets . be a line end as well
        visible = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([visible, each])
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.normalizer = normalizers.Replace(SPECIALS["sep"], SPECIALS["unk"])  # no text ends itself
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer
