"""If a file uses a key name of transformers or Megatron-LM, the error message gives Sesame's name."""

import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli.unknown import explain_command
from orchestration.config import Cluster, Recipe, glossary, list_names, load, load_cluster, load_corpus, load_task
from orchestration.config.glossary import ABSENT, KEYS, KINDS, NOTES, TASK_KEYS
from orchestration.config.keys import find_keys, find_parts, parts, translate
from orchestration.config.part_checks import UNIONS
from preprocessing.errors import BadInput
from preprocessing.spec import kind_of
from tests.for_all import for_all
from training.evaluation.files import FORMATS
from training.formats.keys import get_key
from training.specs import EngineSettings

FOREIGN = sorted(KEYS)
AT_THE_TOP = {field.name for part in (Recipe, Cluster, EngineSettings) for field in dataclasses.fields(part)}


def keys_of(value: Any, prefix: str = "") -> set[str]:
    """Every dotted key of a part; keys of list elements have no index."""
    found: set[str] = set()
    if isinstance(value, tuple):
        return set().union(*(keys_of(one, prefix) for one in value))
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        found |= {f"{prefix}{field.name}"} | keys_of(getattr(value, field.name), f"{prefix}{field.name}.")
    return found


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Every key of the recipes, of a cluster and of a corpus."""
    recipes = set().union(*(keys_of(load(name)) for name in list_names("recipes")))
    recipes |= keys_of(load("bert_base", ["model.position_embedding={kind: rotary}"]))
    recipes |= keys_of(load("gpt3_125m", ["model.attention_window={kind: alternating, size: 256}"]))
    corpora = {f"{part.path}.{key.name}" for part in parts() if part.path.startswith("corpus") for key in part.keys}
    return recipes | corpora | keys_of(load_cluster("local"), "cluster.")


def test_the_glossary_covers_more_than_forty_keys() -> None:
    assert len(FOREIGN) > 90
    assert len(set(KEYS.values())) > 40


@pytest.mark.parametrize("key", sorted({*KEYS.values(), *(key for key in NOTES if not key.startswith("grids."))}))
def test_each_key_of_the_glossary_exists(key: str, known: set[str]) -> None:
    assert key.replace("phases.0.", "phases.") in known


def test_no_foreign_name_equals_the_name_of_its_key() -> None:
    assert not [name for name, key in KEYS.items() if name == key.rpartition(".")[2]]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("optimizer.lr=1e-4", "invalid key: got optimizer.lr, expected optimizer.learning_rate; rename it"),
        ("model.n_embd=768", "invalid key: got model.n_embd, expected model.hidden_size; rename it"),
        (
            "optimizer.min_lr=0",
            "invalid key: got optimizer.min_lr, expected optimizer.min_lr_ratio (as a fraction of the peak); rename it",
        ),
        (
            "phases.1.max_seq_length=3",
            "invalid key: got phases.1.max_seq_length, expected phases.1.seq_length; rename it",
        ),
        ("mlm_probability=0.3", "invalid key: got mlm_probability, expected masking.rate; rename it"),
        (
            "model.max_positions=7",
            "invalid key: got model.max_positions, expected model.position_embedding.max_position_embeddings; "
            "rename it",
        ),
        (
            "tp_size=3",
            "invalid key: got tp_size, expected cluster.engine.tensor_parallel_size; write this full key after the "
            "recipe, or engine.tensor_parallel_size in the cluster file",
        ),
        (
            "optimizer.weight_decya=0",
            "invalid key: got optimizer.weight_decya, expected a key of optimizer; "
            "did you mean optimizer.weight_decay?",
        ),
        (
            "tensor_model_parallel_size=2",
            "invalid key: got tensor_model_parallel_size, expected cluster.engine.tensor_parallel_size; write this "
            "full key after the recipe, or engine.tensor_parallel_size in the cluster file",
        ),
        (
            "parallelism.context_parallel_degree=2",
            "invalid key: got parallelism.context_parallel_degree, expected cluster.engine.sequence_parallel_size "
            "(Ulysses instead of ring attention); write this full key after the recipe, or "
            "engine.sequence_parallel_size in the cluster file",
        ),
        ("training.steps=20", "invalid key: got training.steps, expected phases.0.steps; rename it"),
        ("train-iters=20", "invalid key: got train-iters, expected phases.0.steps; rename it"),
        (
            "fp16=true",
            "invalid key: got fp16, expected cluster.engine.precision=fp16; write this full key after the recipe, or "
            "engine.precision in the cluster file",
        ),
        (
            "fp16=false",
            "invalid key: got fp16, expected cluster.engine.precision; write this full key after the recipe, or "
            "engine.precision in the cluster file",
        ),
        (
            "resume_from_checkpoint=x",
            "invalid key: got resume_from_checkpoint, expected init_checkpoint (weights of a new run, because the same "
            "command resumes a stopped run); rename it",
        ),
        ("output_dir=x", "invalid key: got output_dir, expected the option --output-dir; use this option"),
        ("dropout=0.1", "invalid key: got dropout, expected model.hidden_dropout; rename it"),
        ("num_query_groups=2", "invalid key: got num_query_groups, expected model.num_key_value_heads; rename it"),
        ("multi_query=true", "invalid key: got multi_query, expected model.num_key_value_heads=1; rename it"),
        ("rope=true", "invalid key: got rope, expected model.position_embedding={kind: rotary}; use this key"),
        (
            "model.alibi=true",
            "invalid key: got model.alibi, expected model.position_embedding={kind: alibi}; use this key",
        ),
        ("model.swiglu=true", "invalid key: got model.swiglu, expected model.feed_forward={kind: gated}; use this key"),
        (
            "rotary_dim=64",
            "invalid key: got rotary_dim, expected model.position_embedding.partial_rotary_factor (as a fraction of "
            "each head); rename it",
        ),
        ("model.feed_forward={kind: swiglu}", "invalid model.feed_forward.kind: got 'swiglu', .*; use gated"),
        (
            "optimizer.warmup_ratio=0.1",
            "invalid key: got optimizer.warmup_ratio, expected a number of steps, optimizer.warmup_steps; use this key",
        ),
        ("masking={kind: wwm}", "invalid masking.kind: got 'wwm', expected one of .*; use whole_word"),
        (
            "losses=[{kind: MLM}]",
            "invalid losses.0.kind: got 'MLM', expected one of .*; use masked_tokens",
        ),
        (
            "optimizer={kind: adam, learning_rate: 1}",
            "invalid optimizer.kind: got 'adam', expected one of adamw, lamb, adafactor, lion, muon; use adamw",
        ),
    ],
)
def test_an_override_with_a_foreign_name_is_refused_with_the_right_key(given: str, answer: str) -> None:
    escaped = re.sub(r"[?()]", r"[\g<0>]", answer)
    with pytest.raises(BadInput, match=f"^override {re.escape(given)}: {escaped}$"):
        load("bert_base", [given])


def test_a_cluster_override_with_a_foreign_name_is_refused_with_the_right_key() -> None:
    with pytest.raises(
        BadInput, match=r"key: got cluster\.engine\.bf16, expected cluster\.engine\.precision=bf16; rename"
    ):
        load_cluster("local", ["cluster.engine.bf16=true"])
    with pytest.raises(BadInput, match=r"key: got cluster\.bf16, expected cluster\.engine\.precision=bf16; rename it$"):
        load_cluster("local", ["cluster.bf16=true"])
    with pytest.raises(
        BadInput, match=r"got cluster\.lr, expected optimizer\.learning_rate; write this full key after the recipe, or"
    ):
        load_cluster("local", ["cluster.lr=1"])


@for_all([name for name in FOREIGN if name not in AT_THE_TOP])
def test_every_foreign_name_at_the_top_of_a_recipe_is_refused_with_the_right_key(name: str) -> None:
    expected = glossary.OVERRIDES.get(name, (KEYS[name],))[0]
    with pytest.raises(BadInput, match=f"invalid key: got {name}, expected {expected}"):
        load("bert_base", [f"{name}=1"])


def test_cluster_keys_of_the_glossary_exist() -> None:
    ours = {key.removeprefix("cluster.") for key in KEYS.values() if key.startswith("cluster.")}
    assert ours <= keys_of(Cluster(name="x"))


def test_each_kind_of_the_glossary_exists() -> None:
    members = [member for union, _ in UNIONS for member in typing.get_args(union)]
    ours = {kind_of(member) for member in members} | {*FORMATS} | {"learned", "sinusoidal", "relative", "buckets"}
    ours |= {"rotary", "gated"}
    assert {kind for kinds in KINDS.values() for kind in kinds} <= ours
    for union, _ in UNIONS:  # an existing kind is not mapped to another one
        kinds = {kind_of(member) for member in typing.get_args(union)}
        assert not [name for name, meant in KINDS.items() if name in kinds and kinds & set(meant)]


@pytest.mark.parametrize(
    ("name", "ours", "key", "value"),
    [
        ("rope", "rotary", "model.position_embedding", "rotary"),
        ("alibi", "alibi", "model.position_embedding", "alibi"),
        ("swiglu", "gated", "model.feed_forward", "gated"),
        ("gqa", "model.num_key_value_heads", "model.num_key_value_heads", "4"),
        ("mqa", "model.num_key_value_heads", "model.num_key_value_heads", "1"),
        ("silu", "model.activation", "model.activation", "silu"),
    ],
)
def test_names_of_parts_of_modern_models_lead_to_their_keys(name: str, ours: str, key: str, value: str) -> None:
    assert translate(name) == (ours,)
    assert find_parts(ours) or find_keys(ours)
    override = f"{key}={value}" if name in KEYS else f"{key}={{kind: {value}}}"
    assert KEYS.get(name) == key or ABSENT[name] == (override, "use this key")
    found = get_key(load("bert_base", [override]), key)
    assert getattr(found, "kind", str(found)) == value


def test_names_listed_as_absent_have_no_key() -> None:
    assert not set(ABSENT) & set(KEYS)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("kv_lora_rank", "Sesame has no latent attention"),
        ("lora_rank", "Sesame has no LoRA"),
        ("num_experts", "Sesame has no mixture of experts"),
        ("transformer_engine", "Sesame does not use Transformer Engine"),
        ("use_flash_attn", "attention uses torch's fused kernels by itself"),
        ("mixtral_8x7b", "Sesame has no such model, list its models with `sesame recipes`"),
        ("bert_base", "show this recipe with `sesame recipes bert_base`"),
        (
            "sequence_parallel",
            "workers of a tensor parallel group keep whole activations between layers, "
            "use cluster.engine.sequence_parallel_size (Ulysses)",
        ),
        ("colour", "see `sesame keys`"),
        ("optimzer", "did you mean optimizer?"),
    ],
)
def test_keys_says_what_sesame_lacks_instead_of_an_unlike_key(name: str, answer: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_keys(name)
    assert str(caught.value).endswith(f"a key of a file; {answer}")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("model.num_experts=2", "Sesame has no mixture of experts; leave it out"),
        (
            "cluster.engine.virtual_pipeline_size=2",
            "Sesame has no interleaved pipeline stages, only 1F1B; leave it out",
        ),
    ],
)
def test_an_override_says_what_sesame_lacks(given: str, answer: str) -> None:
    with pytest.raises(BadInput) as caught:
        (load_cluster if given.startswith("cluster.") else load)("gpt2" if given[0] == "m" else "local", [given])
    key = given.partition("=")[0]
    assert str(caught.value) == (f"override {given}: invalid key: got {key}, expected no such key, because {answer}")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (
            "cluster.engine.context_parallel_size=4",
            "invalid key: got cluster.engine.context_parallel_size, expected cluster.engine.sequence_parallel_size "
            "(Ulysses instead of ring attention); rename it",
        ),
        (
            "cluster.engine.precison=bf16",
            "invalid key: got cluster.engine.precison, expected a key of cluster.engine; "
            "did you mean cluster.engine.precision?",
        ),
        (
            "cluster.num_workers=-1",
            "invalid cluster.num_workers: got -1, expected a number from 0 (all of this machine) up; "
            "see `sesame keys cluster.num_workers`",
        ),
        (
            "cluster.engine.sequence_parallel=true",
            "invalid key: got cluster.engine.sequence_parallel, expected no such key, because workers of a tensor "
            "parallel group keep whole activations between layers; leave it out, or use "
            "cluster.engine.sequence_parallel_size (Ulysses)",
        ),
        (
            "cluster.engine.sequence_parallel=2",
            "cluster.engine.sequence_parallel was renamed to cluster.engine.sequence_parallel_size in 0.2",
        ),
    ],
)
def test_the_keys_in_a_message_about_an_override_of_a_cluster_can_be_typed(given: str, answer: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_cluster("local", [given])
    assert str(caught.value) == f"override {given}: {answer}"


def test_the_keys_in_a_message_about_a_cluster_file_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nengine: {context_parallel_size: 2}\n")
    with pytest.raises(BadInput) as caught:
        load_cluster(str(file), ["cluster.num_workers=2"])
    assert str(caught.value).startswith(
        f"{file}: invalid key: got engine.context_parallel_size, expected engine.sequence_parallel_size (Ulysses"
    )


TASK = """
name: mine
description: is it good
citation: none
license: mine
files:
  dev: {paths: [a.tsv], format: {kind: tsv, header: true}}
