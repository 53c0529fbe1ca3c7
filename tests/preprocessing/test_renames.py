"""Each name of version 0.1 is refused with its full path in 0.2; stored weights can be read with old and new names."""

import dataclasses
import json
import typing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import main
from orchestration.config import Recipe, load, load_corpus, load_task
from orchestration.config.keys import parts
from pipeline.readers import recognise
from preprocessing import renames
from preprocessing.errors import BadInput
from preprocessing.spec import part
from tests.for_all import for_all
from training.evaluation.files import Formats
from training.evaluation.tasks import Grid, Kinds, SplitRecords, TaskFile
from training.evaluation.tasks.generation_settings import GenerationSettings
from training.losses import Loss
from training.specs import Architecture

KEYS = [row for row in renames.table() if row.what == "key"]
OF_RECIPES = {part.path.split(".")[0] for part in parts() if part.path}


def with_old_names(value: Any, place: str) -> Any:
    """Convert a part to the names of 0.1, with the rename table applied backwards."""
    if not isinstance(value, dict):
        return value
    kind = value.get("kind", "")
    old_kinds = {row.new: row.old.partition("=")[2] for row in renames.table() if row.what == "kind"}
    old_kind = old_kinds.get(f"{renames.new_path(place)}.kind={kind}", kind)
    found = {}
    for row in KEYS:
        key = row.new.rpartition(".")[2]
        if row.old.rpartition(".")[0] == place and row.kind in ("", old_kind) and key in value:
            old_values = {
                one.new.partition("=")[2]: one.old.partition("=")[2]
                for one in renames.table()
                if one.what == "value" and one.old.partition("=")[0] == row.old
            }
            inner = with_old_names(value[key], row.old)
            found[row.old.rpartition(".")[2]] = old_values.get(inner, inner) if isinstance(inner, str) else inner
    return {"kind": old_kind} | found if kind else found


def test_new_names_are_unique_within_a_part() -> None:
    places = Counter((row.kind, renames.new_path(row.old.rpartition(".")[0]), row.new) for row in KEYS)
    assert max(places.values()) == 1


def test_each_new_path_of_the_table_is_a_key() -> None:
    known = {f"{part.path}.{key.name}".strip(".") for part in parts() for key in part.keys}
    known |= {"reported_results.citation", "reported_results.setting"}  # free keys of reported_results
    known |= {part.path for part in parts()} | {name.partition(".")[2] for name in known if "." in name}
    of_recipes = [row.new for row in KEYS if not row.new.startswith("task.")]
    assert [name for name in of_recipes if name not in known] == []
    parts_of_tasks = [
        TaskFile,
        SplitRecords,
        Grid,
        GenerationSettings,
        *typing.get_args(Kinds),
        *typing.get_args(Formats),
    ]
    fields = {field.name for part in parts_of_tasks for field in dataclasses.fields(part)}
    assert {row.new.rpartition(".")[2] for row in KEYS if row.new.startswith("task.")} <= fields


def test_an_old_task_file_is_refused_with_one_line_per_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntitle: t\nsource: s\nlicence: mine\nfiles:\n  dev: {paths: [a], format: {kind: whole, begin: 3},"
        " or_else: [{paths: [b], format: {kind: csv}, member: x}]}\ntask: {kind: tag, labels: [O]}\n"
        "grids: {bert: {rates: [1e-5], batches: [8], epochs: [1], source: me, features: mix}}\n"
    )
    with pytest.raises(BadInput) as refused:
        load_task(str(tmp_path / "mine.yaml"))
    lines = {line.partition("mine.yaml: ")[2] for line in str(refused.value).splitlines()}
    assert lines >= {
        "title was renamed to description in 0.2",
        "files.dev.or_else.0.member was renamed to files.dev.fallbacks.0.archive_member in 0.2",
        "files.dev.format.kind=whole was renamed to files.dev.format.kind=whole_file in 0.2",
        "task.kind=tag was renamed to task.kind=token_classification in 0.2",
        "grids.bert.rates was renamed to grids.bert.learning_rates in 0.2",
        "grids.bert.features was renamed to grids.bert.frozen_features in 0.2",
    }
    assert all(line.endswith(" in 0.2") for line in lines), lines


