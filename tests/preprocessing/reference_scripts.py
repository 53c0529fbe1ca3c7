"""Test oracle: the data scripts of the reference BERT and ALBERT, with the same random draws and bugs.

`bert` and `albert` return the same instances as the two scripts, given the same documents in the same order, the same
vocabulary and the same seed. The scripts are create_pretraining_data.py of google-research/bert (eedf571) and of
google-research/albert (b772393), under Python 3. tests/golden/reference_scripts.json holds their output.
tests/preprocessing/test_quirks.py demonstrates each known bug here, and its absence in Sesame.
"""

import random
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final, Literal, NamedTuple

import numpy as np

from preprocessing.shards import Shard
from preprocessing.tokenization import Vocab

Document = Sequence[Sequence[int]]  # token IDs of each sentence

_PARTNER_TRIES: Final = 10  # after this number of tries, a document is its own random partner
# Characters inside a word according to ALBERT's list, which lacks four ASCII marks
_GOES_ON: Final = frozenset(string.ascii_lowercase + string.punctuation) - set("'<=>")


class Instance(NamedTuple):
    """A training instance of a reference script, without padding."""

    ids: list[int]  # with [CLS] and [SEP], masked
    segments: list[int]
    # 1: what the reference calls is_random_next; the second segment is random, or the two segments are swapped
    label: int
    positions: list[int]  # of the targets, in ascending order
    targets: list[int]  # the original token IDs at these positions


@dataclass(frozen=True)
class _Masking:
    """How tokens are chosen; ALBERT's n-gram of words equals BERT's single word if `num_words` always returns 1."""

    vocab: Vocab
    starts_V: list[bool]  # tokens that begin a unit
    rate: float
    most: int
    num_words: Callable[[], int]
    shuffles_again: bool


def bert(
    documents: Sequence[Document],
    vocab: Vocab,
    *,
    length: int = 128,
    seed: int = 12345,
    duplicates: int = 10,
    short: float = 0.1,
    rate: float = 0.15,
    most: int = 20,
    whole_word: bool = False,
) -> list[Instance]:
    """Return the instances of the reference BERT for documents in the order of its file.

    The flags of the reference are max_seq_length (`length`, 5 or more), dupe_factor (`duplicates`), short_seq_prob
    (`short`), masked_lm_prob (`rate`, above 0), max_predictions_per_seq (`most`, 0 means no limit) and
    do_whole_word_mask (`whole_word`). Only WordPiece vocabularies are supported.
    """
    starts_V = (vocab.starts_word_V | (not whole_word)).tolist()
    masking = _Masking(vocab, starts_V, rate, most, num_words=lambda: 1, shuffles_again=False)
    return _instances(documents, masking, random.Random(seed), length, duplicates, short, "random")


def albert(
    documents: Sequence[Document],
    vocab: Vocab,
    *,
    length: int = 512,
    seed: int = 12345,
    duplicates: int = 40,
    short: float = 0.1,
    rate: float = 0.15,
    most: int = 20,
    whole_word: bool = True,
    longest: int = 3,
    favor_short: bool = True,
    negative: Literal["random", "swap"] = "swap",
    ngram_rng: np.random.RandomState | None = None,
) -> list[Instance]:
    """Return the instances of the reference ALBERT; the n-gram lengths are drawn from `ngram_rng`.

    The reference draws these lengths from numpy's global generator, which it does not seed. RandomState(s) here
    corresponds to a call of `np.random.seed(s)` before its run. Without `ngram_rng`, the generator is
    RandomState(seed). The additional flags are ngram (`longest`), favor_shorter_ngram (`favor_short`) and
    random_next_sentence (`negative` is "random").
    The flag do_permutation, off by default, is not implemented.
    """
    lengths = np.arange(1, longest + 1)
    share = 1.0 / lengths
    share /= share.sum()
    share = share if favor_short else share[::-1]
    share = share / share.sum()  # normalized twice as in the reference, because the last bit matters
    draws = ngram_rng or np.random.RandomState(seed)
    masking = _Masking(
        vocab,
        _albert_starts(vocab) if whole_word else [True] * vocab.size,
        rate,
        most,
        num_words=lambda: int(draws.choice(lengths, p=share)),
        shuffles_again=True,
    )
    return _instances(documents, masking, random.Random(seed), length, duplicates, short, negative)


def documents_of(shards: Sequence[Shard]) -> list[list[list[int]]]:
    """Return all documents of a store as token IDs per sentence, in the order of the store (by key, not by source)."""
    found = []
    for shard in shards:
        bounds_N1 = np.searchsorted(shard.sentence_at_M, shard.offset_N1).tolist()
        at_M1 = [*shard.sentence_at_M.tolist(), int(shard.offset_N1[-1])]
        sentences = [shard.ids_T[first:last].tolist() for first, last in pairwise(at_M1)]
        found += [sentences[first:last] for first, last in pairwise(bounds_N1)]
    return found


