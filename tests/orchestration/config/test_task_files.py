"""Task files: each file loads, its metrics fit its kind, and the results that recipes report belong to a task."""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest

from orchestration.config import find_unavailable, list_names, load, load_task, tasks_of
from orchestration.evaluation.paper_figures import paper_figures
from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from training.evaluation.files import Records, WholeFileFormat
from training.evaluation.likelihood import PerplexityText
from training.evaluation.tasks import (
    EACH,
    T5,
    Classification,
    ExtractiveQA,
    Generation,
    Kinds,
    LoglikelihoodChoice,
    MultipleChoice,
    Regression,
    SplitRecords,
    TaskFile,
    TextToText,
    TokenClassification,
    as_text,
    split_availability,
)
from training.evaluation.tasks import TASKS as HELD_OUT

TASKS = list_names("tasks")
METRICS = {  # kind of task -> its possible metrics; scores.md 1.1 to 1.4
    "classification": {"accuracy", "f1", "macro_f1", "matthews"},
    "regression": {"spearman", "pearson"},
    "token_classification": {"f1", "precision", "recall", "accuracy"},
    "multiple_choice": {"accuracy"},
    "ranking": {"accuracy"},
    "extractive_qa": {"f1", "exact"},
    "loglikelihood_choice": {
        *("accuracy", "accuracy_token", "accuracy_character", "accuracy_byte", "accuracy_unconditional"),
        *("macro_accuracy", "last_word", "perplexity", "last_token", "last_token_perplexity"),
    },
    "context_length": {"effective_length"},
    "perplexity": {
        *("word_perplexity", "token_perplexity", "byte_perplexity", "bits_per_byte", "bits_per_character"),
    },
    "generation": {
        "rouge1",
        "rouge2",
        "rougeL",
        "rougeLsum",
        "bleu",
        "chrf",
        "coqa_f1",
        "exact",
        "exact_match",
        "f1",
        "words",
    },
}
METRICS["text_to_text"] = {
    name for kind in ("classification", "regression", "multiple_choice", "extractive_qa") for name in METRICS[kind]
}
every_task = pytest.mark.parametrize("name", TASKS)


@every_task
def test_a_task_file_loads_and_its_metrics_fit_its_kind(name: str) -> None:
    task = load_task(name)
    assert task.name == name
    assert task.description
    assert task.citation
    assert task.license
    assert set(task.task.metrics) <= METRICS[task.task.kind]
    assert task.files.keys() & {"dev", "test"}
    assert not [split for split in task.files if EACH in split]
    for split in task.files.values():
        for one in (split, *split.fallbacks):
            assert not [path for path in one.paths if EACH in path or Path(path).is_absolute()]


def test_every_kind_has_a_file_and_unavailable_is_not_a_task() -> None:
    assert {load_task(name).task.kind for name in TASKS} == set(map(kind_of, get_args(Kinds))) == METRICS.keys()
    assert "unavailable" not in TASKS
    glue = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"}
    assert {task.name for task in tasks_of("glue")} == glue


BESIDE = {"test_sample", "test_labelled", "test_2017", "test_mismatched"}
"""Additional test splits of tasks whose score is that of `test` or `dev`."""


def silent(tasks: Sequence[TaskFile]) -> set[str]:
    """Tasks that need `score_splits` and lack it: their score is that of neither `test` nor `dev`, or of another data
    set than `train`. They would otherwise be scored on text that is only for training."""

    def sets(split: SplitRecords) -> set[str]:
        """The directories of the data sets, e.g. glue/MNLI or xquad."""
        every = [path for one in (split, *split.fallbacks) for path in one.paths]
        paths = [path.removeprefix("../").split("/") for path in every]
        return {"/".join(path[: 2 if path[0] in ("glue", "ner") else 1]) for path in paths if len(path) > 1}

    found = set()
    for task in tasks:
        tests = {name for name in task.files if name.startswith("test")}
        learned = task.files.get("train")
        foreign = learned and "test" in tests and not sets(learned) & sets(task.files["test"])
        if not task.score_splits and (tests - BESIDE - {"test"} or foreign):
            found.add(task.name)
    return found


def test_a_task_names_its_scored_splits_if_they_are_not_its_own_test_or_dev() -> None:
    assert silent(tasks_of()) == set()
    without = [dataclasses.replace(task, score_splits=()) for task in tasks_of()]
    assert silent(without) == {"xquad", "xnli", "xnli_halves", "mlqa", "hans", "ax", "ax_text", "wikigold"}


def read_twice(task: TaskFile) -> list[tuple[str, str]]:
    """Pairs of splits that read the same file, and whose rows are not shown to be different."""
    places = {
        name: {(path, one.archive_member): one for one in (split, *split.fallbacks) for path in one.patterns}
        for name, split in task.files.items()
    }

    def is_apart(one: SplitRecords, other: SplitRecords) -> bool:
        in_tenths = (
            bool(one.folds and other.folds) and not set(one.folds) & set(other.folds) and one.fold_by == other.fold_by
        )
        by_values = any(
            not {*one.include[name]} & {*other.include.get(name, one.include[name])} for name in one.include
        )
        return in_tenths or by_values or (isinstance(one.format, WholeFileFormat) and one.format != other.format)

    return [
        (first, second)
        for first, second in combinations(task.files, 2)
        if any(not is_apart(places[first][at], places[second][at]) for at in places[first].keys() & places[second])
    ]


def test_no_scored_row_is_used_for_training_or_selection() -> None:
    assert {task.name: read_twice(task) for task in tasks_of() if read_twice(task)} == {
        "mlqa": [("dev", "dev_en")],  # the selection split is one of the dev sets of all languages
        "xnli": [("dev", "dev_en")],
    }
    halves = load_task("mnli_halves")
    both = {"train": halves.files["train"], "test": dataclasses.replace(halves.files["test"], folds=(3, 9))}
    assert read_twice(dataclasses.replace(halves, files=both)) == [("train", "test")]


