"""Names of version 0.1 (renames.tsv): using one is an error that gives its full name in 0.2. Removed in 0.3."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_name("renames.tsv")


@dataclass(frozen=True)
class Rename:
    """A line of the table. Keys are dotted paths from the top of a file; kinds and values follow a `=`.

    `what` is key, kind, value, option, verb, metric, tag or column. `kind` is the old kind of the part that contains
    the key, or "" if all kinds of that part have the key.
    """

    what: str
    kind: str
    old: str
    new: str


@cache
def table() -> tuple[Rename, ...]:
    """All renames, in the order of the file."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(Rename(**row) for row in csv.DictReader(file, delimiter="\t"))


def new_path(old: str, kind: str = "") -> str:
    """The current path of an old path; `old` itself if the name has not changed.

    >>> new_path("objective.choose.longest", "spans"), new_path("objective.choose.longest", "ngrams")
    ('masking.max_span_length', 'masking.max_ngram')
    >>> new_path("data.vocab.lowercase"), new_path("data.corpus")
    ('data.tokenizer.lowercase', 'data.corpus')
    """
    found = _keys().get(old, {})
    if found:
        return found.get(kind) or found.get(_new_kinds().get(kind, kind)) or next(iter(found.values()))
    parent, dot, last = old.rpartition(".")
    return f"{new_path(parent)}.{last}" if dot else old


def explain_key(place: str, key: str, value: Any, kind: str = "", given: str = "") -> list[str]:
    """A line for a renamed key, or one for each key inside its value; [] if the part never had the key.

    `place` is the current path of the part, without list indices, and `kind` is its kind. `given` is the full path from
    the user, with list indices.

    >>> explain_key("data.tokenizer", "size", 8_192)
    ['data.tokenizer.size was renamed to data.tokenizer.vocab_size in 0.2']
    >>> explain_key("data", "vocab", {"size": 8_192})
    ['data.vocab.size was renamed to data.tokenizer.vocab_size in 0.2']
    """
    old = _old_of(place, key)
    if not old:
        return []
    given = given or f"{place}.{key}".strip(".")
    if isinstance(value, Mapping) and value:
        return list(dict.fromkeys(_inside(given, old, value)))
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return [line for number, one in enumerate(value) for line in _inside(f"{given}.{number}", old, one)]
    return [answer(given, new_path(old, kind))]


def answer(given: str, new: str) -> str:
    """The message for an old name. List indices in `given` keep their place in the new name.

    >>> answer("objective.losses.0.asks", "losses.predict")
    'objective.losses.0.asks was renamed to losses.0.predict in 0.2'
    >>> answer("files.dev.member", "task.files.*.archive_member")
    'files.dev.member was renamed to files.dev.archive_member in 0.2'
    """
    steps, now = given.partition("=")[0].split("."), new.removeprefix("task.").split(".")
    now = [steps[place] if step == "*" else step for place, step in enumerate(now)]
    for behind, step in enumerate(reversed(steps)):
        if step.isdecimal():
            now.insert(len(now) - behind, step)
    return f"{given} was renamed to {'.'.join(now)} in 0.2"