def _instances(
    documents: Sequence[Document],
    masking: _Masking,
    rng: random.Random,
    length: int,
    duplicates: int,
    short: float,
    negative: Literal["random", "swap"],
) -> list[Instance]:
    """Return all copies of all documents, shuffled together; `rng` makes every draw in the order of the reference."""
    filled = [[sentence for sentence in document if len(sentence)] for document in documents]
    shuffled = [document for document in filled if document]
    rng.shuffle(shuffled)
    room = length - 3
    found = []
    for _ in range(duplicates):
        for number in range(len(shuffled)):
            for a, b, label in _pairs(shuffled, number, room, short, negative, rng):
                _truncate(a, b, room, rng)  # not in a second pass, because its draws precede those of the next pair
                found.append(_masked(a, b, label, masking, rng))
    rng.shuffle(found)
    return found


def _pairs(
    documents: Sequence[Document],
    number: int,
    room: int,
    short: float,
    negative: Literal["random", "swap"],
    rng: random.Random,
) -> Iterator[tuple[list[int], list[int], int]]:
    """Yield A, B and the label of each chunk of one document; the whole document has one target length."""
    document = documents[number]
    target = rng.randint(2, room) if rng.random() < short else room
    first = 0
    while first < len(document):
        total, last = 0, first
        while last < len(document) and total < target:
            total += len(document[last])
            last += 1
        is_lone = last - first == 1
        split = first + (1 if is_lone else rng.randint(1, last - first - 1))
        a = list(chain.from_iterable(document[first:split]))
        label = int(is_lone or rng.random() < 0.5)  # a single sentence makes no draw: it always gets a random partner
        if label and (is_lone or negative == "random"):
            yield a, _partner(documents, number, target - len(a), rng), label
            first = split  # the sentences after A are used again
        else:
            b = list(chain.from_iterable(document[split:last]))
            yield (b, a, label) if label else (a, b, label)
            first = last


def _partner(documents: Sequence[Document], number: int, wanted: int, rng: random.Random) -> list[int]:
    """Return consecutive sentences of a random document, up to `wanted` tokens or the end of the document."""
    other = number
    for _ in range(_PARTNER_TRIES):
        if other != number:
            break
        other = rng.randint(0, len(documents) - 1)
    partner: list[int] = []
    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
        partner += sentence
        if len(partner) >= wanted:
            break
    return partner


def _truncate(a: list[int], b: list[int], room: int, rng: random.Random) -> None:
    """Shorten the longer segment in place (B if equal), one token at a time, at a random end."""
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


def _masked(a: list[int], b: list[int], label: int, masking: _Masking, rng: random.Random) -> Instance:
    """Return [CLS] A [SEP] B [SEP] with units masked in random order while they fit the budget."""
    vocab = masking.vocab
    assert vocab.cls is not None
    assert vocab.sep is not None
    before = [vocab.cls, *a, vocab.sep, *b, vocab.sep]
    after = list(before)
    words: list[list[int]] = []
    for at, id in enumerate(before):
        if id in (vocab.cls, vocab.sep):
            continue  # as in the reference, the word before [SEP] continues after it if the next token begins no word
        if words and not masking.starts_V[id]:
            words[-1].append(at)
        else:
            words.append([at])
    order = list(range(len(words)))
    rng.shuffle(order)
    left = min(masking.most or len(before), max(1, round(len(before) * masking.rate)))
    positions: list[int] = []
    for first in order:
        if not left:
            break
        unit = _fitting(words, first, masking.num_words(), left)
        if unit and set(unit).isdisjoint(positions):
            for at in unit:
                after[at] = _replacement(before[at], vocab, rng)
            positions += unit
            left -= len(unit)
    if masking.shuffles_again:
        rng.shuffle(order)  # the reference shuffles for the disabled permutation; later draws depend on this one
    positions.sort()
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    return Instance(after, segments, label, positions, [before[at] for at in positions])


def _fitting(words: list[list[int]], first: int, num_words: int, left: int) -> list[int]:
    """Return the positions of at most `num_words` words from `first` on that fit; empty if no word fits."""
    for last in range(first + num_words, first, -1):
        unit = list(chain.from_iterable(words[first:last]))
        if len(unit) <= left:
            return unit
    return []


def _replacement(id: int, vocab: Vocab, rng: random.Random) -> int:
    """Return [MASK] in 80%, the token itself in 10% and a random ID of the vocabulary in 10% of the draws."""
    if rng.random() < 0.8:
        assert vocab.mask is not None
        return vocab.mask
    return id if rng.random() < 0.5 else rng.randint(0, vocab.size - 1)


def _albert_starts(vocab: Vocab) -> list[bool]:
    """Return which tokens begin a word by ALBERT's rule: nearly all non-English tokens of a SentencePiece model do."""
    if vocab.kind == "wordpiece":
        return vocab.starts_word_V.tolist()
    return [_albert_starts_word(vocab.piece(id)) for id in range(vocab.size)]


def _albert_starts_word(piece: str) -> bool:
    """Whether a token has a space mark, is one ASCII mark, or has any other non-English character.

    >>> [_albert_starts_word(piece) for piece in ("\\u2581the", "ing", ".", "'s", "2", "\\u00e9e")]
    [True, False, True, True, True, True]
    """
    is_mark = len(piece) == 1 and piece in _GOES_ON and not piece.isalpha()
    return is_mark or not all(char.lower() in _GOES_ON for char in piece)
