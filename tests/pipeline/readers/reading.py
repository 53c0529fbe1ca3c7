"""Read sources of small files, and check what holds for each reader: no byte is lost, and no exception is raised."""

from pathlib import Path

from pipeline.readers import EXPECTED, Record, Source, plan_splits, records


def write(folder: Path, content: bytes | str, name: str) -> str:
    """Write a new file and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(*sources: Source, max_chars: int = 100_000) -> list[Record]:
    """Return all records of sources."""
    return [record for split in plan_splits(sources) for record in records(split, max_chars)]


def texts(*sources: Source, max_chars: int = 100_000) -> list[str]:
    """Return the documents of sources without surrounding blanks."""
    return [record.text.strip() for record in read(*sources, max_chars=max_chars) if not record.fault]


def counted(source: Source, size: int, max_chars: int = 100_000) -> list[str]:
    """Return documents and faults (as `<fault>`) of a source; check that its records have `size` bytes in total."""
    found = read(source, max_chars=max_chars)
    assert sum(record.size for record in found) == size, found
    shown = [record for record in found if record.fault not in EXPECTED]
    return [f"<{record.fault}>" if record.fault else record.text.strip() for record in shown]
