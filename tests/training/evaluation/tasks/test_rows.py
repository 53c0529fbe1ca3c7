"""Malformed rows and unlabeled questions: only these rows are left out, and notes count them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preprocessing.errors import BadInput
from training.evaluation.files import CbtFormat, ConllFormat, JsonFormat, JsonlFormat, SquadFormat, TsvFormat
from training.evaluation.tasks import (
    Classification,
    ExtractiveQA,
    Generation,
    Kinds,
    LoglikelihoodChoice,
    MultipleChoice,
    PerplexityTask,
    Ranking,
    Regression,
    SplitRecords,
    TaskFile,
    TaskItem,
    TokenClassification,
    as_text,
    never_in_train,
    never_learned,
)

CLASSIFY = Classification(text="t", label="y", labels=("no", "yes"))
KINDS: dict[str, Kinds] = {
    "classification": CLASSIFY,
    "regression": Regression(text="t", label="y", min_value=0, max_value=5),
    "ranking": Ranking(text="t", text_pair="u", label="y", labels=("0", "1")),
    "multiple_choice": MultipleChoice(context="t", choices=("o",), label="y", labels=("0", "1")),
    "token_classification": TokenClassification(words="t", tags="y", labels=("O", "B-X")),
    "loglikelihood_choice": LoglikelihoodChoice(context="{t}", choices=("{o}",), label="y"),
    "likelihood_named": LoglikelihoodChoice(context="{t}", choices=("{o}",), label="{y}", labels=("A", "B")),
    "generation": Generation(prompt="{t}", answer="{y}"),
    "text_to_text": as_text(CLASSIFY, "x"),
    "perplexity": PerplexityTask(text="t"),
}
PLAIN: dict[str, Any] = {"t": "it is", "u": "so", "o": ["a", "b"]}
GOOD: dict[str, Any] = {  # a valid row of each kind
    "classification": PLAIN | {"y": "yes"},
    "regression": PLAIN | {"y": 2.5},
    "ranking": PLAIN | {"y": 1},
    "multiple_choice": PLAIN | {"y": 0},
    "token_classification": PLAIN | {"t": ["it", "is"], "y": ["O", "B-X"]},
    "loglikelihood_choice": PLAIN | {"y": 0},
    "likelihood_named": PLAIN | {"y": "B"},
    "generation": PLAIN | {"y": "one"},
    "text_to_text": PLAIN | {"y": "yes"},
    "perplexity": PLAIN,
}
BAD: list[tuple[str, dict[str, Any], str]] = [  # changes that make a row malformed, and the message about it
    ("classification", {"y": "maybe"}, "invalid y: got 'maybe', expected no or yes"),
    ("classification", {"t": None}, "invalid t: got None, expected text"),
    ("classification", {"t": ...}, "missing column t; the columns are u, o, y"),
    ("regression", {"y": 7}, "invalid y: got 7, expected a number from 0 to 5"),
    ("regression", {"y": True}, "invalid y: got True, expected a number from 0 to 5"),
    ("ranking", {"y": "2"}, "invalid y: got '2', expected 0 or 1"),
    ("multiple_choice", {"y": 4}, "invalid y: got 4, expected 0 or 1"),
    ("multiple_choice", {"o": ["a"]}, "invalid choices: got ['a'], expected at least two texts"),
    ("multiple_choice", {"o": ["a", "b", "c"]}, "got 3 choices, expected at most 2, one per label: 0, 1"),
    ("token_classification", {"y": ["O", "B-Z"]}, "invalid tag: got 'B-Z', expected O or B-X"),
    ("token_classification", {"y": ["O"]}, "invalid y: got 1 tags, expected 2, one per word"),
    ("loglikelihood_choice", {"y": 2}, "invalid y: got '2', expected 0 or 1 or a or b"),
    (
        "loglikelihood_choice",
        {"o": []},
        "got 1 contexts and 0 choices, expected equal numbers, one context or one choice",
    ),
    ("likelihood_named", {"y": "C"}, "invalid {y}: got 'C', expected A or B"),
    ("generation", {"y": [{}]}, "invalid y: got {}, expected text"),
    ("text_to_text", {"y": "maybe"}, "invalid y: got 'maybe', expected no or yes"),
    ("perplexity", {"t": 3}, "invalid t: got 3, expected text"),
]
HIDDEN: list[tuple[str, Any]] = [  # values that stand for a withheld answer; ... means that the column is missing
    *[("classification", value) for value in (None, "", " ", -1, "-1", float("nan"), ...)],
    *[("regression", value) for value in (None, "", -1, "-1.0", float("nan"), ...)],
    *[("ranking", value) for value in (None, "", -1, ...)],
    *[("multiple_choice", value) for value in (None, "", -1, ...)],
    *[("token_classification", value) for value in (None, ["_", "_"], ["", ""], [None, None], ...)],
    *[("loglikelihood_choice", value) for value in (None, "", -1, "-1", ...)],
    *[("likelihood_named", value) for value in (None, "", "-1", ...)],
    *[("generation", value) for value in (None, "", " ", [], [""], [None], ...)],
    *[("text_to_text", value) for value in (None, "", -1, ...)],
]


def row(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (GOOD[kind] | changes).items() if value is not ...}


def task_of(kind: Kinds, format: Any = None, path: str = "f.jsonl") -> TaskFile:
    one = SplitRecords(paths=(path,), format=format or JsonlFormat())
    return TaskFile(name="x", description="x", citation="x", files={"train": one, "dev": one}, task=kind)


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    (folder / "f.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return folder


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize(("kind", "changes", "message"), BAD)
def test_a_malformed_row_leaves_out_only_itself(
    kind: str, changes: dict[str, Any], message: str, split: str, tmp_path: Path
) -> None:
    """A label out of range, or a cell that is not text, used to make the whole split fail."""
    rows = [GOOD[kind], row(kind, changes), GOOD[kind], GOOD[kind], row(kind, changes)]
    items, records = task_of(KINDS[kind]).items(split, write_rows(tmp_path, rows))
    assert [item.place for item in items] == ["f.jsonl:1", "f.jsonl:3", "f.jsonl:4"]
    assert records.notes == [f"malformed rows are left out: f.jsonl:2: {message} (and 1 more), also f.jsonl:5"]


@pytest.mark.parametrize(("kind", "changes", "message"), BAD)
def test_a_file_with_mostly_malformed_rows_is_refused(
    kind: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """In this case, the task file is wrong: it lacks a class, or names another column."""
    if ... in changes.values():
        pytest.skip("another column is a row that is malformed")
    rows = [GOOD[kind], *[row(kind, changes)] * 2]
    with pytest.raises(BadInput) as caught:
        task_of(KINDS[kind]).items("dev", write_rows(tmp_path, rows))
    assert str(caught.value) == f"task x, dev: f.jsonl:2: {message}; 1 more of 3 rows cannot be used"


@pytest.mark.parametrize(("kind", "value"), HIDDEN, ids=repr)
def test_a_withheld_answer_is_unlabeled(kind: str, value: Any, tmp_path: Path) -> None:
    """It used to make the whole split fail, or to count as an answer."""
    hidden = row(kind, {"y": value})
    items, records = task_of(KINDS[kind]).items("dev", write_rows(tmp_path, [hidden] * 2))
    assert [item.gold for item in items] == [None, None]
    assert records.notes == []
    if value is not ...:
        items, _ = task_of(KINDS[kind]).items("dev", write_rows(tmp_path, [GOOD[kind], hidden]))
        assert [item.gold is None for item in items] == [False, True]


def test_minus_one_is_a_label_if_the_task_lists_it(tmp_path: Path) -> None:
    rows = [PLAIN | {"y": value} for value in (-1, 0, "-1", 1.0)]
    for task in (
        replace(CLASSIFY, labels=("-1", "0", "1")),
        Regression(text="t", label="y", min_value=-1, max_value=1),
    ):
        items, _ = task_of(task).items("dev", write_rows(tmp_path, rows))
        assert [item.gold for item in items] == ([0, 1, 0, 2] if task.kind == "classification" else [-1, 0, -1, 1])


@pytest.mark.parametrize("kind", ["multiple_choice", "loglikelihood_choice"])
@pytest.mark.parametrize("labels", [[1, 1, 2], ["1", "2", "1", "1"], [1, 1, 1, 2, "x"]])
def test_choices_counted_from_one_are_refused(kind: str, labels: list[Any], tmp_path: Path) -> None:
    """The rows with the last choice used to be left out as malformed, and all other rows had a wrong answer."""
    rows = [row(kind, {"y": label}) for label in labels]
    with pytest.raises(BadInput, match=r"task x, dev: y counts choices from 1 \(none of \d is 0, .*as \[.1., .2.\]"):
        task_of(KINDS[kind]).items("dev", write_rows(tmp_path, rows))


@pytest.mark.parametrize("odd", [0, 3])
def test_a_text_among_indexes_of_choices_makes_only_its_row_malformed(odd: int, tmp_path: Path) -> None:
    """It used to make the whole split fail."""
    rows = [row("loglikelihood_choice", {"y": "b" if number == odd else number % 2}) for number in range(4)]
    items, records = task_of(KINDS["loglikelihood_choice"]).items("dev", write_rows(tmp_path, rows))
    assert [item.gold for item in items] == [number % 2 for number in range(4) if number != odd]
    assert records.malformed == [f"f.jsonl:{odd + 1}: invalid y: got 'b', expected 0 or 1 or a or b"]


@pytest.mark.parametrize("labels", [("false", "true"), ("False", "True")])
@pytest.mark.parametrize(
    "kind", ["classification", "ranking", "multiple_choice", "loglikelihood_choice", "text_to_text"]
)
def test_json_booleans_are_labels(kind: str, labels: tuple[str, str], tmp_path: Path) -> None:
    """`["true", "false"]`, as in the file, was refused: only 'True' and 'False' were accepted."""
    task: Any = KINDS[kind]
    task = as_text(replace(CLASSIFY, labels=labels), "x") if kind == "text_to_text" else replace(task, labels=labels)
    rows = [PLAIN | {"y": value} for value in (True, False, "true" if "true" in labels else "True")]
    assert [item.gold for item in task_of(task).items("dev", write_rows(tmp_path, rows))[0]] == [1, 0, 1]


@pytest.mark.parametrize("name", ["true", "True"])
def test_json_booleans_can_be_included_in_a_split(name: str, tmp_path: Path) -> None:
    rows = [{"t": str(n), "y": value} for n, value in enumerate((True, False, None))]
    split = SplitRecords(paths=("f.jsonl",), format=JsonlFormat())
    write_rows(tmp_path, rows)
    assert [one["t"] for one in replace(split, include={"y": (name,)}).records(tmp_path).rows] == ["0"]
    assert [one["t"] for one in replace(split, exclude={"y": (name,)}).records(tmp_path).rows] == ["1", "2"]
    renamed = replace(split, value_map={"y": {name: "yes"}}).records(tmp_path).rows
    assert [one["y"] for one in renamed] == ["yes", False, None]


def squad(*answers: Any) -> str:
    """A file in SQuAD format with a question for each list of answers."""
    asked = [{"id": str(n), "question": "what", **given} for n, given in enumerate(answers)]
    return json.dumps({"data": [{"paragraphs": [{"context": "a text", "qas": asked}]}]})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("text", ["", " ", None])
def test_questions_with_an_empty_answer_are_unlabeled(version: Any, text: str | None, tmp_path: Path) -> None:
    """XQuAD files with hidden answers used to be trained on (0, 0), and scored 0."""
    hidden = {"answers": [{"text": text, "answer_start": 0}]}
    both = {"answers": [*hidden["answers"], {"text": "text", "answer_start": 2}]}
    none = {"answers": [], "is_impossible": True}
    (tmp_path / "f.json").write_text(squad(hidden, both, none))
    items, _ = task_of(ExtractiveQA(squad_version=version), SquadFormat(), "f.json").items("dev", tmp_path)
    nothing = None if version == 1 else ("2", [], [])
    assert [item.gold for item in items] == [None, ("1", ["text"], [2]), nothing]


@pytest.mark.parametrize("invalid", ["false", "no", 2, []])
def test_an_invalid_is_impossible_makes_the_question_malformed(invalid: Any, tmp_path: Path) -> None:
    """The text "false" counted as true, so that the answer was dropped silently."""
    answers = [{"text": "is", "answer_start": 3}]
    asked = [
        {"id": "1", "question": "what", "is_impossible": is_none, "answers": answers} for is_none in (False, invalid)
    ]
    (tmp_path / "f.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "it is so", "qas": [*asked]}]}]}))
    items, records = task_of(ExtractiveQA(squad_version=2), SquadFormat(), "f.json").items("dev", tmp_path)
    assert [item.gold for item in items] == [("1", ["is"], [3])]
    assert records.malformed == [f"f.json:2: invalid is_impossible: got {invalid!r}, expected true or false"]


def test_sentences_of_a_file_without_tags_are_unlabeled(tmp_path: Path) -> None:
    tag = TokenClassification(labels=("O", "B-LOC"))
    (tmp_path / "f.txt").write_text("-DOCSTART-\n\nshe\nleft\n\nParis\n")
    items, records = task_of(tag, ConllFormat(), "f.txt").items("dev", tmp_path)
    assert [(item.texts[0], item.gold) for item in items] == [(("she", "left"), None), (("Paris",), None)]
    assert records.notes == []
    (tmp_path / "f.txt").write_text("she O\nleft O\n\nParis\n")  # if other sentences have tags, a missing tag is damage
    items, records = task_of(tag, ConllFormat(), "f.txt").items("dev", tmp_path)
    assert len(items) == 1
    assert records.notes == ["malformed rows are left out: f.txt:4: line 4 has 1 columns, expected a word and a tag"]


def test_a_childrens_book_test_item_without_its_answer_is_unlabeled(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("1 He sat .\n21 She XXXXX .\t\t\tran|left\n")
    task = LoglikelihoodChoice(context="{context}", choices=("{endings}",), label="answer")
    (item,) = task_of(task, CbtFormat(), "f.txt").items("dev", tmp_path)[0]
    assert (item.texts[0].options, item.gold) == (("ran .", "left ."), None)


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("t\tz\nit is\tyes\n")
    with pytest.raises(BadInput, match=r"f.tsv:2: missing column y; the columns are t, z"):
        task_of(CLASSIFY, TsvFormat(), "f.tsv").items("dev", tmp_path)
    with pytest.raises(BadInput, match=r"f.jsonl:1: missing column y; the columns are t"):
        task_of(CLASSIFY).items("train", write_rows(tmp_path, [{"t": "it is"}]))
    (tmp_path / "f.json").write_text(json.dumps([{"t": "it is"}]))
    (item,) = task_of(CLASSIFY, JsonFormat(), "f.json").items("dev", tmp_path)[0]
    assert item.gold is None


@pytest.mark.parametrize("kind", ["classification", "regression", "ranking", "text_to_text"])
def test_rows_without_text_are_noted(kind: str, tmp_path: Path) -> None:
    rows = [GOOD[kind], row(kind, {"t": " "}), GOOD[kind], row(kind, {"t": ""})]
    items, records = task_of(KINDS[kind]).items("dev", write_rows(tmp_path, rows))
    assert len(items) == 4
    columns = "t or u" if kind == "ranking" else "t"
    assert records.notes == [f"2 of 4 rows have no text in {columns}: f.jsonl:2"]


def test_classes_missing_from_train_are_noted() -> None:
    task = Classification(text="t", label="y", labels=("a", "b", "c", "d"))
    train, test = (
        [TaskItem(f"{n}", ("x",), gold) for n, gold in enumerate(golds)] for golds in ([0, 1, 0], [1, 2, 2, 0])
    )
    for one in (task, as_text(task, "x")):
        assert never_learned(one, train) == [
            "no example with the label 'c' or 'd', so the model cannot learn to predict it"
        ]
        assert never_in_train(one, train, test) == [
            "2 of 4 gold answers do not occur in train, and cannot be learned: 'c' (2)"
        ]
        assert never_in_train(one, train, train) == []
        assert never_learned(one, []) == never_in_train(one, [], test) == []
    tag = TokenClassification(labels=("O", "B-X", "I-X"))
    words = [[TaskItem("1", (("u", "v"),), tags)] for tags in (["O", "B-X"], ["B-X", "I-X"])]
    assert never_learned(tag, words[0]) == ["no example with the label 'I-X', so the model cannot learn to predict it"]
    assert never_in_train(tag, *words) == [
        "1 of 2 gold answers do not occur in train, and cannot be learned: 'I-X' (1)"
    ]
    assert never_learned(Regression(text="t", label="y", min_value=0, max_value=1), train) == []


BLANKS = {
    "ideographic": "\u3000",
    "no-break": "\u00a0",
    "next line": "\x85",
    "line separator": "\u2028",
    "file": "\x1c",
}


@pytest.mark.parametrize("other", ["Rome B-LOC\t\n", "Rome\tB-LOC\n", "\tRome B-LOC\n", "Rome X\tB-LOC\n"])
def test_a_tab_in_conll_is_a_separator_if_most_lines_have_spaces(other: str, tmp_path: Path) -> None:
    """Such a tab joined the word and its tag, so that the sentence silently lost its answer."""
    tag = TokenClassification(labels=("O", "B-LOC"))
    (tmp_path / "f.txt").write_text(f"she O\nsaw O\n{other}\nhe O\n")
    items, records = task_of(tag, ConllFormat(), "f.txt").items("dev", tmp_path)
    assert [(item.texts[0], item.gold) for item in items] == [
        (("she", "saw", "Rome"), ["O", "O", "B-LOC"]),
        (("he",), ["O"]),
    ]
    assert records.notes == []


def test_a_conll_word_may_contain_spaces_if_most_lines_have_tabs(tmp_path: Path) -> None:
    tag = TokenClassification(labels=("O", "B-LOC"))
    (tmp_path / "f.txt").write_text("-DOCSTART- O\n\nNew York\tB-LOC\nis\tO\n\nhe O\n")
    items, _ = task_of(tag, ConllFormat(), "f.txt").items("dev", tmp_path)
    assert [item.texts[0] for item in items] == [("New York", "is"), ("he",)]


@pytest.mark.parametrize("blank", BLANKS.values(), ids=BLANKS)
@pytest.mark.parametrize("between", [" ", "\t", "  "])
def test_a_conll_word_may_contain_any_space_except_the_separator(blank: str, between: str, tmp_path: Path) -> None:
    """The word used to be split into columns, and its tag became a part of the word."""
    tag = TokenClassification(labels=("O", "B-LOC", "I-LOC"))
    (tmp_path / "f.txt").write_text(
        f"Rue{blank}de{between}B-LOC\r\nParis{between}I-LOC\r\n \t\r\nshe{between}O\r\n", "utf-8"
    )
    items, records = task_of(tag, ConllFormat(), "f.txt").items("dev", tmp_path)
    assert [(item.texts[0], item.gold) for item in items] == [
        ((f"Rue{blank}de", "Paris"), ["B-LOC", "I-LOC"]),
        (("she",), ["O"]),
    ]
    assert records.notes == []
