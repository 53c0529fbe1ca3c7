"""Files of CoNLL: a word a line with its tags, and an empty line behind each sentence."""

from collections.abc import Iterator
from typing import Literal

from preprocessing.spec import spec
from training.files.record import Fault, Record, text_of

_DOCUMENT = "-DOCSTART-"


@spec
class Conll:
    """A sentence as `words` and `tags`: columns between blanks or tabs, counted from 0, from the end where negative.
    Other blanks, as U+3000 or a no-break space, are parts of a word. A file without a column of tags has none: its
    `tags` are None.

    Lines that begin with -DOCSTART- (CoNLL-2003) are no words: they stand between documents, and a sentence has the
    number of its own as `document`. Lines that begin with `comment` are left out.
    """

    kind: Literal["conll"] = "conll"
    word: int = 0
    tag: int = -1
    comment: str = ""

    def records(self, content: bytes) -> Iterator[tuple[int, Record | Fault]]:
        words, tags, fault, begins, document = list[str](), list[str](), "", 1, 0
        lines = [line.removesuffix("\r") for line in text_of(content).split("\n")]
        cells_of = [_cells(line) for line in lines]
        ours = [cells for line, cells in zip(lines, cells_of, strict=True) if any(cells) and not self._is_between(line)]
        tagged = any(len(cells) > 1 for cells in ours)
        for number, (line, cells) in enumerate([*zip(lines, cells_of, strict=True), ("", [])], 1):
            if not any(cells):
                if words or fault:
                    found = {"words": words, "tags": tags if tagged else None, "document": document}
                    yield begins, Fault(fault) if fault else found
                words, tags, fault, begins = [], [], "", number + 1
            elif self._is_between(line):
                document += line.startswith(_DOCUMENT)
                begins = number + 1
            elif not tagged:
                words.append(cells[0])
            elif len(cells) <= max(self.word, -self.word - 1, self.tag, -self.tag - 1, 1):
                fault = fault or f"line {number} has {len(cells)} columns: a word and a tag are needed"
            else:
                words.append(cells[self.word])
                tags.append(cells[self.tag])

    def _is_between(self, line: str) -> bool:
        """Whether a line is no word: it begins a document, or is a comment."""
        return line.startswith(_DOCUMENT) or (self.comment != "" and line.startswith(self.comment))


def _cells(line: str) -> list[str]:
    r"""The columns of a line: between tabs where it has some, else between blanks.

    >>> _cells("Rue\u3000de  B-LOC "), _cells("New York\tB-LOC"), _cells("  ")
    (['Rue\u3000de', 'B-LOC'], ['New York', 'B-LOC'], [])
    """
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]
