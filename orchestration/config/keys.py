"""Every key of a recipe, a cluster file and a corpus file: its type, its default and what it means.

Nothing is written down here twice. What a key means stands where the key is: in the comment behind its field, in the
glossary, in a sentence of its part's docstring that has it between backticks, or in the docstring of the part that it
holds. A key of which none of these says anything fails a test.
"""

import dataclasses
import inspect
import io
import re
import sys
import textwrap
import tokenize
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from orchestration.config import glossary
from orchestration.config.error_messages import annotations, find_nearest, kind_of, options
from orchestration.config.recipe import Cluster, CorpusFile, Recipe
from preprocessing.errors import BadInput

FILES: Final = {"": Recipe, "cluster": Cluster, "corpus": CorpusFile}
WORDS: Final = {int: "whole number", float: "number", str: "word", bool: "true or false"}
TERMS: Final = {term.key.replace(".0", ""): term.means for term in glossary.TERMS}


@dataclass(frozen=True)
class KeyDoc:
    """A key of a part, as a recipe writes it."""

    name: str
    type: str
    default: str  # "" where it must be given
    means: str


@dataclass(frozen=True)
class KeyGroup:
    """The keys that stand together in a file, of one kind where there are several."""

    path: str  # "optimizer"; "" are the keys at the top of a recipe
    kind: str  # "" where there is one only
    within: tuple[str, ...]  # kinds of the part around it, where not all of them have it
    means: str
    keys: tuple[KeyDoc, ...]

    @property
    def name(self) -> str:
        """What `sesame keys` takes for it: "optimizer.adamw"."""
        return ".".join(filter(None, (self.path, self.kind)))


@cache
def parts() -> tuple[KeyGroup, ...]:
    """Those of a recipe, then of a cluster file, then of a corpus file, each before those inside of it."""
    found = dict[tuple[str, type], KeyGroup]()
    for path, root in FILES.items():
        for cls, part in _parts(root, path, "", ""):
            before = found.get((path_of := part.path, cls))
            found[path_of, cls] = dataclasses.replace(part, within=before.within + part.within) if before else part
    return tuple(found.values())


def find_keys(asked: str) -> list[KeyGroup]:
    """The parts that someone means: `optim` and what is inside of it, `optim.adamw`, `adamw`, one key
    `optimizer.learning_rate`.

    The beginning of a path may be left out (`choose.spans`). BadInput where there is no such part or key.
    """
    asked = re.sub(r"\.\d+(?=\.|$)", "", asked.strip("."))
    found = [part for part in parts() if _is_or_in(part.path, asked) or _ends(part.name, asked)]
    if not found:  # the end of a path
        outer = [part.path for part in parts() if _ends(part.path, asked)]
        found = [part for part in parts() if any(_is_or_in(part.path, path) for path in outer)]
    if not found:
        of, _, name = asked.rpartition(".")
        for part in parts():
            keys = tuple(key for key in part.keys if key.name == name)
            if keys and (_ends(part.path, of) or _ends(part.name, of) or not of):
                found.append(dataclasses.replace(part, keys=keys))
    if not found:
        raise BadInput(f"{asked} is no part and no key; {_hint(asked)}")
    return found


def _hint(asked: str) -> str:
    """What someone may have meant."""
    if theirs := glossary.key_of(asked):
        return f"here it is {theirs}"
    ends = dict[str, str]()  # the beginning of a path may have been left out
    for name in key_names():
        ends.setdefault(".".join(name.split(".")[-1 - asked.count(".") :]), name)
    close = find_nearest(asked, ends)
    return f"did you mean {ends[close]}?" if close else "`sesame keys` lists them all"


@cache
def key_names() -> tuple[str, ...]:
    """What `find_keys` knows: parts, kinds and whole keys."""
    found = dict[str, None]()
    for part in parts():
        found |= dict.fromkeys([part.path, part.name, part.kind, part.path.rpartition(".")[2]])
        found |= dict.fromkeys(f"{part.path}.{key.name}".strip(".") for key in part.keys)
    return tuple(name for name in found if name)


def _is_or_in(path: str, of: str) -> bool:
    return path == of or path.startswith(f"{of}.")


def _ends(path: str, with_: str) -> bool:
    return bool(with_) and (path == with_ or path.endswith(f".{with_}"))


