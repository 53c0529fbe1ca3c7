"""CoNLL files: one word with its tags per line, and an empty line after each sentence."""

from collections.abc import Iterator, Sequence
from typing import Literal

from preprocessing.spec import key, spec
from training.evaluation.files.record import Record, RecordFault, text_of

_DOCUMENT = "-DOCSTART-"


@spec
class ConllFormat:
    """CoNLL files: one word per line, blank line between sentences.

    Columns: `words` and `tags`. The file's columns are separated by spaces or tabs and counted from 0, or from the end
    if negative. If most lines have tabs, only tabs separate them, so that a word may contain spaces. Other white space,
    such as U+3000 or a no-break space, is part of a word. If the file has no column of tags, `tags` is None.

    Lines that begin with -DOCSTART- (CoNLL-2003) are not words: they separate documents, and each sentence has the
    number of its document as `document`. Lines that begin with `comment` are ignored.
    """

    kind: Literal["conll"] = "conll"
    word: int = key(default=0, doc="Number of the word column, from 0; negative: from the end.")
    tag: int = key(default=-1, doc="Number of the tag column, from 0; negative: from the end.")
    comment: str = key(default="", doc="Prefix of lines to ignore; empty: none.")

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        words, tags, fault, begins, document = list[str](), list[str](), "", 1, 0
        lines = [line.removesuffix("\r") for line in text_of(content).split("\n")]
        by_tabs = _has_tabs([line for line in lines if line.strip(" \t") and not self._is_between(line)])
        cells_of = [_cells(line, by_tabs=by_tabs) for line in lines]
        ours = [cells for line, cells in zip(lines, cells_of, strict=True) if any(cells) and not self._is_between(line)]
        tagged = any(len(cells) > 1 for cells in ours)
        for number, (line, cells) in enumerate([*zip(lines, cells_of, strict=True), ("", [])], 1):
            if not any(cells):
                if words or fault:
                    found = {"words": words, "tags": tags if tagged else None, "document": document}
                    yield begins, RecordFault(fault) if fault else found
                words, tags, fault, begins = [], [], "", number + 1
            elif self._is_between(line):
                document += line.startswith(_DOCUMENT)
                begins = number + 1
            elif not tagged:
                words.append(cells[0])
            elif len(cells) <= max(self.word, -self.word - 1, self.tag, -self.tag - 1, 1):
                fault = fault or f"line {number} has {len(cells)} columns, expected a word and a tag"
            else:
                words.append(cells[self.word])
                tags.append(cells[self.tag])

    def _is_between(self, line: str) -> bool:
        """Whether a line is not a word: it is the start of a document, or a comment."""
        return line.startswith(_DOCUMENT) or (self.comment != "" and line.startswith(self.comment))


def _has_tabs(lines: Sequence[str]) -> bool:
    r"""Whether most lines have tabs between columns, so that blanks are parts of words.

    >>> _has_tabs(["New York\tB-LOC", "is\tO", "Rome O"]), _has_tabs(["Rome O\t", "is O"])
    (True, False)
    """
    return 2 * sum("\t" in line.strip(" \t") for line in lines) > len(lines)


def _cells(line: str, *, by_tabs: bool) -> list[str]:
    r"""Split a line into columns: at tabs if it and most lines have tabs, else at blanks or tabs.

    >>> _cells("Rue\u3000de  B-LOC\t", by_tabs=False), _cells("New York\tB-LOC", by_tabs=True)
    (['Rue\u3000de', 'B-LOC'], ['New York', 'B-LOC'])
    """
    if by_tabs and "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.replace("\t", " ").split(" ") if cell]
