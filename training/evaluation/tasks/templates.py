"""Texts with columns of a record in braces: "{passage}\\nQuestion: {question}?"; {{ and }} stand for braces."""

from string import Formatter
from typing import Any

from preprocessing.errors import BadInput
from training.evaluation.files import Record
from training.evaluation.tasks.split import is_missing, value_of


def is_template(text: str) -> bool:
    """Whether all braces in a text enclose column names."""
    try:
        _parts(text, "")
    except BadInput:
        return False
    return True


def in_two(template: str, record: Record, place: str) -> tuple[str, str]:
    """Return the filled text up to its last column, and the rest. Raises BadInput if a column is missing or not
    text.

    >>> in_two("{a} and {b}: {{}}", {"a": "x", "b": 2}, "dev.jsonl:1")
    ('x and 2', ': {}')
    """
    parts = _parts(template, place)
    last = max((number for number, (_, name) in enumerate(parts) if name), default=-1)
    texts = [text + (text_of(value_of(record, name, place), name, place) if name else "") for text, name in parts]
    return "".join(texts[: last + 1]), "".join(texts[last + 1 :])


def fill(template: str, record: Record, place: str) -> str:
    """Return the filled text."""
    return "".join(in_two(template, record, place))


def fill_list(template: str, record: Record, place: str) -> list[str]:
    """Return the filled text in a list; a template of one column with a list gives all its elements.

    >>> fill_list("{a}", {"a": ["x", "y"]}, "dev.jsonl:1"), fill_list("{a}", {"a": "x"}, "dev.jsonl:1")
    (['x', 'y'], ['x'])
    """
    parts = _parts(template, place)
    if len(parts) == 1 and parts[0][0] == "" and (column := parts[0][1]):
        value = value_of(record, column, place)
        return [text_of(each, column, place) for each in (value if isinstance(value, list) else [value])]
    return [fill(template, record, place)]


def answers_of(template: str, record: Record, place: str) -> list[str]:
    """Return gold answers like `listed`, without those whose columns are null or blank.

    >>> answers_of("{a}", {"a": None}, "test.jsonl:1"), answers_of("{a}", {"a": ["x", None]}, "test.jsonl:1")
    ([], ['x'])
    """
    parts = _parts(template, place)
    if len(parts) == 1 and parts[0][0] == "" and (column := parts[0][1]):
        value = value_of(record, column, place)
        present = [each for each in (value if isinstance(value, list) else [value]) if not is_missing(each)]
        return [text_of(each, column, place) for each in present]
    names = [name for _, name in parts if name]
    if names and all(is_missing(value_of(record, name, place)) for name in names):
        return []
    return [fill(template, record, place)]


def fields_of(template: str) -> list[str]:
    """Return the column names of a template.

    >>> fields_of("{a} and {b}"), fields_of("a")
    (['a', 'b'], [])
    """
    return [name for _, name in _parts(template, "") if name]


def _parts(template: str, place: str) -> list[tuple[str, str | None]]:
    """Split a template into texts and the column after each, or None."""
    try:
        parts = list(Formatter().parse(template))
        if any(name and (form or conversion) for _, name, form, conversion in parts):
            raise ValueError
    except ValueError:
        raise BadInput(
            f"{place}: invalid template {template!r}, expected text with columns in braces; "
            "write {{ and }} for braces"
        ) from None
    return [(text, name) for text, name, _, _ in parts]


def text_of(value: Any, column: str, place: str) -> str:
    """Return a value as text. Raises BadInput if it is a list, an object or missing."""
    if not isinstance(value, str | int | float):
        raise BadInput(f"{place}: invalid {column}: got {value!r}, expected text")
    return str(value)
