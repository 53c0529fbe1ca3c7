"""Messages for invalid files: one line per error of pydantic, made from its type, location and value.

SENTENCES maps each error type of pydantic that our files can cause to the function that writes its message. A message
is `invalid KEY: got VALUE, expected VALUES; remedy`. The text of pydantic's own messages is not read.
"""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from orchestration.config import glossary, part_checks
from preprocessing import renames
from preprocessing.spec import InvalidValue

Keys = tuple[str | int, ...]
_MAX_LISTED: Final = 30  # names in a message
_MAX_FAMILY: Final = 15  # names of a family in a remedy
_DEVICES_OF_A_MACHINE: Final = 8
_MAX_DEPTH: Final = 200  # nested lists and mappings that pydantic's JSON parser reads
_FILES: Final = {
    "Recipe": "",
    "Cluster": "cluster",
    "CorpusFile": "corpus",
    "TaskFile": "task",
    "TokenizerOption": "data",
}
"""The class of a file, and the first step of all paths of this file in `sesame keys`."""


def find_nearest(word: str, known: typing.Iterable[str], cutoff: float = 0.5) -> str:
    """The known word that is most similar to this one, or "".

    >>> find_nearest("bert_bas", ["gpt2", "bert_base"])
    'bert_base'
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")


def explain_unknown_name(name: str, folder: str, known: Sequence[str], groups: frozenset[str]) -> str:
    """The message for a name that is neither a file nor in a directory of Sesame, with the nearest known name."""
    names = f"one of {', '.join(known)}" if len(known) <= _MAX_LISTED else f"a name that `sesame {folder}` lists"
    if folder == "recipes" and (recipe := glossary.find_recipe(name, known)):
        return invalid(noun_of(folder), name, f"{names}, or a .yaml file", f"did you mean {recipe}?")
    if folder == "recipes" and (command := glossary.command_of(name)):
        return invalid(noun_of(folder), name, f"{names}, or a .yaml file", f"did you mean `sesame {command}`?")
    family = [one for one in known if one.startswith(f"{glossary.plain(name.lower())}_")]
    nearest = find_nearest(name.lower(), [*known, *groups], cutoff=0.6)
    if folder == "recipes" and not _has_first_word_like(name, nearest):
        nearest = ""
    remedy = f"did you mean {nearest}?" if nearest else "use one of them, or the path of a file"
    first = glossary.plain(name.lower()).partition("_")[0]
    if not family and not nearest.startswith(first):
        family = [one for one in known if one == first or one.startswith(f"{first}_")]  # gpt2 for gpt2_small
        remedy = f"did you mean {family[0]}?" if len(family) == 1 else remedy
    if 1 < len(family) <= _MAX_FAMILY and glossary.plain(name.lower()) not in known:
        remedy = f"did you mean one of {', '.join(family)}?"
    if folder == "clusters":
        remedy = _cluster_of_size(name.lower(), known) or remedy
    return invalid(noun_of(folder), name, f"{names}, or a .yaml file", remedy)


def _has_first_word_like(name: str, other: str) -> bool:
    """Whether the first words of two names are nearly equal: models of different families have similar names.

    >>> _has_first_word_like("brt_base", "bert_base"), _has_first_word_like("deberta-v3-base", "roberta_base")
    (True, False)
    """
    first, second = (glossary.plain(one.lower()).partition("_")[0] for one in (name, other))
    return bool(find_nearest(first, [second], cutoff=0.75))


def _cluster_of_size(name: str, known: Sequence[str]) -> str:
    """The remedy for a cluster name such as 1024xa100: a known cluster with this GPU type, and the number of workers.

    >>> _cluster_of_size("1024xa100", ["64xa100", "1024xh100"]), _cluster_of_size("gpu", ["64xa100"])
    ('use --cluster 64xa100 cluster.num_workers=1024', '')
    >>> _cluster_of_size("4xb200", ["64xa100", "1024xh100"])
    'use --cluster one_gpu cluster.gpu_type=b200 cluster.num_workers=4'
    >>> _cluster_of_size("64xa10", ["64xa100", "1024xh100"]), _cluster_of_size("16xa10", ["64xa100", "1024xh100"])
    ('did you mean 64xa100?', 'use --cluster 64xa100 cluster.num_workers=16')
    """
    wanted = _SIZE.fullmatch(name)
    if not wanted or name in known:
        return ""
    size, gpu = int(wanted[1]), wanted[2]
    gpus = {found[2] for one in known if (found := _SIZE.fullmatch(one))}
    if gpu not in gpus and (meant := find_nearest(gpu, sorted(gpus), cutoff=0.8)):
        return _cluster_of_size(f"{size}x{meant}", known) or f"did you mean {size}x{meant}?"
    sizes = sorted(int(found[1]) for one in known if (found := _SIZE.fullmatch(one)) and found[2] == gpu)
    if not sizes:
        return f"use --cluster one_gpu cluster.gpu_type={gpu} cluster.num_workers={size}"
    several = [each for each in sizes if each > _DEVICES_OF_A_MACHINE] if size > _DEVICES_OF_A_MACHINE else []
    sizes = several or sizes
    start = max((each for each in sizes if each <= size), default=sizes[0])
    return f"use --cluster {start}x{gpu} cluster.num_workers={size}"


_SIZE: Final = re.compile(r"(\d{1,9})x(\w+)")


def noun_of(folder: str) -> str:
    """What a file in a directory of Sesame is called.

    >>> noun_of("recipes"), noun_of("corpora")
    ('recipe', 'corpus')
    """
    return "corpus" if folder == "corpora" else folder.removesuffix("s")


def options(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself.

    >>> [option.__name__ for option in options(int | str)]
    ['int', 'str']
    """
    if typing.get_origin(annotation) is typing.Annotated:
        return options(typing.get_args(annotation)[0])
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def kind_of(part: type) -> str:
    """The value of `kind` that selects this part in a recipe."""
    default = next((field.default for field in dataclasses.fields(part) if field.name == "kind"), "")
    return str(default)


