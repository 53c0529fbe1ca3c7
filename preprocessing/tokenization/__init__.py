"""Tokenizers: train or load one, and encode documents as token IDs with word boundaries.

Read part.py first, which has the interface of a kind, then wordpiece.py. The other kinds are in byte_level_bpe.py,
sentencepiece.py and word_level.py. The kind in end_of_word_bpe.py can be loaded but not trained. specs.py has the union
of the kinds, which is the registry.

vocab.py has a trained tokenizer. training.py trains one, and folder.py loads one from a directory of transformers.
tokenizer_json.py interprets files of the library `tokenizers`. folding.py folds case and accents as sentencepiece does.
accents.py detects lost accents and white space. template.py builds sequences of one or two texts. frame.py adds the
special tokens of pretraining, and gpt1_tokens.py those of GPT-1. encoders.py has faster
encoders than `tokenizers`, and parity.py compares their IDs with its IDs. display.py shows tokens as readable text.
"""

from preprocessing.tokenization.accents import describe_stripped_marks, keeps_whitespace, without_whitespace
from preprocessing.tokenization.byte_level_bpe import ByteLevelBPE
from preprocessing.tokenization.display import (
    SPACE_SIGN,
    ShownToken,
    display_piece,
    display_text,
    display_tokens,
    legend,
    token_texts,
)
from preprocessing.tokenization.document_encoder import EncodedBatch, EncodedDocument
from preprocessing.tokenization.folder import of_folder
from preprocessing.tokenization.frame import ENDED, PLAIN, Frame, add_frame, with_open_sentinels
from preprocessing.tokenization.gpt1_tokens import INSERTS, with_inserts
from preprocessing.tokenization.parity import NUM_STRINGS
from preprocessing.tokenization.part import TokenizerPart, too_small
from preprocessing.tokenization.sentencepiece import SentencePieceBPE, Unigram
from preprocessing.tokenization.specs import KINDS, TokenizerSpec, table_rows
from preprocessing.tokenization.template import (
    SPECIAL,
    Template,
    TemplatedRow,
    Text,
    windows,
    with_padding,
    with_template,
)
from preprocessing.tokenization.training import train, vocab_from_file
from preprocessing.tokenization.training_kernels import compile_training_kernels
from preprocessing.tokenization.vocab import EncoderTrial, Vocab
from preprocessing.tokenization.word_level import SingleBytes, WordLevel
from preprocessing.tokenization.wordpiece import WordPiece

__all__ = [
    "ENDED",
    "INSERTS",
    "KINDS",
    "NUM_STRINGS",
    "PLAIN",
    "SPACE_SIGN",
    "SPECIAL",
    "ByteLevelBPE",
    "EncodedBatch",
    "EncodedDocument",
    "EncoderTrial",
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
    "compile_training_kernels",
    "describe_stripped_marks",
    "display_piece",
    "display_text",
    "display_tokens",
    "keeps_whitespace",
    "legend",
    "of_folder",
    "table_rows",
    "token_texts",
    "too_small",
    "train",
    "vocab_from_file",
    "windows",
    "with_inserts",
    "with_open_sentinels",
    "with_padding",
    "with_template",
    "without_whitespace",
]
