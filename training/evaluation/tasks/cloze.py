"""Cloze: predict a missing word of a held-out sentence."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, Literal

import numpy as np

from preprocessing.errors import DataError
from preprocessing.schema import Ints
from preprocessing.shards import TokenStore
from preprocessing.spec import ScaleOverrides, spec
from preprocessing.tokenization import Vocab
from training.evaluation.tasks.held_out import FEWEST_ROWS, note_unread, read_held_out
from training.evaluation.tasks.part import LENGTH, MORE, Way

MOST_BLANKS: Final = 1_000
FEWEST_TOKENS: Final = 8  # minimum tokens of a sentence; shorter ones have too little context


@dataclass(frozen=True)
class ClozeItem:
    """A sentence without special tokens, and the position of the word to predict, which is one token."""

    ids_S: Ints
    at: int

    @property
    def answer(self) -> int:
        return int(self.ids_S[self.at])


@dataclass(frozen=True)
class ClozeItems:
    """Sentences with one blank each."""

    blanks: list[ClozeItem]
    notes: tuple[str, ...] = ()  # on sentences that are left out

    def require(self, labels: int) -> None:
        """Accept any number of labels, since nothing is trained."""

    @property
    def majority(self) -> float:
        """The accuracy of always predicting the most frequent answer."""
        return max(Counter(blank.answer for blank in self.blanks).values()) / len(self.blanks)


@spec
class Cloze:
    """Prediction of the missing word in a held-out sentence (Taylor 1953; BERT 3.1).

    Nothing is trained. The words have one token each, one per sentence. An encoder reads both sides of the blank, a
    decoder only the left one.
    """

    kind: Literal["cloze"] = "cloze"

    scale_overrides: ClassVar[ScaleOverrides] = {}
    way: ClassVar[Way] = "scored"
    is_by_document: ClassVar[bool] = False

    def describe(self) -> str:
        return "which word stands in the blank"

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> ClozeItems:
        """Make one blank in each sentence of suitable length; the choice is deterministic."""
        blanks, sentences, long = list[ClozeItem](), 0, 0
        for document in read_held_out(store):
            end_M = np.append(document.sentence_at_M, len(document.ids))
            for start, stop in pairwise(end_M.tolist()):
                ids_S = document.ids[start:stop]
                sentences, long = sentences + 1, long + (len(ids_S) > length - 2)
                if FEWEST_TOKENS <= len(ids_S) <= length - 2 and len(at_W := _whole_words(ids_S, vocab)):
                    pick = int.from_bytes(document.key[:8]) + start
                    blanks.append(ClozeItem(ids_S, int(at_W[pick % len(at_W)])))
        if len(blanks) < FEWEST_ROWS:
            raise DataError(
                f"task cloze: the held-out documents of {store.folder} have {len(blanks)} sentences with a word of one "
                f"token, expected at least {FEWEST_ROWS}; {MORE}, or remove the task from eval_tasks"
            )
        step = max(1, len(blanks) // MOST_BLANKS)
        some = blanks[::step][:MOST_BLANKS]
        notes = note_unread(long, sentences, f"sentences are longer than {length - 2} tokens and left out")
        others = f"sentences with a word of one token are left out: at most {MOST_BLANKS:,} are used"
        return ClozeItems(some, notes + note_unread(len(blanks) - len(some), len(blanks), others))


def _whole_words(ids_S: Ints, vocab: Vocab) -> Ints:
    """Positions of words of at least three characters that are one token, except the first word of the sentence."""
    begins_S = np.append(vocab.starts_word_V[ids_S], True)
    is_word_S = [len(text) >= 3 and text[0].isalpha() for text in (vocab.decode([id]).strip() for id in ids_S)]
    places = np.flatnonzero(begins_S[:-1] & begins_S[1:] & is_word_S)
    return places[places > 0]