@cache
def annotations(part: type) -> dict[str, Any]:
    """Name and type of each key of a part, without class variables."""
    hints = typing.get_type_hints(part, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(part)}


def annotation_at(root: Any, data: Any, path: Keys) -> Any:
    """The type that the value at `path` of `data` is read as; None if `data` do not determine it."""
    annotation = root
    for step in path:
        if isinstance(step, int):
            annotation = next(iter(typing.get_args(annotation)), None)
        elif typing.get_origin(annotation) is Mapping:
            annotation = typing.get_args(annotation)[1]
        else:
            part = find_chosen_class(annotation, data)
            annotation = annotations(part).get(step) if part else None
        data = _child(data, step)
    return annotation


def find_chosen_class(annotation: Any, data: Any) -> type | None:
    """The dataclass that `data` are read as; in a union, `kind` selects it."""
    parts = _parts(annotation)
    if len(parts) > 1:
        parts = [part for part in parts if isinstance(data, dict) and kind_of(part) == data.get("kind")]
    return parts[0] if parts else None


def _parts(annotation: Any) -> list[type]:
    return [option for option in options(annotation) if isinstance(option, type) and dataclasses.is_dataclass(option)]


def iterate_leaves(root: type, data: Any) -> Iterator[str]:
    """Every dotted key of a file like `data`, without the keys inside mappings; of a list, those of the first item."""
    part = find_chosen_class(root, data)
    for name, annotation in annotations(part).items() if part else ():
        if _parts(annotation):
            yield from (f"{name}.{leaf}" for leaf in iterate_leaves(annotation, _child(data, name)))
        elif item := _item_class(annotation):
            yield from (f"{name}.0.{leaf}" for leaf in annotations(item))
        else:
            yield name


def _item_class(annotation: Any) -> type | None:
    """The class of the items of a list of one class, such as `phases`; None for other annotations."""
    item = next(iter(typing.get_args(annotation)), None) if typing.get_origin(annotation) is tuple else None
    return item if isinstance(item, type) and dataclasses.is_dataclass(item) else None


class KeyMessage(NamedTuple):
    """The message for an invalid key."""

    key: str  # dotted key of the file; "" for the whole file
    text: str
    suggested: frozenset[str] = frozenset()  # keys that the message tells the user to write


