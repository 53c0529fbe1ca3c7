"""The made-up language of small tables (reports/ablations/text.py) as tokens, without a corpus, and its baselines.

Each word is a token. A phrase is a collocation: two pieces of one word, so that there are words of more than one piece.
The particle asks for the right context, collocations for spans, names for memory (reference/family.md, D0).
"""

from dataclasses import dataclass

import numpy as np

from orchestration.reports.ablations import synthetic_language as table_text
from preprocessing.schema import Bools, Ints

PAD, UNK, CLS, SEP, MASK = range(5)
AT = {kind: 5 + first for kind, first in table_text.AT.items()}  # first id of each kind of word
VOCAB_SIZE = 5 + table_text.NUM_WORDS  # 467


@dataclass(frozen=True)
class World:
    """Documents end to end, without special tokens."""

    ids_T: Ints
    sentence_starts_T: Bools
    word_starts_T: Bools  # False at the second piece of a collocation
    num_tokens_N: Ints


def world(seed: int, num_documents: int) -> World:
    """Documents of 8 to 14 sentences of 7 to 12 tokens; the same arguments give the same tokens."""
    made = table_text.build_language(seed, num_documents)
    ids_T, document_M = 5 + made.word_T, np.repeat(np.arange(num_documents), made.num_sentences_N)
    sentence_starts_T = np.zeros(len(ids_T), dtype=bool)
    sentence_starts_T[np.cumsum(made.num_words_M) - made.num_words_M] = True
    return World(
        ids_T=ids_T,
        sentence_starts_T=sentence_starts_T,
        word_starts_T=ids_T < AT["second"],
        num_tokens_N=np.bincount(document_M, weights=made.num_words_M).astype(np.int64),
    )


def unigram_entropy(ids_T: Ints) -> float:
    """Nats per token of the best model that sees nothing else."""
    p_V = np.bincount(ids_T) / len(ids_T)
    return float(-(p_V[p_V > 0] * np.log(p_V[p_V > 0])).sum())


def bigram_cross_entropy(train_T: Ints, test_T: Ints) -> float:
    """Nats per test token, given the token before; counts of the training text, smoothed by one unigram draw each."""
    p_V = np.bincount(train_T, minlength=VOCAB_SIZE) / len(train_T)
    count_VV = np.zeros((VOCAB_SIZE, VOCAB_SIZE))
    np.add.at(count_VV, (train_T[:-1], train_T[1:]), 1.0)
    p_VV = (count_VV + p_V) / (count_VV.sum(axis=1, keepdims=True) + 1.0)
    return float(-np.log(p_VV[test_T[:-1], test_T[1:]]).mean())