def test_xquad_selects_hyperparameters_on_articles_without_test_questions(tmp_path: Path) -> None:
    """All of its 1,190 questions come from SQuAD's dev set."""
    task = load_task("xquad")
    paths = [path for split in ("train", "dev") for path in task.files[split].paths]
    assert not [path for path in paths if "dev" in path]
    question = {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    paragraphs = [{"context": "Ada.", "qas": [question]}]
    articles = [{"title": f"T{number}", "paragraphs": paragraphs} for number in range(100)]
    (tmp_path / "train-v1.1.json").write_text(json.dumps({"data": articles}))
    train, dev = ({row["title"] for row in task.files[one].records(tmp_path).rows} for one in ("train", "dev"))
    assert len(train) + len(dev) == len(train | dev) == 100
    assert 5 <= len(dev) <= 15


def quoted() -> Iterator[tuple[str, str]]:
    """Pairs of a recipe and a reported result, e.g. ("bert_base", "glue.mnli_m")."""
    for recipe in list_names("recipes"):
        for name, figure in load(recipe).reported_results.items():
            if name in ("parameters", "printed", "citation", "setting", "split", "also"):
                continue
            yield from ((recipe, f"{name}.{part}") for part in figure) if isinstance(figure, dict) else [(recipe, name)]


def unaccounted(figures: set[str]) -> dict[str, str]:
    """Reported results with neither a task file nor a reason for its absence, or with both."""
    tasks, reasons = tasks_of(), find_unavailable()
    measured = {figure for task in tasks for figure in task.reported_keys}
    measured |= {f"{task.group}.average" for task in tasks if task.group}
    found = {}
    for figure in sorted(figures):
        reason = reasons.get(figure) or reasons.get(figure.partition(".")[0], "")
        if (figure in measured) == bool(reason):
            found[figure] = "a file, and a reason why there is none" if reason else "no file and no reason"
    return found


def test_every_reported_result_has_a_task_file_or_a_reason_for_its_absence() -> None:
    assert unaccounted({figure for _, figure in quoted()}) == {}


def test_albert_is_evaluated_on_the_five_tasks_of_its_average() -> None:
    averages = {recipe for recipe, figure in quoted() if figure == "average"}
    versions = {f"albert_{size}_v2" for size in ("base", "large", "xlarge", "xxlarge")}
    assert averages == {"albert_base", "albert_large", "albert_xlarge"} | versions
    for recipe in averages:
        assert {"squad1", "squad2", "mnli", "sst2", "race"} <= set(load(recipe).eval_tasks)


def test_a_reported_result_without_a_task_is_detected() -> None:
    """This shows that the test above can fail."""
    assert unaccounted({"glue.mnli_m", "winograd.accuracy", "wmt", "lambada.accuracy"}) == {
        "winograd.accuracy": "no file and no reason",
        "wmt": "no file and no reason",
    }


def test_a_recipe_is_evaluated_on_the_tasks_of_its_reported_results() -> None:
    measured_by = dict[str, set[str]]()
    for task in tasks_of():
        for figure in task.reported_keys:
            measured_by.setdefault(figure, set()).update((task.name, task.group))
    for recipe, figure in quoted():
        if tasks := measured_by.get(figure):
            assert tasks & set(load(recipe).eval_tasks), (recipe, figure)


def test_every_reason_and_every_result_of_a_task_is_reported_by_a_recipe() -> None:
    """Reasons explain why a reported result has no task."""
    figures = {figure for _, figure in quoted()}
    known = figures | {figure.partition(".")[0] for figure in figures}
    assert not {name for name in find_unavailable() if name not in known}
    assert not {figure for task in tasks_of() for figure in task.reported_keys} - figures
    assert all(reason.strip() for reason in find_unavailable().values())


# Grids: scores.md 2


def grid(task: str, paper: str) -> dict[str, Any]:
    """The keys of a task's grid, with their values."""
    return dataclasses.asdict(load_task(task).grids[paper])


@pytest.mark.parametrize(
    ("task", "rate", "batch", "steps", "warmup"),
    [
        ("mnli", 1e-5, 32, 123_873, 7_432),
        ("qnli", 1e-5, 32, 33_112, 1_986),
        ("qqp", 1e-5, 32, 113_272, 28_318),
        ("rte", 2e-5, 16, 2_036, 122),
        ("sst2", 1e-5, 32, 20_935, 1_256),
        ("mrpc", 1e-5, 16, 2_296, 137),
        ("cola", 1e-5, 16, 5_336, 320),
        ("stsb", 2e-5, 16, 3_598, 214),
    ],
)
def test_the_grids_of_roberta_have_the_settings_of_its_commands(
    task: str, rate: float, batch: int, steps: int, warmup: int
) -> None:
    found = grid(task, "roberta_code")
    assert (found["learning_rates"], found["batch_sizes"], found["max_steps"]) == ((rate,), (batch,), steps)
    assert found["warmup_steps"] == warmup
    assert not found["unverified"]
    (cell,) = load_task(task).grids["roberta_code"].cells()
    assert (cell.learning_rate, cell.num_steps(10), round(cell.warmup_ratio * steps)) == (rate, steps, warmup)


@pytest.mark.parametrize(
    ("task", "rate", "batch", "dropout", "steps", "warmup"),
    [
        ("cola", 1e-5, 16, 0, 5_336, 320),
        ("stsb", 2e-5, 16, 0, 3_598, 214),
        ("sst2", 1e-5, 32, 0, 20_935, 1_256),
        ("mnli", 3e-5, 128, 0, 10_000, 1_000),
        ("qnli", 1e-5, 32, 0, 33_112, 1_986),
        ("qqp", 5e-5, 128, 0.1, 14_000, 1_000),
        ("rte", 3e-5, 32, 0.1, 800, 200),
        ("mrpc", 2e-5, 32, 0, 800, 200),
        ("wnli", 2e-5, 16, 0.1, 2_000, 250),
        ("squad1", 5e-5, 48, 0, 3_649, 365),
        ("squad2", 3e-5, 48, 0, 8_144, 814),
        ("race", 2e-5, 32, 0.1, 12_000, 1_000),
    ],
)
def test_the_grids_of_albert_have_the_values_of_its_table_14(
    task: str, rate: float, batch: int, dropout: float, steps: int, warmup: int
) -> None:
    found = grid(task, "albert")
    assert (found["learning_rates"], found["batch_sizes"], found["dropout"]) == ((rate,), (batch,), dropout)
    assert (found["max_steps"], found["warmup_steps"], found["max_seq_length"]) == (steps, warmup, 512)
    assert found["unverified"]


def test_grids_combine_learning_rates_batch_sizes_and_epochs() -> None:
    cells = load_task("cola").grids["miniatures"].cells()
    assert len({(cell.learning_rate, cell.batch_size) for cell in cells}) == len(cells) == 20
    assert {cell.epochs for cell in cells} == {4}
    roberta = load_task("cola").grids["roberta"].cells()
    assert len(roberta) == 3 * 2 * 5
    assert {(cell.warmup_ratio, cell.weight_decay, cell.beta2, cell.max_grad_norm) for cell in roberta} == {
        (0.06, 0.1, 0.98, 0)
    }
    assert {task for task in TASKS if any(one.init_task == "mnli" for one in load_task(task).grids.values())} == {
        "rte",
        "stsb",
        "mrpc",
    }
    sizes = [grid("rte", f"electra_{size}") for size in ("small", "base", "large")]
    assert [(one["learning_rates"], one["layerwise_lr_decay"], one["epochs"]) for one in sizes] == [
        ((3e-4,), 0.8, (10,)),
        ((1e-4,), 0.8, (10,)),
        ((5e-5,), 0.9, (10,)),
    ]
    assert grid("mnli", "electra_base")["epochs"] == (3,)
    assert grid("squad1", "electra_base")["epochs"] == (2,)
    rates = {name: grid(name, "bart") for name in TASKS if "bart" in load_task(name).grids}
    assert {name: (*one["learning_rates"], *one["batch_sizes"]) for name, one in rates.items()} == {
        "mnli": (5e-6, 128),
        "sst2": (5e-6, 128),
        "qnli": (1e-5, 32),
        "qqp": (1e-5, 32),
        "rte": (1e-5, 32),
        "mrpc": (2e-5, 64),
        "cola": (2e-5, 64),
        "stsb": (2e-5, 32),
        "cnndm": (3e-5, 64),
        "xsum": (3e-5, 32),
    }
    for name, steps in (("cnndm", 20_000), ("xsum", 15_000)):
        found = rates[name]
        assert (found["max_steps"], found["warmup_steps"], found["max_grad_norm"], found["weight_decay"]) == (
            steps,
            500,
            0.1,
            0.01,
        )
        writing = load_task(name).task.generation  # type: ignore[union-attr]
        assert writing.label_smoothing == 0.1


# A user's own file


OWN = """
name: mine
description: is it good
citation: me
files:
  dev: {paths: [mine.tsv], format: {kind: tsv}}
task: {kind: classification, text: a, label: b, labels: ["0", "1"]}
"""


def written(folder: Path, old: str = "", new: str = "") -> str:
    (folder / "mine.tsv").write_text("a\tb\nfine\t1\nbad\t0\n")
    (folder / "mine.yaml").write_text(OWN.replace(old, new))
    return str(folder / "mine.yaml")


def test_files_of_a_user_task_are_in_the_data_directory_or_beside_the_task_file(tmp_path: Path) -> None:
    task = load_task(written(tmp_path))
    elsewhere = tmp_path / "data"
    elsewhere.mkdir()
    assert len(task.items("dev", elsewhere)[0]) == 2
    (elsewhere / "mine.tsv").write_text("a\tb\nfine\t1\n")
    assert len(task.items("dev", elsewhere)[0]) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "description: is it good\n",
            "",
            "invalid description: got no value, expected text; add this key, see `sesame keys task.description`",
        ),
        (
            "name: mine",
            "name: mine\nlenght: 64",
            "invalid key: got lenght, expected a key of the file; did you mean max_seq_length?",
        ),
        (
            "kind: classification",
            "kind: clasify",
            "invalid task.kind: got 'clasify', expected one of classification, regression, token_classification, "
            "multiple_choice, ranking, extractive_qa, loglikelihood_choice",
        ),
        ("kind: tsv", "kind: tvs", "invalid files.dev.format.kind: got 'tvs', expected one of tsv, csv, jsonl"),
        (
            "paths: [",
            "pahts: [",
            "invalid key: got files.dev.pahts, expected a key of files.dev; did you mean files.dev.paths?",
        ),
        ("task: {", "score_splits: [test]\ntask: {", "invalid score_splits: got 'test', expected dev"),
        (
            "  dev:",
            "  valid:",
            "invalid files: got 'valid', expected train, dev, test, or one of them with _ and a suffix",
        ),
        ('labels: ["0", "1"]', 'labels: ["0"]', "invalid task.labels: got ['0'], expected two or more, each once"),
        (
            '"1"]',
            '"1"], metrics: [f2]',
            "invalid task.metrics: got 'f2', expected accuracy or f1 or macro_f1 or matthews",
        ),
        ("  dev:", "  dev_{variant}:", "invalid variants: got [], expected the words that {variant} stands for"),
    ],
)
def test_a_wrong_key_is_a_one_line_error_with_its_path(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_task(written(tmp_path, old, new))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path / 'mine.yaml'}: ")
    assert message in line