@dataclasses.dataclass(frozen=True)
class _Problem:
    """An error that pydantic found in a file."""

    root: type
    data: Any
    path: Keys
    value: Any
    context: Mapping[str, Any]
    prefix_of: Callable[[str], str] = lambda key: ""  # what the user typed before a key; see `explain`

    @property
    def key(self) -> str:
        return _join_path(self.path)

    @property
    def prefix(self) -> str:
        return self.prefix_of(self.key)

    @property
    def typed(self) -> str:
        """The key as the user types it in this place."""
        return f"{self.prefix}{self.key}"

    @property
    def is_secret(self) -> bool:
        """Whether the value may be a credential, so that no message may contain it."""
        return self.path[:1] == ("env",)

    @property
    def annotation(self) -> Any:
        return annotation_at(self.root, self.data, self.path)

    def message(self, got: str, expected: str, remedy: str = "") -> list[KeyMessage]:
        return [KeyMessage(self.key, invalid(self.typed, got, expected, remedy or self.help()))]

    def help(self) -> str:
        """A remedy for all keys: the command that describes the key."""
        return f"see `{' '.join(['sesame keys', help_path(self.root, self.data, self.path)]).strip()}`"


def explain(
    error: ValidationError, root: type, data: Any, prefix: Callable[[str], str] = lambda key: ""
) -> list[KeyMessage]:
    """One message per error. A missing key is left out if another message says how to write it.

    `prefix` returns what the user typed before a key, if it is not the key of a file: `cluster.` in an override.
    """
    messages: list[KeyMessage] = []
    suggested: set[str] = set()
    for found in sorted(error.errors(), key=lambda found: found["type"] == "missing"):
        problem = _Problem(root, data, _path(data, found["loc"]), found["input"], found.get("ctx", {}), prefix)
        if found["type"] == "missing" and {problem.key, _plain(problem.path)} & suggested:
            continue
        new = SENTENCES.get(found["type"], _explain_other)(problem)
        messages += new
        suggested.update(*(message.suggested for message in new))
    return list(dict.fromkeys(messages))  # each member of a union has an error


def explain_option(error: BaseException | None, annotation: Any) -> str:
    """The message for the value of a command line option of this type, without the name of the option.

    Typer reads the values of options with pydantic. The message is "" for errors that pydantic did not raise.

    >>> from pydantic import Field, TypeAdapter
    >>> try:
    ...     TypeAdapter(typing.Annotated[int, Field(ge=1)]).validate_python("0")
    ... except ValidationError as error:
    ...     explain_option(error, int)
    "got '0', expected a number of at least 1"
    """
    if not isinstance(error, ValidationError):
        return ""
    found = error.errors()[0]
    is_optional = types.NoneType in options(annotation)
    expected = (
        _describe_expected(annotation).removesuffix(" or null") if is_optional else _describe_expected(annotation)
    )
    if found["type"] in _LIMITS:
        expected = _LIMITS[found["type"]].format(**found["ctx"])
    return f"got {found['input']!r}, expected {expected}"


_LIMITS: Final = {
    "greater_than_equal": "a number of at least {ge}",
    "less_than_equal": "a number up to {le}",
    "int_parsing_size": "a number with fewer digits",
}
"""Error type of pydantic -> the limit of an option."""


def help_path(root: type, data: Any, path: Keys) -> str:
    """The argument of `sesame keys` for the key at a path: without numbers of lists and without names of a mapping.

    >>> from training.evaluation.tasks import TaskFile
    >>> help_path(TaskFile, {"files": {"dev": {"paths": [3]}}}, ("files", "dev", "paths", 0))
    'task.files.paths'
    """
    steps = [_FILES[root.__name__]]
    inside = dict[type, int]()  # class -> number of steps on the path to it; a class may contain itself
    annotation: Any = root
    for step in path:
        if part := find_chosen_class(annotation, data):
            del steps[inside.setdefault(part, len(steps)) :]
            if step == "kind" or step not in annotations(part):
                break
            steps.append(str(step))
        annotation = annotation_at(annotation, data, (step,))
        data = _child(data, step)
    return ".".join(filter(None, steps))


