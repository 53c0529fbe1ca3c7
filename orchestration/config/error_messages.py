"""What pydantic found wrong, said to a person: one line per error, with the nearest key or value."""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from orchestration.config import glossary, part_checks
from preprocessing import renames

Keys = tuple[str | int, ...]
_LISTED = 30  # most names in a message

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a word",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "dataclass_type": "a mapping of keys",
}


def find_nearest(word: str, known: typing.Iterable[str], cutoff: float = 0.5) -> str:
    """The known word most like this one, or nothing.

    >>> find_nearest("bert_bas", ["gpt2", "bert_base"])
    'bert_base'
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")


def unknown_name(given: str, folder: str, known: Sequence[str], groups: frozenset[str]) -> str:
    """The message for a name that is in no folder and is no file, with the nearest known name."""
    close = find_nearest(given.lower(), [*known, *groups])
    hint = f"; did you mean {close}?" if close else ""
    listed = ", ".join(known) if len(known) <= _LISTED else f"`sesame {folder}` lists them"
    return f"{given} is not one of the {folder} ({listed}) and not a .yaml file{hint}"


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
    """The `kind` that a recipe writes to mean this part."""
    default = next((field.default for field in dataclasses.fields(part) if field.name == "kind"), "")
    return str(default)


@cache
def annotations(part: type) -> dict[str, Any]:
    """Name and type of each key of a part; what belongs to the class and not to the recipe is left out."""
    hints = typing.get_type_hints(part, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(part)}


def annotation_at(root: Any, data: Any, path: Keys) -> Any:
    """The type that the value at `path` of `data` is read as; None where the data do not tell."""
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
    """The dataclass that `data` are read as: of a union, the one that `kind` names."""
    parts = _parts(annotation)
    if len(parts) > 1:
        parts = [part for part in parts if isinstance(data, dict) and kind_of(part) == data.get("kind")]
    return parts[0] if parts else None


def _parts(annotation: Any) -> list[type]:
    return [option for option in options(annotation) if isinstance(option, type) and dataclasses.is_dataclass(option)]


def iterate_leaves(root: type, data: Any) -> Iterator[str]:
    """Every dotted key that a recipe of this shape can have."""
    part = find_chosen_class(root, data)
    for name, annotation in annotations(part).items() if part else ():
        if _parts(annotation):
            yield from (f"{name}.{leaf}" for leaf in iterate_leaves(annotation, _child(data, name)))
        else:
            yield name


def explain(error: ValidationError, root: type, data: Any) -> list[str]:
    """One line per error, each beginning with the dotted key that it is about."""
    lines, excused = [], set()
    for found in sorted(error.errors(), key=lambda found: found["type"] == "missing"):
        path = _path(data, found["loc"])
        match found["type"]:
            case "unexpected_keyword_argument" if old := _renamed_key(root, data, path):
                lines += old
                excused |= _made_by(old)
            case "unexpected_keyword_argument":
                line, meant = _unknown_key(root, data, path)
                lines.append(line)
                excused.add(meant)
            case "missing" if _dotted(path) in excused or _plain(path) in excused:
                pass  # the key is there, with a slip in it, or by its old name
            case "union_tag_not_found" if old := _renamed_inside(root, data, path):
                lines += old
                excused |= _made_by(old)
            case "union_tag_not_found":
                lines.append(_no_kind(root, data, path))
            case "union_tag_invalid":
                lines.append(_unknown_kind(root, data, path))
            case _:
                lines.append(_say(_dotted(path), found, _in_table(root, path)))
    return lines


def _say(dotted: str, found: Any, place: str = "") -> str:
    given, context = found["input"], found.get("ctx", {})
    if dotted.split(".")[0] == "env" and found["type"] in _WANTED:  # it may be a credential
        hint = ": put it in quotes" if isinstance(given, int | float) else ""
        return f"{dotted} is of type {type(given).__name__}, allowed is {_WANTED[found['type']]}{hint}"
    match found["type"]:
        case "missing":
            return f"{dotted} is missing"
        case "literal_error" if now := renames.new_value(place, given):
            return renames.answer(f"{dotted}={given}", f"{place}={now}")
        case "literal_error":
            return _not_allowed(dotted, given, re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]])
        case "value_error":
            return _at(dotted, str(context["error"]))
        case "string_type" if isinstance(given, int | float):  # of YAML, also true and false
            return f"{dotted} is {given!r}, allowed is {_WANTED['string_type']}: put it in quotes"
        case kind if kind in _WANTED:
            return f"{dotted} is {given!r}, allowed is {_WANTED[kind]}"
        case _ if not dotted:  # the whole file, with what is not for others to see
            return f"the file: {found['msg'][0].lower()}{found['msg'][1:]}"
        case _:
            return f"{dotted} is {given!r}: {found['msg'][0].lower()}{found['msg'][1:]}"


def _made_by(lines: list[str]) -> set[str]:
    """The paths that are there once what these lines say is done: those of the new names, and of the parts around."""
    paths = (line.rpartition(" to ")[2].removesuffix(" in 0.2").partition("=")[0].split(".") for line in lines)
    return {".".join(steps[:end]) for steps in paths for end in range(1, len(steps) + 1)}


def _renamed_key(root: type, data: Any, path: Keys) -> list[str]:
    """A line for each key of 0.1 at a path, or inside of it; [] if there is none."""
    part = _value(data, path[:-1])
    kind = str(part.get("kind", "")) if isinstance(part, dict) else ""
    place = _in_table(root, path[:-1])
    return renames.explain_key(place, str(path[-1]), _value(data, path), kind, _dotted(path))


def _renamed_inside(root: type, data: Any, path: Keys) -> list[str]:
    """The same for a part without a `kind` whose keys are all of 0.1: `objective: {choose: ..., rewrite: ...}`."""
    part = _value(data, path)
    return [line for key in (part if isinstance(part, dict) else ()) for line in _renamed_key(root, data, (*path, key))]


def _unnumbered(dotted: str) -> str:
    """A dotted key without the numbers of lists."""
    return re.sub(r"\.\d+(?=\.|$)", "", dotted)


def _new_value(dotted: str, given: object) -> str:
    """What a value of 0.1 is called now; "" if it is none."""
    return renames.new_value(_unnumbered(dotted), given)


def _in_table(root: type, path: Keys) -> str:
    """A path as renames.tsv has it: without numbers, in a task file behind `task.` and with * for each split and grid.

    >>> from training.tasks import TaskFile
    >>> _in_table(TaskFile, ("files", "dev", "or_else", 0, "member")), _in_table(int, ("losses", 0))
    ('task.files.*.or_else.member', 'losses')
    """
    plain = _plain(path)
    if root.__name__ != "TaskFile":
        return plain
    return "task." + re.sub(r"^(files|grids)\.[^.]+", r"\1.*", plain) if plain else "task"


def _plain(path: Keys) -> str:
    """A dotted path without the numbers of lists."""
    return ".".join(step for step in path if isinstance(step, str))


def _unknown_key(root: type, data: Any, path: Keys) -> tuple[str, str]:
    parent, key = path[:-1], str(path[-1])
    part = find_chosen_class(annotation_at(root, data, parent), _value(data, parent))
    keys = list(annotations(part)) if part else []
    others = _parts(annotation_at(root, data, parent)) if part else []
    if having := [kind_of(other) for other in others if key in annotations(other)]:
        kinds = f"kind {' or '.join(having)}, not of {kind_of(part)}" if part else ""
        return f"{_dotted(path)} is a key of {_dotted(parent)} of {kinds}; its keys are {', '.join(keys)}", ""
    if key in glossary.KEYS:
        return _foreign(path, keys, key, "is not a key; here")
    if key in glossary.ABSENT:
        return f"{_dotted(path)} is not a key; {glossary.ABSENT[key]}", ""
    close = find_nearest(key, keys)
    likest = find_nearest(key, [*keys, *glossary.KEYS], cutoff=0.8)
    if likest in glossary.KEYS and likest not in keys:
        return _foreign(path, keys, likest, f"is not a key; did you mean {likest}? Here")
    elsewhere = (leaf for leaf in iterate_leaves(root, data) if leaf.split(".")[-1] == key)
    meant = _dotted((*parent, close)) if close else next(elsewhere, "")
    hint = f"did you mean {meant}?" if meant else f"its keys are {', '.join(keys)}"
    return f"{_dotted(path)} is not a key of {_dotted(parent) or 'the file'}; {hint}", meant


def _foreign(path: Keys, keys: list[str], name: str, said: str) -> tuple[str, str]:
    """What to say of a name that others have for a key, and that key."""
    key = glossary.KEYS[name]
    ours, note = key.rpartition(".")[2], glossary.NOTES.get(key, "")
    here = _dotted((*path[:-1], ours)) if ours in keys else key
    return f"{_dotted(path)} {said} it is {here}" + (f", {note}" if note else ""), here


def _no_kind(root: type, data: Any, path: Keys) -> str:
    place, keys = _dotted(path), _value(data, path)
    typo = find_nearest("kind", keys, cutoff=0.7)
    if typo:
        return f"{place}.{typo} is not a key of {place}; did you mean {place}.kind?"
    kinds = ", ".join(map(kind_of, _parts(annotation_at(root, data, path))))
    return f"{place}.kind is missing, allowed are {kinds}"


def _unknown_kind(root: type, data: Any, path: Keys) -> str:
    members, given = _parts(annotation_at(root, data, path)), str(_value(data, path)["kind"])
    kinds = [kind_of(member) for member in members]
    where = f"{_dotted(path)}.kind"
    place = _in_table(root, path)
    if (now := renames.new_value(place, given, "kind")) in kinds:
        return renames.answer(f"{where}={given}", f"{place}.kind={now}")
    if forgotten := part_checks.find_unlisted_part(members, given):
        return f"{where} is {given!r}, but {forgotten}"
    meant = next((kind for kind in glossary.KINDS.get(given.lower(), ()) if kind in kinds), "")
    if meant:
        return f"{where} is {given!r}, allowed are {', '.join(kinds)}; here it is {meant}"
    return _not_allowed(where, given, kinds)


def _not_allowed(dotted: str, given: object, allowed: list[str]) -> str:
    close = find_nearest(str(given), allowed)
    return f"{dotted} is {given!r}, allowed are {', '.join(allowed)}" + (f"; did you mean {close}?" if close else "")


def _at(dotted: str, message: str) -> str:
    """A part knows its own name only; the recipe knows the whole path.

    >>> _at("phases.0", "phases.steps is 0, allowed is a number of steps from 1 up")
    'phases.0.steps is 0, allowed is a number of steps from 1 up'
    >>> _at("model", "model.token_embedding.kind is 'adaptive', allowed is plain where positions are learned")
    "model.token_embedding.kind is 'adaptive', allowed is plain where positions are learned"
    """
    said = re.fullmatch(r"(.+?) is (.*), allowed is (.*)", message)
    if not said or not dotted:
        return f"{dotted or 'the file'}: {message}" if not said else message
    if now := _new_value(said[1], said[2].strip("'")):
        return renames.answer(f"{said[1]}={said[2].strip(chr(39))}", f"{said[1]}={now}")
    first, _, inside = said[1].partition(".")
    key = inside if first == dotted.split(".")[-1] else said[1].split(".")[-1]
    return f"{dotted}.{key} is {said[2]}, allowed is {said[3]}"


def _path(data: Any, loc: Keys) -> Keys:
    """The keys of `loc` without the tags that pydantic adds where it enters a union.

    >>> _path({"positions": {"kind": "buckets", "buckets": 3}}, ("positions", "buckets", "buckets"))
    ('positions', 'buckets')
    """
    path: list[str | int] = []
    entered = False  # whether the tag of the mapping that was reached has been read
    for number, step in enumerate(loc):
        if not entered and isinstance(data, dict) and step == data.get("kind"):
            entered = True
        elif _has(data, step):
            data, entered = _child(data, step), False
            path.append(step)
        elif number == len(loc) - 1 and isinstance(data, dict):
            path.append(step)
    return tuple(path)


def _dotted(path: Keys) -> str:
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
