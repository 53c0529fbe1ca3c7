"""The strict YAML loader reads scalars as in YAML 1.2, and refuses misleading features of YAML with the line number."""

import math
from pathlib import Path

import pytest
import yaml

from orchestration.config import library, strict_yaml
from orchestration.config.strict_yaml import parse, read
from preprocessing.errors import BadInput


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E4", 1e4),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("10_000", 10_000),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("+3", 3),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("1e", "1e"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("[1, a]", [1, "a"]),
    ],
)
def test_scalars_are_read_as_in_yaml_1_2(text, value):
    found = parse(f"key: {text}", "here")["key"]
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number():
    assert math.isnan(parse(".nan", "here"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: 2\na: 3",
            "f.yaml, line 3: invalid YAML: got the key a again after line 1, expected it once; remove one of",
        ),
        ("x: {a: 1, a: 2}", "f.yaml, line 1: invalid YAML: got the key a again after line 1"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "f.yaml, line 1: invalid YAML: got the tag tag:yaml.org,2002:python/object/apply:os.system",
        ),
        ("a: &x 1\nb: *x", "f.yaml, line 2: invalid YAML: got the alias *x, expected a value; repeat"),
        ("a:\n\tb: 1", "f.yaml, line 2: invalid YAML: found character '\\t'"),
        ("1: a", "f.yaml, line 1: invalid YAML: got 1 as a key, expected text; put it"),
        ("a: [1", "f.yaml, line 1: invalid YAML: expected ',' or ']'"),
        ("a: 1\n---\nb: 2", "f.yaml, line 2: invalid YAML: but found another document"),
        ("a: \x00", "f.yaml: invalid YAML: unacceptable character #x0000"),
        ('a: "x\\ud800"', r"f.yaml, line 1: invalid YAML: got '\ud800', expected a whole character; remove"),
        (
            f"a: 1\nb: {'1' * 5000}",
            "f.yaml, line 2: invalid YAML: got a number of 5000 digits, expected at most 20; use",
        ),
        ("[" * 600, "f.yaml, line 1: invalid YAML: got more than 100 nested lists and mappings, expected at most 100"),
        ("[" * 101 + "]" * 101, "f.yaml, line 1: invalid YAML: got more than 100 nested lists and mappings"),
        ("{a: " * 101, "f.yaml, line 1: invalid YAML: got more than 100 nested lists and mappings"),
    ],
)
def test_a_misleading_feature_is_a_one_line_error(text, message):
    with pytest.raises(BadInput) as refused:
        parse(text, "f.yaml")
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_a_hundred_nested_lists_are_read() -> None:
    """The limit was Python's limit of recursive calls, which torch's compiler raises."""
    assert str(parse("[" * 100 + "]" * 100, "f.yaml")) == "[" * 100 + "]" * 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- 1\n", "f.yaml: invalid file: got a list, expected lines `key: value`; correct the file"),
        (b"", "f.yaml: invalid file: got no content"),
        (b"a: \xff\xfe", "f.yaml: invalid file: got byte 3 that is not UTF-8, expected UTF-8; save"),
        (None, "f.yaml: cannot read the file (No such file or directory); check the path"),
    ],
)
def test_a_file_must_be_readable_and_contain_one_mapping(tmp_path: Path, content, message):
    if content is not None:
        (tmp_path / "f.yaml").write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read(tmp_path / "f.yaml", "f.yaml")
    assert str(refused.value).startswith(message)


def test_a_merge_key_is_an_ordinary_key():
    assert parse("<<: {a: 1}", "here") == {"<<": {"a": 1}}


def test_both_parsers_read_a_shipped_file_equally() -> None:
    for name in ("recipes/bert_base", "corpora/tinystories", "clusters/local", "tasks/squad1"):
        text = (library.HOME / f"{name}.yaml").read_text(encoding="utf-8")
        fast, other = (yaml.load(text, Loader=loader) for loader in (strict_yaml._FastLoader, strict_yaml._Loader))
        assert repr(fast) == repr(other)


@pytest.mark.slow
def test_both_parsers_read_all_shipped_files_equally() -> None:
    files = [*library.HOME.glob("*/*.yaml")]
    assert len(files) > 200
    for file in files:
        text = file.read_text(encoding="utf-8")
        fast, other = (yaml.load(text, Loader=loader) for loader in (strict_yaml._FastLoader, strict_yaml._Loader))
        assert repr(fast) == repr(other), file


@pytest.mark.parametrize("escape", ["\\U00110000", "\\UFFFFFFFF"])
def test_an_escape_beyond_unicode_is_refused_with_its_line(escape):
    with pytest.raises(BadInput) as refused:
        parse(f'a: "\\U0010FFFF"\nb: "x{escape}"', "f.yaml")
    line = r"got %s, expected at most \U0010FFFF, the last character of Unicode; correct this line" % escape  # noqa: UP031
    assert str(refused.value) == f"f.yaml, line 2: invalid YAML: {line}"
    assert parse('"\\U0010FFFF"', "f.yaml") == chr(0x10FFFF)