@pytest.mark.parametrize(
    ("split", "content", "message"),
    [
        ("test", "a\tb\nfine\t1\n", "task mine: invalid split: got test, expected one of dev"),
        ("dev", "a\tb\nfine\t2\n", "task mine, dev: mine.tsv:2: invalid b: got '2', expected 0 or 1"),
        ("dev", "a\tc\nfine\t1\n", "task mine, dev: mine.tsv:2: missing column b; the columns are a, c"),
        (
            "dev",  # as written by R, with a name for each row
            "a\tb\n1\tfine\t1\n2\tbad\t0\n",
            "task mine, dev: all rows are malformed; correct the file: "
            "mine.tsv:2: got 3 columns, expected 2 as in the first line",
        ),
    ],
)
def test_an_invalid_split_is_a_one_line_error(split: str, content: str, message: str, tmp_path: Path) -> None:
    task = load_task(written(tmp_path))
    (tmp_path / "mine.tsv").write_text(content)
    with pytest.raises(BadInput) as caught:
        task.items(split, tmp_path)
    assert str(caught.value) == message


def test_malformed_rows_are_counted_and_named(tmp_path: Path) -> None:
    task = load_task(written(tmp_path))
    (tmp_path / "mine.tsv").write_text("a\tb\nfine\t1\nshort\nbad\t0\n")
    found = split_availability(task, tmp_path)["dev"]
    assert (found.rows, found.labelled, found.wrong) == (2, 2, "")
    assert found.malformed == ("mine.tsv:3: got 1 columns, expected 2 as in the first line",)


