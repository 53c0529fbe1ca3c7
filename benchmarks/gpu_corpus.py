"""A made-up corpus for measurements of speed: random documents of realistic lengths, written in a few seconds.

The shard is written directly, without Beam and without a text. Tokens are as unequally frequent as words. The
vocabulary has the size of the recipe and made-up tokens.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from tokenizers import pre_tokenizers

from preprocessing import tokenization
from preprocessing.manifest import Count, Ledger, Manifest, ShardInfo
from preprocessing.shards import shard_name, write_shard
from preprocessing.tokenization import ByteLevelBPE, TokenizerSpec, Vocab, WordPiece

SENTENCE_TOKENS: Final = 24.0  # mean tokens of a sentence
WORD_TOKENS: Final = 1.3  # mean tokens of a word
SPREAD: Final = 1.0  # standard deviation of the logarithm of a document's length
SHORTEST: Final = 32  # tokens of the shortest documents


def make_corpus(folder: Path, tokenizer: TokenizerSpec, num_tokens: int, document_tokens: float) -> Path:
    """Write about `num_tokens` tokens in documents of `document_tokens` tokens on average; returns `folder`."""
    folder.mkdir(parents=True)
    vocab = make_vocab(folder / "made-up", tokenizer)
    vocab.save(folder / "vocab")
    ordinary_V = np.setdiff1d(np.arange(vocab.size), vocab.special_ids).astype(np.uint16)
    shard = write_documents(folder / shard_name("train", 0, 1), ordinary_V, vocab.size, num_tokens, document_tokens)
    count = Count(shard.rows, 0, shard.tokens)
    about = {"kind": vocab.kind, "size": vocab.size, "hash": vocab.hash, "specials": vocab.specials}
    Manifest("made-up", "", "", about, {}, (shard,), Ledger(count, count)).save(folder)
    return folder


def write_documents(
    path: Path,
    ordinary_V: npt.NDArray[np.uint16],
    vocab_size: int,
    num_tokens: int,
    document_tokens: float,
    seed: int = 0,
) -> ShardInfo:
    """Write a shard of about `num_tokens` tokens from `ordinary_V`, in documents of `document_tokens` on average."""
    rng = np.random.default_rng(seed)
    num_documents = max(2, round(num_tokens / document_tokens))
    length_N = rng.lognormal(np.log(document_tokens) - SPREAD**2 / 2, SPREAD, num_documents).astype(np.int64)
    length_N = np.maximum(length_N, SHORTEST)
    end_N = np.cumsum(length_N)
    starts = end_N - length_N
    total = int(end_N[-1])
    sentence_T = rng.random(total, np.float32) < 1 / SENTENCE_TOKENS
    sentence_T[starts] = True
    word_T = sentence_T | (rng.random(total, np.float32) < 1 / WORD_TOKENS)
    cuts = end_N[:-1]
    return write_shard(
        path,
        np.split(_draw_tokens(ordinary_V, total, rng), cuts),
        np.split(word_T, cuts),
        np.split(sentence_T, cuts),
        ["made-up"] * num_documents,
        [number.to_bytes(16, "big") for number in range(num_documents)],
        vocab_size=vocab_size,
    )


def _draw_tokens(ordinary_V: npt.NDArray[np.uint16], count: int, rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    """Tokens by Zipf's law, with the offset of 2.7 that fits English text."""
    share_V = np.cumsum(1 / (np.arange(len(ordinary_V)) + 2.7))
    rank_T = np.searchsorted(share_V / share_V[-1], rng.random(count, np.float32))
    return ordinary_V[np.minimum(rank_T, len(ordinary_V) - 1)]


def make_vocab(folder: Path, tokenizer: TokenizerSpec) -> Vocab:
    """A vocabulary of made-up tokens with the size of `tokenizer`, which takes no training."""
    folder.mkdir()
    if isinstance(tokenizer, WordPiece):
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokens += [f"w{number}" for number in range(len(tokens), tokenizer.vocab_size)]
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    elif isinstance(tokenizer, ByteLevelBPE) and tokenizer.special_tokens == "gpt2":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        pairs = [(left, right) for left in alphabet for right in alphabet]
        merges = pairs[: tokenizer.vocab_size - len(alphabet) - 1]
        tokens = [*alphabet, *(left + right for left, right in merges), "<|endoftext|>"]
        (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
        lines = "".join(f"{left} {right}\n" for left, right in merges)
        (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    else:
        raise ValueError(f"no made-up vocabulary for a tokenizer of kind {tokenizer.kind}")
    return tokenization.train(replace(tokenizer, path=str(folder)), ())
