"""Next sentence prediction on held-out documents."""

from typing import ClassVar, Literal

from preprocessing.errors import DataError
from preprocessing.rng import key
from preprocessing.schema import Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.spec import ScaleOverrides, spec
from preprocessing.tokenization import Vocab
from training.evaluation.tasks.held_out import (
    FEWEST_ROWS,
    balance_classes,
    note_unread,
    pair_row,
    read_held_out,
    room_of_pairs,
)
from training.evaluation.tasks.part import LENGTH, MORE, Task, Way


@spec
class NextSentence:
    """Whether the second sentence follows the first, or comes from another source; 2 classes."""

    kind: Literal["next_sentence"] = "next_sentence"

    scale_overrides: ClassVar[ScaleOverrides] = {}
    way: ClassVar[Way] = "tuned"
    is_by_document: ClassVar[bool] = True

    def describe(self) -> str:
        return "does the second sentence follow the first"

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> Task:
        """Make one pair per document; half of them get the second sentence of another pair."""
        halves: tuple[list[tuple[str, Ints, Ints]], ...] = ([], [])
        for document in read_held_out(store):
            if pair := document.pair():
                halves[document.is_test].append((document.source, *pair))
        if (num_pairs := sum(map(len, halves))) < FEWEST_ROWS:
            raise DataError(
                f"task next_sentence: {num_pairs} held-out documents of {store.folder} have two sentences, expected at "
                f"least {FEWEST_ROWS}; {MORE}, or remove the task from eval_tasks"
            )
        classes, room = ("next", "other"), room_of_pairs(length)
        long = sum(max(len(first), len(second)) > room for half in halves for _, first, second in half)
        notes = note_unread(
            long,
            num_pairs,
            f"pairs have a sentence of more than {room} tokens, truncated to those next to the other sentence",
        )
        pool, test = (balance_classes(_with_negatives(half, vocab, length), 2) for half in halves)
        return Task("next_sentence", classes, pool, test, notes)


def _with_negatives(pairs: list[tuple[str, Ints, Ints]], vocab: Vocab, length: int) -> list[tuple[Row, int]]:
    """Replace the second sentence of every other pair by that of another pair, from another source if there are
    several.

    Replacements are second sentences too, so that a second sentence alone gives no hint of the answer.
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