def with_new_names(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Convert a part that version 0.1 stored to the keys, kinds and values of 0.2; `place` is its old path.

    It converts spec.json of weights that were exported before 0.2, so that they stay usable.

    >>> with_new_names({"kind": "encoder", "layers": 2, "positions": {"kind": "learned", "max": 512}}, "trunk")
    {'kind': 'encoder', 'num_hidden_layers': 2, 'position_embedding': {'kind': 'learned', 'max_position_embeddings':
    512}}
    """
    converted: dict[str, Any] = {}
    kind = str(values.get("kind", ""))
    root = new_path(place)
    for key, value in values.items():
        now = new_path(f"{place}.{key}", kind)
        if isinstance(value, Mapping):
            inner = with_new_names(value, f"{place}.{key}")
            for hoisted in [
                each for each in inner if f"{now}.{each}" not in inner and _has_moved(f"{place}.{key}", each)
            ]:
                converted[hoisted] = inner.pop(hoisted)
            converted[now.rpartition(".")[2]] = inner
        elif key == "kind":
            converted["kind"] = new_value(root, value, "kind") or value
        else:
            converted[now.rpartition(".")[2]] = new_value(now, value) or value
    return converted


def _has_moved(old_place: str, new_key: str) -> bool:
    """Whether a key moved to the part that contains its old part."""
    now = new_path(old_place)
    found = (new for old, kinds in _keys().items() if old.rpartition(".")[0] == old_place for new in kinds.values())
    return any(new.rpartition(".")[2] == new_key and new.rpartition(".")[0] != now for new in found)


def new_value(place: str, value: object, what: str = "value") -> str:
    """The current name of an old value or `kind`; "" if it is not an old name. `place` is a current path."""
    return _values().get((what, place, str(value)), "")


def new_option(verb: str, option: str) -> str:
    """The current name of an option of 0.1, possibly of one verb only; "" if 0.1 had no such option.

    >>> new_option("run", "--on"), new_option("plan", "--table"), new_option("eval", "--table")
    ('--cluster', '--published', '')
    """
    rows = (row for row in table() if row.what == "option" and row.old == option and row.kind in ("", verb))
    return next((row.new for row in rows), "")


def new_verb(verb: str) -> str:
    """The current name of a verb of 0.1; "" if it was not renamed.

    >>> new_verb("table"), new_verb("train")
    ('ablation', '')
    """
    return next((row.new for row in table() if row.what == "verb" and row.old == verb), "")


def _inside(given: str, old: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each key of a mapping at the path of an old part."""
    kind = str(values.get("kind", ""))
    for key, value in values.items():
        path, place = f"{old}.{key}", f"{given}.{key}"
        if isinstance(value, Mapping) and value:
            yield from _inside(place, path, value)
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            for number, one in enumerate(value):
                yield from _inside(f"{place}.{number}", path, one)
        else:
            now = new_path(path, kind)
            what = "kind" if key == "kind" else "value"
            renamed = new_value(now.removesuffix(".kind") if what == "kind" else now, value, what)
            if path not in _keys() and key != "kind":  # the part was renamed, but it never had this key
                part = place.rpartition(".")[0]
                yield answer(part, new_path(old))
            elif renamed:
                yield answer(f"{place}={value}", f"{now}={renamed}")
            else:
                yield answer(place, now)


@cache
def _keys() -> dict[str, dict[str, str]]:
    """Old path -> {old kind of the part that contains the key: new path}."""
    found: dict[str, dict[str, str]] = {}
    for row in table():
        if row.what == "key":
            found.setdefault(row.old, {})[row.kind] = row.new
    return found


@cache
def _values() -> dict[tuple[str, str, str], str]:
    """(what, new path, old value) -> new value."""
    found = {}
    for row in table():
        if row.what in ("value", "kind"):
            (_, _, old), (place, _, new) = row.old.partition("="), row.new.partition("=")
            found[row.what, place.removesuffix(".kind") if row.what == "kind" else place, old] = new
    return found


@cache
def _new_kinds() -> dict[str, str]:
    """New kind -> old kind, for all parts, so that a key is found by either."""
    return {row.new.partition("=")[2]: row.old.partition("=")[2] for row in table() if row.what == "kind"}


@cache
def _places() -> dict[tuple[str, str], str]:
    """(new path of the part, old key) -> old path."""
    found: dict[tuple[str, str], str] = {}
    for old in _keys():
        parent, _, key = old.rpartition(".")
        for place in (new_path(parent) if parent else "", parent):
            if f"{place}.{key}".strip(".") not in _keys()[old].values():  # else the key still has this name
                found.setdefault((place, key), old)
    return found


def _old_of(place: str, key: str) -> str:
    return _places().get((place, key), "")
