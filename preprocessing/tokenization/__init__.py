"""Tokenizers: train or load one, and encode documents as token IDs with word boundaries.

Read part.py (the facts of a kind) first, then wordpiece.py. byte_level_bpe.py, sentencepiece.py and word_level.py are
the other kinds; end_of_word_bpe.py is read from files only. specs.py has the union of the kinds, the registry. vocab.py
has a tokenizer that is ready to encode; training.py trains it, folder.py loads it from a directory of transformers.
tokenizer_json.py interprets files of the library `tokenizers`, folding.py folds case and accents as sentencepiece does,
accents.py finds letters that lose their marks. template.py makes sequences of one or two texts, frame.py adds the
special tokens of pretraining, gpt1_tokens.py those of GPT-1. display.py shows tokens as readable text.
"""

from preprocessing.tokenization.accents import describe_stripped_marks, keeps_whitespace, without_whitespace
from preprocessing.tokenization.byte_level_bpe import ByteLevelBPE
from preprocessing.tokenization.display import (
    SPACE_SIGN,
    ShownToken,
    legend,
    shown_piece,
    shown_text,
    shown_tokens,
    token_texts,
)
from preprocessing.tokenization.folder import of_folder
from preprocessing.tokenization.frame import ENDED, PLAIN, Frame, add_frame, with_open_sentinels
from preprocessing.tokenization.gpt1_tokens import INSERTS, with_inserts
from preprocessing.tokenization.part import TokenizerPart, too_small
from preprocessing.tokenization.sentencepiece import SentencePieceBPE, Unigram
from preprocessing.tokenization.specs import KINDS, TokenizerSpec, table_rows
from preprocessing.tokenization.template import SPECIAL, Template, TemplatedRow, Text, windows
from preprocessing.tokenization.training import train, vocab_from_file
from preprocessing.tokenization.vocab import EncodedDocument, Vocab
from preprocessing.tokenization.word_level import SingleBytes, WordLevel
from preprocessing.tokenization.wordpiece import WordPiece

__all__ = [
    "ENDED",
    "INSERTS",
    "KINDS",
    "PLAIN",
    "SPACE_SIGN",
    "SPECIAL",
    "ByteLevelBPE",
    "EncodedDocument",
    "Frame",
    "SentencePieceBPE",
    "ShownToken",
    "SingleBytes",
    "Template",
    "TemplatedRow",
    "Text",
    "TokenizerPart",
    "TokenizerSpec",
    "Unigram",
    "Vocab",
    "WordLevel",
    "WordPiece",
    "add_frame",
    "describe_stripped_marks",
    "keeps_whitespace",
    "legend",
    "of_folder",
    "shown_piece",
    "shown_text",
    "shown_tokens",
    "table_rows",
    "token_texts",
    "too_small",
    "train",
    "vocab_from_file",
    "windows",
    "with_inserts",
    "with_open_sentinels",
    "without_whitespace",
]
