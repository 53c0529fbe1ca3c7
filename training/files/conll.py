"""Files of CoNLL: a word a line with its tags, and an empty line behind each sentence."""

from collections.abc import Iterator
from typing import Literal

from preprocessing.spec import spec
from training.files.record import Fault, Record, text_of

_DOCUMENT = "-DOCSTART-"


@spec
class Conll:
    """A sentence as `words` and `tags`: columns between blanks or tabs, counted from 0, from the end where negative.

    Lines that begin with -DOCSTART- (CoNLL-2003) are no words: they stand between documents, and a sentence has the
    number of its own as `document`. Lines that begin with `comment` are left out.
    """

    kind: Literal["conll"] = "conll"
    word: int = 0
    tag: int = -1
    comment: str = ""

    def records(self, content: bytes) -> Iterator[tuple[int, Record | Fault]]:
        words, tags, fault, begins, document = list[str](), list[str](), "", 1, 0
        for number, line in enumerate([*text_of(content).split("\n"), ""], 1):
            cells = line.split("\t") if "\t" in line else line.split()
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                if words or fault:
                    yield begins, Fault(fault) if fault else {"words": words, "tags": tags, "document": document}
                words, tags, fault, begins = [], [], "", number + 1
            elif line.startswith(_DOCUMENT) or (self.comment and line.startswith(self.comment)):
                document += line.startswith(_DOCUMENT)
                begins = number + 1
            elif len(cells) <= max(self.word, -self.word - 1, self.tag, -self.tag - 1, 1):
                fault = fault or f"line {number} has {len(cells)} columns: a word and a tag are needed"
            else:
                words.append(cells[self.word])
                tags.append(cells[self.tag])