task: {kind: classification, text: t, label: l, labels: ["0", "1"]}
grids:
  bert: {learning_rates: [1.0e-5], batch_sizes: [2], epochs: [3.0], citation: none}
"""


def answer_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(BadInput) as refused:
        load_task(str(tmp_path / "mine.yaml"))
    return str(refused.value).removeprefix(f"{tmp_path / 'mine.yaml'}: ")


def test_the_task_file_of_these_tests_is_valid(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TASK)
    assert load_task(str(tmp_path / "mine.yaml")).name == "mine"


@pytest.mark.parametrize("name", sorted(TASK_KEYS))
def test_a_task_file_with_a_foreign_name_is_refused_with_the_right_key(tmp_path: Path, name: str) -> None:
    """The message about `learning_rate` used to name optimizer.learning_rate, which a task file does not have."""
    key = TASK_KEYS[name]
    answer = answer_of(tmp_path, f"{name}: 1{TASK}")
    assert answer.startswith(f"invalid key: got {name}, expected {key}")
    path = ".".join(step for step in key.split(".") if step not in ("NAME", "SPLIT"))
    known = {f"{part.path}.{each}" for part in parts() for each in ("kind", *(one.name for one in part.keys))}
    assert f"task.{path}" in known


@pytest.mark.parametrize(
    ("place", "name", "answer"),
    [
        ("bert: {", "num_train_epochs", "grids.bert.epochs; rename it"),
        ("bert: {", "adam_epsilon", "grids.bert.eps; rename it"),
        ("bert: {", "warmup_ratio", "grids.bert.warmup_steps (below 1 a fraction of all steps); rename it"),
        ("dev: {", "column_mapping", "files.dev.columns; rename it"),
        ("task: {", "metric_list", "task.metrics; rename it"),
        ("task: {", "max_length", "max_seq_length; rename it"),
        ("task: {", "text_colunm", "task.text; did you mean text_column? Sesame calls it text"),
    ],
)
def test_a_part_of_a_task_with_a_foreign_name_is_refused_with_its_own_key(
    tmp_path: Path, place: str, name: str, answer: str
) -> None:
    line = answer_of(tmp_path, TASK.replace(place, f"{place}{name}: 1, ")).splitlines()[0]
    where = {"bert: {": "grids.bert.", "dev: {": "files.dev.", "task: {": "task."}[place]
    assert line == f"invalid key: got {where}{name}, expected {answer}"


@pytest.mark.parametrize("name", ["n_embd", "mlm_probability", "gradient_checkpointing"])
def test_messages_about_a_task_file_name_no_recipe_keys(tmp_path: Path, name: str) -> None:
    answer = answer_of(tmp_path, f"{name}: 1{TASK}")
    assert answer.startswith(f"invalid key: got {name}, expected one of the keys name, description, ")
    assert answer.endswith("; remove it, see `sesame keys task`")


def test_messages_about_a_corpus_file_name_no_recipe_keys(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ndupe_factor: 3\n")
    with pytest.raises(
        BadInput, match=r"got dupe_factor, expected one of the keys .*; remove it, see `sesame keys cor"
    ):
        load_corpus(str(file))
    file.write_text("name: mine\nwarmup_ratio: 3\n")
    with pytest.raises(
        BadInput, match=r"got warmup_ratio, expected one of the keys .*; remove it, see `sesame keys cor"
    ):
        load_corpus(str(file))


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ("bert-base-uncased", "bert_base"),
        ("bert-base-cased", "bert_base_cased"),
        ("bert-large-uncased-whole-word-masking", "bert_large_wwm"),
        ("roberta-base", "roberta_base"),
        ("gpt2-medium", "gpt2_medium"),
        ("openai-gpt", "gpt1"),
        ("google/electra-small-discriminator", "electra_small"),
        ("google-bert/bert-base-uncased", "bert_base"),
        ("allenai/longformer-base-4096", "longformer_base"),
        ("albert-base-v1", "albert_base"),
        ("albert-base-v2", "albert_base_v2"),
        ("xlnet-base-cased", "xlnet_base"),
        ("distilbert-base-uncased", ""),
        ("microsoft/deberta-v3-base", "deberta_v3_base"),
        ("camembert-base", ""),
        ("EleutherAI/pythia-160m", "pythia_160m"),
        ("EleutherAI/gpt-neo-125m", ""),
    ],
)
def test_a_model_of_a_hub_leads_to_its_recipe_or_to_none(model: str, recipe: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(model)
    actual = str(caught.value).partition("; ")[2]
    if "/" in model:
        use = f"use the recipe {recipe}; for these weights, download them and add init_checkpoint=DIR"
        assert actual == (use if recipe else actual)
        assert recipe or actual.startswith("download the model, because names on a hub are not read")
    else:
        assert actual == (f"did you mean {recipe}?" if recipe else "use one of them, or the path of a file")


def test_suggestions_of_our_own_names_do_not_mislead() -> None:
    for name, overrides, message in (
        ("gpt2_small", [], "did you mean one of gpt2, gpt2_large, gpt2_medium, gpt2_xl?"),
        ("bert_base", ["kind=x"], "got kind, expected one of the keys name, paper, data, "),
        ("bert_base", ["finetune=1"], "got finetune, expected a list of tasks, eval_tasks; use this key"),
        ("bert_base", ["gpus=8"], "got gpus, expected cluster.num_workers; write this full key after the recipe"),
    ):
        with pytest.raises(BadInput) as caught:
            load(name, overrides)
        assert message in str(caught.value)
    for word, command in (("fine-tune", "eval"), ("score", "eval"), ("predict", "generate"), ("build", "corpus")):
        assert explain_command(word).endswith(f"did you mean {command}?")


@pytest.mark.parametrize("name", ["steps", "lowercase", "language", "shuffle"])
def test_an_unlike_key_of_a_corpus_is_not_suggested(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\n{name}: 3\n")
    with pytest.raises(BadInput, match=rf"got {name}, expected one of the keys .*; remove it, see `sesame keys cor"):
        load_corpus(str(file))


def test_arrow_files_are_of_another_kind_in_tasks_than_in_corpora(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nsources: [{kind: arrow, path: x}]\n")
    with pytest.raises(BadInput, match=r"invalid sources.0.kind: got 'arrow', .*; use table"):
        load_corpus(str(file))
    assert answer_of(tmp_path, TASK.replace("kind: tsv", "kind: arrow")).endswith("; use datasets")
