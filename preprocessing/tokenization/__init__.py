"""Vocabularies: train or load one, turn documents into ids with the places where words begin.

Read part.py (the facts of a kind), then wordpiece.py, which is one; byte_level_bpe.py, sentencepiece.py and
word_level.py are its siblings, end_of_word_bpe.py one that is only read. tokenizer_json.py is what a file of the
library `tokenizers` says, for each of them, folding.py how sentencepiece folds case and accents. specs.py has the union
of the kinds, the registry; vocab.py a vocabulary that is ready to encode, training.py the way from the one to the
other, folder.py that from a folder of transformers; model_proto.py is sentencepiece's file format. template.py makes
rows of one or two texts with it, frame.py says what stands around them in pretraining, gpt1_tokens.py what GPT-1 adds
for tasks; accents.py says what a vocabulary takes off letters; display.py shows tokens as readable text.
A new kind is a file here and one line in the union.
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
