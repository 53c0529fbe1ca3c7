"""Classification of held-out documents by their source."""

from collections import Counter
from typing import ClassVar, Final, Literal

from preprocessing.errors import DataError
from preprocessing.schema import Row
from preprocessing.shards import TokenStore
from preprocessing.spec import ScaleOverrides, spec
from preprocessing.tokenization import Vocab
from training.evaluation.tasks.held_out import FEWEST_ROWS, balance_classes, note_unread, read_held_out, row
from training.evaluation.tasks.part import LENGTH, MORE, Task, Way

MOST_CLASSES: Final = 8


@spec
class SourceClassification:
    """Classification of held-out documents by their source (package, file), up to 8 classes."""

    kind: Literal["source_classification"] = "source_classification"

    scale_overrides: ClassVar[ScaleOverrides] = {}
    way: ClassVar[Way] = "tuned"
    is_by_document: ClassVar[bool] = True

    def describe(self) -> str:
        return "which source is this document from"

    def make(self, store: TokenStore, vocab: Vocab, length: int = LENGTH) -> Task:
        """Make the task from the most frequent sources, with equally many examples of each. The number of sources is
        the one that gives the most examples."""
        documents, room = list(read_held_out(store)), length - 2
        counted = Counter(document.source for document in documents)
        frequent = sorted(counted, key=lambda name: (-counted[name], name))[:MOST_CLASSES]
        rows_by_classes = {num: num * counted[frequent[num - 1]] for num in range(2, len(frequent) + 1)}
        num_classes = max(rows_by_classes, key=rows_by_classes.__getitem__, default=0)
        if rows_by_classes.get(num_classes, 0) < FEWEST_ROWS:
            start = f"task source_classification: the held-out documents of {store.folder} have"
            if len(counted) < 2:
                raise DataError(f"{start} one source, expected at least two; remove the task from eval_tasks")
            raise DataError(
                f"{start} {len(counted)} sources, and with as many documents of each source "
                f"{max(rows_by_classes.values())} examples, expected at least {FEWEST_ROWS}; {MORE}, or remove the "
                "task from eval_tasks"
            )
        classes = tuple(frequent[:num_classes])
        halves: tuple[list[tuple[Row, int]], ...] = ([], [])
        documents = [document for document in documents if document.source in classes]
        for document in documents:
            halves[document.is_test].append((row(vocab, document.ids[:room]), classes.index(document.source)))
        long = sum(len(document.ids) > room for document in documents)
        notes = note_unread(long, len(documents), f"documents are longer than {room} tokens and truncated")
        pool, test = (balance_classes(half, len(classes)) for half in halves)
        return Task("source_classification", classes, pool, test, notes)
