"""GLUE and SQuAD saved by `datasets`: the same questions and answers as in the original files."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from orchestration.config import list_names, load_task
from training.evaluation.files import DatasetsFormat, SquadFormat, read
from training.evaluation.tasks import SplitRecords, TaskFile, TaskItem

NAMES = {
    "cola": ["unacceptable", "acceptable"],
    "sst2": ["negative", "positive"],
    "rte": ["entailment", "not_entailment"],
    "stsb": [],
}


def fallback(split: SplitRecords) -> SplitRecords:
    return next(one for one in split.fallbacks if isinstance(one.format, DatasetsFormat))


def split_name(split: SplitRecords) -> str:
    format = fallback(split).format
    assert isinstance(format, DatasetsFormat)
    return format.split


def as_on_the_hub(task: TaskFile, data: Path) -> datasets.DatasetDict:
    """The original files of a task of GLUE in the form of the hub."""
    splits = {}
    for name in ("train", "dev", "test"):
        items, _ = task.items(name, data)
        columns = fallback(task.files[name]).columns
        rows: dict[str, list[Any]] = {
            columns[text]: [item.texts[at] for item in items]
            for at, text in enumerate(("text", "text_pair"))
            if text in columns
        }
        rows["label"] = [-1 if item.gold is None else item.gold for item in items]
        rows["idx"] = list(range(len(items)))
        kinds: dict[str, Any] = dict.fromkeys(rows, datasets.Value("string"))
        kinds["label"] = datasets.ClassLabel(names=NAMES[task.name]) if NAMES[task.name] else datasets.Value("float32")
        kinds["idx"] = datasets.Value("int32")
        splits[split_name(task.files[name])] = datasets.Dataset.from_dict(rows, datasets.Features(kinds))
    return datasets.DatasetDict(splits)


def save(found: datasets.DatasetDict, folder: Path, layout: str) -> None:
    if layout == "saved":
        found.save_to_disk(folder, max_shard_size="200KB")
        return
    for name, one in found.items():
        for at in range(2):
            file = folder / f"{name}-{at:05}-of-00002.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            one.shard(2, at, contiguous=True).to_parquet(file)


def plain(items: list[TaskItem]) -> list[tuple[Any, ...]]:
    """The texts and answers. Numbers are float32 on the hub: STS-B's 2.11111111111111 is 2.1111112 there."""
    return [(item.texts, np.float32(item.gold) if isinstance(item.gold, float) else item.gold) for item in items]


@pytest.mark.one_in(4)
@pytest.mark.shared
@pytest.mark.parametrize("layout", ["saved", "shards"])
@pytest.mark.parametrize("name", NAMES)
def test_glue_has_the_same_questions_in_both_forms(name: str, layout: str, shared: Path, tmp_path: Path) -> None:
    original = shared / "downstream"
    save(as_on_the_hub(load_task(name), original), tmp_path / "glue" / name, layout)
    for form in (name, f"{name}_text"):
        task = load_task(form)
        for split in ("train", "dev", "test"):
            known, _ = task.items(split, original)
            found, records = task.items(split, tmp_path)
            assert plain(found) == plain(known)
            assert not records.malformed
            assert found[0].place.startswith(f"glue/{name}/")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("task", "file", "path"),
    [
        ("squad1", "squad1.1_dev/part1.json", "squad/plain_text/validation-00000-of-00001.parquet"),
        ("squad2", "squad2_partial/squad2_cs224n_dev.json", "squad_v2/squad_v2/validation-00000-of-00001.parquet"),
    ],
)
def test_squad_has_the_same_questions_in_both_forms(
    task: str, file: str, path: str, shared: Path, tmp_path: Path
) -> None:
    rows = []
    for row in read(shared / "downstream", file, SquadFormat()).rows:
        columns = {name: row[name] for name in ("id", "title", "context", "question")}
        rows.append(columns | {"answers": {"text": row["answers"], "answer_start": row["starts"]}})
    (tmp_path / path).parent.mkdir(parents=True)
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / path)
    (tmp_path / "json/squad").mkdir(parents=True)
    version = {"squad1": "1.1", "squad2": "2.0"}[task]
    (tmp_path / f"json/squad/dev-v{version}.json").write_bytes((shared / "downstream" / file).read_bytes())
    known, _ = load_task(task).items("dev", tmp_path / "json")
    found, _ = load_task(task).items("dev", tmp_path)
    assert plain(found) == plain(known)
    assert len(found) > 4_000


FIELDS = {
    "boolq_text": {"question": "is it", "passage": "It is .", "label": 1},
    "boolq": {"question": "is it", "passage": "It is .", "label": 1},
    "boolq_few": {"question": "is it", "passage": "It is .", "label": 1},
    "cb_text": {"premise": "It is .", "hypothesis": "It was .", "label": 1},
    "wic_text": {"word": "bed", "sentence1": "a bed", "sentence2": "a river bed", "label": 1},
    "copa_text": {"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "label": 1},
    "copa_tuned": {"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "label": 1},
}
LABELS = {
    "boolq": ["False", "True"],
    "cb": ["entailment", "contradiction", "neutral"],
    "wic": ["False", "True"],
    "copa": ["choice1", "choice2"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_superglue_has_the_same_questions_in_both_forms(name: str, tmp_path: Path) -> None:
    """The rows are made up; columns and names are those of aps/super_glue, and of SuperGLUE's own JSON lines."""
    row, task = FIELDS[name], load_task(name)
    words = LABELS[name.partition("_")[0]]
    label: Any = words[row["label"]]
    label = {"True": True, "choice2": 1}.get(label, label)
    folder = {"boolq": "BoolQ", "cb": "CB", "wic": "WiC", "copa": "COPA"}[name.partition("_")[0]]
    file = tmp_path / f"json/superglue/{folder}/val.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(row | {"label": label}))
    kinds: dict[str, Any] = dict.fromkeys(row, datasets.Value("string"))
    kinds["label"] = datasets.ClassLabel(names=words)
    one = datasets.Dataset.from_list([row], features=datasets.Features(kinds))
    path = tmp_path / f"super_glue/{name.partition('_')[0]}/validation-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    one.to_parquet(path)
    assert plain(task.items("dev", tmp_path)[0]) == plain(task.items("dev", tmp_path / "json")[0])


def test_each_task_of_glue_and_squad_reads_the_form_of_the_hub() -> None:
    """The columns of the splits are those of nyu-mll/glue; the tests above read them for the tasks with public data."""
    tasks = [load_task(name) for name in list_names("tasks")]
    of_glue = [task for task in tasks if task.group in ("glue", "glue_text")]
    assert len(of_glue) >= 20
    for task in of_glue:
        for name, split in task.files.items():
            if not name.endswith("_labelled"):
                assert fallback(split).columns["text"]
                assert (fallback(split).columns["label"] == "") == name.startswith("test")
