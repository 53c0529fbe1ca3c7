"""JSON: one object per line, or one document with a list of objects."""

from collections.abc import Iterator
from typing import Any, Literal

from preprocessing.files import parse_json
from preprocessing.spec import key, spec
from training.evaluation.files.record import Record, RecordFault, text_of


@spec
class JsonlFormat:
    """JSON Lines: one object per line."""

    kind: Literal["jsonl"] = "jsonl"

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        for number, line in enumerate(text_of(content).split("\n"), 1):
            if line.strip():
                yield number, _object(line)


@spec
class JsonFormat:
    """JSON document with a list of objects.

    The list is at `records_path`, keys with dots between (empty: the document itself). A single object is a list of
    one, as in each file of RACE. With `columns`, the object has lists of equal length, one per column. With `each`,
    parallel lists inside an object become records of their own, which also have the columns of their parent (questions
    of RACE and CoQA).
    """

    kind: Literal["json"] = "json"
    records_path: str = key(default="", doc="Path to the list of records, keys with dots between; empty: the document.")
    columns: bool = key(default=False, doc="Whether the document has one list per column instead of a list of records.")
    each: tuple[str, ...] = key(default=(), doc="Names of parallel lists with one record per element.")

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        try:
            found: Any = parse_json(text_of(content))
            for key in filter(None, self.records_path.split(".")):
                found = found[key]
        except (ValueError, KeyError, TypeError) as error:
            yield 1, RecordFault(f"not JSON with {self.records_path or 'objects'} ({error})")
            return
        try:
            if self.columns:
                found = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
        except (AttributeError, TypeError, ValueError):
            yield 1, RecordFault("the columns are not lists of equal length")
            return
        for number, one in enumerate(found if isinstance(found, list) else [found], 1):
            for each in self._parts(one):
                yield number, each

    def _parts(self, one: Any) -> Iterator[Record | RecordFault]:
        if not isinstance(one, dict):
            yield RecordFault(f"got {type(one).__name__}, expected an object")
        elif not self.each:
            yield one
        else:
            lists = [one.get(name) for name in self.each]
            if not all(isinstance(values, list) and len(values) == len(lists[0] or []) for values in lists):
                yield RecordFault(f"{', '.join(self.each)} are not lists of equal length")
                return
            for number, values in enumerate(zip(*lists, strict=True)):
                yield one | dict(zip(self.each, values, strict=True)) | {"number": number}


def _object(line: str) -> Record | RecordFault:
    try:
        value = parse_json(line)
    except ValueError as error:
        return RecordFault(f"not JSON ({error})")
    return value if isinstance(value, dict) else RecordFault(f"got {type(value).__name__}, expected an object")
