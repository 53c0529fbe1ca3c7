"""Vocabularies: train or load one, turn documents into ids with the places where words begin.

Read part.py (the facts of a kind), then wordpiece.py, which is one; byte_bpe.py, sentencepiece.py and word_level.py
are its siblings, ended_bpe.py one that is
only read. tokenizer_json.py is what a file of the library `tokenizers` says, for each of them, folding.py how
sentencepiece folds case and accents. specs.py has the union of the kinds, the registry; vocab.py a vocabulary that is
ready to encode, training.py the way from the one to the other, folder.py that from a folder of transformers;
template.py makes rows of one or two texts with it, frame.py says what stands around them in
pretraining, inserts.py those of GPT-1; lost_marks.py says what a vocabulary
takes off letters.
A new kind is a file here and one line in the union.
"""

from preprocessing.vocab.byte_bpe import ByteBPE
from preprocessing.vocab.folder import of_folder
from preprocessing.vocab.frame import ENDED, PLAIN, Frame, framed, with_open_sentinels
from preprocessing.vocab.inserts import INSERTS, with_inserts
from preprocessing.vocab.lost_marks import keeps_whitespace, stripped, without_whitespace
from preprocessing.vocab.part import VocabKind, too_small
from preprocessing.vocab.sentencepiece import SentencePieceBPE, Unigram
from preprocessing.vocab.specs import KINDS, VocabSpec, table_rows
from preprocessing.vocab.template import SPECIAL, Template, Templated, Text, windows
from preprocessing.vocab.training import given, train
from preprocessing.vocab.vocab import Encoded, Vocab
from preprocessing.vocab.word_level import SingleBytes, WholeWords
from preprocessing.vocab.wordpiece import WordPiece

__all__ = [
    "ENDED",
    "INSERTS",
    "KINDS",
    "PLAIN",
    "SPECIAL",
    "ByteBPE",
    "Encoded",
    "Frame",
    "SentencePieceBPE",
    "SingleBytes",
    "Template",
    "Templated",
    "Text",
    "Unigram",
    "Vocab",
    "VocabKind",
    "VocabSpec",
    "WholeWords",
    "WordPiece",
    "framed",
    "given",
    "keeps_whitespace",
    "of_folder",
    "stripped",
    "table_rows",
    "too_small",
    "train",
    "windows",
    "with_inserts",
    "with_open_sentinels",
    "without_whitespace",
]
