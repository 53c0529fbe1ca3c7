"""Plain lines: one text per line, optionally after a label, or one record per block of lines."""

from collections.abc import Iterator
from typing import Literal

from preprocessing.spec import key, spec
from training.evaluation.files.record import Record, RecordFault, text_of


@spec
class LinesFormat:
    """Text lines, one record each, with the column `text`.

    With `label_first` a line has a `label`, a space and the `text` (SST-5, TREC).
    """

    kind: Literal["lines"] = "lines"
    label_first: bool = key(default=False, doc="Whether each line begins with a label and a space.")

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        for number, line in enumerate(text_of(content).split("\n"), 1):
            line = line.removesuffix("\r")
            if not line.strip():
                continue
            if not self.label_first:
                yield number, {"text": line}
                continue
            label, blank, text = line.partition(" ")
            yield number, {"label": label, "text": text} if blank else RecordFault("no blank after the label")


@spec
class LineBlockFormat:
    """Blocks of lines, one record each, with a blank line between records.

    The files of Winograd schemas have this format.
    """

    kind: Literal["line_blocks"] = "line_blocks"
    names: tuple[str, ...] = key(default=(), doc="Column names, one per line of a block.")

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        block, begins = list[str](), 1
        for number, line in enumerate([*text_of(content).split("\n"), ""], 1):
            if line.strip():
                block.append(line.removesuffix("\r"))
                continue
            if block and len(block) == len(self.names):
                yield begins, dict(zip(self.names, block, strict=True))
            elif block:
                yield (
                    begins,
                    RecordFault(f"got {len(block)} lines, expected {len(self.names)}: {', '.join(self.names)}"),
                )
            block, begins = [], number + 1
