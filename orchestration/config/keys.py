"""Every key of a recipe, a cluster file, a corpus file and a task file: its type, default and meaning.

The meaning of a key is the `doc` of its field (`preprocessing.spec.key`). The meaning of a part is its docstring.
"""

import dataclasses
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from orchestration.config import glossary
from orchestration.config.error_messages import annotations, find_nearest, invalid, kind_of, options
from orchestration.config.library import list_names
from orchestration.config.recipe import Cluster, CorpusFile, Recipe
from preprocessing.errors import BadInput
from preprocessing.spec import choices_of, doc_of
from training.evaluation.tasks import TaskFile

FILES: Final = {"": Recipe, "cluster": Cluster, "corpus": CorpusFile, "task": TaskFile}
WORDS: Final = {int: "integer", float: "number", str: "word", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class KeyDoc:
    """A key of a part, as a file writes it."""

    name: str
    type: str
    default: str  # "" if a file must give it
    doc: str
    choices: tuple[str, ...]  # allowed values that the type does not list


@dataclass(frozen=True)
class KeyGroup:
    """The keys of one place in a file, for one kind if there are several."""

    path: str  # "optimizer"; "" for the top level of a recipe
    kind: str  # "" if there is only one
    within: tuple[str, ...]  # kinds of the enclosing part, if not all of them have this part
    doc: str
    details: str  # further paragraphs of the docstring
    keys: tuple[KeyDoc, ...]

    @property
    def name(self) -> str:
        """Argument of `sesame keys` for this part, e.g. "optimizer.adamw"."""
        return ".".join(filter(None, (self.path, self.kind)))


@dataclass(frozen=True)
class Entry:
    """A key, and the kinds that have it with the same type, default and meaning."""

    path: str  # "optimizer.learning_rate"
    kinds: tuple[str, ...]  # of the part that has the key
    key: KeyDoc


@cache
def parts() -> tuple[KeyGroup, ...]:
    """All parts by file: recipe, cluster, corpus, task; each before the parts inside it."""
    found = dict[tuple[str, type], KeyGroup]()
    for path, root in FILES.items():
        for cls, part in _parts(root, path, "", "", ()):
            before = found.get((part.path, cls))
            within = tuple(dict.fromkeys((*before.within, *part.within))) if before else part.within
            found[part.path, cls] = dataclasses.replace(part, within=within)
    return tuple(found.values())


def find_parts(asked: str) -> list[KeyGroup]:
    """The parts for an argument of `sesame keys`: `optimizer` and the parts inside it, `optimizer.adamw`, `adamw`.

    The first steps of a path may be omitted (`engine`). [] if there is no such part.
    """
    asked = _without_numbers(asked)
    found = [part for part in parts() if _is_or_in(part.path, asked) or _ends(part.name, asked)]
    if not found:  # the end of a path
        outer = [part.path for part in parts() if _ends(part.path, asked)]
        found = [part for part in parts() if any(_is_or_in(part.path, path) for path in outer)]
    return found


def find_keys(asked: str) -> list[KeyGroup]:
    """The parts that have a key, each with this key alone; the first steps of its path may be omitted.

    BadInput if there is no such key.
    """
    is_absent = glossary.find_absent(asked)[0].startswith(glossary.NO_KEY)
    if found := _with_key(_without_numbers(asked)) or ([] if is_absent else _find_containing(asked)):
        return found
    expected = "a part, a kind or a key of a file"
    raise BadInput(invalid("PART", asked, expected, _hint(_without_numbers(asked))))


def _with_key(asked: str) -> list[KeyGroup]:
    of, _, name = asked.rpartition(".")
    places = (part for part in parts() if _ends(part.path, of) or _ends(part.name, of) or not of)
    found = ((part, tuple(key for key in part.keys if key.name == name)) for part in places)
    return [dataclasses.replace(part, keys=keys) for part, keys in found if keys]


def _find_containing(word: str) -> list[KeyGroup]:
    """The parts with the keys whose names have `word` as one or several of their words."""
    if word not in {each for part in parts() for key in part.keys for each in _words(key.name)}:
        return []
    found = ((part, tuple(key for key in part.keys if word in _words(key.name))) for part in parts())
    return [dataclasses.replace(part, keys=keys) for part, keys in found if keys]


@cache
def _words(name: str) -> frozenset[str]:
    """All sequences of words in the name of a key.

    >>> sorted(_words("a_b_c"))
    ['a', 'a_b', 'a_b_c', 'b', 'b_c', 'c']
    """
    words = name.split("_")
    places = range(len(words) + 1)
    return frozenset("_".join(words[begin:end]) for begin in places for end in places if begin < end)


def translate(asked: str) -> tuple[str, ...]:
    """Our names for a name of another library; the name itself if it is ours, or unknown.

    >>> translate("n_embd"), translate("nsp"), translate("optimizer.eps")
    (('model.hidden_size',), ('sentence_pair', 'segment_pair'), ('optimizer.eps',))
    """
    asked = glossary.plain(asked)
    name = asked.rpartition(".")[2]
    if find_parts(asked) or _with_key(_without_numbers(asked)):
        return (asked,)
    if key := glossary.key_of(asked):
        return (key.removesuffix(".kind"),)  # which lists all kinds
    return glossary.KINDS.get(name.lower(), (asked,))


def entries(found: Sequence[KeyGroup]) -> list[Entry]:
    """The keys of parts; if several kinds have an equal key, it has only one entry."""
    merged = dict[tuple[str, KeyDoc], tuple[str, ...]]()
    for part in found:
        for key in part.keys:
            at = f"{part.path}.{key.name}".strip("."), key
            merged[at] = (*merged.get(at, ()), *filter(None, [part.kind]))
    return [Entry(path, tuple(dict.fromkeys(kinds)), key) for (path, key), kinds in merged.items()]


def entries_at(path: str) -> list[Entry]:
    """The entries for the whole path of a key; [] if the path is no key, e.g. `cluster`."""
    of, _, name = path.rpartition(".")
    return entries(
        [
            dataclasses.replace(part, keys=tuple(key for key in part.keys if key.name == name))
            for part in parts()
            if part.path == of
        ]
    )


def _hint(asked: str) -> str:
    """A remedy for an unknown part or key: the nearest one."""
    instead, remedy = glossary.find_absent(asked)
    if instead.startswith(glossary.NO_KEY):
        reason, remedy = (
            instead.removeprefix(glossary.NO_KEY),
            remedy.removeprefix("leave it out").removeprefix(", or "),
        )
        return f"{reason}, {remedy}" if remedy else reason
    if instead:
        return f"use {instead}"
    if asked in list_names("recipes"):
        return f"show this recipe with `sesame recipes {asked}`"
    if asked.lower().startswith(glossary.OTHER_MODELS):
        return "Sesame has no such model, list its models with `sesame recipes`"
    ends = dict[str, str]()  # the first steps of a path may be omitted
    for name in key_names():
        ends.setdefault(".".join(name.split(".")[-1 - asked.count(".") :]), name)
    close = find_nearest(asked, ends, cutoff=0.7)
    return f"did you mean {ends[close]}?" if close else "see `sesame keys`"


@cache
def key_names() -> tuple[str, ...]:
    """Arguments of `sesame keys`: parts, kinds and whole keys."""
    found = dict[str, None]()
    for part in parts():
        found |= dict.fromkeys([part.path, part.name, part.kind, part.path.rpartition(".")[2]])
        found |= dict.fromkeys(f"{part.path}.{key.name}".strip(".") for key in part.keys)
    return tuple(name for name in found if name)


def find_override(name: str) -> str:
    """The only key of a recipe or cluster file that ends with `name`, as an override writes it; otherwise "".

    A key with keys inside, such as `data`, has no value to write. A key of a phase is not found if another part has a
    key of this name, because it replaces that key in one phase.

    >>> find_override("tensor_parallel_size"), find_override("steps"), find_override("kind")
    ('cluster.engine.tensor_parallel_size', 'phases.0.steps', '')
    >>> find_override("learning_rate"), find_override("data")
    ('optimizer.learning_rate', '')
    """
    named = (part for part in parts() if any(key.name == name for key in part.keys))
    places = {part.path for part in named if part.path.partition(".")[0] not in ("corpus", "task")}
    places = places - {"phases"} or places
    if len(places) != 1:
        return ""
    first, *others = [*filter(None, places.pop().split(".")), name]
    if any(_is_or_in(part.path, ".".join([first, *others])) for part in parts()):
        return ""
    is_list = typing.get_origin(annotations(Recipe).get(first)) is tuple and others
    return ".".join([first, *(["0"] if is_list else []), *others])


def _without_numbers(dotted: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", "", dotted.strip("."))


def _is_or_in(path: str, of: str) -> bool:
    return path == of or path.startswith(f"{of}.")


def _ends(path: str, with_: str) -> bool:
    return bool(with_) and (path == with_ or path.endswith(f".{with_}"))


def _parts(cls: type, path: str, kind: str, within: str, around: tuple[type, ...]) -> Iterator[tuple[type, KeyGroup]]:
    """A class and the classes of its values, without the classes `around` it, because a class may contain itself."""
    found = annotations(cls)
    keys = tuple(_key(cls, name) for name in found if name != "kind")
    doc, details = _docstring(cls)
    yield cls, KeyGroup(path, kind, (within,) if within else (), doc, details, keys)
    for name, annotation in found.items():
        for each in _classes(annotation):
            if each not in around and each is not cls:
                yield from _parts(each, f"{path}.{name}".strip("."), kind_of(each), kind, (*around, cls))


def _classes(annotation: Any) -> list[type]:
    """The classes of a value, also those of a list's or a mapping's values."""
    found = []
    for option in options(annotation):
        inner = typing.get_args(option)
        if typing.get_origin(option) is tuple:
            found += _classes(inner[0])
        elif typing.get_origin(option) is Mapping:
            found += _classes(inner[1])
        elif isinstance(option, type) and dataclasses.is_dataclass(option):
            found.append(option)
    return found


def _key(cls: type, name: str) -> KeyDoc:
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return KeyDoc(name, _type(annotations(cls)[name]), _default(field), doc_of(cls, name), choices_of(cls, name))


def _type(annotation: Any) -> str:
    """An annotation as text.

    >>> _type(tuple[int, ...]), _type(typing.Literal["pre", "post"]), _type(float | None)
    ('list of integer', 'pre | post', 'number | null')
    """
    names = []
    for option in options(annotation):
        origin, inner = typing.get_origin(option), typing.get_args(option)
        if option in WORDS:
            names.append(WORDS[option])
        elif origin is typing.Literal:
            names += [str(value).lower() if isinstance(value, bool) else str(value) for value in inner]
        elif origin is tuple:
            names.append(f"list of {_type(inner[0])}")
        elif isinstance(option, type) and dataclasses.is_dataclass(option):
            names.append(kind_of(option) or "keys")
        elif origin is Mapping and _classes(option):
            names.append(f"mapping of {_type(inner[1])}")
        else:
            names.append("mapping")
    return " | ".join(names)


def _default(field: "dataclasses.Field[Any]") -> str:
    """The default of a key as a file writes it; "" if there is none.

    >>> fields = {field.name: field for field in dataclasses.fields(Cluster)}
    >>> _default(fields["gpu_type"]), _default(fields["name"])
    ('empty', '')
    """
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if default is dataclasses.MISSING:
        return ""
    if dataclasses.is_dataclass(default):
        return str(getattr(default, "kind", "")) or "its defaults"
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str) and default != default.strip():
        return json.dumps(default)
    if isinstance(default, tuple | list):
        return f"[{', '.join(map(str, default))}]"
    return "empty" if default in ("", {}) else f"{default:g}" if isinstance(default, float) else str(default)


def _docstring(cls: type) -> tuple[str, str]:
    """The first sentence of a class's docstring, and its further paragraphs, each in one line."""
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", cls.__doc__ or "")]
    first, *rest = re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraphs[0], maxsplit=1)
    return first, "\n".join([*rest, *paragraphs[1:]])
