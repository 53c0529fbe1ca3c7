"""Texts that a Python program has in memory, as a source of a job."""

from pathlib import Path

from pipeline.readers import is_in_memory, save_texts

FOLDER = "data"  # directory below the output directory, which has one file for each collection of texts


def write_texts(data: object, output_dir: Path, text_key: str = "") -> tuple[str, str] | None:
    """Write the texts of `data` below the output directory; returns the path for --data, and a line about the texts.

    Returns None if `data` has paths. Raises BadInput for an object that has no texts.
    """
    if not is_in_memory(data):
        return None
    path, note = save_texts(data, output_dir / FOLDER, text_key)
    return str(path), note
