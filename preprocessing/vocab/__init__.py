"""Vocabularies: train or load one, turn documents into ids, say where words begin.

Read specs.py (what a recipe says), then vocab.py (a vocabulary that is ready to encode), then training.py. The kinds
have a file each: wordpiece.py, byte_bpe.py, sentencepiece.py, word_level.py.
"""

from preprocessing.vocab.specs import (
    ByteBPE,
    SentencePieceBPE,
    SingleBytes,
    Unigram,
    VocabSpec,
    WholeWords,
    WordPiece,
    table_rows,
)
from preprocessing.vocab.training import train
from preprocessing.vocab.vocab import Encoded, Vocab

__all__ = [
    "ByteBPE",
    "Encoded",
    "SentencePieceBPE",
    "SingleBytes",
    "Unigram",
    "Vocab",
    "VocabSpec",
    "WholeWords",
    "WordPiece",
    "table_rows",
    "train",
]
