"""The union of the kinds of vocabularies: it is their registry."""

from typing import Final, get_args

from preprocessing.spec import kind_of
from preprocessing.vocab.byte_bpe import ByteBPE
from preprocessing.vocab.ended_bpe import EndedBPE
from preprocessing.vocab.part import VocabKind
from preprocessing.vocab.sentencepiece import SentencePieceBPE, Unigram
from preprocessing.vocab.word_level import SingleBytes, WholeWords
from preprocessing.vocab.wordpiece import WordPiece

VocabSpec = WordPiece | ByteBPE | Unigram | SentencePieceBPE | WholeWords | SingleBytes
Read = VocabSpec | EndedBPE
"""What a folder may have: those of recipes, and what is only read."""
KINDS: Final[dict[str, type[VocabKind]]] = {kind_of(member): member for member in get_args(Read)}


def _has_every_fact(spec: Read) -> VocabKind:
    return spec  # a member without a fact is a type error here


def table_rows(spec: VocabSpec) -> int:
    """Rows of the token table of a net that reads this vocabulary.

    >>> table_rows(Unigram(vocab_size=32_100, padded_vocab_size=32_128)), table_rows(Unigram(vocab_size=30_000))
    (32128, 30000)
    """
    return spec.padded_vocab_size or spec.vocab_size