def invalid(key: str, got: str, expected: str, remedy: str) -> str:
    """The message for one key; for the whole file if `key` is "".

    >>> invalid("optimizer.learning_rate", "-1", "a number above 0", "raise it")
    'invalid optimizer.learning_rate: got -1, expected a number above 0; raise it'
    """
    return f"invalid {key or 'file'}: got {got}, expected {expected}; {remedy}"


def _display(value: Any) -> str:
    """A value as YAML writes it, text in quotes.

    >>> _display(None), _display(True), _display("x")
    ('no value', 'true', "'x'")
    """
    return "no value" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def _describe_expected(annotation: Any) -> str:
    """The values of a type, as a message lists them.

    >>> _describe_expected(int), _describe_expected(float | None), _describe_expected(typing.Literal["pre", "post"])
    ('an integer', 'a number or null', 'one of pre, post')
    """
    choices = _choices(annotation)
    found = [f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]] if choices else []
    for option in options(annotation):
        origin = typing.get_origin(option) or option
        if origin is tuple:
            found.append("a list")
        elif origin in _TYPES:
            found.append(_TYPES[origin])
        elif origin is not typing.Literal:
            found.append("a mapping of keys")
    return " or ".join(dict.fromkeys(found))


_TYPES: Final = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    types.NoneType: "null",
    Path: "a path without null bytes",  # only options have this type; in files, paths are text
}


def _choices(annotation: Any) -> list[str]:
    """The values that the type of a key lists."""
    literals = (option for option in options(annotation) if typing.get_origin(option) is typing.Literal)
    return [str(value) for literal in literals for value in typing.get_args(literal) if value != ""]


def _explain_type(expected: str, problem: _Problem) -> list[KeyMessage]:
    if _choices(problem.annotation):  # the same message for each member of a union
        return _explain_choice(problem)
    value = problem.value
    got = f"a value of type {type(value).__name__}" if problem.is_secret else _display(value)
    is_unquoted = expected == "text" and isinstance(value, int | float)  # in Python, bool is a subclass of int
    return problem.message(got, expected, "put it in quotes" if is_unquoted else "")


def _explain_choice(problem: _Problem) -> list[KeyMessage]:
    place = _in_table(problem.root, problem.path)
    if new := renames.new_value(place, problem.value):
        return [_explain_renamed(renames.answer(f"{problem.key}={problem.value}", f"{place}={new}"), problem.prefix)]
    nearest = find_nearest(str(problem.value), _choices(problem.annotation), cutoff=0.6)
    expected = _describe_expected(problem.annotation)
    return problem.message(_display(problem.value), expected, f"did you mean {nearest}?" if nearest else "")


def _explain_missing(problem: _Problem) -> list[KeyMessage]:
    return problem.message("no value", _describe_expected(problem.annotation), f"add this key, {problem.help()}")


def _explain_check(problem: _Problem) -> list[KeyMessage]:
    """The message for an error that a part raised. A part names only its own key, so the path of the part is added."""
    error = problem.context["error"]
    if not isinstance(error, InvalidValue):
        return [KeyMessage(problem.key, f"invalid {problem.typed or 'file'}: {error}")]
    key = _whole_key(problem.key, error.key)
    first = key.partition(" ")[0]  # the error may name a sum, such as `a + b`
    where = dataclasses.replace(
        problem, path=tuple(int(step) if step.isdecimal() else step for step in first.split("."))
    )
    place = _in_table(where.root, where.path)
    if new := renames.new_value(place, error.value):
        return [_explain_renamed(renames.answer(f"{key}={error.value}", f"{place}={new}"), problem.prefix)]
    expected, _, remedy = error.expected.partition("; ")
    return [KeyMessage(where.key, invalid(where.prefix_of(key) + key, error.got, expected, remedy or where.help()))]


def _explain_nesting(problem: _Problem) -> list[KeyMessage]:
    return problem.message("deeper nesting", f"at most {_MAX_DEPTH} nested levels", "remove some")


def _explain_other(problem: _Problem) -> list[KeyMessage]:
    """A message without a reason, for an error type that SENTENCES lacks; a test finds such types."""
    return problem.message(
        "a value" if problem.is_secret or not problem.path else _display(problem.value), "another one"
    )


