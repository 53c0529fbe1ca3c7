"""A made-up language of which everything is known that an objective could learn (reference/family.md, D0).

Four topics, each with nouns, verbs in two numbers and two-piece collocations, all Zipfian; three person names a
document that keep coming back; ten ordered stages with marker words; a determiner at the left end of a sentence that
agrees in number with its verb and with a particle at the right end. Topics and names tell which sentences belong
together, stages their order; the particle asks for the right context, collocations for spans, names for memory.
"""

from dataclasses import dataclass

import numpy as np

from preprocessing.schema import Bools, Ints

PAD, UNK, CLS, SEP, MASK = range(5)
_NUM = {"special": 5, "det": 2, "end": 2, "function": 20, "marker": 30, "name": 120}
_NUM |= {"noun": 4 * 24, "verb": 4 * 2 * 12, "first": 4 * 12, "second": 4 * 12}
AT = dict(zip(_NUM, np.cumsum([0, *_NUM.values()]).tolist(), strict=False))  # first id of each kind of word
VOCAB_SIZE = sum(_NUM.values())  # 467


@dataclass(frozen=True)
class World:
    """Documents end to end, without special tokens."""

    ids_T: Ints
    sentence_starts_T: Bools
    word_starts_T: Bools  # False at the second piece of a collocation
    num_tokens_N: Ints


def world(seed: int, num_documents: int) -> World:
    """Documents of 8 to 14 sentences of 7 to 12 tokens; the same arguments give the same tokens.

    A sentence is: determiner, name or noun, verb, marker of the stage, collocation, filling, particle.
    """
    rng = np.random.default_rng(seed)
    num_sentences_N = rng.integers(8, 15, num_documents)
    document_M = np.repeat(np.arange(num_documents), num_sentences_N)  # M sentences
    count = len(document_M)
    place_M = np.arange(count) - (np.cumsum(num_sentences_N) - num_sentences_N)[document_M]
    stage_M = 10 * place_M // num_sentences_N[document_M]
    topic_M = rng.integers(4, size=num_documents)[document_M]
    name_M = rng.integers(120, size=(num_documents, 3))[document_M, rng.integers(3, size=count)]
    number_M, length_M = rng.integers(2, size=count), 7 + rng.binomial(5, 0.32, count)
    collocation_M = 12 * topic_M + _zipf(rng, 12, count)

    def noun_M() -> Ints:
        return AT["noun"] + 24 * topic_M + _zipf(rng, 24, count)

    def function_M() -> Ints:
        return AT["function"] + _zipf(rng, 20, count)

    def filling_M() -> Ints:
        return _either(rng, 0.75, function_M(), noun_M())

    is_collocation_M = rng.random(count) < 0.9
    columns = [
        AT["det"] + number_M,
        _either(rng, 0.6, AT["name"] + name_M, noun_M()),
        AT["verb"] + 24 * topic_M + 12 * number_M + _zipf(rng, 12, count),
        _either(rng, 0.9, AT["marker"] + 3 * stage_M + rng.integers(3, size=count), function_M()),
        np.where(is_collocation_M, AT["first"] + collocation_M, filling_M()),
        np.where(is_collocation_M, AT["second"] + collocation_M, filling_M()),
        *(filling_M() for _ in range(6)),
    ]
    ids_MS = np.stack(columns, axis=1)
    ids_MS[np.arange(count), length_M - 1] = AT["end"] + number_M
    ids_T = ids_MS[np.arange(12) < length_M[:, None]]
    sentence_starts_T = np.zeros(len(ids_T), dtype=bool)
    sentence_starts_T[np.cumsum(length_M) - length_M] = True
    return World(
        ids_T=ids_T,
        sentence_starts_T=sentence_starts_T,
        word_starts_T=ids_T < AT["second"],
        num_tokens_N=np.bincount(document_M, weights=length_M).astype(np.int64),
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


def _zipf(rng: np.random.Generator, num_words: int, count: int) -> Ints:
    weight = 1 / np.arange(1, num_words + 1)
    return rng.choice(num_words, size=count, p=weight / weight.sum())


def _either(rng: np.random.Generator, share: float, first: Ints, second: Ints) -> Ints:
    return np.where(rng.random(len(first)) < share, first, second)
