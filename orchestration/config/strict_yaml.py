"""YAML as people read it: 1.2 scalars, and nothing that happens behind the reader's back.

PyYAML reads `1e-4` as text, `no` as False, `12:30:45` as 45045, and lets the last of two equal keys win. Here `1e-4`
is a number, `no` a word, and a key given twice, an alias or a tag is an error that names its line.
"""

import re
from collections.abc import Hashable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from preprocessing.errors import BadInput
from preprocessing.stand_ins import require_itself

LONGEST = 20  # digits of a whole number, more than any key can have


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of the YAML 1.2 core schema, unique word keys, no tags and no aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own interface

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"the alias *{event.anchor} is not read here", event)
        if half := re.search("[\ud800-\udfff]", getattr(event, "value", "")):
            raise _refusal(f"{half[0]!r} is half of a character and no text", event)
        if getattr(event, "tag", None) is not None:
            raise _refusal(f"the tag {event.tag} is not read here", event)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        line_of: dict[str, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refusal(f"the key {key!r} is not a word", key_node)
            if key in line_of:
                raise _refusal(f"the key {key} is given twice, first on line {line_of[key]}", key_node)
            line_of[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


def _refusal(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    if len(text) > LONGEST:
        raise _refusal(f"a number of {len(text)} digits is not read here", node)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_CORE_SCHEMA = (  # YAML 1.2.2, section 10.3.2; plus 10_000, which every reader of a recipe is glad of
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
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), _first)
    if _construct is not None:
        _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _construct)


def parse(text: str, where: str) -> Any:
    """Read one YAML document; BadInput names `where`, the line and the reason.

    >>> parse("{peak: 1e-4, steps: 10_000, schedule: no, at: 12:30:45}", "here")
    {'peak': 0.0001, 'steps': 10000, 'schedule': 'no', 'at': '12:30:45'}
    """
    try:
        return deepcopy(_parsed(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise BadInput(f"{where}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{where}: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise BadInput(f"{where}: nested too deeply to be a recipe") from None


@lru_cache(maxsize=512)  # a command reads a file several times, and reading takes most of what a recipe takes
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)  # a SafeLoader, made stricter


def read(path: Path, where: str) -> dict[str, Any]:
    """Read a file that holds one mapping; BadInput where it is missing, not text, not YAML or not a mapping."""
    require_itself(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise BadInput(f"{where}: cannot be read ({error.strerror or error})") from None
    document = parse(text, where)
    if not isinstance(document, dict):
        raise BadInput(f"{where}: holds {type(document).__name__}, wanted is `key: value` lines")
    return document