# Rows of the original distributions of data sets


def one_split(task: str, split: str, data: Path, name: str, content: str) -> list[Any]:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return [(item.texts, item.gold) for item in load_task(task).items(split, data)[0]]


def test_columns_of_original_distributions_are_read(tmp_path: Path) -> None:
    """The test writes data sets that are missing in shared/ in the format of their original files."""
    mnli = "\t".join(["index", *"abcdefg", "s1", "s2", *[f"label{n}" for n in range(1, 6)], "gold_label"])
    row = "\t".join(["0", *"abcdefg", "He left.", "He stayed.", *["neutral"] * 5, "contradiction"])
    assert one_split("mnli", "dev_mismatched", tmp_path, "MNLI/dev_mismatched.tsv", f"{mnli}\n{row}\n") == [
        (("He left.", "He stayed."), 0)
    ]
    qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tHow?\tWhy?\t0\n133\t5\t\n"
    assert one_split("qqp", "train", tmp_path, "QQP/train.tsv", qqp) == [(("How?", "Why?"), 0)]
    assert len(load_task("qqp").items("train", tmp_path)[1].malformed) == 1
    qqp = "id\tquestion1\tquestion2\n0\tHow?\tWhy?\n"
    assert one_split("qqp", "test", tmp_path, "QQP/test.tsv", qqp) == [(("How?", "Why?"), None)]
    hans = "gold_label\tsentence1\tsentence2\theuristic\nnon-entailment\ta\tb\tsubsequence\n"
    hans += "entailment\te\tf\tconstituent\nentailment\tc\td\tsubsequence\n"
    found = one_split("hans", "test_subsequence", tmp_path, "hans/heuristics_evaluation_set.txt", hans)
    assert [texts for texts, _ in found] == [("a", "b"), ("c", "d")]
    labels = load_task("hans").task
    assert isinstance(labels, Classification)
    assert [labels.merge_labels.get(labels.labels[gold], labels.labels[gold]) for _, gold in found] == [
        "non-entailment",
        "entailment",
    ]
    snli = [{"sentence1": "a", "sentence2": "b", "gold_label": label} for label in ("-", "neutral")]
    lines = "".join(json.dumps(row) + "\n" for row in snli)
    assert one_split("snli", "train", tmp_path, "snli_1.0/snli_1.0_train.jsonl", lines) == [(("a", "b"), 2)]
    assert load_task("snli").items("train", tmp_path)[1].left_out == 1
    xnli = "language\tgold_label\tsentence1\tsentence2\nfr\tneutral\ta\tb\nde\tentailment\tc\td\n"
    assert one_split("xnli", "test_de", tmp_path, "XNLI-1.0/xnli.test.tsv", xnli) == [(("c", "d"), 1)]
    sick = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set\n"
    sick += "1\ta\tb\tENTAILMENT\t4.7\tTRAIN\n2\tc\td\tNEUTRAL\t1\tTEST\n"
    assert one_split("sick_e", "test", tmp_path, "SICK/SICK.txt", sick) == [(("c", "d"), 2)]
    assert one_split("sick_r", "train", tmp_path, "SICK/SICK.txt", sick) == [(("a", "b"), 4.7)]


def test_columns_of_original_multiple_choice_files_are_read(tmp_path: Path) -> None:
    story = "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,"
    story += "RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding\n"
    story += 'x,"Ann, 5.",Two.,Three.,Four.,Good end.,Bad end.,2\n'
    name = "story_cloze/cloze_test_test__spring2016 - cloze_test_ALL_test.csv"
    assert one_split("story_cloze", "test", tmp_path, name, story) == [
        (("Ann, 5. Two. Three. Four.", "", ("Good end.", "Bad end.")), 1)
    ]
    copa = {"premise": "It fell.", "choice1": "A", "choice2": "B", "question": "cause", "label": 1}
    found = one_split("copa_tuned", "train", tmp_path, "COPA/train.jsonl", json.dumps(copa))
    assert found == [(("It fell.", "What was the cause?", ("A", "B")), 1)]
    arc = {
        "question": {"stem": "Why?", "choices": [{"text": t, "label": n} for t, n in zip("xyz", "123", strict=True)]}
    }
    arc["answerKey"] = "3"  # type: ignore[assignment]
    name = "ARC-V1-Feb2018-2/ARC-Easy/ARC-Easy-Train.jsonl"
    assert one_split("arc_easy_tuned", "train", tmp_path, name, json.dumps(arc)) == [(("Why?", "", ("x", "y", "z")), 2)]
    swag = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    swag += "0,v,1,A B,A,B,gold,w,x,y,z,3\n"
    assert one_split("swag", "dev", tmp_path, "swag/val.csv", swag) == [(("A", "B", ("w", "x", "y", "z")), 3)]
    race = {"article": "T", "questions": ["Q _ ?"], "answers": ["B"], "options": [["a", "b", "c", "d"]]}
    assert one_split("race", "train", tmp_path, "RACE/train/high/1.txt", json.dumps(race)) == [
        (("T", "Q _ ?", ("a", "b", "c", "d")), 1)
    ]


