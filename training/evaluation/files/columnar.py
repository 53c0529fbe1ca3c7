"""Parquet and Arrow files, as `datasets` saves them and as the hub of Hugging Face distributes them.

pyarrow is imported when a file is read: task files are listed without it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from preprocessing.errors import BadInput
from preprocessing.spec import key, require, spec
from training.evaluation.files.record import Record, RecordFault

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET: Final = b"PAR1"
_ARROW_FILE: Final = b"ARROW1\x00\x00"
_ARROW_STREAM: Final = b"\xff\xff\xff\xff"
_ROWS: Final = 1024  # rows that are converted at a time
_METADATA: Final = b"huggingface"  # key of the schema's metadata with the features of `datasets`
_AGAIN: Final = "save or download it again"


@spec
class ParquetFormat:
    """Parquet files; a record has the columns of a row, and nested values are lists and objects.

    Integers of a ClassLabel are read as their names, which the metadata of the file has. A number without a name, such
    as the -1 of a test set without labels, stays a number.
    """

    kind: Literal["parquet"] = "parquet"
    as_stored: bool = key(
        default=False, doc="Whether integers of a ClassLabel stay numbers, and float32 keeps all digits."
    )

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        if content.startswith((_ARROW_FILE, _ARROW_STREAM)):
            raise BadInput("invalid Parquet file: got an Arrow file; use a format of kind datasets for its directory")
        if not content.startswith(_PARQUET):
            raise BadInput(f"invalid Parquet file: got other bytes, expected PAR1 at the start; {_AGAIN}")
        yield from _read(content, self.as_stored)


@spec
class DatasetsFormat:
    """Directory of a dataset, as `datasets` saves it or as the hub of Hugging Face has it.

    A path is the directory, such as `glue/mnli`. The split is a directory of Arrow files (a saved DatasetDict) or a set
    of Parquet shards, `SPLIT-00000-of-00001.parquet` there or in `data/`. Columns are read as by the format `parquet`.
    """

    kind: Literal["datasets"] = "datasets"
    split: str = key(default="", doc="Name of the split in the dataset; empty: the directory was saved from one split.")
    as_stored: bool = key(
        default=False, doc="Whether integers of a ClassLabel stay numbers, and float32 keeps all digits."
    )

    def __post_init__(self) -> None:
        require("/" not in self.split, "split", self.split, "the name of a split, such as validation")

    def patterns(self, folder: str) -> tuple[str, ...]:
        """The patterns of the files of the split; the first that exists is read.

        >>> DatasetsFormat(split="train").patterns("glue/cola")[:2]
        ('glue/cola/train/data-*.arrow', 'glue/cola/train-*-of-*.parquet')
        """
        if not self.split:
            return (f"{folder}/data-*.arrow", f"{folder}/dataset.arrow")
        return (
            f"{folder}/{self.split}/data-*.arrow",
            f"{folder}/{self.split}-*-of-*.parquet",
            f"{folder}/data/{self.split}-*-of-*.parquet",
            f"{folder}/{self.split}.parquet",
            f"{folder}/{self.split}/*.parquet",
            f"{folder}/{self.split}/dataset.arrow",
        )

    def describe(self, folder: str) -> str:
        return f"{folder} (a dataset with split {self.split})" if self.split else f"{folder} (a saved dataset)"

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        if not content.startswith((_PARQUET, _ARROW_FILE, _ARROW_STREAM)):
            raise BadInput(f"invalid file of a dataset: got other bytes, expected Parquet or Arrow; {_AGAIN}")
        yield from _read(content, self.as_stored)


def _read(content: bytes, as_stored: bool) -> Iterator[tuple[int, Record]]:
    """The rows of a Parquet file, an Arrow file or an Arrow stream, with their numbers from 1."""
    import pyarrow as pa

    number = 0
    try:
        schema, batches = _open(pa.BufferReader(content), content)
        _require_different(schema.names)
        features = _features(schema)
        for batch in batches:
            batch.validate(full=True)  # a damaged file must not be read beyond its end
            arrays = zip(schema.names, batch.columns, strict=True)
            columns = [_convert(name, array, features.get(name), as_stored) for name, array in arrays]
            for values in zip(*columns, strict=True):
                number += 1
                yield number, dict(zip(schema.names, values, strict=True))
    except UnicodeDecodeError:
        raise
    except (pa.ArrowException, OSError, EOFError) as error:
        line = str(error).partition("\n")[0]
        raise BadInput(f"damaged after row {number:,} ({line}); {_AGAIN}") from None


def _open(file: "pa.BufferReader", content: bytes) -> "tuple[pa.Schema, Iterator[pa.RecordBatch]]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    if content.startswith(_PARQUET):
        table = pq.ParquetFile(file)
        return table.schema_arrow, table.iter_batches(_ROWS, use_threads=False)
    if content.startswith(_ARROW_FILE):
        stored = pa.ipc.open_file(file)
        return stored.schema, (stored.get_batch(at) for at in range(stored.num_record_batches))
    stream = pa.ipc.open_stream(file)
    return stream.schema, iter(stream)


def _require_different(names: list[str]) -> None:
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"ambiguous column: {names.count(again[0])} columns are named {again[0]!r}; rename the others")


def _features(schema: "pa.Schema") -> Mapping[str, Any]:
    """The features of `datasets` by column, from the metadata of a schema; {} if there are none."""
    try:
        found = json.loads((schema.metadata or {})[_METADATA])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _convert(name: str, column: "pa.Array", feature: Any, as_stored: bool) -> list[Any]:
    """The values of a column. BadInput if Python has no such value, for example a date after the year 9999."""
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist() if as_stored else _values(column, feature)
    except (UnicodeDecodeError, pa.ArrowException):
        raise
    except (ValueError, OverflowError, LookupError) as error:
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise BadInput(
            f"column {name}: a value cannot be read ({why}); remove the column, or save it as text"
        ) from None
    return values


def _values(column: "pa.Array", feature: Any) -> list[Any]:
    """The values of a column, with names for the integers of a ClassLabel.

    float32 is read as the shortest decimal number that it stands for: 3.8, not 3.799999952316284, as in a text file.
    """
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if pa.types.is_float32(column.type) or pa.types.is_float16(column.type):
        numbers = column.to_numpy(zero_copy_only=False)
        return [None if value is None else float(str(number)) for value, number in zip(values, numbers, strict=True)]
    return [_with_names(value, feature) for value in values] if _has_names(feature) else values


def _has_names(feature: Any) -> bool:
    """Whether a feature is a ClassLabel or has one inside."""
    if isinstance(feature, list):
        return any(map(_has_names, feature))
    if not isinstance(feature, dict):
        return False
    return feature.get("_type") == "ClassLabel" or any(map(_has_names, feature.values()))


def _with_names(value: Any, feature: Any) -> Any:
    """A value with names for the integers of ClassLabels.

    >>> tags = {"feature": {"names": ["O", "B-PER"], "_type": "ClassLabel"}, "_type": "List"}
    >>> _with_names([0, 1, -1], tags), _with_names({"tags": [1]}, {"tags": tags})
    (['O', 'B-PER', -1], {'tags': ['B-PER']})
    """
    if isinstance(value, list):
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else inner
        return [_with_names(one, inner) for one in value]
    if not isinstance(feature, dict):
        return value
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names")
        is_known = isinstance(names, list) and isinstance(value, int) and 0 <= value < len(names)
        return str(names[value]) if is_known else value  # type: ignore[index]
    if isinstance(value, dict):  # `Sequence({...})` of older versions is an object of lists
        inner = feature["feature"] if isinstance(feature.get("feature"), dict) and "_type" in feature else feature
        return {name: _with_names(one, inner.get(name)) for name, one in value.items()}
    return value
