"""What a downstream task is: classes, labelled rows, test rows; and what each kind of task states about itself."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Protocol

import numpy as np

from preprocessing.errors import DataError
from preprocessing.rng import key
from preprocessing.schema import Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.spec import Shrinks
from preprocessing.tokenization import Vocab

MORE: Final = (
    "hold out more of the text (--holdout-ratio .1, or test_ratio in its corpus file)"  # to end a message with
)
LABELS: Final = 200  # labelled rows of a fine-tuning, where nothing else is said
LENGTH: Final = 64  # most tokens of a row, special tokens included; a net with fewer positions gets shorter rows


@dataclass(frozen=True)
class LabeledExamples:
    """Rows and the class of each."""

    rows: list[Row]
    label_N: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index_N: Ints) -> "LabeledExamples":
        return LabeledExamples([self.rows[i] for i in index_N], self.label_N[index_N])


@dataclass(frozen=True)
class Task:
    """A classification: `pool` is what labelled rows are drawn from, `test` is for the score alone. Classes are equally
    frequent in both, so `chance` is what a guess gets."""

    name: str
    classes: tuple[str, ...]
    pool: LabeledExamples
    test: LabeledExamples
    notes: tuple[str, ...] = ()  # what of the documents is not read

    @property
    def chance(self) -> float:
        return 1 / len(self.classes)

    def require(self, labels: int) -> None:
        """DataError where it has fewer labelled rows than these."""
        self.labelled(labels, seed=0)

    def labelled(self, num: int, seed: int) -> LabeledExamples:
        """`num` rows of the pool, the same for the same seed, every class equally often (give or take one)."""
        if num > len(self.pool):
            raise DataError(
                f"task {self.name}: {num} labelled rows were asked for, the held-out documents make {len(self.pool)}; "
                f"ask for fewer (--max-train-samples {len(self.pool)}), or {MORE}"
            )
        order_N = key(seed, "task").at(epoch=0, sample=0).permutation(len(self.pool))
        return self.pool.take(interleave(self.pool.label_N, order_N)[:num])


Way = Literal["tuned", "scored", "written"]
"""How a net is asked. tuned: it is fine-tuned first; scored: how likely it finds texts, and nothing is trained;
written: it writes the answers."""


class HeldOutTask(Protocol):
    """What a kind makes of the documents of a corpus."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the documents is not read, a line each."""

    def require(self, labels: int) -> None:
        """DataError where there are too few labelled rows for a fine-tuning with these."""


class TaskPart(Protocol):
    """A part of the union Tasks: how labelled rows are made from the held-out documents of a corpus."""

    shrinks: ClassVar[Shrinks]
    """What `--scale` puts into it."""
    way: ClassVar[Way]
    """How it is evaluated."""

    @property
    def kind(self) -> str:
        """Its name in `eval_tasks:` and `--tasks`."""

    def describe(self) -> str:
        """The question, in one line."""

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> HeldOutTask:
        """The task on these documents, in rows of at most `length` tokens; DataError where they are too few."""


def interleave(label_N: Ints, order_N: Ints) -> Ints:
    """`order_N` rearranged so that the classes take turns, for as long as each has some.

    >>> interleave(np.array([0, 0, 0, 1, 1]), np.array([4, 3, 2, 1, 0])).tolist()
    [2, 4, 1, 3, 0]
    """
    label_N = label_N[order_N]
    turn_N = np.zeros(len(label_N), np.int64)
    for label in np.unique(label_N):
        mine = label_N == label
        turn_N[mine] = np.arange(mine.sum())
    return order_N[np.lexsort((label_N, turn_N))]
