"""The Children's Book Test: sentences of a book, one per line, then one with a blank and ten candidate words."""

import re
from collections.abc import Iterator
from typing import Literal

from preprocessing.spec import spec
from training.evaluation.files.record import Record, RecordFault, text_of

BLANK = "XXXXX"


@spec
class CbtFormat:
    """Children's Book Test: numbered lines, blank line between records (arXiv:1511.02301).

    Columns: `context`, the text before the blank; `words`; `endings`, each word with the text after the blank; and
    `answer`. The answer is the index of the correct word, from 0, or None if the file has no answer. The last line of a
    record has the sentence, the answer and the words, separated by tabs and "|".
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
