"""Every validation error of pydantic has a message of Sesame, and each command named in a message works."""

import copy
import json
import pickle
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestration.config import Cluster, Recipe, find_keys, find_parts, list_names
from orchestration.config.error_messages import SENTENCES, explain
from orchestration.config.library import open_document
from orchestration.config.recipe import CorpusFile
from preprocessing.spec import InvalidValue, require
from training.evaluation.tasks import TaskFile

ROOTS: Final = (Recipe, Cluster, CorpusFile, TaskFile)
RAISES: Final[Mapping[str, frozenset[str]]] = {
    "dataclass": frozenset({"dataclass_type", "value_error"}),
    "dataclass-args": frozenset({"missing", "unexpected_keyword_argument"}),
    "str": frozenset({"string_type"}),
    "int": frozenset({"int_type"}),
    "float": frozenset({"float_type"}),
    "bool": frozenset({"bool_type"}),
    "tuple": frozenset({"tuple_type"}),
    "dict": frozenset({"dict_type"}),
    "literal": frozenset({"literal_error", "int_parsing_size"}),
    "tagged-union": frozenset({"dict_type", "union_tag_not_found", "union_tag_invalid"}),
    **dict.fromkeys(
        ("dataclass-field", "default", "nullable", "union", "definitions", "definition-ref", "any"), frozenset()
    ),
}
"""Type of a node of pydantic's core schema -> the error types that it raises for strict JSON."""

OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("str", "int", "float", "bool", "any"), frozenset()),
    "tuple": frozenset({"items_schema", "variadic_item_index"}),
    "dict": frozenset({"keys_schema", "values_schema", "strict"}),
    "literal": frozenset({"expected"}),
}
"""Type of a node -> its settings that add no error type; a limit such as `ge` or `min_length` adds one."""

COMMON: Final = frozenset({"type", "ref", "metadata", "serialization"})


@cache
def adapter_of(root: type) -> TypeAdapter[Any]:
    return TypeAdapter(root)


def nodes(value: Any, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """All nodes of a core schema."""
    if isinstance(value, dict) and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value.get("type"), str):
            yield value
        for name, inner in value.items():
            if name not in ("metadata", "serialization"):
                yield from nodes(inner, seen)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from nodes(inner, seen)


def all_nodes() -> list[Mapping[str, Any]]:
    return [node for root in ROOTS for node in nodes(adapter_of(root).core_schema, set())]


def test_each_error_type_of_our_files_has_a_message() -> None:
    possible = {"json_invalid"}.union(*(RAISES[node["type"]] for node in all_nodes()))  # a new node type fails here
    assert possible == SENTENCES.keys()


def test_no_key_has_a_limit_that_pydantic_checks() -> None:
    """`Annotated[int, Field(ge=1)]` would raise greater_than_equal, which has no message; parts use `require`."""
    nodes_with_options = [node for node in all_nodes() if node["type"] in OPTIONS]
    assert len(nodes_with_options) > 500
    assert not [node for node in nodes_with_options if node.keys() - COMMON - OPTIONS[node["type"]]]


VALUES: Final[tuple[Any, ...]] = (
    3, -1, 1.5, 10**30, "x", "", True, None, [], {}, [[]], [3], {"a": 1}, {"kind": "x"}, {"kind": 3}, float("nan"),
    {"a": {}}, [{}], [None], {"knid": "x"},
)  # fmt: skip
FILES: Final = (
    *((Recipe, "recipes", name) for name in ("bert_base", "t5_base", "xlnet_base", "electra_small")),
    *((Cluster, "clusters", name) for name in ("8xh100", "local")),
    *((CorpusFile, "corpora", name) for name in list_names("corpora")[:4]),
    *((TaskFile, "tasks", name) for name in ("squad2", "mnli", "race")),
)


def places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, inner in items:
        yield from places(inner, (*place, step))


def with_value(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return changed


@cache
def errors_of(file: tuple[type, Any, str]) -> tuple[frozenset[str], frozenset[str]]:
    """The error types and the messages for wrong values at each place of a file."""
    root, folder, name = file
    document, _ = open_document(folder, name)
    kinds, texts = set(), set()
    for place in places(document):
        for value in VALUES if place else ():
            wrong = with_value(document, place, value)
            try:
                adapter_of(root).validate_json(json.dumps(wrong), strict=True)
            except ValidationError as error:
                kinds |= {each["type"] for each in error.errors()}
                texts |= {message.text for message in explain(error, root, wrong)} or {f"no message: {error}"}
    return frozenset(kinds), frozenset(texts)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file[2])
def test_each_message_about_a_wrong_value_has_the_same_form(file: tuple[type, Any, str]) -> None:
    form = re.compile(r"invalid [^:]+: got .+, expected .+; .+|\S+ was renamed to \S+ in 0\.2", re.DOTALL)
    _, texts = errors_of(file)
    assert len(texts) > 30
    assert [text for text in texts if not form.fullmatch(text)] == []
    assert [text for text in texts if "Input should" in text or ", allowed " in text or "\n" in text] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file[2])
def test_each_command_in_a_message_finds_its_key(file: tuple[type, Any, str]) -> None:
    asked = {word for text in errors_of(file)[1] for word in re.findall(r"`sesame keys ([^`]*)`", text)}
    assert asked
    for name in asked:
        assert find_parts(name) or find_keys(name)


def test_the_wrong_values_raise_all_error_types_but_one() -> None:
    """This verifies the table RAISES above; only too deep nesting raises json_invalid."""
    seen = frozenset[str]().union(*(errors_of(file)[0] for file in FILES))
    assert seen == SENTENCES.keys() - {"json_invalid"}


def test_deep_nesting_has_a_message() -> None:
    document: dict[str, Any] = {"name": json.loads("[" * 300 + "]" * 300)}
    with pytest.raises(ValidationError) as raised:
        adapter_of(Recipe).validate_json(json.dumps(document), strict=True)
    (message,) = explain(raised.value, Recipe, document)
    assert message.text == ("invalid file: got deeper nesting, expected at most 200 nested levels; remove some")


def test_an_unknown_error_type_has_a_general_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.config.error_messages.SENTENCES", {})
    document, _ = open_document("recipes", "gpt2")
    document["seed"] = "many"
    with pytest.raises(ValidationError) as raised:
        adapter_of(Recipe).validate_json(json.dumps(document), strict=True)
    (message,) = explain(raised.value, Recipe, document)
    assert message.text == "invalid seed: got 'many', expected another one; see `sesame keys seed`"


def test_an_invalid_value_error_can_be_pickled() -> None:
    with pytest.raises(InvalidValue) as raised:
        require(False, "masking.rate", 1.5, "a fraction between 0 and 1")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.key, again.value) == (str(raised.value), "masking.rate", 1.5)
    assert typing.cast(Any, again).expected == "a fraction between 0 and 1"