@pytest.mark.parametrize("row", [row for row in renames.table() if row.what in ("option", "verb")], ids=str)
def test_an_old_option_or_verb_is_refused_with_its_new_name(
    row: renames.Rename, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [row.old] if row.what == "verb" else [row.kind or "run", "x", row.old, "1"]
    assert main(words) == 2
    old, new = (f"sesame {row.old}", f"sesame {row.new}") if row.what == "verb" else (row.old, row.new)
    assert capsys.readouterr().err == f"sesame: {old} was renamed to {new} in 0.2\n"


@for_all([row for row in KEYS if "." in row.old], name=lambda row: f"{row.kind}-{row.old}")
def test_an_old_key_is_refused_with_the_full_path_of_the_new_one(row: renames.Rename) -> None:
    """The old key is nested inside the innermost part with an unchanged path."""
    steps = row.old.split(".")
    paths = [".".join(steps[: end + 1]) for end in range(len(steps))]
    changed = (at for at, path in enumerate(paths) if renames.new_path(path, row.kind) != path)
    first = next(changed, len(paths) - 1)
    if row.old == row.new:
        return  # neither the key nor its parent was renamed
    value: Any = 1
    for number, step in enumerate(reversed(steps[first + 1 :])):
        value = {step: value} | ({"kind": row.kind} if row.kind and not number else {})
    place, given = ".".join(steps[:first]), paths[first].removeprefix("task.").replace("*", "dev")
    lines = renames.explain_key(place, steps[first], value, "" if first + 1 < len(steps) else row.kind, given)
    old, new = (path.removeprefix("task.").replace("*", "dev") for path in (row.old, row.new))
    assert f"{old} was renamed to {new} in 0.2" in lines


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("optim.peak=1e-3", "optim.peak was renamed to optimizer.learning_rate in 0.2"),
        ("optimizer.peak=1e-3", "optimizer.peak was renamed to optimizer.learning_rate in 0.2"),
        ("trunk.layers=2", "trunk.layers was renamed to model.num_hidden_layers in 0.2"),
        ("objective.choose.rate=0.3", "objective.choose.rate was renamed to masking.rate in 0.2"),
        ("objective.duplicates=3", "objective.duplicates was renamed to data.static_masks in 0.2"),
        ("data.vocab.size=3", "data.vocab.size was renamed to data.tokenizer.vocab_size in 0.2"),
        ("phases.0.length=64", "phases.0.length was renamed to phases.0.seq_length in 0.2"),
        ("evals=[cloze]", "evals was renamed to eval_tasks in 0.2"),
        ("masking.kind=tokens", "masking.kind=tokens was renamed to masking.kind=token in 0.2"),
        (
            "optimizer.lr_schedule=rsqrt",
            "optimizer.lr_schedule=rsqrt was renamed to optimizer.lr_schedule=constant_then_inverse_sqrt in 0.2",
        ),
    ],
)
def test_an_override_with_an_old_name_is_refused_with_the_new_one(override: str, answer: str) -> None:
    with pytest.raises(BadInput) as refused:
        load("bert_base", [override])
    assert str(refused.value) == f"override {override}: {answer}"


def test_an_old_recipe_is_refused_with_one_line_per_name(tmp_path: Any) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata:\n  corpus: demo\n  vocab: {kind: wordpiece, size: 800}\n"
        "  segment: {kind: pair, negative: swap}\n"
        "objective:\n  choose: {kind: tokens, rate: 0.2}\n  rewrite: {kind: cloze}\n  losses: [{kind: pair_label}]\n"
        "trunk: {kind: encoder, layers: 2, width: 8, heads: 2}\noptim: {kind: adamw, peak: 1e-3}\n"
        "phases: [{length: 16, batch: 2, steps: 3}]\n"
    )
    with pytest.raises(BadInput) as refused:
        load(str(tmp_path / "mine.yaml"))
    lines = [line.partition("mine.yaml: ")[2] for line in str(refused.value).splitlines()]
    assert "data.segment.negative=swap was renamed to data.packing.negatives=swapped in 0.2" in lines
    assert "objective.losses.0.kind=pair_label was renamed to losses.0.kind=sentence_pair in 0.2" in lines
    assert "phases.0.batch was renamed to phases.0.global_batch_size in 0.2" in lines
    assert all(line.endswith(" in 0.2") for line in lines), lines


def test_an_old_corpus_file_is_refused_with_one_line_per_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nsources:\n- {kind: books, path: a, endings: [.txt]}\n- {kind: jsonl, path: b, field: body}\n"
        "clean: {repair: false, rules: [c4]}\ndedup: {near: true}\nwords: jieba\nshard_mb: 4\n"
    )
    with pytest.raises(BadInput) as refused:
        load_corpus(str(tmp_path / "mine.yaml"))
    lines = {line.partition("mine.yaml: ")[2] for line in str(refused.value).splitlines()}
    assert lines == {
        "sources.0.kind=books was renamed to sources.0.kind=gutenberg in 0.2",
        "sources.1.field was renamed to sources.1.text_key in 0.2",
        "clean.repair was renamed to clean.fix_text in 0.2",
        "clean.rules was renamed to clean.filters in 0.2",
        "dedup.near was renamed to dedup.minhash in 0.2",
        "words was renamed to word_segmentation in 0.2",
        "shard_mb was renamed to max_shard_mb in 0.2",
    }


def test_an_old_text_kind_on_the_command_line_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^books:novels: books: was renamed to gutenberg: in 0\.2$"):
        recognise("books:novels")


@pytest.mark.parametrize(
    "name", ["bert_base", "gpt3_125m", "t5_base", "transformer_xl_base", "electra_small", "xlnet_base"]
)
def test_stored_configs_with_old_names_load_as_the_same_model(name: str) -> None:
    recipe: Recipe = load(name, scale="tiny")
    old = with_old_names(json.loads(json.dumps(dataclasses.asdict(recipe.model))), "trunk")
    assert "num_hidden_layers" not in old
    assert part(Architecture, renames.with_new_names(old, "trunk")) == recipe.model
    for loss in recipe.losses:
        old = with_old_names(dataclasses.asdict(loss), "objective.losses")
        assert part(Loss, renames.with_new_names(old, "objective.losses")) == loss


def test_old_loss_kinds_no_longer_exist() -> None:
    members = {member().kind for member in typing.get_args(Loss)}
    assert not members & {
        row.old.partition("=")[2] for row in renames.table() if row.old.startswith("objective.losses.kind")
    }
