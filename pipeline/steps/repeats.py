"""Documents that repeat others: the file duplicates.arrow, and a sample with the beginnings of both texts."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.steps import line_dedup, substrings
from pipeline.steps.dedup import ELSEWHERE, REASONS, REPEAT
from pipeline.steps.documents import batches
from pipeline.steps.output_folder import read_seal
from preprocessing.dropped import DROPPED, MOST_PER_REASON, SHOWN_CHARS, DroppedDocument, write_dropped
from preprocessing.files import TEMPORARY, write_atomic
from preprocessing.schema import NO_METADATA
from preprocessing.shards import METADATA, metadata_type

REPEATS: Final = "duplicates.arrow"
DROPPED_REPEATS: Final = f"{TEMPORARY}{DROPPED}"  # exists while the text job combines its samples
_AT_ONCE: Final = 1 << 18  # repeats that are described at once
_REASONS: Final = (*REASONS, line_dedup.REASON, substrings.REASON)

Stages = Sequence[Sequence[Path]]
"""The files of the parts, before the first step that edits documents and after each of them."""


def find_edited_away(stages: Stages, reason: str) -> np.ndarray:
    """The documents that the last step dropped, because too little text remained, as records of type REPEAT."""
    found = [np.empty(0, REPEAT)]
    for number, part in enumerate(stages[-1]):
        facts = read_seal(part)
        assert facts is not None, f"{part} was not written"
        repeat_K = np.zeros(len(facts["repeats"]), REPEAT)
        place_K3 = np.array(facts["repeats"], np.int64).reshape(-1, 3)
        repeat_K["part"], repeat_K["row"] = number, place_K3[:, 0]
        repeat_K["kept_part"], repeat_K["kept_row"] = place_K3[:, 1], place_K3[:, 2]
        found.append(repeat_K)
    repeat_K = np.concatenate(found)
    repeat_K["reason"], repeat_K["stage"] = _REASONS.index(reason), len(stages) - 2
    for before in ("", "kept_"):
        keys = _gather(stages, repeat_K, before, ["key"])["key"]
        pair_K2 = np.frombuffer(b"".join(keys.to_pylist()), ">u8").reshape(-1, 2)
        repeat_K[f"{before}high"], repeat_K[f"{before}low"] = pair_K2.T
    return repeat_K


def write_repeats(folder: Path, repeat_K: np.ndarray, stages: Stages, fields: Sequence[str]) -> None:
    """Write duplicates.arrow and the sample of the documents in it.

    duplicates.arrow has the columns key, source, reason, kept_key, kept_source (empty: from a reference corpus), and
    metadata and kept_metadata if the corpus has fields.
    """
    order = [repeat_K[name] for name in ("row", "part", "stage", "source", "low", "high")]
    repeat_K = repeat_K[np.lexsort(order)]
    tables = (
        _describe(repeat_K[start : start + _AT_ONCE], stages, fields)
        for start in range(0, max(len(repeat_K), 1), _AT_ONCE)
    )

    def write(file: object) -> None:
        first = next(tables)
        with pa.ipc.new_file(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)

    write_atomic(folder / REPEATS, write)
    write_dropped(folder / DROPPED_REPEATS, _sample(repeat_K, stages, fields), fields)


def _describe(repeat_K: np.ndarray, stages: Stages, fields: Sequence[str]) -> pa.Table:
    """The rows of duplicates.arrow for these documents."""
    mine, kept = (_gather(stages, repeat_K, before, ["source"], fields) for before in ("", "kept_"))
    columns = {
        "key": _hex(repeat_K["high"], repeat_K["low"]),
        "source": mine["source"],
        "reason": pa.array([_REASONS[reason] for reason in repeat_K["reason"].tolist()], pa.string()),
        "kept_key": _hex(repeat_K["kept_high"], repeat_K["kept_low"]),
        "kept_source": pc.fill_null(kept["source"], ""),
    }
    if fields:
        columns |= {METADATA: mine[METADATA], f"kept_{METADATA}": kept[METADATA]}
    return pa.table(columns).combine_chunks()


def _sample(repeat_K: np.ndarray, stages: Stages, fields: Sequence[str]) -> list[DroppedDocument]:
    """For each reason the repeats with the smallest keys, each key once. `repeat_K` is sorted by key."""
    chosen = [repeat_K[:0]]
    for reason in range(len(_REASONS)):
        of_reason_K = repeat_K[repeat_K["reason"] == reason]
        is_new_K = np.ones(len(of_reason_K), bool)
        is_new_K[1:] = (np.diff(of_reason_K["high"]) != 0) | (np.diff(of_reason_K["low"]) != 0)
        chosen.append(of_reason_K[is_new_K][:MOST_PER_REASON])
    repeat_K = np.concatenate(chosen)
    mine, kept = (
        _gather(stages, repeat_K, before, ["key", "source", "text"], fields).to_pylist() for before in ("", "kept_")
    )
    return [
        DroppedDocument(
            reason=_REASONS[reason],
            key=one["key"].hex(),
            source=one["source"],
            chars=len(one["text"]),
            text=one["text"][:SHOWN_CHARS],
            kept_key=kept_key,
            kept_source=other["source"] or "",
            kept_text=(other["text"] or "")[:SHOWN_CHARS],
            metadata=one.get(METADATA) or NO_METADATA,
            kept_metadata=other.get(METADATA) or NO_METADATA,
        )
        for reason, kept_key, one, other in zip(
            repeat_K["reason"].tolist(),
            _hex(repeat_K["kept_high"], repeat_K["kept_low"]).to_pylist(),
            mine,
            kept,
            strict=True,
        )
    ]


def _gather(
    stages: Stages, repeat_K: np.ndarray, before: str, names: Sequence[str], fields: Sequence[str] = ()
) -> pa.Table:
    """Columns of the repeated (`before` is "") or kept ("kept_") documents, in order; null for reference corpora."""
    kinds = {"key": pa.binary(16), "source": pa.string(), "text": pa.string(), METADATA: metadata_type(fields)}
    schema = pa.schema([(name, kinds[name]) for name in (*names, *([METADATA] if fields else []))])
    part_K, row_K = repeat_K[f"{before}part"].astype(np.int64), repeat_K[f"{before}row"].astype(np.int64)
    found, order = list[pa.Table](), [np.zeros(0, np.int64)]
    is_here_K = part_K < ELSEWHERE
    place_K2 = np.stack([repeat_K["stage"][is_here_K], part_K[is_here_K]], axis=1)
    for stage, part in np.unique(place_K2, axis=0).tolist():
        here_K = np.flatnonzero(is_here_K & (repeat_K["stage"] == stage) & (part_K == part))
        here_K = here_K[np.argsort(row_K[here_K], kind="stable")]
        first = 0
        for batch in batches(stages[stage][part]):
            begin, end = np.searchsorted(row_K[here_K], (first, first + batch.num_rows))
            if begin < end:
                columns = {name: _column(batch, name, schema) for name in schema.names}
                rows = pa.array(row_K[here_K[begin:end]] - first)
                found.append(pa.table({name: column.take(rows) for name, column in columns.items()}, schema))
            first += batch.num_rows
        order.append(here_K)
    elsewhere_K = np.flatnonzero(~is_here_K)
    found.append(pa.table({field.name: pa.nulls(len(elsewhere_K), field.type) for field in schema}, schema))
    order_K = np.concatenate([*order, elsewhere_K])
    return pa.concat_tables(found).take(pa.array(np.argsort(order_K, kind="stable")))


def _column(batch: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.Array:
    """A column of a batch; the metadata with all fields of the schema, null for those that its source does not keep."""
    if name != METADATA:
        return batch.column(name)
    have: Mapping[str, pa.Array] = {}
    if METADATA in batch.schema.names:
        column = batch.column(METADATA)
        have = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    fields = [field.name for field in schema.field(METADATA).type]
    columns = [have[each] if each in have else pa.nulls(batch.num_rows, pa.string()) for each in fields]
    return pa.StructArray.from_arrays(columns, fields)


def _hex(high_K: np.ndarray, low_K: np.ndarray) -> pa.Array:
    """Keys as hexadecimal digits."""
    return pa.array(
        [f"{high:016x}{low:016x}" for high, low in zip(high_K.tolist(), low_K.tolist(), strict=True)], pa.string()
    )
