"""sesame keys"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from orchestration.cli import options
from orchestration.terminal import CommandResult, print_answer


def keys(part: options.Part = "", as_json: options.Json = False) -> int:
    """List the parts of recipes, cluster, corpus and task files, or show the keys of one part, or one key."""
    from orchestration.config import entries, find_keys, find_parts, glossary, parts, translate
    from orchestration.terminal import views

    names = translate(part)
    found = [each for name in names for each in find_parts(name)] if part else list(parts())
    is_key = not found
    found = found or find_keys(names[0])
    values: dict[str, Any] = {"parts": [dataclasses.asdict(each) for each in found]}
    if not part:
        next_ = ("sesame keys optimizer", "sesame keys learning_rate")
        return print_answer(CommandResult((views.key_index(found),), values, next_), as_json)
    shown = views.entries(entries(found)) if is_key else views.keys(found)
    translated = () if names == (glossary.plain(part),) else (views.translation(part, _describe_foreign(part, names)),)
    return print_answer(CommandResult((*translated, shown), values, () if is_key else _next(found)), as_json)


def _describe_foreign(part: str, names: Sequence[str]) -> list[str]:
    """Our names for a name of another library, with the value that it means and a note.

    >>> _describe_foreign("fp16", ["cluster.engine.precision"])
    ['cluster.engine.precision=fp16']
    """
    from orchestration.config import glossary

    value = glossary.value_of(part)
    notes = (glossary.note_of(part, name) for name in names)
    shown = (f"{name}={value}" if value else name for name in names)
    return [f"{name} ({note})" if note else name for name, note in zip(shown, notes, strict=True)]


def _next(found: list[Any]) -> tuple[str, ...]:
    """A command that uses these keys."""
    if all(part.path.partition(".")[0] not in ("cluster", "corpus", "task") for part in found):
        return ("sesame check bert_base optimizer.learning_rate=2e-4",)
    return ()
