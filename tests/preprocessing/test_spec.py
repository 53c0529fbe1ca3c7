"""Parts nested in parts are built from JSON, and loaded in recipes, by their kind."""

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from preprocessing.spec import BY_KIND, kind_of, part, spec


@spec
class Near:
    kind: Literal["near"] = "near"
    tokens: int = 1


@spec
class Far:
    kind: Literal["far"] = "far"
    cuts: tuple[int, ...] = ()
    inside: Near = Near()


@spec
class Outer:
    kind: Literal["outer"] = "outer"
    reach: Annotated[Near | Far, BY_KIND] = Near()
    names: tuple[str, ...] = ()


WHOLE = Outer(reach=Far(cuts=(1, 2), inside=Near(tokens=3)), names=("a",))
WRITTEN = {
    "kind": "outer",
    "reach": {"kind": "far", "cuts": [1, 2], "inside": {"kind": "near", "tokens": 3}},
    "names": ["a"],
}


def test_nested_parts_are_built_from_json_by_kind() -> None:
    assert part(Outer, json.loads(json.dumps(WRITTEN))) == WHOLE


def test_a_missing_nested_part_has_its_default() -> None:
    assert part(Outer, {"kind": "outer"}) == Outer(reach=Near(tokens=1))


def test_an_unknown_kind_of_a_nested_part_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid kind: got 'remote'"):
        part(Outer, {"kind": "outer", "reach": {"kind": "remote"}})


def test_an_unknown_key_of_a_nested_part_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'cuts'"):
        part(Outer, {"kind": "outer", "reach": {"kind": "near", "cuts": [1]}})


def test_the_kind_of_a_class_is_its_default_value() -> None:
    assert [kind_of(member) for member in (Near, Far, Outer)] == ["near", "far", "outer"]


def test_the_recipe_loader_reads_a_nested_union_by_kind() -> None:
    assert TypeAdapter(Outer).validate_json(json.dumps(WRITTEN), strict=True) == WHOLE


@pytest.mark.parametrize(
    ("reach", "at", "error"),
    [
        ({"tokens": 3}, ("reach",), "union_tag_not_found"),
        ({"kind": "remote"}, ("reach",), "union_tag_invalid"),
        ({"kind": "near", "cuts": []}, ("reach", "near", "cuts"), "unexpected_keyword_argument"),
        ({"kind": "far", "cuts": ["a"]}, ("reach", "far", "cuts", 0), "int_type"),
        ("near", ("reach",), "dict_type"),
    ],
)
def test_the_recipe_loader_reports_one_error_per_nested_union(reach: Any, at: tuple[Any, ...], error: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Outer).validate_json(json.dumps({"reach": reach}), strict=True)
    (found,) = refused.value.errors()
    assert (found["loc"], found["type"]) == (at, error)
