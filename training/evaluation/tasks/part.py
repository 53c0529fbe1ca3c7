"""A downstream task on held-out documents: classes, labeled examples and test examples; and the interface of its
kinds."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Protocol

import numpy as np

from preprocessing.errors import DataError
from preprocessing.rng import key
from preprocessing.schema import Ints, Row
from preprocessing.shards import TokenStore
from preprocessing.spec import ScaleOverrides
from preprocessing.tokenization import Vocab

# the remedy at the end of messages
MORE: Final = "hold out more of the text (a larger --holdout-ratio, or test_ratio in its corpus file)"
LABELS: Final = 200  # default number of labeled examples of a fine-tuning
LENGTH: Final = 64  # maximum tokens of a sequence, with special tokens; fewer for a model with fewer positions


@dataclass(frozen=True)
class LabeledExamples:
    """Sequences and the class of each."""

    rows: list[Row]
    label_N: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index_N: Ints) -> "LabeledExamples":
        return LabeledExamples([self.rows[i] for i in index_N], self.label_N[index_N])


@dataclass(frozen=True)
class Task:
    """A classification task: labeled examples are drawn from `pool`, and `test` is used for scoring only.

    Classes are equally frequent in both, so `chance` is the accuracy of a random guess.
    """

    name: str
    classes: tuple[str, ...]
    pool: LabeledExamples
    test: LabeledExamples
    notes: tuple[str, ...] = ()  # on documents that are truncated or left out

    @property
    def chance(self) -> float:
        return 1 / len(self.classes)

    def require(self, labels: int) -> None:
        """Raise DataError if the task has fewer labeled examples than `labels`."""
        self.draw_labeled(labels, seed=0)

    def draw_labeled(self, num: int, seed: int) -> LabeledExamples:
        """Draw `num` examples of the pool, balanced over the classes (to within one); equal seeds give equal
        examples."""
        if num > len(self.pool):
            raise DataError(
                f"task {self.name}: too few labeled examples: got {len(self.pool)} from the held-out documents, "
                f"expected {num}; use fewer (--max-train-samples {len(self.pool)}), or {MORE}"
            )
        order_N = key(seed, "task").at(epoch=0, sample=0).permutation(len(self.pool))
        return self.pool.take(interleave(self.pool.label_N, order_N)[:num])


Way = Literal["tuned", "scored", "written"]
"""How a model is evaluated. tuned: fine-tuned first. scored: by likelihoods, without training. written: by generated
answers."""


class HeldOutTask(Protocol):
    """A task made from the held-out documents of a corpus."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on text that is truncated or left out, one line each."""

    def require(self, labels: int) -> None:
        """Raise DataError if there are fewer than `labels` labeled examples."""


class TaskPart(Protocol):
    """A member of the union Tasks: makes labeled examples from the held-out documents of a corpus."""

    scale_overrides: ClassVar[ScaleOverrides]
    """Overrides of `--scale`."""
    way: ClassVar[Way]
    """How the task is evaluated."""
    is_by_document: ClassVar[bool]
    """Whether a document gives at most one example."""

    @property
    def kind(self) -> str:
        """The name of the task in `eval_tasks:` and `--tasks`."""

    def describe(self) -> str:
        """The question of the task, in one line."""

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> HeldOutTask:
        """Make the task, with sequences of at most `length` tokens. Raises DataError if there are too few documents."""


def interleave(label_N: Ints, order_N: Ints) -> Ints:
    """Reorder `order_N` so that the classes alternate, as long as they have elements left.

    >>> interleave(np.array([0, 0, 0, 1, 1]), np.array([4, 3, 2, 1, 0])).tolist()
    [2, 4, 1, 3, 0]
    """
    label_N = label_N[order_N]
    turn_N = np.zeros(len(label_N), np.int64)
    for label in np.unique(label_N):
        of_label = label_N == label
        turn_N[of_label] = np.arange(of_label.sum())
    return order_N[np.lexsort((label_N, turn_N))]