def _parts(cls: type, path: str, kind: str, within: str) -> Iterator[tuple[type, KeyGroup]]:
    found = annotations(cls)
    inner = {name: inner for name, annotation in found.items() if (inner := _classes(annotation))}
    keys = tuple(_key(cls, name, path) for name in found if name != "kind")
    yield cls, KeyGroup(path, kind, (within,) if within else (), _first_sentence(cls), keys)
    for name, classes in inner.items():
        for each in classes:
            yield from _parts(each, f"{path}.{name}".strip("."), kind_of(each), kind)


def _classes(annotation: Any) -> list[type]:
    """The parts that a value is read as, also those of a list."""
    found = []
    for option in options(annotation):
        if typing.get_origin(option) is tuple:
            found += _classes(typing.get_args(option)[0])
        elif isinstance(option, type) and dataclasses.is_dataclass(option):
            found.append(option)
    return found


def _key(cls: type, name: str, path: str) -> KeyDoc:
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return KeyDoc(name, _type(annotations(cls)[name]), _default(field), meaning(cls, name, f"{path}.{name}".strip(".")))


def _type(annotation: Any) -> str:
    """An annotation in words.

    >>> _type(tuple[int, ...]), _type(typing.Literal["pre", "post"]), _type(float)
    ('list of whole number', 'pre | post', 'number')
    """
    said = []
    for option in options(annotation):
        origin, inner = typing.get_origin(option), typing.get_args(option)
        if option in WORDS:
            said.append(WORDS[option])
        elif origin is typing.Literal:
            said += [str(value) for value in inner]
        elif origin is tuple:
            said.append(f"list of {_type(inner[0])}")
        elif isinstance(option, type) and dataclasses.is_dataclass(option):
            said.append(kind_of(option) or "keys")
        else:
            said.append("mapping")
    return " | ".join(said)


def _default(field: "dataclasses.Field[Any]") -> str:
    """As a file writes it; "" where there is none.

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
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list):
        return f"[{', '.join(map(str, default))}]"
    return "empty" if default in ("", {}) else f"{default:g}" if isinstance(default, float) else str(default)


def meaning(cls: type, name: str, path: str) -> str:
    """What is said of a key, wherever it is said; "" where nothing is."""
    comment = next((comments[name] for each in cls.__mro__ if name in (comments := _comments(each))), "")
    term = TERMS.get(path.replace("corpus.mixture.sources.", "corpus.sources."), "")
    said = [each for each, other in ((term, comment), (comment, term)) if each and each not in other.lower()]
    if not said:
        said = [sentence for sentence in _sentences(cls) if f"`{name}`" in sentence][:1]
    if not said and (classes := _classes(annotations(cls)[name])):
        said = [_first_sentence(classes[0])] if len(classes) == 1 else [f"one of {len(classes)} kinds"]
    return re.sub(r"\ba name in ([A-Z]+)\b", lambda name: _listed(cls, name[1]), "; ".join(said))


def _listed(cls: type, table: str) -> str:
    """The names in a table of the module of a part, or of a part that it builds on."""
    modules = (sys.modules[each.__module__] for each in cls.__mro__)
    return f"one of {', '.join(next(getattr(module, table) for module in modules if hasattr(module, table)))}"


@cache
def _comments(cls: type) -> dict[str, str]:
    """The comment behind each field that a class declares, or in the lines above it."""
    if not dataclasses.is_dataclass(cls):
        return {}
    declared, found, above = set(inspect.get_annotations(cls)), dict[str, str](), list[str]()
    source = textwrap.dedent(inspect.getsource(cls)) + "\n"
    line, depth = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("# ")
            if line and line[0] in declared and depth == 1:
                found.setdefault(line[0], words)
            elif not line:
                above.append(words)
        elif token.type == tokenize.NEWLINE:
            if line and line[0] in declared and depth == 1 and above:
                found.setdefault(line[0], " ".join(above))
            line, above = [], []
        elif token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type != tokenize.NL:
            line.append(token.string)
    return found


def _sentences(cls: type) -> list[str]:
    return re.split(r"(?<=[.:])\s+(?=[A-Z`])", " ".join((inspect.getdoc(cls) or "").split()))


def _first_sentence(cls: type) -> str:
    """What a part is."""
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join((inspect.getdoc(cls) or "").split()))[0].rstrip(".")
