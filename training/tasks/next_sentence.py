"""Does the second sentence follow the first?"""

from typing import ClassVar, Literal

from preprocessing.errors import DataError
from preprocessing.rng import key
from preprocessing.schema import Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.spec import Shrinks, spec
from preprocessing.tokenization import Vocab
from training.tasks.held_out import FEWEST_ROWS, balance_classes, held_out, note_unread, pair_row, room_of_pairs
from training.tasks.part import LENGTH, MORE, Task, Way


@spec
class NextSentence:
    """Whether the second sentence follows the first, or comes from another source; 2 classes."""

    kind: Literal["next_sentence"] = "next_sentence"

    shrinks: ClassVar[Shrinks] = {}
    way: ClassVar[Way] = "tuned"

    def describe(self) -> str:
        return "does the second sentence follow the first"

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> Task:
        """One pair of each document, half of them with the second sentence of another pair."""
        halves: tuple[list[tuple[str, Ints, Ints]], ...] = ([], [])
        for document in held_out(store):
            if pair := document.pair():
                halves[document.is_test].append((document.source, *pair))
        if (num_pairs := sum(map(len, halves))) < FEWEST_ROWS:
            raise DataError(
                f"task next_sentence: {num_pairs} held-out documents of {store.folder} have two sentences, "
                f"{FEWEST_ROWS} are "
                f"needed; {MORE}, or leave this task out of eval_tasks"
            )
        classes, room = ("next", "other"), room_of_pairs(length)
        long = sum(max(len(first), len(second)) > room for half in halves for _, first, second in half)
        notes = note_unread(
            long, num_pairs, f"pairs have a sentence of more than {room} tokens, cut to those at the seam"
        )
        pool, test = (balance_classes(_with_negatives(half, vocab, length), 2) for half in halves)
        return Task("next_sentence", classes, pool, test, notes)


def _with_negatives(pairs: list[tuple[str, Ints, Ints]], vocab: Vocab, length: int) -> list[tuple[Row, int]]:
    """Every other pair gets the second sentence of another pair, of another source where there are several.

    Second sentences are drawn from second sentences: one alone tells nothing about the answer.
    """
    sources = [source for source, _, _ in pairs]
    rng = key(0, "task").at(epoch=1, sample=0)
    examples = []
    for i, (source, first, second) in enumerate(pairs):
        if is_negative := i % 2:
            other = int(rng.integers(len(pairs)))
            while other == i or (sources[other] == source and len(set(sources)) > 1):
                other = int(rng.integers(len(pairs)))
            second = pairs[other][2]
        examples.append((pair_row(vocab, first, second, length), is_negative))
    return examples
