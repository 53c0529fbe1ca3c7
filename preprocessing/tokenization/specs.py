"""The union of tokenizer kinds, which is their registry."""

from typing import Final, get_args

from preprocessing.spec import kind_of
from preprocessing.tokenization.byte_level_bpe import ByteLevelBPE
from preprocessing.tokenization.end_of_word_bpe import EndOfWordBPE
from preprocessing.tokenization.part import TokenizerPart
from preprocessing.tokenization.sentencepiece import SentencePieceBPE, Unigram
from preprocessing.tokenization.word_level import SingleBytes, WordLevel
from preprocessing.tokenization.wordpiece import WordPiece

TokenizerSpec = WordPiece | ByteLevelBPE | Unigram | SentencePieceBPE | WordLevel | SingleBytes
Read = TokenizerSpec | EndOfWordBPE
"""Kinds that can be loaded: those of recipes, and EndOfWordBPE."""
KINDS: Final[dict[str, type[TokenizerPart]]] = {kind_of(member): member for member in get_args(Read)}


def _has_every_fact(spec: Read) -> TokenizerPart:
    return spec  # type error if a member lacks an attribute of TokenizerPart


def table_rows(spec: TokenizerSpec) -> int:
    """Return the number of rows of the token table of a model with this tokenizer.

    >>> table_rows(Unigram(vocab_size=32_100, padded_vocab_size=32_128)), table_rows(Unigram(vocab_size=30_000))
    (32128, 30000)
    """
    return spec.padded_vocab_size or spec.vocab_size
