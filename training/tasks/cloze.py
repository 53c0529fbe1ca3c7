"""Which word stands in the blank?"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, Literal

import numpy as np

from preprocessing.errors import DataError
from preprocessing.schema import Ints
from preprocessing.shards import TokenStore
from preprocessing.spec import Shrinks, spec
from preprocessing.tokenization import Vocab
from training.tasks.held_out import FEWEST_ROWS, held_out, note_unread
from training.tasks.part import LENGTH, MORE, Way

MOST_BLANKS: Final = 1_000
FEWEST_TOKENS: Final = 8  # of a sentence, so that there is something to go by


@dataclass(frozen=True)
class ClozeItem:
    """A sentence without special tokens, and the place of the word that is to be found, which is one token."""

    ids_S: Ints
    at: int

    @property
    def answer(self) -> int:
        return int(self.ids_S[self.at])


@dataclass(frozen=True)
class ClozeItems:
    """Sentences with a blank each."""

    blanks: list[ClozeItem]
    notes: tuple[str, ...] = ()  # what of the documents is not read

    def require(self, labels: int) -> None:
        """Nothing is trained, so that any number of labels is enough."""

    @property
    def majority(self) -> float:
        """What naming the most frequent answer would get."""
        return max(Counter(blank.answer for blank in self.blanks).values()) / len(self.blanks)


@spec
class Cloze:
    """Prediction of the missing word in a held-out sentence (Taylor 1953; BERT 3.1).

    Nothing is trained. The words have one token each, one per sentence. An encoder reads both sides of the blank, a
    decoder only the left one.
    """

    kind: Literal["cloze"] = "cloze"

    shrinks: ClassVar[Shrinks] = {}
    way: ClassVar[Way] = "scored"

    def describe(self) -> str:
        return "which word stands in the blank"

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> ClozeItems:
        """One blank in each sentence that is long enough and fits, the same ones each time."""
        found, sentences, long = list[ClozeItem](), 0, 0
        for document in held_out(store):
            end_M = np.append(document.sentence_at_M, len(document.ids))
            for start, stop in pairwise(end_M.tolist()):
                ids_S = document.ids[start:stop]
                sentences, long = sentences + 1, long + (len(ids_S) > length - 2)
                if FEWEST_TOKENS <= len(ids_S) <= length - 2 and len(at_W := _whole_words(ids_S, vocab)):
                    pick = int.from_bytes(document.key[:8]) + start
                    found.append(ClozeItem(ids_S, int(at_W[pick % len(at_W)])))
        if len(found) < FEWEST_ROWS:
            raise DataError(
                f"task cloze: the held-out documents of {store.folder} have {len(found)} sentences with a word of one "
                f"token, {FEWEST_ROWS} are needed; {MORE}, or leave this task out of eval_tasks"
            )
        step = max(1, len(found) // MOST_BLANKS)
        some = found[::step][:MOST_BLANKS]
        notes = note_unread(long, sentences, f"sentences are longer than {length - 2} tokens and left out")
        others = f"sentences with a word of one token are left out: {MOST_BLANKS:,} are asked about"
        return ClozeItems(some, notes + note_unread(len(found) - len(some), len(found), others))


def _whole_words(ids_S: Ints, vocab: Vocab) -> Ints:
    """Places of words of three characters or more that are one token, none of them the first of the sentence."""
    begins_S = np.append(vocab.starts_word_V[ids_S], True)
    is_word_S = [len(text) >= 3 and text[0].isalpha() for text in (vocab.decode([id]).strip() for id in ids_S)]
    places = np.flatnonzero(begins_S[:-1] & begins_S[1:] & is_word_S)
    return places[places > 0]