def _explain_unknown_key(problem: _Problem) -> list[KeyMessage]:
    root, data, path = problem.root, problem.data, problem.path
    below, known_elsewhere = _leaves_below(problem), glossary.names(_FILES[root.__name__])
    if any(leaf.key in known_elsewhere for leaf in below):  # validation was also a key of version 0.1
        return [message for leaf in below for message in _section_of_another_library(leaf)]
    is_foreign = glossary.is_switch(str(path[-1]), _value(data, path))
    if not is_foreign and (renamed := _explain_renamed_key(root, data, path, problem.prefix)):
        return renamed
    parent, name = path[:-1], str(path[-1])
    annotation = annotation_at(root, data, parent)
    part = find_chosen_class(annotation, _value(data, parent))
    keys = list(annotations(part)) if part else []
    known = f"one of the keys {', '.join(keys)}" if keys else "no key"
    kinds = [kind_of(other) for other in _parts(annotation) if part and name in annotations(other)]
    if part and kinds:
        part_of = f"{problem.prefix}{_join_path(parent)}"
        return _unknown_key(problem, known, f"remove it, or use {part_of} of kind {' or '.join(kinds)}")
    file = _FILES[root.__name__]
    if file in ("", "cluster") and (instead := glossary.find_absent(name))[0]:
        return _unknown_key(problem, *instead)
    if key := glossary.key_of(name, file):
        return _foreign_key(problem, key, keys)
    if messages := [message for leaf in below for message in _section_of_another_library(leaf)]:
        return messages
    of_place = f"a key of {problem.prefix}{_join_path(parent)}".rstrip(".") if parent or problem.prefix else ""
    of_place = of_place or "a key of the file"
    if meant := _key_elsewhere(problem):
        return _unknown_key(problem, of_place, f"did you mean {problem.prefix}{meant}?", meant)
    begins = next((one for one in keys if one.startswith(f"{glossary.plain(name)}_")), "")
    words = {word: key for key in reversed(keys) for word in key.split("_")}
    nearest = (
        begins or find_nearest(name, keys, cutoff=0.6) or words.get(find_nearest(name, list(words), cutoff=0.8), "")
    )
    foreign = find_nearest(name, [*keys, *glossary.names(file)], cutoff=0.8)
    if (key := glossary.key_of(foreign, file)) and foreign not in keys:
        return _foreign_key(problem, key, keys, foreign)
    if nearest:
        meant = _join_path((*parent, nearest))
        return _unknown_key(problem, of_place, f"did you mean {problem.prefix}{meant}?", meant)
    return _unknown_key(problem, known, f"remove it, {dataclasses.replace(problem, path=parent).help()}")


def _key_elsewhere(problem: _Problem) -> str:
    """The first key of the file whose last part is the name of the unknown key; otherwise the only key of all kinds
    with this name; "" if there is none."""
    name = glossary.plain(str(problem.path[-1]))
    if name == "kind":  # a key of most parts
        return ""
    found = (leaf for leaf in iterate_leaves(problem.root, problem.data) if leaf.split(".")[-1] == name)
    declared = set(_find_declared(problem.root, name, ()))
    return next(found, "") or (declared.pop() if len(declared) == 1 else "")


def _find_declared(part: type, name: str, around: tuple[type, ...]) -> Iterator[str]:
    """The keys of this name in a part and in all kinds of the parts inside it, without lists and mappings."""
    for key, annotation in annotations(part).items():
        if key == name:
            yield key
        for inner in _parts(annotation):
            if inner not in (part, *around):
                yield from (f"{key}.{leaf}" for leaf in _find_declared(inner, name, (*around, part)))


def _leaves_below(problem: _Problem) -> list[_Problem]:
    """The keys inside the value of an unknown key, e.g. `training.steps` for `training`."""
    if not isinstance(problem.value, dict):
        return []
    below = (
        dataclasses.replace(problem, path=(*problem.path, str(step)), value=inner)
        for step, inner in problem.value.items()
    )
    return [leaf for each in below for leaf in ([each] if not isinstance(each.value, dict) else _leaves_below(each))]