ROWS = {  # task.split: number of rows, and of rows with label 1 if known; scores.md 1.1 and 1.3, README of the data
    "cola.dev": (1_043, 721),
    "cola.train": (8_551, None),
    "sst2.train": (67_349, None),
    "sst2.dev": (872, 444),
    "sst2.test_labelled": (1_821, None),
    "rte.train": (2_490, None),
    "rte.dev": (277, None),
    "rte.test": (3_000, 0),
    "qnli.dev": (5_463, None),
    "qnli.test": (5_463, 0),
    "stsb.train": (5_749, None),
    "stsb.dev": (1_500, None),
    "stsb.test": (1_379, 0),
    "mnli.dev": (9_815, None),
    "snli.dev": (9_842, 3_329),
    "scitail.test": (2_126, 1_284),
    "xnli.dev_de": (2_490, 830),
    "xnli.test_zh": (5_010, 0),
    "sst5.train": (8_544, None),
    "sst5.dev": (1_101, 289),
    "sst5.test": (2_210, None),
    "squad1.dev": (10_570, None),
    "squad2.dev": (6_078, None),
    "xquad.test_en": (1_190, None),
    "cmrc.dev": (3_219, None),
    "wnut17.train": (3_394, None),
    "wnut17.dev": (1_009, None),
    "wnut17.test": (1_287, None),
    "wikigold.test": (1_696, None),
    "race.test": (4_934, None),
    "copa_tuned.dev": (100, None),
    "blimp.test": (67_000, 0),
    "lambada.test": (5_153, None),
    "winogrande.dev": (1_267, None),
    "wsc273.test": (273, None),
    "boolq.dev": (3_270, 2_033),
    "piqa.dev": (1_838, None),
    "siqa.dev": (1_954, None),
    "commonsense_qa.dev": (1_221, None),
    "openbookqa.test": (500, None),
    "copa.dev": (100, 45),
    "arc_easy.test": (2_376, None),
    "arc_challenge.test": (1_172, None),
    "pdp.test": (60, None),
    "winogender.test": (240, None),
    "gap.dev": (392, None),
    "wikitext2.test": (1, None),
    "cnndm_tldr.test_sample": (100, None),
    "xsum.test_sample": (10, None),
    "multi30k_en_de.train": (29_000, None),
    "multi30k_en_fr.dev": (1_014, None),
    "multi30k_en_fr_shots.test": (1_000, None),
    "sst2_text.dev": (872, 444),
    "mnli_text.dev": (9_815, None),
    "squad1_text.dev": (10_570, None),
}


@pytest.mark.one_in(3)
@pytest.mark.shared
@pytest.mark.parametrize("name", ROWS)
def test_the_shared_files_have_the_known_numbers_of_rows(name: str, shared: Path) -> None:
    task, split = load_task(name.partition(".")[0]), name.partition(".")[2]
    items, records = task.items(split, shared / "downstream")
    rows, second = ROWS[name]
    assert (len(items), records.malformed) == (rows, [])
    if second is not None:
        assert sum(item.gold == 1 for item in items) == second


@pytest.mark.shared
def test_the_shared_files_have_the_known_numbers_of_answers_and_entities(shared: Path) -> None:
    data = shared / "downstream"
    without = [not item.gold[1] for item in load_task("squad2").items("dev", data)[0]]
    assert (sum(without), len(without)) == (3_168, 6_078)
    for split, entities in (("train", 1_975), ("dev", 836), ("test", 1_079)):
        tags = [tag for item in load_task("wnut17").items(split, data)[0] for tag in item.gold]
        assert sum(tag.startswith("B-") for tag in tags) == entities
    gold = [item.gold for item in load_task("rte").items("dev", data)[0]]
    assert max(gold.count(0), gold.count(1)) / 277 == pytest.approx(0.527, abs=5e-4)
    race = [item.place for item in load_task("race").items("test", data)[0]]
    assert (sum("/middle/" in place for place in race), sum("/high/" in place for place in race)) == (1_436, 3_498)


@pytest.mark.slow
@pytest.mark.shared
def test_the_first_item_of_each_likelihood_task_has_the_expected_prompt(shared: Path) -> None:
    asked = {}
    for name in ("blimp", "boolq", "piqa", "arc_easy", "copa", "lambada", "wsc273", "pdp", "gap"):
        task = load_task(name)
        (item, *_), _ = task.items(next(iter(task.files)), shared / "downstream")
        assert isinstance(task.task, LoglikelihoodChoice)
        context, continuation = task.task.make_requests([item]).requests[item.gold]
        asked[name] = context[-24:], continuation[:16]
    assert asked == {
        "blimp": ("", " Who should Dere"),
        "boolq": ("e that produces?\nAnswer:", " no"),
        "piqa": ("s new occupants?\nAnswer:", " Provide the gui"),
        "arc_easy": ("f most food webs?\nAnswer:"[-24:], " Sunlight is the"),
        "copa": (" on the faucet, therefore"[-24:], " water flowed fr"),
        "lambada": ("grin, I don't care about", " signs"),
        "wsc273": ("because the city councilmen"[-24:], " feared violence"),
        "pdp": ("rd at the cook-shanty. Dad"[-24:], " subtracted that"),
        "gap": ("their third daughter. Kathleen"[-24:], " was educated at"),
    }


@pytest.mark.shared
def test_likelihood_tasks_have_the_known_majorities_and_wikitext_the_known_word_count(shared: Path) -> None:
    def majority(name: str) -> float:
        gold = [item.gold for item in load_task(name).items("dev", shared / "downstream")[0]]
        return max(map(gold.count, set(gold))) / len(gold)

    found = {name: majority(name) for name in ("boolq", "copa", "commonsense_qa")}
    assert found == pytest.approx({"boolq": 0.622, "copa": 0.55, "commonsense_qa": 0.403}, abs=5e-4)
    for data in (shared / "downstream", shared):
        ((item,), _) = load_task("wikitext2").items("test", data)
        assert PerplexityText(item.texts[0], line_ends=True).words == 245_569  # includes <eos>, as in papers


