"""The names that transformers and Megatron-LM have for our keys are answered with ours."""

import dataclasses
import re
import typing
from typing import Any

import pytest

from orchestration.config import Cluster, Recipe, list_names, load, load_cluster
from orchestration.config.glossary import ABSENT, KEYS, KINDS, NOTES
from orchestration.config.keys import parts
from orchestration.config.part_checks import UNIONS
from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from training.specs import EngineSettings

FOREIGN = sorted(KEYS)
AT_THE_TOP = {field.name for part in (Recipe, Cluster, EngineSettings) for field in dataclasses.fields(part)}


def keys_of(value: Any, prefix: str = "") -> set[str]:
    """Every dotted key below a part, those of lists without their number."""
    found: set[str] = set()
    if isinstance(value, tuple):
        return set().union(*(keys_of(one, prefix) for one in value))
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        found |= {f"{prefix}{field.name}"} | keys_of(getattr(value, field.name), f"{prefix}{field.name}.")
    return found


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Every key of every recipe, of a cluster and of a corpus."""
    recipes = set().union(*(keys_of(load(name)) for name in list_names("recipes")))
    recipes |= keys_of(load("gpt3_125m", ["model.attention_window={kind: alternating, size: 256}"]))
    corpora = {f"{part.path}.{key.name}" for part in parts() if part.path.startswith("corpus") for key in part.keys}
    return recipes | corpora | keys_of(load_cluster("local"), "cluster.")


def test_there_are_names_for_more_than_forty_keys() -> None:
    assert len(FOREIGN) > 90
    assert len(set(KEYS.values())) > 40


@pytest.mark.parametrize("key", sorted({*KEYS.values(), *NOTES}))
def test_each_key_of_the_glossary_is_a_key_of_a_recipe_or_a_cluster(key: str, known: set[str]) -> None:
    assert key.replace("phases.0.", "phases.") in known


def test_no_foreign_name_is_the_name_of_our_key_for_it() -> None:
    assert not [name for name, key in KEYS.items() if name == key.rpartition(".")[2]]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("optimizer.lr=1e-4", "optimizer.lr is not a key; here it is optimizer.learning_rate"),
        ("model.n_embd=768", "model.n_embd is not a key; here it is model.hidden_size"),
        (
            "optimizer.min_lr=0",
            "optimizer.min_lr is not a key; here it is optimizer.min_lr_ratio, as a fraction of the peak",
        ),
        ("phases.1.max_seq_length=3", "phases.1.max_seq_length is not a key; here it is phases.1.seq_length"),
        ("mlm_probability=0.3", "mlm_probability is not a key; here it is masking.rate"),
        (
            "model.max_positions=7",
            "model.max_positions is not a key; here it is model.position_embedding.max_position_embeddings",
        ),
        ("tp_size=3", "tp_size is not a key; here it is cluster.engine.tensor_parallel_size"),
        (
            "optimizer.weight_decya=0",
            "optimizer.weight_decya is not a key of optimizer; did you mean optimizer.weight_decay?",
        ),
        (
            "optimizer.warmup_ratio=0.1",
            "optimizer.warmup_ratio is not a key; the warmup is a number of steps here: optimizer.warmup_steps",
        ),
        ("masking={kind: wwm}", "masking.kind is 'wwm', allowed are .*; here it is whole_word"),
        (
            "losses=[{kind: MLM}]",
            "losses.0.kind is 'MLM', allowed are .*; here it is masked_tokens",
        ),
        (
            "optimizer={kind: adam, learning_rate: 1}",
            "optimizer.kind is 'adam', allowed are adamw, lamb, adafactor, lion, muon; here it is adamw",
        ),
    ],
)
def test_the_loader_answers_a_foreign_name(given: str, answer: str) -> None:
    with pytest.raises(BadInput, match=f"^override {re.escape(given)}: {answer.replace('?', '[?]')}$"):
        load("bert_base", [given])


def test_a_cluster_file_answers_too() -> None:
    with pytest.raises(BadInput, match=r"engine\.bf16 is not a key; here it is engine\.precision"):
        load_cluster("local", ["cluster.engine.bf16=true"])


@pytest.mark.parametrize("name", [name for name in FOREIGN if name not in AT_THE_TOP])
def test_every_foreign_name_is_answered_at_the_top_of_a_recipe(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is not a key; here it is {KEYS[name]}"):
        load("bert_base", [f"{name}=1"])


def test_a_cluster_has_the_keys_that_the_glossary_names() -> None:
    ours = {key.removeprefix("cluster.") for key in KEYS.values() if key.startswith("cluster.")}
    assert ours <= keys_of(Cluster(name="x"))


def test_each_kind_of_the_glossary_is_a_kind_of_a_part() -> None:
    members = [member for union, _ in UNIONS for member in typing.get_args(union)]
    ours = {kind_of(member) for member in members} | {"learned", "sinusoidal", "relative", "buckets"}
    assert {kind for kinds in KINDS.values() for kind in kinds} <= ours
    for union, _ in UNIONS:  # a name of ours stands for itself
        kinds = {kind_of(member) for member in typing.get_args(union)}
        assert not [name for name, meant in KINDS.items() if name in kinds and kinds & set(meant)]


def test_a_name_without_a_key_has_no_key() -> None:
    assert not set(ABSENT) & set(KEYS)
