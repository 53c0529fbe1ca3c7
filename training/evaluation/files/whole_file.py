"""A file as one text, for perplexity."""

import codecs
from collections.abc import Iterator
from typing import Literal

from preprocessing.errors import BadInput
from preprocessing.spec import key, spec
from training.evaluation.files.record import Record, RecordFault, text_of


@spec
class WholeFileFormat:
    """Whole file, or a range of its bytes, as the `text` of one record.

    `start` and `stop` are counted in bytes, from the end if negative: the last 5 MB of enwik8 are its test split. A
    character that is only partly in the range is left out. Raises BadInput if the file is shorter than the range
    requires, because it is then a different text.
    """

    kind: Literal["whole_file"] = "whole_file"
    start: int = key(default=0, doc="First byte; negative: from the end.")
    stop: int | None = key(
        default=None, doc="Byte at which the text ends; negative: from the end; null: end of the file."
    )

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        found = self._stretch(content) if self.start or self.stop is not None else text_of(content)
        yield 1, {"text": found} if found.strip() else RecordFault("no text")

    def _stretch(self, content: bytes) -> str:
        least = max(abs(self.start), abs(self.stop or 0))
        if len(content) < least:
            raise BadInput(f"too short: got {len(content):,} bytes, expected at least {least:,}; give the whole file")
        begin, stop, _ = slice(self.start, self.stop).indices(len(content))
        while 0 < begin < stop and content[begin] & 0xC0 == 0x80:  # inside a character
            begin += 1
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(content[begin:stop])
        except UnicodeDecodeError as error:
            raise UnicodeDecodeError(
                error.encoding, content, begin + error.start, begin + error.end, error.reason
            ) from None