@pytest.mark.slow
@pytest.mark.shared
def test_blimp_has_the_twelve_phenomena_of_its_paper(shared: Path) -> None:
    found: dict[str, set[str]] = {}
    for item in load_task("blimp").items("test", shared / "downstream")[0]:
        found.setdefault(item.texts[0].area, set()).add(item.texts[0].subset)
    assert {name: len(subsets) for name, subsets in found.items()} == {
        "anaphor_agreement": 2,
        "argument_structure": 9,
        "binding": 7,
        "control_raising": 5,
        "determiner_noun_agreement": 8,
        "ellipsis": 2,
        "filler_gap_dependency": 7,
        "irregular_forms": 2,
        "island_effects": 8,
        "npi_licensing": 7,
        "quantifiers": 4,
        "subject_verb_agreement": 6,
    }


def test_prompt_examples_and_questions_of_one_file_are_different_rows() -> None:
    for name in ("boolq_few", "piqa_few", "arc_easy_few", "lambada_one", "lambada_few"):
        train, other = (
            next(one for one in (split, *split.fallbacks) if "zero_shot/" in one.paths[0])
            for split in load_task(name).files.values()
        )
        assert train.paths == other.paths
        assert set(train.folds) | set(other.folds) == set(range(10))
        assert not set(train.folds) & set(other.folds)


def test_columns_of_original_files_of_likelihood_tasks_are_read(tmp_path: Path) -> None:
    """The questions equal those of the files in shared/."""

    def asked(name: str, split: str, path: str, record: Any) -> tuple[Any, int]:
        content = record if isinstance(record, str) else json.dumps(record)
        ((options,), gold), *_ = one_split(name, split, tmp_path, path, content)
        return [*zip(options.contexts, options.continuations, strict=True)][gold], gold

    boolq = {"question": "is it", "passage": "It is.", "answer": True}
    question = "Passage: It is.\nQuestion: is it?\nAnswer:"
    assert asked("boolq", "dev", "boolq/dev.jsonl", boolq) == ((question, " yes"), 1)
    assert asked("boolq_few", "train", "boolq/train.jsonl", boolq | {"answer": False}) == ((question, " no"), 0)
    (tmp_path / "boolq/train.jsonl").unlink()
    superglue = {"question": "is it", "passage": "It is.", "idx": 0, "label": False}
    assert asked("boolq_few", "train", "superglue/BoolQ/train.jsonl", superglue) == ((question, " no"), 0)
    wino = {"sentence": "Ann saw Bea, so _ waved.", "option1": "Ann", "option2": "Bea", "answer": "2"}
    assert asked("winogrande", "dev", "winogrande_1.1/dev.jsonl", wino) == (("Ann saw Bea, so Bea", " waved."), 1)
    piqa = {"goal": "open it", "sol1": "pull", "sol2": "push", "label": 1}
    assert asked("piqa", "dev", "piqa/valid.jsonl", piqa) == (("Question: open it\nAnswer:", " push"), 1)
    choices = [{"text": text, "label": label} for text, label in zip("xyz", "ABC", strict=True)]
    arc = {"question": {"stem": "Why?", "choices": choices}, "answerKey": "C"}
    path = "ARC-V1-Feb2018-2/ARC-Easy/ARC-Easy-Test.jsonl"
    assert asked("arc_easy", "test", path, arc) == (("Question: Why?\nAnswer:", " z"), 2)
    assert asked("openbookqa", "test", "openbookqa/test.jsonl", arc) == (("Why?", " z"), 2)
    blimp = {"sentence_good": "a", "sentence_bad": "b", "UID": "x", "linguistics_term": "s-selection"}
    for name, pseudo in (("blimp", "within_word_l2r"), ("blimp_original", "original")):
        assert load_task(name).task.pll_variant == pseudo  # type: ignore[union-attr]
        assert asked(name, "test", "BLiMP/data/x.jsonl", blimp) == (("", " a"), 0)
        ((options,), _), *_ = one_split(name, "test", tmp_path, "BLiMP/data/x.jsonl", json.dumps(blimp))
        assert (options.subset, options.area) == ("x", "argument_structure")


def test_childrens_book_test_and_drcd_are_read(tmp_path: Path) -> None:
    blank = "1 It was May .\n2 The XXXXX sang .\tking\t\tcastle|king\n"
    for short, name in (("cn", "CN_test_2500ex"), ("ne", "NE_test_2500ex")):
        ((options,), gold), *_ = one_split(f"cbt_{short}", "test", tmp_path, f"CBTest/data/cbtest_{name}.txt", blank)
        assert options.contexts == ("It was May . The",) * 2
        assert (options.continuations, gold) == ((" castle sang .", " king sang ."), 1)
    answer = {"id": "1", "text": "大學", "answer_start": 1}
    paragraph = {"context": "在大學。", "qas": [{"id": "q", "question": "哪裡?", "answers": [answer]}]}
    drcd = json.dumps({"version": "1.3", "data": [{"title": "T", "id": "1", "paragraphs": [paragraph]}]})
    found = one_split("drcd", "dev", tmp_path, "DRCD/DRCD_dev.json", drcd)
    assert found == [(("哪裡?", "在大學。"), ("q", ["大學"], [1]))]


def test_enwik8_is_split_by_bytes_and_lm1b_by_lines(tmp_path: Path) -> None:
    enwik8 = load_task("enwik8")
    formats = [split.format for split in enwik8.files.values()]
    assert [(one.start, one.stop) for one in formats if isinstance(one, WholeFileFormat)] == [
        (90_000_000, 95_000_000),
        (95_000_000, 100_000_000),
    ]
    name = "lm1b/news.en.heldout-00000-of-00050"
    found = one_split("lm1b", "test", tmp_path, name, "A sentence .\nAnother one .\n")
    assert [texts for texts, _ in found] == [("A sentence .",), ("Another one .",)]
    assert PerplexityText("A sentence .", line_ends=True).words == 4


