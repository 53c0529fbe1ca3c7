"""The synthetic language of small ablations (reports/ablations/text.py) as tokens, without a corpus, and its baselines.

Each word is a token, except that a collocation is one word of two tokens. Predicting the particle needs the context on
the right, collocations need masked spans, and names need memory (reference/family.md, D0).
"""

from dataclasses import dataclass

import numpy as np

from orchestration.reports.ablations import synthetic_language as table_text
from preprocessing.schema import Bools, Ints

PAD, UNK, CLS, SEP, MASK = range(5)
AT = {kind: 5 + first for kind, first in table_text.AT.items()}  # the first id of each kind of word
VOCAB_SIZE = 5 + table_text.NUM_WORDS  # 467


@dataclass(frozen=True)
class World:
    """Concatenated documents without special tokens."""

    ids_T: Ints
    sentence_starts_T: Bools
    word_starts_T: Bools  # False at the second token of a collocation
    num_tokens_N: Ints


def world(seed: int, num_documents: int) -> World:
    """Documents of 8 to 14 sentences of 7 to 12 tokens; the same arguments give the same tokens."""
    text = table_text.build_language(seed, num_documents)
    ids_T, document_M = 5 + text.word_T, np.repeat(np.arange(num_documents), text.num_sentences_N)
    sentence_starts_T = np.zeros(len(ids_T), dtype=bool)
    sentence_starts_T[np.cumsum(text.num_words_M) - text.num_words_M] = True
    return World(
        ids_T=ids_T,
        sentence_starts_T=sentence_starts_T,
        word_starts_T=ids_T < AT["second"],
        num_tokens_N=np.bincount(document_M, weights=text.num_words_M).astype(np.int64),
    )


def unigram_entropy(ids_T: Ints) -> float:
    """The loss in nats per token of the best model that sees no context."""
    p_V = np.bincount(ids_T) / len(ids_T)
    return float(-(p_V[p_V > 0] * np.log(p_V[p_V > 0])).sum())


def bigram_cross_entropy(train_T: Ints, test_T: Ints) -> float:
    """The loss in nats per test token of a bigram model, smoothed with the unigram distribution as one extra count."""
    p_V = np.bincount(train_T, minlength=VOCAB_SIZE) / len(train_T)
    count_VV = np.zeros((VOCAB_SIZE, VOCAB_SIZE))
    np.add.at(count_VV, (train_T[:-1], train_T[1:]), 1.0)
    p_VV = (count_VV + p_V) / (count_VV.sum(axis=1, keepdims=True) + 1.0)
    return float(-np.log(p_VV[test_T[:-1], test_T[1:]]).mean())
