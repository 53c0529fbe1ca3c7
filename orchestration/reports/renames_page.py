"""The page docs/reference/renames.md: every name of version 0.1 and its name in 0.2, from preprocessing/renames.tsv.

`python -m docs.generate` writes the page; a test compares both.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from preprocessing.renames import Rename, table

_RECIPE: Final = ("data", "masking", "objective", "losses", "model", "optimizer", "phases", "reported_results")
_CORPUS: Final = ("clean", "decontaminate", "dedup", "document_order", "max_shard_mb", "mixture", "phrases")
_CORPUS_TOO: Final = ("sentence_boundaries", "sources", "test_ratio", "validation_ratio", "word_segmentation")
_NOTES: Final = {
    "Options": "If an option belongs to one verb, the column *verb* names it.",
    "Metrics": "Names in MLflow and in metrics.jsonl.",
    "Tags": "Tags of MLflow runs.",
    "Columns": "Columns of batches, and of the files of `sesame corpus --materialize`.",
}
_ORDER: Final = (
    "Recipe: top level",
    *(f"Recipe: {part}" for part in _RECIPE),
    "Corpus files",
    "Task files",
    "Cluster files",
    "Verbs",
    *_NOTES,
)
_INTRO: Final = """# Names of version 0.1

Version 0.2 uses the standard names of the field. An old key, type, value, option or verb is an error, and the message
gives the new name. Version 0.3 will not recognize the old names.

A dotted path starts at the top of a file. A type is the value of the key `kind`. If a key was renamed for some types
only, the column *type* lists the old names of these types. In task files, `*` stands for any split or grid.

This page is generated from `preprocessing/renames.tsv` by `python -m docs.generate`.
"""


def renames_page() -> str:
    """The page as Markdown: a table for each section."""
    sections: dict[str, list[Rename]] = {title: [] for title in _ORDER}
    for row in table():
        sections[_section_of(row)].append(row)
    blocks = [_INTRO]
    for title, rows in sections.items():
        blocks += [f"## {title}\n", *([f"{_NOTES[title]}\n"] if title in _NOTES else []), *_table(title, rows), ""]
    return "\n".join(blocks)


def _section_of(row: Rename) -> str:
    """The title of the section of a renamed name.

    >>> _section_of(Rename("key", "", "trunk.layers", "model.num_hidden_layers"))
    'Recipe: model'
    >>> _section_of(Rename("key", "", "hardware", "gpu_type"))
    'Cluster files'
    """
    if row.what not in ("key", "kind", "value"):
        return f"{row.what.capitalize()}s"
    first = row.new.partition("=")[0].split(".")[0]
    if first in ("eval_tasks", "init_checkpoint") or (first in _RECIPE and "." not in row.old):
        return "Recipe: top level"
    if first in _RECIPE:
        return f"Recipe: {first}"
    if first in _CORPUS or first in _CORPUS_TOO:
        return "Corpus files"
    return "Task files" if first == "task" else "Cluster files"


def _table(title: str, rows: Iterable[Rename]) -> Iterator[str]:
    """A row for each pair of names, with the types or verbs that it belongs to."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        kinds.setdefault((row.old, row.new), []).append(row.kind)
    has_kinds = any(kind for each in kinds.values() for kind in each)
    kind = "verb" if title == "Options" else "type"
    yield f"| 0.1 | 0.2 | {kind} |" if has_kinds else "| 0.1 | 0.2 |"
    yield "|---|---|---|" if has_kinds else "|---|---|"
    for (old, new), each in kinds.items():
        types = ", ".join(f"`{kind}`" for kind in each if kind)
        yield f"| `{old}` | `{new}` | {types} |" if has_kinds else f"| `{old}` | `{new}` |"
