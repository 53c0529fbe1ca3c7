"""Names of version 0.1: each is refused, with its name in 0.2 by full path. renames.tsv is the list; it goes in 0.3."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_name("renames.tsv")


@dataclass(frozen=True)
class Rename:
    """A line of the table. Keys are dotted paths from the top of a file; kinds and values stand behind a `=`.

    `what` is key, kind, value, option, verb, metric, tag or column. `kind` is the old kind of the part that holds a
    key, "" where all kinds of that place have it.
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
    """The path that an old one has now; `old` itself if it kept its name.

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
    """One line for a key that a part no longer has, or for each key inside of its value; [] where it never had it.

    `place` is the path of the part as it is now, without numbers of lists; `kind` that of the part; `given` the whole
    path as the user has it, with numbers.

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
    """What to say of an old name. Numbers of lists in `given` stand at the same place in the new one.

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
    """A part as version 0.1 stored it, with the keys, kinds and values of 0.2; `place` is its old path.

    Weights that were exported before 0.2 stay usable: their spec.json is read through this.

    >>> with_new_names({"kind": "encoder", "layers": 2, "positions": {"kind": "learned", "max": 512}}, "trunk")
    {'kind': 'encoder', 'num_hidden_layers': 2, 'position_embedding': {'kind': 'learned', 'max_position_embeddings':
    512}}
    """
    made: dict[str, Any] = {}
    kind = str(values.get("kind", ""))
    root = new_path(place)
    for key, value in values.items():
        now = new_path(f"{place}.{key}", kind)
        if isinstance(value, Mapping):
            inner = with_new_names(value, f"{place}.{key}")
            for hoisted in [each for each in inner if f"{now}.{each}" not in inner and _moved(f"{place}.{key}", each)]:
                made[hoisted] = inner.pop(hoisted)
            made[now.rpartition(".")[2]] = inner
        elif key == "kind":
            made["kind"] = new_value(root, value, "kind") or value
        else:
            made[now.rpartition(".")[2]] = new_value(now, value) or value
    return made


def _moved(old_place: str, new_key: str) -> bool:
    """Whether a key was renamed to one of the part around its own."""
    now = new_path(old_place)
    found = (new for old, kinds in _keys().items() if old.rpartition(".")[0] == old_place for new in kinds.values())
    return any(new.rpartition(".")[2] == new_key and new.rpartition(".")[0] != now for new in found)


def new_value(place: str, value: object, what: str = "value") -> str:
    """What the value of a key, or the `kind` of a part, is called now; "" where it was no old one. `place` as now."""
    return _values().get((what, place, str(value)), "")


def new_option(verb: str, option: str) -> str:
    """What an option of 0.1 is called now; "" if it was none. Some are options of one verb only.

    >>> new_option("run", "--on"), new_option("plan", "--table"), new_option("eval", "--table")
    ('--cluster', '--published', '')
    """
    rows = (row for row in table() if row.what == "option" and row.old == option and row.kind in ("", verb))
    return next((row.new for row in rows), "")


def new_verb(verb: str) -> str:
    """What a verb of 0.1 is called now; "" if it was none.

    >>> new_verb("table"), new_verb("train")
    ('ablation', '')
    """
    return next((row.new for row in table() if row.what == "verb" and row.old == verb), "")


def _inside(given: str, old: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each key of a mapping that stands where an old part stood."""
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
            if path not in _keys() and key != "kind":  # the part was renamed; this key it never had
                part = place.rpartition(".")[0]
                yield answer(part, new_path(old))
            elif renamed:
                yield answer(f"{place}={value}", f"{now}={renamed}")
            else:
                yield answer(place, now)


@cache
def _keys() -> dict[str, dict[str, str]]:
    """By old path, the new one for each old kind of the part around it."""
    found: dict[str, dict[str, str]] = {}
    for row in table():
        if row.what == "key":
            found.setdefault(row.old, {})[row.kind] = row.new
    return found


@cache
def _values() -> dict[tuple[str, str, str], str]:
    """New values by what they are, new path and old value."""
    found = {}
    for row in table():
        if row.what in ("value", "kind"):
            (_, _, old), (place, _, new) = row.old.partition("="), row.new.partition("=")
            found[row.what, place.removesuffix(".kind") if row.what == "kind" else place, old] = new
    return found


@cache
def _new_kinds() -> dict[str, str]:
    """Old kind by new one, of all places: a key is looked for by either."""
    return {row.new.partition("=")[2]: row.old.partition("=")[2] for row in table() if row.what == "kind"}


@cache
def _places() -> dict[tuple[str, str], str]:
    """Old path by what it looks like now: the new path of the part, and the old key."""
    found: dict[tuple[str, str], str] = {}
    for old in _keys():
        parent, _, key = old.rpartition(".")
        for place in (new_path(parent) if parent else "", parent):
            if f"{place}.{key}".strip(".") not in _keys()[old].values():  # there it has this name still
                found.setdefault((place, key), old)
    return found


def _old_of(place: str, key: str) -> str:
    return _places().get((place, key), "")
