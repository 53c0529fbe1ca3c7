"""A file as one text: what perplexity is measured on."""

from collections.abc import Iterator
from typing import Literal

from preprocessing.spec import spec
from training.files.record import Fault, Record, text_of


@spec
class Whole:
    """The whole of a file, or a stretch of its bytes, as the `text` of one record.

    `begin` and `stop` are bytes, counted from the end where negative: the last 5 MB of enwik8 are its test split.
    """

    kind: Literal["whole"] = "whole"
    begin: int = 0
    stop: int | None = None

    def records(self, content: bytes) -> Iterator[tuple[int, Record | Fault]]:
        if self.begin or self.stop is not None:  # a cut may go through a character
            found = content[self.begin : self.stop].decode("utf-8", errors="ignore")
        else:
            found = text_of(content)
        yield 1, {"text": found} if found.strip() else Fault("has no text")