def _section_of_another_library(problem: _Problem) -> list[KeyMessage]:
    """The message for a key in a section that Sesame lacks, e.g. `training.steps`; [] without a key of this meaning."""
    instead, remedy = glossary.find_absent(str(problem.path[-1]))
    if instead:
        return _unknown_key(problem, instead, remedy)
    if key := glossary.key_of(problem.key, _FILES[problem.root.__name__]):
        return _foreign_key(problem, key, [])
    return []


def _unknown_key(problem: _Problem, expected: str, remedy: str, suggested: str = "") -> list[KeyMessage]:
    text = f"invalid key: got {problem.typed}, expected {expected}; {remedy}"
    return [KeyMessage(problem.key, text, frozenset(filter(None, [suggested])))]


def _foreign_key(problem: _Problem, key: str, keys: list[str], meant: str = "") -> list[KeyMessage]:
    """The message for a key of another library, with our key; `meant` is its correct spelling if it is misspelled."""
    file, ours, name = _FILES[problem.root.__name__], key.rpartition(".")[2], meant or problem.key
    is_elsewhere = file in ("", "cluster") and (file == "cluster") != key.startswith("cluster.")
    here = _join_path((*problem.path[:-1], ours)) if ours in keys else key.removeprefix("cluster." if file else "")
    value = "" if problem.value is False else glossary.value_of(name)
    note = glossary.note_of(name, key)
    prefix = "" if is_elsewhere else problem.prefix
    expected = f"{prefix}{here}{f'={value}' if value else ''}{f' ({note})' if note else ''}"
    remedy = "rename it"
    if is_elsewhere:
        in_file = "it in the recipe" if file else f"{key.removeprefix('cluster.')} in the cluster file"
        remedy = f"write this full key after the recipe, or {in_file}"
    return _unknown_key(problem, expected, f"did you mean {meant}? Sesame calls it {ours}" if meant else remedy, here)


def _explain_missing_kind(problem: _Problem) -> list[KeyMessage]:
    if renamed := _explain_renamed_inside(problem):
        return renamed
    if slip := find_nearest("kind", problem.value, cutoff=0.7):
        wrong = dataclasses.replace(problem, path=(*problem.path, slip))
        return _unknown_key(wrong, f"a key of {problem.typed}", f"did you mean {problem.typed}.kind?")
    kinds = ", ".join(map(kind_of, _parts(problem.annotation)))
    key = f"{problem.key}.kind"
    return [KeyMessage(key, invalid(key, "no value", f"one of {kinds}", f"add this key, {problem.help()}"))]


def _explain_unknown_kind(problem: _Problem) -> list[KeyMessage]:
    members, kind = _parts(problem.annotation), str(problem.value["kind"])
    kinds = [kind_of(member) for member in members]
    key, place = f"{problem.key}.kind", _in_table(problem.root, problem.path)
    if (new := renames.new_value(place, kind, "kind")) in kinds:
        return [_explain_renamed(renames.answer(f"{key}={kind}", f"{place}.kind={new}"), problem.prefix)]
    if unlisted := part_checks.find_unlisted_part(members, kind):
        return [KeyMessage(key, invalid(key, repr(kind), f"one of {', '.join(kinds)}", unlisted))]
    meant = next((ours for ours in glossary.KINDS.get(kind.lower(), ()) if ours in kinds), "")
    nearest = find_nearest(kind, kinds, cutoff=0.6)
    remedy = f"use {meant}" if meant else f"did you mean {nearest}?" if nearest else problem.help()
    return [KeyMessage(key, invalid(key, repr(kind), f"one of {', '.join(kinds)}", remedy))]


SENTENCES: Final[Mapping[str, Callable[[_Problem], list[KeyMessage]]]] = {
    "int_type": partial(_explain_type, "an integer"),
    "float_type": partial(_explain_type, "a number"),
    "string_type": partial(_explain_type, "text"),
    "bool_type": partial(_explain_type, "true or false"),
    "tuple_type": partial(_explain_type, "a list"),
    "dict_type": partial(_explain_type, "a mapping of keys"),
    "dataclass_type": partial(_explain_type, "a mapping of keys"),
    "literal_error": _explain_choice,
    "int_parsing_size": _explain_choice,  # a number of more than 64 bits, for a key that lists numbers
    "missing": _explain_missing,
    "unexpected_keyword_argument": _explain_unknown_key,
    "union_tag_not_found": _explain_missing_kind,
    "union_tag_invalid": _explain_unknown_kind,
    "value_error": _explain_check,
    "json_invalid": _explain_nesting,  # deep nesting is the only reason why pydantic cannot read our JSON
}
"""Error type of pydantic -> the function that writes its messages."""


