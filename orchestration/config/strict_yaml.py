"""Reads YAML strictly: with the scalars of YAML 1.2, and without surprising conversions.

PyYAML reads `1e-4` as text, `no` as False and `12:30:45` as 45045, and uses the last of two equal keys. Here `1e-4` is
a number and `no` is text. A repeated key, an alias or a tag is an error, and the message contains its line.
"""

import re
import sys
from collections.abc import Hashable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from preprocessing.errors import BadInput
from preprocessing.stand_ins import require_itself

_ESCAPE = re.compile(r"\\U([0-9a-fA-F]{8})")
MAX_DIGITS = 20  # digits of an integer; no key needs more
MAX_DEPTH = 100  # levels of lists and mappings; PyYAML calls itself at each level, and Python limits such calls


_CSafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some builds have no libyaml


class _Strict(yaml.composer.Composer, yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """Makes values of the YAML 1.2 core schema from the events of a parser; unique text keys, no tags, no aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own interface
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[attr-defined]  # of the parser
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"got the alias *{event.anchor}, expected a value", "repeat the value instead", event)
        if half := re.search("[\ud800-\udfff]", getattr(event, "value", "")):
            raise _refusal(
                f"got {half[0]!r}, expected a whole character", "remove this half of a surrogate pair", event
            )
        if getattr(event, "tag", None) is not None:
            raise _refusal(f"got the tag {event.tag}, expected a value without a tag", "remove the tag", event)
        if isinstance(event, yaml.CollectionStartEvent) and self._depth == MAX_DEPTH:
            problem = f"got more than {MAX_DEPTH} nested lists and mappings, expected at most {MAX_DEPTH}"
            raise _refusal(problem, "remove some", event)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        line_of: dict[str, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refusal(f"got {key!r} as a key, expected text", "put it in quotes or rename it", key_node)
            if key in line_of:
                raise _refusal(
                    f"got the key {key} again after line {line_of[key]}, expected it once",
                    "remove one of them",
                    key_node,
                )
            line_of[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


class _Loader(_Strict, yaml.SafeLoader):
    """With the parser of PyYAML, whose errors name the line and the reason."""


class _FastLoader(_Strict, _CSafeLoader):
    """With the parser of libyaml, which takes a quarter of the time."""

    def __init__(self, text: str) -> None:
        _CSafeLoader.__init__(self, text)
        yaml.composer.Composer.__init__(self)


def _refusal(problem: str, remedy: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark, note=remedy)


def _whole_number(loader: _Strict, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if len(text) > MAX_DIGITS:
        raise _refusal(f"got a number of {len(text)} digits, expected at most {MAX_DIGITS}", "use a smaller one", node)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _number(loader: _Strict, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_CORE_SCHEMA = (  # YAML 1.2.2, section 10.3.2; and numbers with underscores, such as 10_000, which are easier to read
    ("null", r"~|null|Null|NULL|", None, ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", None, list("tTfF")),
    ("int", r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", _whole_number, list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        _number,
        list("-+.0123456789"),
    ),
)
for _name, _pattern, _construct, _first in _CORE_SCHEMA:
    _Strict.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), _first)
    if _construct is not None:
        _Strict.add_constructor(f"tag:yaml.org,2002:{_name}", _construct)  # type: ignore[type-var]


def parse(text: str, where: str) -> Any:
    """The value of one YAML document. BadInput with `where`, the line and the reason if it is invalid.

    >>> parse("{peak: 1e-4, steps: 10_000, schedule: no, at: 12:30:45}", "here")
    {'peak': 0.0001, 'steps': 10000, 'schedule': 'no', 'at': '12:30:45'}
    """
    try:
        return deepcopy(_parse(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        remedy = error.note or "correct this line"
        raise BadInput(f"{where}{line}: invalid YAML: {error.problem or error.context}; {remedy}") from None
    except (ValueError, OverflowError):  # PyYAML converts the number of an escape in quotes without a check
        found = next((one for one in _ESCAPE.finditer(text) if int(one[1], 16) > sys.maxunicode), None)
        if found is None:
            raise
        at = text.count("\n", 0, found.start()) + 1
        raise BadInput(
            f"{where}, line {at}: invalid YAML: got {found[0]}, expected at most \\U0010FFFF, the last character of "
            "Unicode; correct this line"
        ) from None
    except yaml.YAMLError as error:
        raise BadInput(f"{where}: invalid YAML: {str(error).splitlines()[0]}; correct the file") from None


@lru_cache(maxsize=512)  # a command reads a file several times, and parsing is the slowest step of loading a recipe
def _parse(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_FastLoader)
    except (yaml.YAMLError, UnicodeError):  # the other parser explains it
        return yaml.load(text, Loader=_Loader)  # _Loader is a SafeLoader


def read(path: Path, where: str) -> dict[str, Any]:
    """The mapping in a YAML file. BadInput if the file is missing, or is not text, not YAML or not a mapping."""
    require_itself(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{where}: invalid file: got byte {error.start} that is not UTF-8, expected UTF-8; save the file as UTF-8"
        ) from None
    except OSError as error:
        raise BadInput(
            f"{where}: cannot read the file ({error.strerror or error}); check the path and its permissions"
        ) from None
    document = parse(text, where)
    if not isinstance(document, dict):
        content = "a list" if isinstance(document, list) else "no content" if document is None else "a single value"
        raise BadInput(f"{where}: invalid file: got {content}, expected lines `key: value`; correct the file")
    return document
