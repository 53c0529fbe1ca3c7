"""Static masking: precomputed training sequences as Arrow files, from the function of the data loader.

That function is ExampleDataset.row. Row s of copy c is the sequence that training with the same `static_masks` uses for
sample s in epoch c. rows.json is written last and describes the rows.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from pipeline.runners import Report, beam, pipeline, report_progress
from pipeline.steps.output_folder import lock_directory, read_seal, seal, sweep
from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.manifest import Count, Ledger
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Row
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab

ROWS: Final = "rows.json"
_ROWS_BYTES: Final = 64 << 20  # approximate size of a file
_BYTES_A_TOKEN: Final = 10  # IDs, labels, segments and flags
_AT_ONCE: Final = 1024  # rows of a record batch
_TYPES: Final = {  # columns of a row in schema.py, except those about its construction, e.g. `hits`
    "input_ids": pa.list_(pa.int32()),
    "token_type_ids": pa.list_(pa.int8()),
    "special_tokens_mask": pa.list_(pa.bool_()),
    "word_starts": pa.list_(pa.bool_()),
    "labels": pa.list_(pa.int32()),
    "next_sentence_label": pa.int8(),
    "positions": pa.list_(pa.int32()),
    "languages": pa.list_(pa.int8()),
    "rank": pa.list_(pa.int32()),
    "reach": pa.list_(pa.int32()),
    "source_input_ids": pa.list_(pa.int32()),
    "source_positions": pa.list_(pa.int32()),
    "source_languages": pa.list_(pa.int8()),
    "source_seen": pa.list_(pa.bool_()),
}


@dataclass(frozen=True)
class StaticExampleSpec:
    """The settings that determine the rows."""

    corpus: str  # folder
    split: str
    sampling: ExampleSpec  # `static_masks` is the number of copies to write, each with its own pairs and masks
    length: int  # tokens


@dataclass(frozen=True)
class RowRange:
    """Rows [start, stop) of a copy, written to one file."""

    name: str
    copy: int
    start: int
    stop: int


def materialise(
    static: StaticExampleSpec, out: Path | str, beam_args: Sequence[str] = (), report: Report | None = None
) -> dict[str, Any]:
    """Write all rows of `static` to `out` and return the content of rows.json. Raises BadInput if there are none."""
    copies = static.sampling.static_masks
    if copies < 1:
        raise BadInput(f"invalid data.static_masks: got {copies}, expected 1 or more; set e.g. data.static_masks=10")
    out, static = Path(out).absolute(), replace(static, corpus=str(Path(static.corpus).absolute()))
    rows = _rows(static)
    if rows.store.groups:
        raise BadInput(
            f"{static.corpus}: static rows do not support the weights of a mixture; train on the corpus directly, "
            "or remove `mixture` from the corpus file"
        )
    num_rows = [rows.count(copy) for copy in range(copies)]
    parts = list(_parts(num_rows, static.length))
    made_from = {"corpus": rows.store.manifest.digest, "split": static.split, "length": static.length}
    identity = json.loads(json.dumps(made_from | asdict(static.sampling)))  # as JSON returns it: tuples become lists
    work = sum(num_rows) * static.length * _BYTES_A_TOKEN
    names = [part.name for part in parts]
    with lock_directory(out, need=sum(work // len(parts) for name in names if not (out / name).exists())):
        sweep(out, names)
        if any(read_seal(out / name, identity=identity) is None for name in names):
            (out / ROWS).unlink(missing_ok=True)
            with report_progress("rows", out, names, report), pipeline(out, work, beam_args) as graph:
                graph | "Parts" >> beam.Create(parts) | "Rows" >> beam.Map(_write, static, str(out), identity)
        files = [
            {"name": name, "bytes": facts["bytes"], "xxh3": facts["xxh3"]}
            for name in names
            if (facts := read_seal(out / name))
        ]
        summary = identity | {"rows": num_rows, "files": files}
        write_atomic(out / ROWS, json.dumps(summary, indent=1, sort_keys=True).encode() + b"\n")
    return summary


def _parts(num_rows: Sequence[int], length: int) -> Iterator[RowRange]:
    size = max(_AT_ONCE, _ROWS_BYTES // (length * _BYTES_A_TOKEN) // _AT_ONCE * _AT_ONCE)
    ranges = [
        (copy, start, min(start + size, stop)) for copy, stop in enumerate(num_rows) for start in range(0, stop, size)
    ]
    for number, (copy, start, stop) in enumerate(ranges):
        yield RowRange(f"rows-{number:05d}-of-{len(ranges):05d}.arrow", copy, start, stop)


def _write(part: RowRange, static: StaticExampleSpec, out: str, identity: dict[str, Any]) -> None:
    """Write one file, unless it is already complete."""
    path = Path(out) / part.name
    if read_seal(path, identity=identity) is not None:
        return
    rows = _rows(static)
    tokens = 0

    def write(file: BinaryIO) -> None:
        nonlocal tokens
        writer = None
        for start in range(part.start, part.stop, _AT_ONCE):
            batch_rows = [rows.row(part.copy, sample) for sample in range(start, min(start + _AT_ONCE, part.stop))]
            tokens += sum(len(row["input_ids"]) for row in batch_rows)
            batch = _batch(batch_rows)
            writer = writer or pa.ipc.new_file(file, batch.schema)
            writer.write_batch(batch)
        if writer:
            writer.close()

    write_atomic(path, write)
    ledger = Ledger(kept=Count(part.stop - part.start, 0, tokens))
    seal(path, identity=identity, ledger=ledger.to_dict())


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in rows] for name in _TYPES if name in rows[0]}
    return pa.record_batch(
        {
            name: pa.array(values if values[0].ndim else np.stack(values), _TYPES[name])
            for name, values in columns.items()
        }
    )


@lru_cache(maxsize=1)
def _rows(static: StaticExampleSpec) -> ExampleDataset:
    """The rows of the corpus with their plans, cached in each process."""
    store = TokenStore.open(static.corpus, static.split)
    vocab = Vocab.load(store.vocab_dir, store.manifest.vocab["hash"])
    return ExampleDataset(store, vocab, static.sampling, static.length)