@pytest.mark.one_in(3)
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "shares"),
    [("mnli_halves", 0), ("snli_halves", 0), ("squad1_halves", 1), ("squad2_halves", 1), ("cmrc_halves", 1)],
)
def test_halves_contain_all_rows_and_share_no_text(name: str, shares: int, shared: Path) -> None:
    task = load_task(name)
    splits = {split: task.items(split, shared / "downstream")[0] for split in task.files}
    whole = load_task(name.removesuffix("_halves")).items("dev", shared / "downstream")[0]
    assert sum(map(len, splits.values())) == len(whole)
    texts = [{item.texts[shares] for item in items} for items in splits.values()]
    assert not any(texts[one] & texts[other] for one, other in ((0, 1), (0, 2), (1, 2)))
    assert 0.4 < len(splits["test"]) / len(whole) < 0.6
    assert min(map(len, splits.values())) >= 320


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "shares", "rows"), [("race_halves", 0, (4_887, 4_934)), ("scitail_halves", 1, (1_304, 2_126))]
)
def test_a_dev_set_is_halved_into_train_and_dev_without_texts_of_test(
    name: str, shares: int, rows: tuple[int, int], shared: Path
) -> None:
    task = load_task(name)
    train, dev, test = (task.items(split, shared / "downstream")[0] for split in ("train", "dev", "test"))
    assert (len(train) + len(dev), len(test)) == rows
    assert min(len(train), len(dev)) > 200
    texts = [{item.texts[shares] for item in items} for items in (train, dev, test)]
    assert not any(texts[one] & texts[other] for one, other in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.shared
def test_halves_of_xnli_have_the_same_premises_in_each_language(shared: Path) -> None:
    task, data = load_task("xnli_halves"), shared / "downstream"
    splits = {split: task.items(split, data)[0] for split in task.files}
    learned = {item.texts[0] for split in ("train", "dev") for item in splits[split]}
    assert not learned & {item.texts[0] for item in splits["test_en"]}
    assert len(splits["train"]) + len(splits["dev"]) + len(splits["test_en"]) == 2_490
    lines = [[(item.place.rpartition(":")[2], item.gold) for item in splits[f"test_{word}"]] for word in task.variants]
    assert all(each == lines[0] for each in lines)  # files of all languages have the same pairs on the same lines


@pytest.mark.shared
def test_halves_of_wikigold_contain_whole_articles(shared: Path) -> None:
    task, data = load_task("wikigold_halves"), shared / "downstream"
    articles = [{row["document"] for row in split.records(data).rows} for split in task.files.values()]
    assert sum(map(len, articles)) == len(set.union(*articles)) == 145
    assert sum(len(task.items(split, data)[0]) for split in task.files) == 1_696


@pytest.mark.shared
def test_rows_of_mrpc_are_read_after_a_byte_order_mark(shared: Path) -> None:
    items, _ = load_task("mrpc").items("dev", shared / "downstream/fixtures/hf/tests_samples")
    assert items[0].texts[0].startswith("He said the foodservice pie business doesn 't")
    assert [item.gold for item in items][:2] == [1, 0]


def test_the_package_of_tasks_exports_the_parts_of_a_task_file() -> None:
    """Other packages use these classes to build tasks."""
    splits = {"dev": SplitRecords(paths=("a.csv",), format=load_task("swag").files["dev"].format)}
    for kind in (
        Regression(text="a", label="b", min_value=0, max_value=1),
        TokenClassification(labels=("O", "B-X")),
        ExtractiveQA(),
    ):
        assert TaskFile(name="x", description="x", citation="x", files=splits, task=kind).metric in METRICS[kind.kind]
    assert MultipleChoice(context="a", choices=("b",), label="c", labels=("0", "1")).metrics == ("accuracy",)


# Text to text


@every_task
def test_every_labeled_task_has_a_text_to_text_form_by_name(name: str) -> None:
    task, asked = load_task(name), f"{name}_text"
    if asked in TASKS:
        found = load_task(asked)
        assert found.name == asked
    elif isinstance(task.task, Classification | Regression | MultipleChoice | ExtractiveQA):
        found = load_task(asked)
        assert found.task == as_text(task.task, task.name.removesuffix("_tuned"))
        assert found.files == task.files
        assert not found.reported_keys
        assert "the T5 paper lacks this task" in found.note
    elif (known := f"{task.name}_tuned") in TASKS:
        assert load_task(asked).task.task == load_task(known).task  # type: ignore[union-attr]
        return
    else:
        with pytest.raises(
            BadInput,
            match=rf"^task {asked}: a task of kind {task.task.kind} (has no text-to-text form|already generates text)",
        ):
            load_task(asked)
        return
    assert found.grids["t5"] == T5


def test_a_recipe_and_a_command_may_name_the_text_to_text_form() -> None:
    glue = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"}
    found = {task.name for task in tasks_of("race_text,glue_text,piqa_text")}
    assert found == {"race_text", "piqa_text", *(f"{name}_text" for name in glue)}
    assert load("t5_small", ["eval_tasks=[source_classification, race_text]"]).eval_tasks == (
        "source_classification",
        "race_text",
    )
    with pytest.raises(BadInput, match=r"eval_tasks\.1"):
        load("t5_small", ["eval_tasks=[source_classification, nonsense_text]"])


def test_t5_is_evaluated_on_its_generated_answers() -> None:
    recipes = [name for name in list_names("recipes") if name.startswith("t5_")]
    assert len(recipes) == 13
    asked = [set(load(recipe).eval_tasks) - set(HELD_OUT) for recipe in recipes]
    assert all(asked)
    tasks = tasks_of(",".join(set.union(*asked)))
    assert {task.task.way for task in tasks} == {"written"}
    assert all(task.grids["t5"] == T5 for task in tasks)


@pytest.mark.parametrize(
    ("task", "record", "source", "target"),
    [  # preprocessors.py of t5 0.9.4
        ("ax", {"8": "P", "9": "H", "-1": "neutral"}, "mnli hypothesis: H premise: P", "neutral"),
        ("wnli", {"1": "A", "2": "B", "3": "1"}, "wnli sentence1: A sentence2: B", "entailment"),
        ("boolq", {"passage": "P", "question": "q", "label": True}, "boolq passage: P question: q", "True"),
        ("cb", {"premise": "P", "hypothesis": "H", "label": "neutral"}, "cb hypothesis: H premise: P", "neutral"),
        (
            "copa",
            {"premise": "P", "choice1": "A", "choice2": "B", "question": "effect", "label": "choice2"},
            "copa choice1: A choice2: B premise: P question: effect",
            "choice2",
        ),
        (
            "wic",
            {"sentence1": "A", "sentence2": "B", "word": "w", "label": "True"},
            "wic sentence1: A sentence2: B word: w",
            "True",
        ),
    ],
)
def test_text_to_text_tasks_use_the_words_of_t5(task: str, record: dict[str, Any], source: str, target: str) -> None:
    kind = load_task(f"{task}_text").task
    assert isinstance(kind, TextToText | Generation)
    (item,) = kind.items(Records(rows=[record], places=["x:1"]), {})
    assert kind.question(item).text == source
    assert kind.target(item) == target


def test_the_tasks_with_a_new_and_a_pretrained_decoder_are_otherwise_equal() -> None:
    """The two tasks read the same files, and differ only in the decoder."""
    fresh, own = (load_task(f"multi30k_{name}") for name in ("decoder", "en_de"))
    assert isinstance(fresh.task, Generation)
    assert fresh.task.generation.decoder == "random"
    assert (
        dataclasses.replace(fresh.task, generation=dataclasses.replace(fresh.task.generation, decoder="pretrained"))
        == own.task
    )
    assert fresh.files == own.files


@pytest.mark.parametrize(
    ("task", "folder", "rows", "targets"),
    [
        ("boolq", "BoolQ", [{"passage": "p", "question": "q", "label": one} for one in (True, False)], "True False"),
        (
            "copa",
            "COPA",
            [{"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "label": one} for one in (0, 1)],
            "choice1 choice2",
        ),
        ("wic", "WiC", [{"sentence1": "a", "sentence2": "b", "word": "w", "label": True, "start1": 0}], "True"),
    ],
)
def test_labels_of_superglue_that_are_not_text_become_words(
    task: str, folder: str, rows: list[dict[str, Any]], targets: str, tmp_path: Path
) -> None:
    (tmp_path / "superglue" / folder).mkdir(parents=True)
    (tmp_path / "superglue" / folder / "val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = load_task(f"{task}_text")
    kind = found.task
    assert isinstance(kind, TextToText | Generation)
    assert " ".join(kind.target(item) for item in found.items("dev", tmp_path)[0]) == targets


def test_tasks_of_ernie_read_its_files_and_the_original_ones(tmp_path: Path) -> None:
    """The rows are made up. ERNIE's files have a header, and \\x02 between the characters of a sentence."""
    for folder, name, text in (
        (
            "ernie/lcqmc",
            "dev.tsv",
            "text_a\ttext_b\tlabel\n喜欢打篮球的男生\t爱打篮球的男生\t1\n晚上睡觉\t早上起床\t0\n",
        ),
        ("plain/LCQMC", "dev.txt", "喜欢打篮球的男生\t爱打篮球的男生\t1\n晚上睡觉\t早上起床\t0\n"),
        ("ernie/chnsenticorp", "test.tsv", 'label\ttext_a\n1\t房间很"大" 。\n0\t服务差\n'),
        ("other/chnsenticorp", "test.tsv", 'qid\tlabel\ttext_a\n0\t1\t房间很"大" 。\n1\t0\t服务差\n'),
        (
            "ernie/msra_ner",
            "train.tsv",
            "text_a\tlabel\n李\x02明\x02在\x02北\x02京\tB-PER\x02I-PER\x02O\x02B-LOC\x02I-LOC\n好\tO\n",
        ),
        (
            "plain/MSRA-NER",
            "msra_train_bio.txt",
            "李\tB-PER\n明\tI-PER\n在\tO\n北\tB-LOC\n京\tI-LOC\n\n好\tO\n",
        ),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text, encoding="utf-8")

    def read_items(name: str, split: str, folder: str) -> list[tuple[Any, ...]]:
        items, records = load_task(name).items(split, tmp_path / folder)
        assert not records.malformed
        return [(item.texts, item.gold) for item in items]

    pairs = [(("喜欢打篮球的男生", "爱打篮球的男生"), 1), (("晚上睡觉", "早上起床"), 0)]
    assert read_items("lcqmc", "dev", "ernie") == read_items("lcqmc", "dev", "plain") == pairs
    reviews = [(('房间很"大" 。',), 1), (("服务差",), 0)]
    assert read_items("chnsenticorp", "test", "ernie") == read_items("chnsenticorp", "test", "other") == reviews
    entities = [
        ((("李", "明", "在", "北", "京"),), ["B-PER", "I-PER", "O", "B-LOC", "I-LOC"]),
        ((("好",),), ["O"]),
    ]
    assert read_items("msra_ner", "train", "ernie") == read_items("msra_ner", "train", "plain") == entities


def test_wrong_files_of_tasks_of_ernie_are_named(tmp_path: Path) -> None:
    file = tmp_path / "msra_ner" / "train.tsv"
    file.parent.mkdir()
    for text, message in (
        ("text_a\tlabel\n李\x02明\tB-PER\n", "invalid label: got 1 tags, expected 2, one per word"),
        ("text_a\tlabel\n李\x02明\tB-PER\x02I-TITLE\n", "invalid tag: got 'I-TITLE', expected O or B-PER or "),
        ("李\x02明\tB-PER\x02I-PER\n好\tO\n", "missing column text_a; the columns are "),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=re.escape(message)):
            load_task("msra_ner").items("train", tmp_path)


def test_results_of_ernie_are_printed_beside_scores() -> None:
    expected = load("ernie_1").reported_results
    figures = [paper_figures(load_task(name), expected) for name in ("lcqmc", "msra_ner", "chnsenticorp")]
    assert figures == [
        {"lcqmc.accuracy (test)": 87.4},
        {"msra_ner.f1 (test)": 93.8},
        {"chnsenticorp.accuracy (test)": 95.4},
    ]
