"""Find cleaned documents that contain a text, and the documents that were dropped because they repeat others."""

from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.steps.documents import batches
from pipeline.steps.plan import TextDirectory
from pipeline.steps.repeats import REPEATS


def find_text(texts: TextDirectory, words: str, report: Callable[[int, int], None]) -> dict[bytes, str]:
    """The keys of all cleaned documents that contain `words`, as written, with their sources, in order of the text.

    Documents that were dropped later, because they repeat others, are included. `report` is called with the number of
    bytes that are searched, and with that of all. Raises OSError or ArrowInvalid if a part is missing or damaged.
    """
    paths = [texts.folder / part for part in texts.parts]
    total, before, found = sum(path.stat().st_size for path in paths), 0, dict[bytes, str]()
    for path in paths:
        done = before
        for batch in batches(path):
            hits = batch.filter(pc.match_substring(batch.column("text"), words))
            found |= zip(hits.column("key").to_pylist(), hits.column("source").to_pylist(), strict=True)
            done += batch.nbytes
            report(min(done, before + path.stat().st_size), total)
        before += path.stat().st_size
        report(before, total)
    return found


def find_repeats(folder: Path, starts: Collection[str]) -> list[dict[str, str]]:
    """The rows of duplicates.arrow of a text directory whose keys begin with one of `starts`, digits of equal number.

    Each has key, source, reason, kept_key and kept_source. Raises OSError or ArrowInvalid if the file is missing or
    damaged.
    """
    names = ("key", "source", "reason", "kept_key", "kept_source")
    with pa.memory_map(str(folder / REPEATS)) as file:
        table = pa.ipc.open_file(file).read_all().select(names)
        first = pc.utf8_slice_codeunits(table["key"], 0, len(next(iter(starts))))
        rows: list[dict[str, str]] = table.filter(pc.is_in(first, pa.array(starts, pa.string()))).to_pylist()
    return rows
