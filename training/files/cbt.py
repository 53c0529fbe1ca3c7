"""The Children's Book Test: sentences of a book, one per line, then one with a blank and ten candidate words."""

import re
from collections.abc import Iterator
from typing import Literal

from preprocessing.spec import spec
from training.files.record import Record, RecordFault, text_of

BLANK = "XXXXX"


@spec
class CbtFormat:
    """A blank as `context`, all that stands before it, `words`, `endings`, each word with what stands behind the blank,
    and `answer`, the number of the word that fits, from 0, None where the file has none (arXiv:1511.02301).

    A record is of numbered lines, an empty one behind it. The last has the sentence, the answer and the words, between
    tabs and "|".
    """

    kind: Literal["cbt"] = "cbt"

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        block, begins = list[str](), 1
        for number, line in enumerate([*text_of(content).split("\n"), ""], 1):
            if line.strip():
                block.append(re.sub(r"^[0-9]+ ", "", line.removesuffix("\r")))
                continue
            if block:
                yield begins, _blank(block)
            block, begins = [], number + 1


def _blank(lines: list[str]) -> Record | RecordFault:
    cells = lines[-1].split("\t")
    before, blank, behind = cells[0].partition(BLANK)
    words = [word for word in cells[-1].split("|") if word]
    if len(cells) < 3 or not blank or (cells[1].strip() and cells[1] not in words):
        return RecordFault(f"the last line lacks {BLANK}, an answer between tabs, or the answer among its words")
    context = " ".join([*lines[:-1], before]).rstrip()
    return {
        "context": context,
        "words": words,
        "endings": [word + behind for word in words],
        "answer": words.index(cells[1]) if cells[1] in words else None,
    }
