"""Tasks of labeled files: prompts, sequences, answers and scores; bad files are refused in one line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab, WordPiece, train
from preprocessing.tokenization.template import Template
from training.evaluation.files import ConllFormat, CsvFormat, JsonFormat, JsonlFormat, Records, SquadFormat, TsvFormat
from training.evaluation.tasks.classification import Classification
from training.evaluation.tasks.extractive_qa import ExtractiveQA, SpanPrediction, widest
from training.evaluation.tasks.labeled_task import EncodedItems, LabeledTask, TaskItem
from training.evaluation.tasks.multiple_choice import MultipleChoice
from training.evaluation.tasks.regression import Regression
from training.evaluation.tasks.split import SplitRecords
from training.evaluation.tasks.text_to_text import as_text
from training.evaluation.tasks.token_classification import TokenClassification, first_pieces

TEXT = "Ada Lovelace wrote the first program . It computes numbers ; Babbage said so in London , long ago ."


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return train(WordPiece(vocab_size=120), [TEXT] * 40)


def split(path: str, format: Any, **keys: Any) -> SplitRecords:
    return SplitRecords(paths=(path,), format=format, **keys)


CLASSIFY = Classification(text="a", text_pair="b", label="label", labels=("no", "yes", "maybe"))
REGRESS = Regression(text="a", text_pair="b", label="score", min_value=0, max_value=5)
TAG = TokenClassification(labels=("O", "B-PER", "I-PER", "B-LOC"))
CHOOSE = MultipleChoice(
    context="article",
    question="questions",
    choices=("options",),
    label="answers",
    labels=("A", "B", "C", "D"),
    groups={"middle": "middle"},
)
SPAN = ExtractiveQA(squad_version=2, doc_stride=8)
DEV = {
    "classification": split("dev.tsv", TsvFormat()),
    "regression": split("dev.tsv", TsvFormat()),
    "token_classification": split("dev.txt", ConllFormat()),
    "multiple_choice": split("*.json", JsonFormat(each=("questions", "answers", "options"))),
    "extractive_qa": split("dev.json", SquadFormat()),
}
FILES: dict[str, dict[str, str]] = {
    "classification": {"dev.tsv": "a\tb\tlabel\nAda wrote .\tIt computes .\tyes\nso\tLondon\tno\nlong\tago\tmaybe\n"},
    "regression": {"dev.tsv": "a\tb\tscore\nAda\tAda\t5.000\nso\tLondon\t0\nlong\tago\t2.5\n"},
    "token_classification": {"dev.txt": "Ada B-PER\nLovelace I-PER\nwrote O\n\nin O\nLondon B-LOC\n"},
    "multiple_choice": {
        f"{level}.json": json.dumps(
            {
                "article": TEXT,
                "questions": ["Who wrote ?", "Where _ ?"],
                "answers": ["B", "A"],
                "options": [["Babbage", "Ada", "It"], ["London", "numbers", "program"]],
            }
        )
        for level in ("high", "middle")
    },
    "extractive_qa": {
        "dev.json": json.dumps(
            {
                "data": [
                    {
                        "title": "Ada",
                        "paragraphs": [
                            {
                                "context": TEXT,
                                "qas": [
                                    {
                                        "id": "1",
                                        "question": "Who ?",
                                        "answers": [{"text": "Babbage", "answer_start": 61}],
                                    },
                                    {"id": "2", "question": "Why ?", "answers": [], "is_impossible": True},
                                    {
                                        "id": "3",
                                        "question": "Where ?",
                                        "answers": [{"text": "London", "answer_start": 80}],
                                    },
                                ],
                            }
                        ],
                    }
                ]
            }
        )
    },
}
TASKS: dict[str, LabeledTask] = {task.kind: task for task in (CLASSIFY, REGRESS, TAG, CHOOSE, SPAN)}


def write_files(folder: Path, kind: str) -> Path:
    for name, content in FILES[kind].items():
        (folder / name).write_text(content)
    return folder


def gold_outputs(encoded: EncodedItems) -> Any:
    """Outputs of heads that always predict the gold answer."""
    for number, rows in enumerate(encoded.examples):
        row, length = rows[0], len(rows[0]["input_ids"])
        found = {}
        if "label" in row:
            found["row_label"] = torch.eye(3)[[int(row["label"])]]
        if "value" in row:
            found["row_value"] = torch.tensor([float(row["value"])])
        if (row["labels"] >= 0).any():
            found["token_tag"] = torch.eye(4)[torch.from_numpy(row["labels"][row["labels"] >= 0]).long()]
        if "right" in row:
            found["option_choice"] = torch.eye(3)[[int(row["right"])]]
        if "start" in row:
            logits = torch.zeros(1, length, 2)
            logits[0, int(row["start"]), 0] = logits[0, int(row["stop"]), 1] = 9 if row["start"] else 1
            found["answer_span"] = logits
        yield [number], found


@pytest.mark.parametrize("kind", TASKS)
def test_gold_predictions_get_the_full_score(kind: str, vocab: Vocab, tmp_path: Path) -> None:
    task = TASKS[kind]
    items = task.items(DEV[task.kind].records(write_files(tmp_path, kind)), {})
    encoded = task.encode(items, vocab, 24, training=False)
    assert all(len(row["input_ids"]) <= 24 for rows in encoded.examples for row in rows)
    scores = task.scores(items, task.predictions(items, encoded, gold_outputs(encoded)))
    assert scores.keys() >= set(task.metrics)
    shares = {name: value for name, value in scores.items() if not name.endswith("_thresh")}
    assert all(value == pytest.approx(1) for value in shares.values()), scores


@pytest.mark.parametrize("kind", TASKS)
def test_the_target_counts_the_labels_of_its_sequences(kind: str, vocab: Vocab, tmp_path: Path) -> None:
    from preprocessing.collate import collate_unpadded

    task = TASKS[kind]
    items = task.items(DEV[task.kind].records(write_files(tmp_path, kind)), {})
    encoded = task.encode(items, vocab, 24, training=True)
    batch = collate_unpadded([row for rows in encoded.examples for row in rows])
    (target,) = task.targets()
    words = sum(len(item.texts[0]) for item in items) if kind == "token_classification" else 0
    assert target.count(batch) == {"token_classification": words}.get(kind, len(encoded.examples))


def error(task: LabeledTask, folder: Path) -> str:
    with pytest.raises(BadInput) as caught:
        task.items(DEV[task.kind].records(folder), {})
    return str(caught.value).removeprefix(f"{folder}").lstrip("/")


@pytest.mark.parametrize(
    ("kind", "name", "content", "line"),
    [
        (
            "classification",
            "dev.tsv",
            "a\tb\tlabel\nx\ty\tYES\n",
            "dev.tsv:2: invalid label: got 'YES', expected no or yes or maybe",
        ),
        (
            "classification",
            "dev.tsv",
            "a\tb\tgold\nx\ty\tyes\n",
            "dev.tsv:2: missing column label; the columns are a, b, gold",
        ),
        (
            "regression",
            "dev.tsv",
            "a\tb\tscore\nx\ty\t7\n",
            "dev.tsv:2: invalid score: got '7', expected a number from 0 to 5",
        ),
        (
            "regression",
            "dev.tsv",
            "a\tb\tscore\nx\ty\thigh\n",
            "dev.tsv:2: invalid score: got 'high', expected a number from 0 to 5",
        ),
        (
            "token_classification",
            "dev.txt",
            "Ada B-ORG\n",
            "dev.txt:1: invalid tag: got 'B-ORG', expected O or B-PER or I-PER or B-LOC",
        ),
        (
            "multiple_choice",
            "high.json",
            json.dumps({"article": "x", "questions": ["?"], "answers": ["D"], "options": [["a", "b"]]}),
            "high.json:1: invalid answers: got 'D', expected A or B",
        ),
        (
            "multiple_choice",
            "high.json",
            json.dumps({"article": "x", "questions": ["?"], "answers": ["A"], "options": [["a"]]}),
            "high.json:1: invalid choices: got ['a'], expected at least two texts",
        ),
        (
            "multiple_choice",
            "high.json",
            json.dumps({"article": "x", "questions": ["?"], "answers": ["A"], "options": [[*"abcde"]]}),
            "high.json:1: got 5 choices, expected at most 4, one per label: A, B, C, D",
        ),
    ],
)
def test_an_invalid_row_is_refused_in_one_line(kind: str, name: str, content: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert error(TASKS[kind], tmp_path) == line


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"words": [*"abc"], "tags": ["O", "O"]}, "invalid tags: got 2 tags, expected 3, one per word"),
        ({"words": ["a"], "tags": ["O", "O"]}, "invalid tags: got 2 tags, expected 1, one per word"),
        ({"words": "abc", "tags": ["O"] * 3}, "invalid words: got 'abc', expected a list of texts"),
        ({"words": ["a"], "tags": 5}, "invalid tags: got 5, expected a list of texts"),
        ({"words": ["a"], "tags": [0]}, "invalid tags: got [0], expected a list of texts"),
        ({"words": None, "tags": ["O"]}, "invalid words: got None, expected a list of texts"),
    ],
)
def test_words_and_tags_must_match(record: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        TAG.items(Records([record], ["dev.jsonl:1"]), {})
    assert str(caught.value) == f"dev.jsonl:1: {message}"


@pytest.mark.parametrize("kind", ["multiple_choice", "token_classification"])
def test_an_unlabeled_item_is_not_trained_on(kind: str, vocab: Vocab, tmp_path: Path) -> None:
    task = TASKS[kind]
    records = DEV[kind].records(write_files(tmp_path, kind))
    label = {"multiple_choice": "answers", "token_classification": "tags"}[kind]
    first, *others = records.rows
    items = task.items(Records([{**first, label: None}, *others], records.places), {})
    assert [item.gold is None for item in items] == [True, *[False] * len(others)]
    training, scored = (task.encode(items, vocab, 200, training=one) for one in (True, False))
    assert training.item_of == [*range(1, len(items))]
    assert scored.item_of == [*range(len(items))]
    assert (
        training.notes == scored.notes == [f"1 of {len(items)} questions have no answer in the file, and are ignored"]
    )
    without = task.items(records, {"label": "", "tags": ""})
    assert task.encode(without, vocab, 200, training=False).notes == []
    with pytest.raises(BadInput, match="no training question has an answer"):
        task.encode(without, vocab, 200, training=True)


def test_a_missing_split_is_refused_in_one_line(tmp_path: Path) -> None:
    absent = SplitRecords(paths=("SST-2/dev.tsv",), format=TsvFormat(), fallbacks=(split("sst/*.tsv", CsvFormat()),))
    with pytest.raises(
        BadInput, match=r"no such file: SST-2/dev\.tsv or sst/\*\.tsv; set the directory with --task-data-dir"
    ):
        absent.records(tmp_path)
    assert not absent.is_there(tmp_path)


def test_a_label_may_be_merged_into_another(vocab: Vocab, tmp_path: Path) -> None:
    """HANS: a model with three classes is scored on two."""
    task = replace(CLASSIFY, merge_labels={"maybe": "no"})
    items = task.items(DEV[task.kind].records(write_files(tmp_path, "classification")), {})
    encoded = task.encode(items, vocab, 24, training=False)
    outputs = [([0, 1, 2], {"row_label": torch.eye(3)[[1, 2, 0]]})]
    assert task.predictions(items, encoded, outputs) == ["yes", "no", "no"]
    assert task.scores(items, ["yes", "no", "no"]) == {"accuracy": 1.0}


def labeled(*golds: Any) -> list[TaskItem]:
    return [TaskItem(f"dev.tsv:{n}", ("x",), gold) for n, gold in enumerate(golds, 2)]


def test_f1_uses_the_positive_label_and_names_it() -> None:
    items, actual = labeled(1, 1, 0, 0, None), ["1", "0", "0", "0", "0"]
    for labels, positive, share in ((("0", "1"), "", 2 / 3), (("0", "1"), "0", 0.8), (("1", "0"), "0", 2 / 3)):
        task = Classification(text="a", label="b", labels=labels, positive_label=positive, metrics=("f1",))
        answers = [labels[int(one)] for one in actual]
        assert task.scores(items, answers)["f1"] == pytest.approx(share)
        assert task.notes(items, answers) == [f"f1 has the positive label '{positive or labels[1]}'"]
    three = Classification(text="a", label="b", labels=("0", "1", "2"), positive_label="2", metrics=("f1",))
    assert three.scores(labeled(2, 2, 0, 1), ["2", "0", "2", "1"])["f1"] == pytest.approx(0.5)
    merged = Classification(
        text="a", label="b", labels=("e", "n", "c"), merge_labels={"c": "n"}, positive_label="e", metrics=("f1",)
    )
    assert merged.scores(labeled(0, 1, 2), ["e", "e", "n"])["f1"] == pytest.approx(2 / 3)
    assert replace(merged, positive_label="").notes(labeled(0), ["e"])[0] == "f1 has the positive label 'n'"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"metrics": ("f1",)},
            "invalid metrics: got 'f1', expected macro_f1, or f1 with "
            "`positive_label`, since there are more than two labels",
        ),
        (
            {"metrics": ("f1",), "positive_label": "yse"},
            "invalid positive_label: got 'yse', expected no or yes or maybe",
        ),
        (
            {"positive_label": "maybe", "merge_labels": {"maybe": "no"}},
            "invalid positive_label: got 'maybe', expected no or yes",
        ),
    ],
)
def test_an_unknown_positive_label_is_refused(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        replace(CLASSIFY, **keys)
    assert line in str(caught.value)


def test_an_undefined_metric_is_noted() -> None:
    task = Classification(text="a", label="b", labels=("no", "yes"), metrics=("accuracy", "matthews", "f1"))
    positive, zero = "f1 has the positive label 'yes'", "is undefined and counts as 0"
    assert task.notes(labeled(0, 1), ["no", "yes"]) == [positive]
    same = f"matthews {zero}: all 2 predictions are the same"
    assert task.notes(labeled(0, 1), ["yes", "yes"]) == [positive, same]
    none = f"f1 {zero}: neither gold answers nor predictions have this label"
    same = f"matthews {zero}: all 2 gold answers are the same"
    assert task.notes(labeled(0, 0), ["no", "no"]) == [positive, none, same]
    assert replace(task, metrics=("accuracy",)).notes(labeled(0, 0), ["no", "no"]) == []
    assert REGRESS.notes(labeled(0.0, 1.0, None), [0.5, 0.5, 0.7]) == [
        "spearman, pearson are undefined and count as 0: all 2 predictions are the same"
    ]
    assert REGRESS.notes(labeled(0.0, 1.0), [0.5, 0.7]) == []


@pytest.mark.parametrize(
    ("task", "golds", "one"),
    [
        (CLASSIFY, (1, 0, 0), "'yes'"),
        (REGRESS, (2.5, 0, 0), "2.5"),
        (TAG, (["O", "O"], ["O", "B-PER"], ["O", "O"]), "'O'"),
    ],
)
def test_identical_training_answers_are_noted(
    task: LabeledTask, golds: tuple[Any, ...], one: str, vocab: Vocab
) -> None:
    texts: Any = (("Ada", "wrote"),) if task.kind == "token_classification" else ("Ada", "wrote")
    same, other = (
        [TaskItem(str(n), texts, golds[0]) for n in range(3)],
        [TaskItem(str(n), texts, golds[n]) for n in range(3)],
    )
    of = "words" if task.kind == "token_classification" else "answers"
    message = f"all {len(same) * (2 if of == 'words' else 1)} {of} are {one}: the model can learn no other answer"
    assert task.encode(same, vocab, 24, training=True).notes == [message]
    assert task.encode(same, vocab, 24, training=False).notes == []
    assert task.encode(other, vocab, 24, training=True).notes == []


def test_folds_keep_rows_with_the_same_value_together(tmp_path: Path) -> None:
    rows = [{"premise": f"p{number // 3}", "n": number} for number in range(300)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    halves = [
        split("dev.jsonl", JsonlFormat(), folds=half, fold_by="premise").records(tmp_path).rows
        for half in ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    ]
    assert len(halves[0]) + len(halves[1]) == 300
    assert not {row["premise"] for row in halves[0]} & {row["premise"] for row in halves[1]}
    assert 90 < len(halves[0]) < 210


def test_truncated_words_are_predicted_as_outside(vocab: Vocab, tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text("Ada B-PER\nLovelace I-PER\nwrote O\nin O\nLondon B-LOC\n")
    items = TAG.items(DEV["token_classification"].records(tmp_path), {})
    encoded = TAG.encode(items, vocab, 5, training=False)
    assert encoded.notes == ["2 words are truncated, or have no token; they count as O"]
    assert TAG.predictions(items, encoded, gold_outputs(encoded)) == [["B-PER", "I-PER", "O", "O", "O"]]


def test_iobes_tags_are_scored_from_file_to_score(vocab: Vocab, tmp_path: Path) -> None:
    """The second entity is predicted to continue after its last word."""
    task = TokenClassification(labels=("O", "B-PER", "I-PER", "E-PER", "S-LOC"), scheme="IOBES")
    (tmp_path / "dev.txt").write_text("Ada B-PER\nso I-PER\nLovelace E-PER\nin O\nLondon S-LOC\n\nIt B-PER\nso E-PER\n")
    items = task.items(DEV["token_classification"].records(tmp_path), {})
    encoded = task.encode(items, vocab, 24, training=False)
    labels = [[row["labels"][row["labels"] >= 0] for row in rows] for rows in encoded.examples]
    actual = torch.eye(5)[torch.from_numpy(np.concatenate([row for rows in labels for row in rows])).long()]
    predictions = task.predictions(items, encoded, [([0, 1], {"token_tag": actual})])
    assert predictions == [["B-PER", "I-PER", "E-PER", "O", "S-LOC"], ["B-PER", "E-PER"]]
    assert task.scores(items, predictions) == {"f1": 1.0, "precision": 1.0, "recall": 1.0}
    predictions[1][1] = "I-PER"
    assert task.scores(items, predictions) == pytest.approx({"f1": 0.8, "precision": 1.0, "recall": 2 / 3})
    lenient = TokenClassification(labels=task.labels)
    assert lenient.scores(items, predictions)["f1"] == 1.0


BILOU = ("O", "B-PER", "I-PER", "L-PER", "U-PER")


@pytest.mark.parametrize(
    ("labels", "keys", "line"),
    [
        (
            ("NNP", "VBD"),
            {},
            "invalid labels: got ['NNP', 'VBD'], expected O, B-..., I-..., E-..., S-... or O, B-..., I-..., L-..., "
            "U-... for the entity metrics f1, precision, recall; for other tags, such as parts of speech, set metrics: "
            "[accuracy, macro_f1]",
        ),
        (
            ("NNP", "VBD"),
            {"scheme": "IOB2"},
            "invalid labels: got ['NNP', 'VBD'], expected O, B-..., I-... for scheme IOB2",
        ),
        (BILOU, {"scheme": "IOB1"}, "invalid labels: got ['L-PER', 'U-PER'], expected O, B-..., I-... for scheme IOB1"),
        (BILOU, {"scheme": "IOBES"}, "['L-PER', 'U-PER'], expected O, B-..., I-..., E-..., S-... for scheme IOBES"),
        (("O", "PER"), {"metrics": ("accuracy", "recall")}, "invalid labels: got ['PER'], expected"),
    ],
)
def test_labels_outside_of_the_scheme_are_refused_before_reading(
    labels: tuple[str, ...], keys: dict[str, Any], line: str
) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        TokenClassification(labels=labels, **keys)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_part_of_speech_tags_are_scored_by_word() -> None:
    task = TokenClassification(labels=("NN", "VB", "DT"), metrics=("accuracy", "macro_f1"))
    items = [TaskItem("1", (("a", "b"),), ["DT", "NN"]), TaskItem("2", (("a", "b"),), ["NN", "VB"])]
    actual = [["DT", "NN"], ["NN", "NN"]]
    assert task.scores(items, actual) == {"accuracy": 0.75, "macro_f1": pytest.approx((1 + 0.8 + 0) / 3)}
    cut = [["DT", "O"], ["NN", "VB"]]  # a truncated word is wrong, and O is not a class
    assert task.scores(items, cut) == {"accuracy": 0.75, "macro_f1": pytest.approx((1 + 2 / 3 + 1) / 3)}


def test_words_without_a_token_are_wrong_if_no_tag_means_outside(vocab: Vocab) -> None:
    task = TokenClassification(labels=("NN", "VB"), metrics=("accuracy",))
    items = [TaskItem("1", (("Ada", "wrote", "so", "long"),), ["NN"] * 4)]
    (note,) = task.encode(items, vocab, 5, training=False).notes
    assert note.endswith("words are truncated, or have no token; they count as wrong")


def test_gold_tags_that_violate_a_strict_scheme_are_noted() -> None:
    task = TokenClassification(labels=("O", "B-PER", "I-PER"), scheme="IOB2")
    items = [TaskItem("1", (("a", "b"),), ["I-PER", "I-PER"]), TaskItem("2", (("a", "b"),), ["B-PER", "O"])]
    note = "2 of 3 words of entities are invalid in scheme IOB2, and are ignored"
    assert task.notes(items, [["B-PER", "O"]] * 2) == [note]
    assert TokenClassification(labels=task.labels).notes(items, [["B-PER", "O"]] * 2) == []


@pytest.mark.parametrize(("scheme", "tags"), [("lenient", ["O", "O"]), ("IOB2", ["O", "I-PER"])])
def test_predictions_without_an_entity_are_noted(scheme: Any, tags: list[str]) -> None:
    task = TokenClassification(labels=("O", "B-PER", "I-PER"), scheme=scheme)
    items = [TaskItem("1", (("a", "b"),), ["B-PER", "O"]), TaskItem("2", (("a", "b"),), None)]
    assert task.notes(items, [tags, ["B-PER", "O"]]) == [
        "no entity is predicted in 1 sentences with 1 words of entities: f1, precision, recall are 0"
    ]
    assert task.scores(items, [tags, ["O", "O"]])["f1"] == 0
    nothing = [TaskItem("1", (("a", "b"),), ["O", "O"])]
    assert task.notes(nothing, [["B-PER", "O"]]) == [
        "f1, precision, recall are undefined and count as 0: the 1 sentences have no entities"
    ]
    assert replace(task, metrics=("accuracy",)).notes(nothing, [["O", "O"]]) == []


def test_predictions_without_any_answer_are_noted() -> None:
    items = [TaskItem(str(n), ("q", "text"), (str(n), ["text"], [0])) for n in range(2)]
    silent, some = (
        [SpanPrediction("", 1.0, "text")] * 2,
        [SpanPrediction("", 1.0, "text"), SpanPrediction("text", 1.0, "text")],
    )
    assert ExtractiveQA(squad_version=2).notes(items, silent) == ["all 2 questions are predicted to be unanswerable"]
    assert ExtractiveQA(squad_version=2).notes(items, some) == []


def test_group_scores_are_those_of_files_with_that_name(vocab: Vocab, tmp_path: Path) -> None:
    """RACE: middle and high."""
    task = replace(CHOOSE, groups={"middle": "middle", "high": "high", "none": "college"})
    items = task.items(DEV["multiple_choice"].records(write_files(tmp_path, "multiple_choice")), {})
    right = ["B", "A", "B", "A"]
    assert [(item.place.split(".")[0], item.gold) for item in items] == [
        *[("high", 1), ("high", 0)],
        *[("middle", 1), ("middle", 0)],
    ]
    assert task.scores(items, right) == {"accuracy": 1.0, "accuracy_middle": 1.0, "accuracy_high": 1.0}
    assert task.scores(items, ["C", "A", "B", "A"]) == {
        "accuracy": 0.75,
        "accuracy_middle": 1.0,
        "accuracy_high": 0.5,
    }


@pytest.mark.parametrize(
    ("labels", "golds", "is_said"), [("012", (1, 2, 1), True), ("012", (1, 0, 1), False), ("ABC", (1, 2, 1), False)]
)
def test_labels_that_may_count_from_1_are_noted(labels: str, golds: tuple[int, ...], is_said: bool) -> None:
    task = replace(CHOOSE, labels=tuple(labels))
    found = [TaskItem(str(n), ("x", "y", ("a", "b", "c")), gold) for n, gold in enumerate(golds)]
    message = "choice 0 is correct in none of 3 questions: if the file counts choices from 1"
    assert [note.startswith(message) for note in task.notes(found, ["0"] * 3)] == [True] * is_said


def test_first_tokens_of_words_are_found() -> None:
    assert first_pieces(np.array([-1, 0, 1, 1, -1, 3])) == ([1, 2, 5], [0, 1, 3])


@pytest.mark.parametrize("kind", ["classification", "regression", "multiple_choice"])
def test_truncated_sequences_are_counted(kind: str, vocab: Vocab, tmp_path: Path) -> None:
    task = TASKS[kind]
    first, *others = task.items(DEV[kind].records(write_files(tmp_path, kind)), {})
    short = [replace(item, texts=("Ada", *item.texts[1:])) for item in others]
    items = [replace(first, texts=(TEXT * 2, *first.texts[1:])), *short]
    rows = "3 of 12" if kind == "multiple_choice" else "1 of 3"  # each choice of a question is a sequence
    assert task.encode(items, vocab, 24, training=True).notes == [f"{rows} sequences are truncated to 24 tokens"]
    assert task.encode(items, vocab, 200, training=True).notes == []


# Spans.


def test_windows_without_the_answer_point_at_their_first_token(vocab: Vocab, tmp_path: Path) -> None:
    items = SPAN.items(DEV["extractive_qa"].records(write_files(tmp_path, "extractive_qa")), {})
    encoded = SPAN.encode(items, vocab, 20, training=True)
    of_first = [rows[0] for rows, item in zip(encoded.examples, encoded.item_of, strict=True) if item == 0]
    assert len(of_first) > 2
    with_answer = [row for row in of_first if row["start"] > 0]
    assert 0 < len(with_answer) < len(of_first)
    for row in with_answer:
        answer = (
            vocab.decode(row["input_ids"][int(row["start"]) : int(row["stop"]) + 1]).replace(" ", "").replace("##", "")
        )
        assert answer == "babbage"


def test_an_answer_at_the_wrong_position_is_left_out_of_training_and_noted(vocab: Vocab, tmp_path: Path) -> None:
    content = json.loads(FILES["extractive_qa"]["dev.json"])
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 7
    (tmp_path / "dev.json").write_text(json.dumps(content))
    items = SPAN.items(DEV["extractive_qa"].records(tmp_path), {})
    encoded = SPAN.encode(items, vocab, 40, training=True)
    assert 0 not in encoded.item_of
    assert encoded.notes == [
        "1 questions are left out: their answer is not at its position, or the text is empty (dev.json:1)"
    ]
    assert 0 in SPAN.encode(items, vocab, 40, training=False).item_of


def test_a_token_is_scored_in_the_window_with_most_context(vocab: Vocab) -> None:
    from preprocessing.tokenization.template import windows

    found = windows(Template(vocab).row("Who ?", TEXT), 20, 6)
    owner = widest(found)
    middle = [set(window.token[window.text == 1].tolist()) for window in found]
    for token, number in owner.items():
        assert token in middle[number]
    assert len(owner) == len(set().union(*middle))
    assert {0, len(found) - 1} <= set(owner.values())


def test_the_threshold_decides_that_there_is_no_answer(vocab: Vocab, tmp_path: Path) -> None:
    items = SPAN.items(DEV["extractive_qa"].records(write_files(tmp_path, "extractive_qa")), {})[:1]
    encoded = SPAN.encode(items, vocab, 100, training=False)
    (outputs,) = gold_outputs(encoded)
    outputs[1]["answer_span"][0, 0] = 10.0
    (answer,) = SPAN.predictions(items, encoded, [outputs])
    assert answer == ("", 2.0, "Babbage")
    (answer,) = replace(SPAN, null_score_diff_threshold=2.0).predictions(items, encoded, [outputs])
    assert answer.text == "Babbage"
    (answer,) = replace(SPAN, squad_version=1).predictions(items, encoded, [outputs])
    assert answer.text == "Babbage"


def questions(*golds: list[str]) -> list[TaskItem]:
    return [TaskItem(str(n), ("Who ?", TEXT), (str(n), gold, [0] * len(gold))) for n, gold in enumerate(golds)]


@pytest.mark.parametrize("keys", [{}, {"squad_version": 1}, {"squad_version": 1, "languages": {"dev": "en"}}], ids=str)
def test_questions_with_the_same_id_are_scored_separately(keys: dict[str, Any]) -> None:
    """Merged files may repeat an ID. Here, three of four answers are correct, and the last one is wrong."""
    task = ExtractiveQA(**({"squad_version": 2} | keys))
    golds = ["Ada", "Ada", "program", "London"]
    items = [TaskItem(f"dev.json:{n}", (f"Who {n} ?", TEXT), ("x", [gold], [0])) for n, gold in enumerate(golds, 1)]
    actual = [SpanPrediction(text, -5.0, text) for text in ("Ada", "Ada", "program", "Babbage")]
    scores = task.scores(items, actual)
    assert (scores["f1"], scores["exact"]) == (0.75, 0.75)
    shared = "4 of 4 questions share their ID with another one (dev.json:1 and dev.json:2): each is scored separately"
    assert task.notes(items, actual) == [shared]
    assert as_text(task, "mine").notes(items, actual) == [shared]
    assert task.notes(questions(["Ada"], ["Babbage"]), actual) == []


def test_the_no_answer_threshold_is_the_best_one_on_dev() -> None:
    items = questions(["Ada"], ["Babbage"], [], [])
    odds = [("Ada", -5.0), ("Babbage", -1.0), ("London", -0.5), ("It", 3.0)]
    actual = [SpanPrediction("" if none > 0 else best, none, best) for best, none in odds]
    assert SPAN.scores(items, actual)["f1"] == 0.75
    task, note = SPAN.fit_threshold("dev", items, actual)
    assert task.null_score_diff_threshold == -1.0
    assert note.startswith("the no-answer threshold is -1 logits: the best for f1 on dev")
    scores = task.scores(items, actual)
    assert (scores["f1"], scores["exact"], scores["best_f1"], scores["best_f1_thresh"]) == (1.0, 1.0, 1.0, -1.0)
    assert scores["best_exact_thresh"] == -1.0
    assert SPAN.scores(items, actual)["best_f1"] == 1.0  # independent of the predicted answers


def test_if_no_answer_is_always_best_no_question_is_answered() -> None:
    """The official search returns a threshold of 0 here, below which both questions would be answered."""
    items, actual = questions([], ["Ada"]), [SpanPrediction("It", -3.0, "It"), SpanPrediction("so", -2.0, "so")]
    task, _ = SPAN.fit_threshold("dev", items, actual)
    assert task.scores(items, actual)["f1"] == 0.5
    assert task.scores(items, actual)["best_f1_thresh"] == 0.0
    assert task.null_score_diff_threshold == -4.0


def test_a_given_threshold_is_kept_and_it_is_0_without_a_dev_split() -> None:
    fixed, items, actual = (
        replace(SPAN, null_score_diff_threshold=-2.75),
        questions(["Ada"]),
        [SpanPrediction("Ada", -1.0, "Ada")],
    )
    assert fixed.fit_threshold("dev", items, actual) == (fixed, "")
    assert fixed.scores(items, actual)["f1"] == 0
    assert replace(SPAN, squad_version=1).fit_threshold("dev", items, actual) == (replace(SPAN, squad_version=1), "")
    task, note = SPAN.fit_threshold("", [], [])
    assert (task.null_score_diff_threshold, note) == (
        0.0,
        "the no-answer threshold is 0, because no dev split has labels",
    )


def first_unlabeled(folder: Path, number: int) -> list[TaskItem]:
    """The questions of the file; the first `number` of them have no answers."""
    content = json.loads(FILES["extractive_qa"]["dev.json"])
    for question in content["data"][0]["paragraphs"][0]["qas"][:number]:
        question |= {"answers": [], "is_impossible": False}
    (folder / "dev.json").write_text(json.dumps(content))
    return SPAN.items(DEV["extractive_qa"].records(folder), {})


def test_questions_without_answers_are_unlabeled(vocab: Vocab, tmp_path: Path) -> None:
    assert [item.gold for item in first_unlabeled(tmp_path, 3)] == [None] * 3
    items = first_unlabeled(tmp_path, 1)
    assert [item.gold is None for item in items] == [True, False, False]
    training, scored = (SPAN.encode(items, vocab, 40, training=one) for one in (True, False))
    assert set(training.item_of) == {1, 2}
    assert set(scored.item_of) == {0, 1, 2}
    for encoded in (training, scored):
        assert encoded.notes == ["1 of 3 questions have no answer in the file, and are ignored"]
    assert SPAN.scores(items, [SpanPrediction("x"), SpanPrediction(""), SpanPrediction("London")])["f1"] == 1.0
    everything = first_unlabeled(tmp_path, 3)
    assert SPAN.encode(everything, vocab, 40, training=False).notes == []
    with pytest.raises(BadInput, match="no training question has an answer"):
        SPAN.encode(everything, vocab, 40, training=True)


def test_in_version_1_a_question_without_an_answer_is_not_trained_on(vocab: Vocab, tmp_path: Path) -> None:
    task = replace(SPAN, squad_version=1)
    items = task.items(
        DEV["extractive_qa"].records(write_files(tmp_path, "extractive_qa")), {}
    )  # the second one is impossible
    assert [item.gold is None for item in items] == [False, True, False]
    assert set(task.encode(items, vocab, 40, training=True).item_of) == {0, 2}
    assert task.scores(items, [SpanPrediction("Babbage"), SpanPrediction("x"), SpanPrediction("London")])["f1"] == 1.0


def test_a_question_that_is_too_long_is_truncated_and_counted(vocab: Vocab) -> None:
    items = [TaskItem("1", (TEXT, TEXT), ("1", ["Ada"], [0])), TaskItem("2", ("Who ?", TEXT), ("2", ["Ada"], [0]))]
    encoded = SPAN.encode(items, vocab, 24, training=True)
    assert encoded.notes == ["1 of 2 questions are truncated to their first 13 tokens"]
    assert max(len(rows[0]["input_ids"]) for rows in encoded.examples) == 24