def _explain_renamed(line: str, prefix: str = "") -> KeyMessage:
    """The message for a name of version 0.1. It suggests the new name and the parts around it."""
    old, _, new = line.removesuffix(" in 0.2").partition(" was renamed to ")
    line = line.replace(f"{old} was renamed to {new}", f"{prefix}{old} was renamed to {prefix}{new}")
    steps = new.partition("=")[0].split(".")
    return KeyMessage(old.partition("=")[0], line, frozenset(".".join(steps[:end]) for end in range(1, len(steps) + 1)))


def _explain_renamed_key(root: type, data: Any, path: Keys, prefix: str = "") -> list[KeyMessage]:
    """A message for each key of version 0.1 at a path, or inside its value; [] if there is none."""
    part = _value(data, path[:-1])
    kind = str(part.get("kind", "")) if isinstance(part, dict) else ""
    place = _in_table(root, path[:-1])
    lines = renames.explain_key(place, str(path[-1]), _value(data, path), kind, _join_path(path))
    return [_explain_renamed(line, prefix) for line in lines]


def _explain_renamed_inside(problem: _Problem) -> list[KeyMessage]:
    """A message for each key of version 0.1 in a part without a `kind`, for example `choose` in `objective`."""
    keys = problem.value if isinstance(problem.value, dict) else ()
    return [
        message for key in keys for message in _explain_renamed_key(problem.root, problem.data, (*problem.path, key))
    ]


def _whole_key(place: str, key: str) -> str:
    """The full dotted key in a file: the dotted path `place` of a part, and the key that its error names.

    >>> _whole_key("phases.0", "phases.steps"), _whole_key("model", "model.token_embedding.kind")
    ('phases.0.steps', 'model.token_embedding.kind')
    """
    first, _, inside = key.partition(".")
    if not place:
        return key
    return f"{place}.{inside if first == place.split('.')[-1] else key.split('.')[-1]}"


def _in_table(root: type, path: Keys) -> str:
    """A path in the form of renames.tsv: without numbers; for a task file, with `task.`, and * for splits and grids.

    >>> from training.evaluation.tasks import TaskFile
    >>> _in_table(TaskFile, ("files", "dev", "or_else", 0, "member")), _in_table(int, ("losses", 0))
    ('task.files.*.or_else.member', 'losses')
    """
    if root.__name__ != "TaskFile":
        return _plain(path)
    if path[:1] in (("files",), ("grids",)) and len(path) > 1:
        path = (path[0], "*", *path[2:])
    return _plain(("task", *path))


def _plain(path: Keys) -> str:
    """A dotted path without the numbers of lists."""
    return ".".join(step for step in path if isinstance(step, str))


def _path(data: Any, loc: Keys) -> Keys:
    """The keys of `loc` without the kinds that pydantic adds for each union.

    >>> _path({"positions": {"kind": "buckets", "buckets": 3}}, ("positions", "buckets", "buckets"))
    ('positions', 'buckets')
    """
    path: list[str | int] = []
    entered = False  # whether the kind of this mapping was read
    for number, step in enumerate(loc):
        if not entered and isinstance(data, dict) and step == data.get("kind"):
            entered = True
        elif _has(data, step):
            data, entered = _child(data, step), False
            path.append(step)
        elif number == len(loc) - 1 and isinstance(data, dict):
            path.append(step)
    return tuple(path)


def _join_path(path: Keys) -> str:
    return ".".join(map(str, path))


def _has(data: Any, step: str | int) -> bool:
    return (
        step in data
        if isinstance(data, dict)
        else isinstance(data, list) and isinstance(step, int) and step < len(data)
    )


def _child(data: Any, step: str | int) -> Any:
    return data[step] if _has(data, step) else None


def _value(data: Any, path: Keys) -> Any:
    for step in path:
        data = _child(data, step)
    return data
