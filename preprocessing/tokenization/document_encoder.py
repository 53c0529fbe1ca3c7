"""Documents -> token IDs, with the starts of sentences and words.

The IDs are those of the whole text of a document. Token offsets are not computed if lengths of tokens or blanks between
sentences suffice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from preprocessing.schema import Bools, Ints
from preprocessing.tokenization.cuts import Cut, counts, find_group_starts
from preprocessing.tokenization.encoders import BatchEncoder

Document = Sequence[str]
"""The sentences of a document, which form its text without anything between them."""

PlacedIds = tuple[list[int], list[tuple[int, int]]]
"""The IDs of a text, and two starts of each token: with and without the space before a word."""


class EncodedDocument(NamedTuple):
    """A document: its IDs, int32 [S], and whether a sentence, a word or (if requested) a unit starts at each, bool [S].

    `num_lost`: number of phrases that are not units because no token starts in them.
    """

    ids: Ints
    sentence_starts: Bools
    word_starts: Bools
    unit_starts: Bools | None = None
    num_lost: int = 0


class EncodedBatch(NamedTuple):
    """D documents end to end: the columns of EncodedDocument with the T tokens of all, and where each document stops.

    Document d has the tokens [stop_D1[d], stop_D1[d + 1]), int64. `num_lost` is the sum over all documents.
    """

    ids_T: Ints
    sentence_starts_T: Bools
    word_starts_T: Bools
    stop_D1: Ints
    unit_starts_T: Bools | None = None
    num_lost: int = 0

    @classmethod
    def join(cls, documents: Sequence[EncodedDocument]) -> "EncodedBatch":
        """The batch of these documents. Either all of them or none have units."""
        units = [each.unit_starts for each in documents if each.unit_starts is not None]
        return cls(
            np.concatenate([np.zeros(0, np.int32), *(each.ids for each in documents)]),
            np.concatenate([np.zeros(0, np.bool_), *(each.sentence_starts for each in documents)]),
            np.concatenate([np.zeros(0, np.bool_), *(each.word_starts for each in documents)]),
            np.cumsum([0, *(len(each.ids) for each in documents)], dtype=np.int64),
            np.concatenate(units) if units else None,
            sum(each.num_lost for each in documents),
        )

    def split(self) -> list[EncodedDocument]:
        """The documents, without units."""
        return [
            EncodedDocument(self.ids_T[start:end], self.sentence_starts_T[start:end], self.word_starts_T[start:end])
            for start, end in pairwise(self.stop_D1.tolist())
        ]


@dataclass(frozen=True)
class DocumentEncoder:
    """Encodes documents with the IDs of `encoder`.

    `place` returns the places of tokens, which takes longer. `bytes_V` is the number of bytes that each token
    represents, int64 [V], or None unless tokens consist of unnormalized bytes. `starts_word_V` and `ends_word_V`:
    whether each token starts a word, and whether the token after it always does, bool [V].
    """

    encoder: BatchEncoder
    place: Callable[[list[str]], list[PlacedIds]]
    cut: Cut
    bytes_V: Ints | None
    starts_word_V: Bools
    ends_word_V: Bools

    def encode(self, documents: Sequence[Document]) -> EncodedBatch:
        """A sentence is marked at the first token that starts in it. One inside a single token has no mark."""
        if self.bytes_V is not None:
            ids_T, num_tokens_N = self._count_by_bytes(documents, self.bytes_V)
        else:
            ids_T, num_tokens_N = self._count_by_blanks(documents)
            if self.cut == "rounding":
                ids_T, num_tokens_N = self._replace_odd(documents, ids_T, num_tokens_N)
        return self._mark_starts(ids_T, num_tokens_N, list(map(len, documents)))

    def encode_placed(self, placed: Sequence[PlacedIds], documents: Sequence[Document]) -> list[EncodedDocument]:
        """Return the same, from the places of the tokens of each document."""
        num_tokens = [_count_by_sentence(each, document) for each, document in zip(placed, documents, strict=True)]
        ids_T = np.fromiter(chain.from_iterable(ids for ids, _ in placed), np.int32)
        return self._mark_starts(ids_T, _join(num_tokens), list(map(len, documents))).split()

    def _count_by_blanks(self, documents: Sequence[Document]) -> tuple[Ints, Ints]:
        """The IDs of all documents, int32 [T], and the number of IDs of each sentence, int64 [N].

        The texts are cut at blanks where this is safe.
        """
        sentences = list(chain.from_iterable(documents))
        begins_N = find_group_starts(sentences, list(map(len, documents)), self.cut)
        first_G = np.flatnonzero(begins_N)
        size_G = np.diff(first_G, append=len(sentences))
        joined_K = np.flatnonzero(size_G > 1)
        texts = [sentences[first] for first in first_G.tolist()]
        for index in joined_K.tolist():
            texts[index] = "".join(sentences[first_G[index] : first_G[index] + size_G[index]])
        ids_T, end_G = self.encoder.encode(texts)
        num_tokens_N = np.repeat(np.diff(end_G), size_G)
        placed = self.place([texts[index] for index in joined_K.tolist()]) if len(joined_K) else []
        for index, each in zip(joined_K.tolist(), placed, strict=True):
            inside = slice(first_G[index], first_G[index] + size_G[index])
            num_tokens_N[inside] = _count_by_sentence(each, sentences[inside])
        return ids_T, num_tokens_N

    def _replace_odd(self, documents: Sequence[Document], ids_T: Ints, num_tokens_N: Ints) -> tuple[Ints, Ints]:
        """Replace the IDs of documents that differ from those of their whole text."""
        whole_T, end_D = self.encoder.encode(["".join(document) for document in documents])
        size_D = np.fromiter(map(len, documents), np.int64)
        first_D = np.cumsum(size_D) - size_D
        stop_N = np.concatenate([[0], np.cumsum(num_tokens_N)])
        num_tokens = np.split(num_tokens_N, first_D[1:])
        for index, document in enumerate(documents):
            ours = ids_T[stop_N[first_D[index]] : stop_N[first_D[index] + size_D[index]]]
            if not np.array_equal(ours, whole_T[end_D[index] : end_D[index + 1]]):
                num_tokens[index] = np.array(_count_by_sentence(self.place(["".join(document)])[0], document), np.int64)
        return whole_T, np.concatenate([np.zeros(0, np.int64), *num_tokens])

    def _count_by_bytes(self, documents: Sequence[Document], bytes_V: Ints) -> tuple[Ints, Ints]:
        """Return the same as `_count_by_blanks`, from the bytes per token, or from offsets if the sums differ."""
        ids_T, end_D = self.encoder.encode(["".join(document) for document in documents])
        lengths = [[len(sentence.encode()) for sentence in document] for document in documents]
        bytes_T, bytes_N = bytes_V[ids_T], _join(lengths)
        stop_T = np.concatenate([[0], np.cumsum(bytes_T)])
        if np.array_equal(stop_T[end_D], np.cumsum([0, *map(sum, lengths)])):
            first_N = np.searchsorted(stop_T[:-1], np.cumsum(bytes_N) - bytes_N)
            return ids_T, np.diff(first_N, append=len(ids_T))
        num_tokens = list[list[int]]()
        for document, sizes, (start, end) in zip(documents, lengths, pairwise(end_D.tolist()), strict=True):
            if bytes_T[start:end].sum() == sum(sizes):
                num_tokens.append(counts(stop_T[start:end] - stop_T[start], sizes))
            else:
                num_tokens.append(_count_by_sentence(self.place(["".join(document)])[0], document))
        return ids_T, _join(num_tokens)

    def _mark_starts(self, ids_T: Ints, num_tokens_N: Ints, num_sentences: Sequence[int]) -> EncodedBatch:
        """Return documents from all IDs, int32 [T], and the number of IDs of each sentence, int64 [N]."""
        stop_N = np.concatenate([[0], np.cumsum(num_tokens_N)])
        sentence_starts_T = np.zeros(len(ids_T), np.bool_)
        sentence_starts_T[stop_N[:-1][num_tokens_N > 0]] = True
        word_starts_T = self.starts_word_V[ids_T] | sentence_starts_T
        word_starts_T[1:] |= self.ends_word_V[ids_T[:-1]]
        return EncodedBatch(ids_T, sentence_starts_T, word_starts_T, stop_N[np.cumsum([0, *num_sentences])])


def _count_by_sentence(placed: PlacedIds, sentences: Document) -> list[int]:
    """The number of IDs of each sentence."""
    _, places = placed
    return counts(np.array([start for start, _ in places], np.int64), list(map(len, sentences)))


def _join(numbers: Sequence[Sequence[int]]) -> Ints:
    return np.fromiter(chain.from_iterable(numbers), np.int64)
