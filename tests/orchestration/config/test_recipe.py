"""Recipes, clusters and corpora: strict reading with suggestions for typos, composition, checks and hashes."""

import copy
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml

from orchestration.config import (
    Cluster,
    check,
    find_ignored_keys,
    flatten,
    list_names,
    load,
    load_cluster,
    load_corpus,
    split_overrides,
)
from orchestration.config.library import HOME, SCALES
from pipeline import readers, spec
from preprocessing import limits
from preprocessing.errors import BadInput
from preprocessing.masking import Masking, SpanMasking
from preprocessing.objectives import Objective
from preprocessing.packing import Packing
from preprocessing.tokenization import TokenizerSpec
from tests.family import recipe as shipped
from tests.for_all import for_all
from training.losses import Loss
from training.optimizers import Adafactor, Optimizer
from training.specs import AlternatingWindow, Architecture, LearnedPositions

UNIONS = {  # key of a recipe -> the union of its parts
    "data.tokenizer": TokenizerSpec,
    "data.packing": Packing,
    "masking": Masking,
    "objective": Objective,
    "losses.0": Loss,
    "model": Architecture,
    "optimizer": Optimizer,
}
NEEDED = {
    "unit": "token",
    "negatives": "swapped",
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 1,
    "learning_rate": 1e-3,
}  # without a default
NEEDED_INSIDE = {"max_position_embeddings": 9, "size": 2, "cutoffs": (3,)}
NEEDED_INSIDE |= {"factor": 2.0, "original_max_position_embeddings": 9}
SOURCES = (
    readers.TextReader(path="a"),
    readers.JsonlReader(path="a"),
    readers.WikiExtractorReader(path="a"),
    readers.PythonDocsReader(),
)


def plain(value):
    return json.loads(json.dumps(dataclasses.asdict(value)))


def at(document, dotted):
    for step in dotted.split("."):
        document = document[int(step) if isinstance(document, list) else step]
    return document


def put(document, dotted, value):
    head, _, last = dotted.rpartition(".")
    parent = at(document, head) if head else document
    parent[int(last) if isinstance(parent, list) else last] = value


def keys(value, prefix=""):
    """Every dotted key of a document, including nested keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from [f"{prefix}{key}"] if isinstance(value, dict) else []
        yield from keys(inner, f"{prefix}{key}.")


def all_recipe_documents():
    bert = plain(load("bert_base")) | {"reported_results": {}}  # its keys are not fixed
    yield bert
    for place, union in UNIONS.items():
        for part in get_args(union):
            values = {field.name: field.default for field in dataclasses.fields(part)}
            needed = {name: value for name, value in NEEDED.items() if values.get(name) is dataclasses.MISSING}
            document = copy.deepcopy(bert)
            document["losses"] = document["losses"][1:]
            put(document, place, plain(part(**needed)))
            yield document
            yield from with_inner_parts(document, place, part)


def with_inner_parts(document, place, part):
    """Copies of the document, one for each part that can be nested, at any depth, in the part at `place`."""
    hints = get_type_hints(part)
    for name in [field.name for field in dataclasses.fields(part)]:
        for inner in get_args(hints[name]):
            if dataclasses.is_dataclass(inner):
                keys_of_inner = {field.name for field in dataclasses.fields(inner)}
                needed = {key: value for key, value in NEEDED_INSIDE.items() if key in keys_of_inner}
                other = copy.deepcopy(document)
                put(other, f"{place}.{name}", plain(inner(**needed)))
                yield other
                yield from with_inner_parts(other, f"{place}.{name}", inner)


def all_documents():
    """(reader, document, key), once for each key of any recipe, cluster or corpus."""
    seen = set()
    corpora = [plain(spec.Corpus(name="x", sources=(source,))) for source in SOURCES]
    groups = [(load, all_recipe_documents()), (load_corpus, corpora), (load_cluster, [plain(Cluster(name="x"))])]
    for reader, documents in groups:
        for document in documents:
            for key in keys(document):
                kind = at(document, key.rpartition(".")[0]).get("kind", "") if "." in key else ""
                if (reader, key, kind) not in seen:
                    seen.add((reader, key, kind))
                    yield pytest.param(reader, document, key, id=f"{reader.__name__}-{key}-{kind}")


def slips(word):
    """Typos of `word`: one character doubled, added, removed or swapped."""
    middle = len(word) // 2
    yield word[:middle] + word[middle] + word[middle:]
    yield word + "x"
    if len(word) > 2:
        yield word[:middle] + word[middle + 1 :]
        yield word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]


@pytest.mark.one_in(20)
@pytest.mark.parametrize(("reader", "document", "key"), all_documents())
def test_a_typo_in_any_key_is_reported_with_the_correct_key(tmp_path: Path, reader, document, key):
    head, _, last = key.rpartition(".")
    siblings = at(document, head) if head else document
    for slip in slips(last):
        if slip in siblings:
            continue
        wrong = copy.deepcopy(document)
        parent = at(wrong, head) if head else wrong
        parent[slip] = parent.pop(last)
        file = tmp_path / "x.yaml"
        file.write_text(json.dumps(wrong))  # JSON is YAML
        with pytest.raises(BadInput) as refused:
            reader(str(file))
        place = f"{head}." if head else ""
        expected = f"a key of {head or 'the file'}; did you mean {key}?"
        wanted = f"{file}: invalid key: got {place}{slip}, expected {expected}"
        assert str(refused.value) == wanted
        assert refused.value.exit_code == 2


def refusal(*overrides, recipe="bert_base", scale=""):
    with pytest.raises(BadInput) as refused:
        load(recipe, overrides, scale)
    return str(refused.value)


@pytest.mark.parametrize(
    ("override", "expected_message"),
    [
        ("optimizer.peek=1", "invalid key: got optimizer.peek, expected one of the keys learning_rate"),
        ("learning_rate=1", "invalid key: got learning_rate, expected a key of the file; did you mean optimizer.learn"),
        ("hidden_size=64", "invalid key: got hidden_size, expected a key of the file; did you mean model.hidden_size?"),
        (
            "vocab_size=64",
            "invalid key: got vocab_size, expected a key of the file; did you mean data.tokenizer.vocab_size?",
        ),
        (
            "max_position_embeddings=64",
            "invalid key: got max_position_embeddings, expected a key of the file; did you mean "
            "model.position_embedding.max_position_embeddings?",
        ),
        ("steps=9", "invalid key: got steps, expected a key of the file; did you mean phases.0.steps?"),
        ("optimizer.zzzz=1", "invalid key: got optimizer.zzzz, expected one of the keys"),
        ("model.kind=encodr", "invalid model.kind: got 'encodr', expected one of encoder, decoder, encoder_decoder, t"),
        ("masking={rate: 0.2}", "invalid masking.kind: got no value, expected one of none, token, whole_word, ent"),
        ("model={knid: encoder}", "invalid key: got model.knid, expected a key of model; did you mean model.kind?"),
        ("optimizer.lr_schedule=cosin", "invalid optimizer.lr_schedule: got 'cosin', expected linear_from_start"),
        ("optimizer.learning_rate=-1", "invalid optimizer.learning_rate: got -1.0, expected a learning rate above 0 a"),
        ("optimizer.learning_rate=.nan", "invalid optimizer.learning_rate: got nan, expected a learning rate"),
        ("optimizer.learning_rate=0", "invalid optimizer.learning_rate: got 0.0, expected a learning rate"),
        ("optimizer.warmup_steps=soon", "invalid optimizer.warmup_steps: got 'soon', expected an integer"),
        ("optimizer.warmup_steps=", "invalid optimizer.warmup_steps: got no value, expected an integer"),
        ("phases.0.steps=1.5", "invalid phases.0.steps: got 1.5, expected an integer"),
        ("phases.1.steps=0", "invalid phases.1.steps: got 0, expected at least 1 step"),
        ("phases.1.learning_rate=-1", "invalid phases.1.learning_rate: got -1.0, expected 0 (the schedule continues)"),
        ("phases.1.warmup_steps=5", "invalid phases.1.warmup_steps: got 5, expected 0 without phases.learning_rate"),
        ("phases.1.lenght=8", "invalid key: got phases.1.lenght, expected a key of phases.1; did you mean"),
        ("phases=[]", "invalid phases: got [], expected one phase or more"),
        ("phases=3", "invalid phases: got 3, expected a list"),
        ("model=3", "invalid model: got 3, expected a mapping of keys"),
        ("optimizer=[1]", "invalid optimizer: got [1], expected a mapping of keys"),
        ("model.num_attention_heads=7", "invalid model.num_attention_heads: got 7, expected a divisor of hidden_size"),
        ("data.tokenizer.lowercase=yes", "invalid data.tokenizer.lowercase: got 'yes', expected true or false"),
        ("name=7", "invalid name: got 7, expected text; put it in quotes"),
        ("objective.mask_replace_prob=0.95", "invalid objective.mask_replace_prob + random_replace_prob: got 1.05, ex"),
        ("masking.rate=0", "invalid masking.rate: got 0.0, expected a fraction greater than 0 and at most 1"),
        ("losses=[]", "invalid losses: got [], expected one loss or more"),
        ("eval_tasks=[gleu]", "invalid eval_tasks.0: got 'gleu', expected source_classification, next_sentence, cloze"),
        ("seed=-1", "invalid seed: got -1, expected an integer from 0 to 2**63 - 1"),
        ("model.type_vocab_size=2.0", "invalid model.type_vocab_size: got 2.0, expected an integer"),
        ("model.position_embedding=learned", "invalid model.position_embedding: got 'learned', expected a mapping of"),
        ("model.position_embedding={max_position_embeddings: 9}",
        "invalid model.position_embedding.kind: got no value, expected one of learned, sinusoidal"),
        ("model.position_embedding={kind: learned}", "invalid model.position_embedding.max_position_embeddings: got n"),
        ("model.position_embedding.kind=learnd",
        "invalid model.position_embedding.kind: got 'learnd', expected one of learned, sinusoidal, rotary, alibi, "),
        ("model.position_embedding.max_position_embeddings=0",
        "invalid model.position_embedding.max_position_embeddings: got 0, expected an integer of at least 1"),
        ("model.attention_window={kind: sliding, size: 7}",
        "invalid model.attention_window.size: got 7, expected an even number of at least 2 tokens"),
        ("model.attention_window={kind: alternating, size: 7}",
        "invalid model.attention_window.size: got 7, expected an even number of at least 2 tokens"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_with_its_key_and_the_allowed_values(override, expected_message):
    message = refusal(override)
    assert message.startswith(f"override {override}: {expected_message}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "expected_message"),
    [
        (
            "model.attention_window={kind: alternating, size: 7}",
            "invalid model.attention_window.kind: got 'alternating', expected full with relative positions",
        ),
        (
            "model.position_embedding.max_position_embeddings=1024",
            "invalid key: got model.position_embedding.max_position_embeddings, expected one of the keys kind, mem_len",
        ),
        (
            "model.norm_position=pre",
            "invalid model.norm_position: got 'pre', expected post with relative positions",
        ),
        (
            "model.token_embedding.div_val=1000",
            "invalid model.token_embedding.div_val: got 1000, expected a factor that leaves at least 1 element",
        ),
    ],
)
def test_settings_incompatible_with_relative_positions_are_refused(override, expected_message):
    message = refusal(override, recipe="transformer_xl_base")
    assert message.startswith(f"override {override}: {expected_message}")
    assert "\n" not in message


def test_all_errors_are_reported_at_once_one_line_each():
    lines = refusal("optimizer.peek=1", "model.num_attention_heads=7", "phases.0.steps=0").splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "invalid model.num_attention_heads",
        "invalid key",
        "invalid phases.0.steps",
    ]


def test_a_missing_key_is_named(tmp_path: Path):
    document = plain(load("bert_base"))
    del document["optimizer"]["learning_rate"], document["model"]["num_hidden_layers"]
    (tmp_path / "x.yaml").write_text(json.dumps(document))
    with pytest.raises(
        BadInput,
        match=r"x\.yaml: invalid model\.num_hidden_layers: got no .*\n.*x\.yaml: invalid optimizer\.learning_rate: ",
    ):
        load(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "optimizer.learning_rate",
            "invalid override: got 'optimizer.learning_rate', expected KEY=VALUE; write optimizer.learning_rate=2e-4",
        ),
        ("=3", "invalid override: got '=3', expected KEY=VALUE; write optimizer.learning_rate=2e-4"),
        (
            "phases.7.steps=1",
            "override phases.7.steps=1: invalid key: got phases.7.steps, expected keys and list items that exist; "
            "correct the step 7",
        ),
        (
            "phases.7={}",
            "override phases.7={}: invalid key: got phases.7, expected an index from 0 to 1; count from 0",
        ),
        (
            "phases.steps=9",
            "override phases.steps=9: invalid key: got phases.steps, expected a list item and its key; write "
            "phases.0.steps",
        ),
        (
            "optimizer.learning_rate.x=1",
            "override optimizer.learning_rate.x=1: invalid key: got optimizer.learning_rate.x, expected a key inside a "
            "mapping or a list, not inside 0.0001; set the outer key to a mapping",
        ),
        (
            "optimizer.learning_rate=[1",
            "override optimizer.learning_rate, line 1: invalid YAML: expected ',' or ']', but got '<stream end>'; "
            "correct this line",
        ),
    ],
)
def test_an_override_of_an_unknown_key_is_refused(override, message):
    assert refusal(override) == message


def test_an_unknown_name_is_refused_with_the_most_similar_one():
    with pytest.raises(
        BadInput, match=r"invalid recipe: got bert_bse, expected a name that .*did you mean bert_base\?"
    ):
        load("bert_bse")
    with pytest.raises(BadInput, match=r"invalid recipe: got gpt2_tny, .*; use gpt2 --scale tiny$"):
        load("gpt2_tny")
    with pytest.raises(BadInput, match=r"did you mean local\?"):
        load_cluster("locl")
    with pytest.raises(BadInput, match=r"did you mean one of gpt3_125m, gpt3_13b, .*gpt3_760m\?$"):
        load("gpt3")
    with pytest.raises(BadInput, match=r"; use --cluster 64xa100 cluster\.num_workers=1024$"):
        load_cluster("1024xa100")
    with pytest.raises(BadInput, match=r"; use --cluster 64xh100 cluster\.num_workers=512$"):
        load_cluster("512xh100")
    with pytest.raises(BadInput, match=r"; use --cluster one_gpu cluster\.gpu_type=b200 cluster\.num_workers=4$"):
        load_cluster("4xb200")
    with pytest.raises(BadInput, match=r"no/such\.yaml: cannot read the file \(No such file or directory\); check"):
        load("no/such.yaml")


def test_overrides_change_list_elements_and_replace_whole_parts():
    recipe = load(
        "bert_base", ["phases.1.steps=7", "masking={kind: span, geometric_p: 0.3}", "optimizer.learning_rate=2e-4"]
    )
    assert (recipe.phases[1].steps, recipe.masking, recipe.optimizer.learning_rate) == (
        7,
        SpanMasking(geometric_p=0.3),
        2e-4,
    )


def test_an_override_of_a_part_missing_from_the_file_keeps_its_other_defaults():
    assert load(
        "bert_base", ["model.position_embedding.init_method=sinusoidal"]
    ).model.position_embedding == LearnedPositions(max_position_embeddings=512, init_method="sinusoidal")
    banded = load("gpt2", ["model.attention_window={kind: alternating, size: 8}"]).model
    assert banded.attention_window == AlternatingWindow(size=8)
    assert banded.position_embedding == LearnedPositions(max_position_embeddings=1_024, init_std=0.01)


def test_overrides_of_the_cluster_are_separated_from_those_of_the_recipe():
    of_recipe, of_cluster = split_overrides(["seed=3", "cluster.num_workers=5", "cluster.engine.zero_stage=3"])
    cluster = load_cluster("local", of_cluster)
    assert of_recipe == ["seed=3"]
    assert (cluster.num_workers, cluster.engine.zero_stage) == (5, 3)


@for_all(list_names("recipes"))
def test_a_shipped_recipe_has_15_to_55_lines_plus_results_and_the_name_of_its_file(name):
    figures = re.compile(r"^reported_results:\n(?:  .*\n)+\n", re.MULTILINE)
    text = (HOME / "recipes" / f"{name}.yaml").read_text()
    assert len(figures.findall(text)) == 1
    assert 15 <= len(figures.sub("", text).splitlines()) <= 55
    assert shipped(name).name == name


@for_all(list_names("recipes"))
def test_a_shipped_recipe_has_the_parameters_and_citation_of_its_paper(name):
    assert {"parameters", "citation"} <= shipped(name).reported_results.keys()


@for_all(list_names("recipes"))
def test_a_shipped_recipe_states_which_training_gave_its_reported_results(name):
    """The results come from this training or another one, or there are none; the recipe must state which."""
    expected = shipped(name).reported_results
    actual = expected["setting"]
    scores = expected.keys() - {"parameters", "printed", "citation", "setting", "split", "also"}
    beginnings = (
        r"this |an equally long |the released |a training whose |one model that |a model for each |another training"
    )
    assert bool(re.match(beginnings, actual)) == bool(scores)
    assert actual.startswith("no results except the size") != bool(scores)
    assert not scores or "split" in expected or "no fine-tuning" in actual


def test_results_of_multi_task_training_are_marked():
    """The published T5 models were also trained on supervised tasks; the recipes use only the unsupervised text."""
    multi = {
        name
        for name in list_names("recipes")
        if shipped(name).reported_results["setting"].startswith("another training")
    }
    assert multi == {"t5_small", "t5_large", "t5_3b", "t5_11b"}
    assert shipped("t5_base").reported_results["squad"] == {"em": 83.01}  # 85.44 if trained on supervised tasks too


@pytest.mark.parametrize(("key", "value"), [("setting", "[this]"), ("setting", '""'), ("citation", "7")])
def test_comments_on_reported_results_must_be_text(tmp_path: Path, key, value):
    text = re.sub(rf"^  {key}: .*$", f"  {key}: {value}", (HOME / "recipes" / "gpt2.yaml").read_text(), flags=re.M)
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(BadInput, match=rf"invalid reported_results\.{key}: got .*, expected text"):
        load(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize("name", ["xlm_mlm", "xlm_clm", "xlm_tlm"])
def test_xlm_reads_shuffled_lower_case_lines_without_accents(name):
    data = shipped(name).data
    assert (data.tokenizer.lowercase, data.tokenizer.strip_accents, data.packing.sentence_order) == (
        True,
        True,
        "shuffled",
    )
    assert load_corpus(data.corpus).sentence_boundaries == "lines"
    assert shipped(name, "tiny").data.tokenizer.strip_accents


@pytest.mark.parametrize("name", list_names("corpora"))
def test_a_shipped_corpus_has_the_name_of_its_file(name):
    assert load_corpus(name).name == name


def test_the_corpus_of_each_shipped_recipe_is_shipped():
    assert {shipped(name).data.corpus for name in list_names("recipes")} <= set(list_names("corpora"))


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_adapts_the_initialization_to_the_width(scale):
    trunk = load("bert_base", scale=scale).model
    assert trunk.init_std == pytest.approx(0.02 * (768 / trunk.hidden_size) ** 0.5, rel=0.02)


SHRUNK = [
    (
        "albert_xxlarge",
        {
            "model.embedding_size": 32,
            "model.num_attention_heads": 2,
            "model.parameter_sharing": "all",
            "optimizer.learning_rate": 1e-2,
        },
    ),
    (
        "bert_base",
        {
            "model.embedding_size": 0,
            "model.position_embedding.max_position_embeddings": 512,
            "optimizer.bias_correction": True,
        },
    ),
    ("roberta_base", {"model.position_embedding.max_position_embeddings": 514, "model.position_embedding.offset": 2}),
    ("gpt3_13b", {"model.head_dim": 0, "model.position_embedding.max_position_embeddings": 514}),
    (
        "t5_11b",
        {
            "model.head_dim": 0,
            "model.intermediate_size": 0,
            "data.tokenizer.extra_ids": 100,
            "optimizer.learning_rate": 3e-2,
        },
    ),
    ("electra_base", {"model.generator_size_ratio": 1.0, "losses.1.weight": 5.0, "losses.0.weight": 1.0}),
    ("longformer_base", {"model.attention_window.size": 16, "model.position_embedding.max_position_embeddings": 514}),
    (
        "transformer_xl_large",
        {
            "model.position_embedding.mem_len": 64,
            "model.token_embedding.cutoffs": (500, 1_500),
            "model.token_embedding.div_val": 2,
        },
    ),
    ("transformer_xl_base", {"model.token_embedding.div_val": 1}),
    ("transformer_xl_enwik8", {"model.token_embedding.cutoffs": ()}),
    ("xlnet_large", {"model.position_embedding.mem_len": 64, "data.packing.reuse_len": 32, "objective.perm_size": 32}),
    ("xlm_mlm", {"data.packing.languages": (), "data.corpus": "demo"}),
    ("xlm_tlm", {"data.corpus": "demo_parallel"}),
    ("ernie_1", {"data.corpus": "demo_phrases"}),
    ("spanbert_noun_phrases", {"data.corpus": "demo_phrases"}),
    ("spanbert_spans", {"data.corpus": "demo"}),
]


@pytest.mark.parametrize(("name", "values"), SHRUNK)
def test_a_scale_changes_only_keys_that_a_part_has(name, values):
    tiny = shipped(name, "tiny")
    for key, value in values.items():
        found = tiny
        for step in key.split("."):
            found = found[int(step)] if step.isdecimal() else getattr(found, step)
        assert found == value, key


def test_an_override_does_not_change_later_loads_at_that_scale():
    assert load("bert_base", ["phases.0.steps=7"], scale="tiny").phases[0].steps == 7
    assert load("bert_base", scale="tiny").phases[0].steps == 4_000


def test_a_changed_recipe_has_no_reported_results():
    assert shipped("bert_base").reported_results["glue"]["mnli_m"] == 84.6
    assert load("bert_base", ["seed=1"]).reported_results == shipped("bert_base", "tiny").reported_results == {}


@pytest.mark.parametrize("count", ["many", "0", "1.5", "yes"])
def test_reported_parameters_must_be_a_number(tmp_path: Path, count):
    (tmp_path / "x.yaml").write_text((HOME / "recipes" / "gpt2.yaml").read_text().replace("124_439_808", count))
    with pytest.raises(
        BadInput, match=r"invalid reported_results\.parameters: got .*, expected an integer of at least 1"
    ):
        load(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("split: tset", r"invalid reported_results\.split: got 'tset', expected dev or test"),
        ("split: {lambada: train}", r"invalid reported_results\.split: got 'train', expected dev or test"),
        (
            "split: {lambda: test}",
            r"invalid reported_results\.split: got 'lambda', expected a result of reported_results",
        ),
    ],
)
def test_the_split_of_reported_results_is_dev_or_test(tmp_path: Path, split: str, message: str):
    recipe = (HOME / "recipes" / "gpt2.yaml").read_text()
    (tmp_path / "x.yaml").write_text(recipe.replace("reported_results:\n", f"reported_results:\n  {split}\n"))
    with pytest.raises(BadInput, match=message):
        load(str(tmp_path / "x.yaml"))


def test_the_demo_corpora_are_in_the_checkout():
    assert Path(load_corpus("demo_phrases").phrases).read_text(encoding="utf-8").count("\n") > 100
    english, esperanto = (
        Path(path).read_text(encoding="utf-8").splitlines() for path in load_corpus("demo_parallel").sources[1].paths
    )
    assert len(english) == len(esperanto) == 2_000


def test_an_override_takes_precedence_over_the_scale():
    assert load("bert_base", ["model.num_hidden_layers=3"], scale="tiny").model.num_hidden_layers == 3


def test_a_directory_of_transformers_is_refused_with_the_remedy_init_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match=rf"invalid recipe: got {tmp_path}, .*use RECIPE init_checkpoint={tmp_path}$"):
        load(str(tmp_path))


def test_an_unknown_scale_is_refused():
    assert refusal(scale="tny") == "invalid --scale: got 'tny', expected one of tiny, small; did you mean tiny?"


def test_bert_has_the_training_settings_of_its_paper():
    recipe = load("bert_base")
    assert (recipe.num_steps, recipe.optimizer.learning_rate, recipe.optimizer.warmup_steps, recipe.optimizer.eps) == (
        1_000_000,
        1e-4,
        10_000,
        1e-6,
    )
    assert [(phase.seq_length, phase.global_batch_size) for phase in recipe.phases] == [(128, 256), (512, 256)]
    assert not recipe.optimizer.bias_correction


def test_roberta_has_the_training_settings_of_its_paper():
    recipe = load("roberta_base")
    assert (recipe.num_steps, recipe.optimizer.learning_rate, recipe.optimizer.warmup_steps) == (500_000, 6e-4, 24_000)
    assert (recipe.optimizer.beta2, recipe.optimizer.max_grad_norm, recipe.data.static_masks) == (0.98, 0, 0)
    assert recipe.model.longest == 512


IMPOSSIBLE = [
    (
        "bert_base",
        ["data.packing={kind: contiguous, unit: sentence}"],
        "loss 'sentence_pair' needs column 'next_sentence_label'",
    ),
    ("bert_base", ["masking={kind: none}"], "objective 'mlm' needs column 'hits'"),
    (
        "gpt2",
        ["losses=[{kind: masked_tokens}]"],
        "invalid model.attention_mask: got causal, expected bidirectional or per_sequence for the loss masked_tokens",
    ),
    (
        "roberta_base",
        ["losses=[{kind: next_token}]"],
        "got bidirectional, expected causal for the loss next_token; use model kind decoder or",
    ),
    (
        "bert_base",
        ["model.type_vocab_size=1"],
        "invalid model.type_vocab_size: got 1, expected 2 or more, the number of segments of data.packing segment_pair",
    ),
    (
        "roberta_base",
        ["data.tokenizer.special_tokens=gpt2"],
        "invalid data.tokenizer: got no cls token in kind byte_level_bpe, expected one, because data.packing contiguou",
    ),
    (
        "gpt2",
        ["masking.kind=token", "objective.kind=mlm"],
        "got no mask token in kind byte_level_bpe, expected one, because objective mlm",
    ),
    (
        "bert_base",
        ["phases.1.seq_length=513"],
        "invalid phases.1.seq_length: got 513, expected at most 512, the number of positions",
    ),
    (
        "roberta_base",
        ["model.position_embedding.max_position_embeddings=512"],
        "invalid phases.0.seq_length: got 512, expected at most 510, the number of positions",
    ),
    (
        "bert_base",
        ["phases.0.global_batch_size=1"],
        "invalid phases.0.global_batch_size: got 1, expected at least 2, the number of workers; raise it, or lower",
    ),
    (
        "bert_base",
        ["optimizer.warmup_steps=1000000"],
        "invalid optimizer.warmup_steps: got 1000000, expected less than 1000000, the steps of the run; lower it",
    ),
    (
        "bert_base",
        ["phases.0.learning_rate=1e-3"],
        "invalid phases.0.learning_rate: got 0.001, expected 0, because optimizer.learning_rate is the peak of",
    ),
    (
        "bert_large_lamb",
        ["optimizer.warmup_steps=7037"],
        "got 7037, expected less than 7037, the steps before the next peak; lower it",
    ),
    (
        "bert_large_lamb",
        ["optimizer.lr_decay_steps=9000"],
        "invalid optimizer.lr_decay_steps: got 9000, expected 0, because each schedule ends at the next phase with a",
    ),
    (
        "bert_large_lamb",
        ["phases.1.warmup_steps=1562"],
        "invalid phases.warmup_steps: got 1562 before the peak of 0.004, expected less than 1562",
    ),
    ("electra_small", ["losses=[{kind: masked_tokens}]"], "invalid losses: got ['masked_tokens'], expected"),
    (
        "bert_base",
        ["losses=[{kind: replaced_token_detection}]"],
        "invalid losses: got replaced_token_detection with model kind encoder, expected a model with a discriminator",
    ),
    (
        "unilm_large",
        ["losses=[{kind: span_boundary}]"],
        "got per_sequence, expected bidirectional for the loss span_boundary; use model kind encoder",
    ),
    (
        "xlm_mlm",
        ["model.attention_mask=causal"],
        "got causal, expected bidirectional or per_sequence for the loss masked_tokens",
    ),
    ("gpt2", ["objective.kind=prefix_lm"], "invalid objective: got prefix_lm with model kind decoder, which reads one"),
    (
        "bart_base",
        ["objective={kind: causal_lm}"],
        "invalid objective: got causal_lm without a source, with model kind",
    ),
    (
        "unilm_large",
        ["model.attention_mask=bidirectional"],
        "invalid model.attention_mask: got bidirectional, expected per_sequence, because objective unified_lm has its",
    ),
    (
        "bert_base",
        ["model.attention_mask=per_sequence"],
        "invalid model.attention_mask: got per_sequence, expected another value, because objective mlm produces no",
    ),
    (
        "unilm_large",
        ["objective={kind: permutation_lm}"],
        "invalid objective: got permutation_lm with model kind encoder, expected permutation_lm and two_stream only",
    ),
    ("xlnet_base", ["objective={kind: unified_lm}"], "got unified_lm with model kind two_stream"),
    (
        "transformer_xl_base",
        ["data.packing={kind: contiguous, unit: token}"],
        "invalid model.position_embedding.mem_len: got 150, expected 0 with packing contiguous, whose sequences",
    ),
    (
        "transformer_xl_base",
        ["model.position_embedding.mem_len=0"],
        "got no memory, expected a number above 0 with packing stream, whose sequences continue each other",
    ),
    ("unilm_large", ["model.type_vocab_size=2"], "got 2, expected 6 or more, the number of segments of objective"),
    ("xlnet_base", ["model.type_vocab_size=2"], "got 2, expected 3 or more, the number of segments of data.packing"),
    (
        "xlm_tlm",
        ["model.num_languages=14"],
        "invalid model.num_languages: got 14, expected 15, the number of data.packing.languages; raise it to 15",
    ),
    (
        "transformer_xl_base",
        ["data.tokenizer.vocab_size=9000"],
        "got 200000 as the last one, expected numbers below data.tokenizer.vocab_size, 9000; lower",
    ),
    (
        "transformer_xl_base",
        ["data.tokenizer={kind: wordpiece, vocab_size: 267_735}"],
        "invalid data.tokenizer: got kind wordpiece, expected one that orders tokens by frequency, because of",
    ),
    (
        "bert_base",
        ["data.tokenizer={kind: bytes}"],
        "got no cls token in kind bytes, expected one, because data.packing segment_pair needs it; use kind wordpiece",
    ),
    (
        "electra_base",
        ["model.generator_size_ratio=1", "model.sample_from=frozen", "losses=[{kind: replaced_token_detection}]"],
        "invalid init_checkpoint: got no value, expected weights, because model.sample_from is frozen",
    ),
    (
        "longformer_base",
        ["model.attention_window.size=8192"],
        "invalid model.attention_window.size: got 8192, expected less than 8192, because sequences have at most 4096",
    ),
    (
        "gpt3_125m",
        ["model.attention_window={kind: alternating, size: 2048}"],
        "invalid model.attention_window.size: got 2048, expected less than 2048, because sequences have at most 2048",
    ),
    (
        "xlnet_base",
        ["model.position_embedding.reuse_len=0"],
        "invalid model.position_embedding.reuse_len: got 0, expected 256, as in data.packing.reuse_len, because",
    ),
    (
        "xlnet_base",
        ["data.packing.reuse_len=600"],
        "invalid data.packing.reuse_len: got 600, expected at most 512, the",
    ),
    (
        "xlm_mlm",
        ["data.packing.languages=[en, fr]"],
        "invalid data.tokenizer.languages: got ['ar', 'bg', 'de', 'el', 'en', 'es', ",
    ),
    (
        "t5_small",
        ["data.tokenizer.extra_ids=0"],
        "got no sentinel token in kind unigram, expected one, because objective span_corruption needs it; set data.",
    ),
    (
        "bart_base",
        ["data.tokenizer.special_tokens=gpt2"],
        "got no mask token in kind byte_level_bpe, expected one, because objective denoising needs it; set data.tokeni",
    ),
]


@pytest.mark.parametrize(("name", "overrides", "message"), IMPOSSIBLE)
def test_an_impossible_recipe_is_refused_with_a_remedy(name, overrides, message):
    problems = check(load(name, overrides), load_cluster("local", ["num_workers=2"]))
    assert any(message in problem for problem in problems), problems
    assert all("\n" not in problem for problem in problems)


def test_a_sequence_must_fit_into_a_micro_batch():
    problems = check(load("gpt2"), load_cluster("local", ["num_workers=1", "engine.micro_batch_tokens=1000"]))
    assert problems == [
        "invalid cluster.engine.micro_batch_tokens: got 1000, expected at least 1024, the tokens of one sequence of "
        "phases.0; raise it"
    ]


UNSPLIT = [
    (
        "bert_base",
        8,
        "invalid cluster.engine.tensor_parallel_size: got 8, expected a degree that the model supports ("
        "model.num_attention_heads is 12, not a multiple of the 8 workers",
    ),
    (
        "gpt2",
        24,
        "a multiple of the 24 workers that share a model); use 12 or 6",
    ),
    ("electra_base", 12, "(in the generator, "),
    ("xlnet_base", 8, "a multiple of the 8 workers that share a model"),
    (
        "transformer_xl_base",
        4,
        "a multiple of the 4 workers that share a model",
    ),
]


@pytest.mark.parametrize(("name", "tensor", "message"), UNSPLIT)
def test_a_model_that_cannot_be_split_is_refused_with_a_remedy(name, tensor, message):
    given = ["num_workers=24", f"engine.tensor_parallel_size={tensor}"]
    (problem,) = check(load(name), load_cluster("local", given))
    assert message in problem
    assert "\n" not in problem


def test_an_optimizer_that_needs_whole_tensors_is_refused_with_alternatives(monkeypatch):
    monkeypatch.setattr(Adafactor, "takes_slices", False)
    (problem,) = check(load("t5_11b"), load_cluster("local", ["num_workers=24", "engine.tensor_parallel_size=8"]))
    expected = "expected 1 with optimizer kind adafactor, which needs whole tensors; set it to 1, or use adamw or lamb"
    assert expected in problem


@pytest.mark.parametrize("name", ["megatron_8b", "gpt3_175b", "mt_nlg_530b", "bert_large", "t5_11b", "xlnet_large"])
def test_a_giant_may_be_split_over_eight_workers(name):
    given = ["num_workers=16", "engine.tensor_parallel_size=8"]
    assert check(load(name), load_cluster("local", given)) == []


UNSTAGED = [
    (
        "albert_base",
        2,
        "invalid cluster.engine.pipeline_parallel_size: got 2, expected a degree that the model supports ("
        "model.parameter_sharing is all, but pipeline stages require none",
    ),
    (
        "t5_base",
        2,
        "model.kind is encoder_decoder, but pipeline stages require an encoder or a decoder",
    ),
    ("electra_base", 2, "model.kind is generator_discriminator, but pipeline stages require an encoder or a decoder"),
    ("xlnet_base", 2, "model.kind is two_stream, but pipeline stages require an encoder or a decoder"),
    (
        "transformer_xl_base",
        2,
        "model.position_embedding.kind is relative, but pipeline stages require positions without a memory",
    ),
    (
        "gpt2",
        24,
        "but each of the 24 stages needs at least one layer); use 12 or 8",
    ),
]


@pytest.mark.parametrize(("name", "stages", "message"), UNSTAGED)
def test_a_model_without_pipeline_stages_is_refused_with_a_remedy(name, stages, message):
    given = ["num_workers=24", f"engine.pipeline_parallel_size={stages}", "engine.zero_stage=1"]
    problems = check(load(name), load_cluster("local", given))
    assert any(message in problem for problem in problems), problems
    assert all("\n" not in problem for problem in problems)


LAYOUTS = [
    ("mt_nlg_530b", 2240, 8, 35),  # arXiv:2201.11990, 2.3
    ("gpt3_175b", 1024, 8, 8),  # arXiv:2104.04473, 5.1
    ("megatron_8b", 512, 8, 1),  # arXiv:1909.08053, 5.2
    ("megatron_8b", 16, 8, 2),
    ("longformer_base", 4, 1, 4),
    ("unilm_large", 4, 2, 2),
    ("roberta_base", 4, 1, 2),
    ("xlm_clm", 2, 1, 2),
]


@pytest.mark.parametrize(("name", "workers", "tensor", "stages"), LAYOUTS)
def test_published_parallel_layouts_are_valid(name, workers, tensor, stages):
    given = [
        f"num_workers={workers}",
        f"engine.tensor_parallel_size={tensor}",
        f"engine.pipeline_parallel_size={stages}",
    ]
    cluster = load_cluster("local", [*given, "engine.zero_stage=1"])
    assert check(load(name), cluster) == []


UNCHUNKED = [
    (
        "bert_base",
        8,
        "invalid cluster.engine.sequence_parallel_size: got 8, expected a degree that the model supports ("
        "model.num_attention_heads is 12, not a multiple of the 8 workers",
    ),
    ("t5_base", 2, "model.kind is encoder_decoder, which does not support sequence parallelism); use 1"),
    ("xlnet_base", 2, "model.kind is two_stream, which does not support sequence parallelism"),
    (
        "transformer_xl_base",
        2,
        "sequence parallelism requires full attention without relative positions",
    ),
    ("longformer_base", 2, "model.attention_window.kind is sliding, which does not support sequence parallelism"),
    ("electra_base", 12, "(in the generator, "),
]


@pytest.mark.parametrize(("name", "sequence", "message"), UNCHUNKED)
def test_invalid_sequence_parallelism_is_refused_with_a_remedy(name, sequence, message):
    (problem,) = check(
        load(name), load_cluster("local", ["num_workers=24", f"engine.sequence_parallel_size={sequence}"])
    )
    assert message in problem
    assert "\n" not in problem


def test_tensor_and_sequence_parallel_workers_share_the_attention_heads():
    both = ["num_workers=16", "engine.tensor_parallel_size=4", "engine.sequence_parallel_size=4"]
    assert check(load("gpt3_6_7b"), load_cluster("local", both)) == []
    (problem,) = check(
        load("gpt2_medium"), load_cluster("local", [*both, "engine.sequence_parallel_size=8", "num_workers=32"])
    )
    assert "a multiple of the 32 workers that share sequences)" in problem


def test_the_number_of_workers_is_a_multiple_of_the_group_size():
    with pytest.raises(
        BadInput,
        match=r"invalid num_workers: got 3, expected 0, or a multiple of engine\.tensor_parallel_size x .* \(2\)",
    ):
        load_cluster("local", ["num_workers=3", "engine.tensor_parallel_size=2"])
    cluster = load_cluster("local", ["engine.tensor_parallel_size=64"])
    assert cluster.count_workers(load("bert_base")) == 64
    problems = check(
        load("gpt2", ["phases.0.global_batch_size=2"]),
        load_cluster("local", ["num_workers=6", "engine.tensor_parallel_size=2"]),
    )
    assert problems == [
        "invalid phases.0.global_batch_size: got 2, expected at least 3, the number of groups of workers; raise it, or "
        "lower cluster.num_workers"
    ]


def test_the_hash_ignores_names_papers_evaluation_tasks_and_results():
    recipe = load("bert_base")
    assert (
        recipe.hash
        == load("bert_base", ["name=other", "paper=mine", "eval_tasks=[]", "reported_results={glue: 80}"]).hash
    )
    assert recipe.hash != load("bert_base", ["seed=1"]).hash


def test_every_other_key_changes_the_hash():
    recipe = load("bert_base", scale="tiny")
    changed = {
        "data.corpus": "x", "data.tokenizer.vocab_size": 9000, "data.tokenizer.lowercase": False,
        "data.static_masks": 3,
        "masking.rate": 0.2, "objective.mask_replace_prob": 0.7, "losses.0.weight": 2.0,
        "model.num_hidden_layers": 3, "optimizer.learning_rate": 2e-3, "optimizer.max_grad_norm": 0.5,
        "phases.0.steps": 7,
        "data.packing.short_seq_prob": 0.2,
        "seed": 1,
    }  # fmt: skip
    hashes = {load("bert_base", [f"{key}={json.dumps(value)}"], scale="tiny").hash for key, value in changed.items()}
    assert len(hashes | {recipe.hash}) == len(changed) + 1


def test_the_hash_does_not_depend_on_the_file_of_the_recipe(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(plain(load("gpt2")), sort_keys=True))
    assert load(str(tmp_path / "mine.yaml")).hash == load("gpt2").hash


def test_paths_in_a_corpus_file_are_relative_to_its_directory(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("name: mine\nsources: [{kind: text, path: books}, {kind: python_docs}]")
    books, installed = load_corpus(str(tmp_path / "mine.yaml")).sources
    assert books == readers.TextReader(path=str(tmp_path / "books"))
    assert installed == readers.PythonDocsReader()


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            "profile_steps=38",
            "invalid cluster.profile_steps: got 38, expected at most 37, the steps of the run after its first 3; "
            "lower it",
        ),
        ("skip_steps=[7, 41]", "invalid cluster.skip_steps: got 41, expected steps up to 40, the last one; remove it"),
    ],
)
def test_steps_beyond_the_end_of_a_run_are_refused(override: str, problem: str) -> None:
    recipe = load(
        "bert_base", ["phases=[{seq_length: 128, global_batch_size: 256, steps: 40}]", "optimizer.warmup_steps=4"]
    )
    assert check(recipe, load_cluster("local", ["num_workers=2", override])) == [problem]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("profile_steps=-1", r"invalid profile_steps: got -1, expected a number of steps from 0 \(none\) to 100"),
        ("skip_steps=[0]", r"invalid skip_steps: got \[0\], expected steps of at least 1"),
        (
            "loss_spikes.policy=ignore",
            "invalid loss_spikes.policy: got 'ignore', expected one of off, warn, fail, skip, rollback",
        ),
        ("loss_spikes.sigma=5", "invalid key: got loss_spikes.sigma, "),
    ],
)
def test_invalid_steps_to_skip_or_profile_are_refused(override: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_cluster("local", [override])


def test_by_default_a_cluster_has_one_worker_per_core_but_no_more_workers_than_sequences():
    recipe = load("bert_base", ["phases=[{seq_length: 8, global_batch_size: 1, steps: 1}]"])
    assert load_cluster("local").count_workers(recipe) == 1
    assert load_cluster("local", ["num_workers=3"]).count_workers(recipe) == 3


HPZ = ["engine.zero_stage=3", "engine.deepspeed={zero_optimization: {zero_hpz_partition_size: 4}}"]


def test_the_number_of_workers_is_a_multiple_of_the_partition_size_of_deepspeed(monkeypatch):
    """With 6 workers and partitions of 4, each worker used to end with a traceback."""
    with pytest.raises(
        BadInput, match=r"invalid num_workers: got 6, expected 0, or a multiple of .*partition_size, i.e. of 4"
    ):
        load_cluster("local", ["num_workers=6", *HPZ])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(11)))
    cluster, recipe = load_cluster("local", HPZ), load("bert_base")
    assert cluster.count_workers(recipe) == 8
    assert cluster.workers_in(3, recipe) == 4  # at least one partition
    assert (
        cluster.workers_in(11, load("bert_base", ["phases.0.global_batch_size=5"])) == 4
    )  # no more workers than sequences
    both = load_cluster("local", ["engine.sequence_parallel_size=6", *HPZ])
    assert both.workers_in(40, recipe) == 36


def test_by_default_a_cluster_with_gpus_has_one_worker_per_gpu(monkeypatch):
    """It used to have the number of cores divided by the cores of a worker."""
    monkeypatch.setattr("orchestration.config.hardware.list_gpus", lambda: 3 * (("a GPU", 1e9),))
    cluster = load_cluster("one_gpu", ["num_workers=0"])
    assert cluster.count_workers(load("bert_base")) == 3
    assert cluster.count_workers(load("bert_base", ["phases=[{seq_length: 8, global_batch_size: 2, steps: 1}]"])) == 2
    with_tensor = load_cluster("one_gpu", ["num_workers=0", "engine.tensor_parallel_size=2"])
    assert with_tensor.count_workers(load("bert_base")) == 2


def test_a_cpu_cluster_has_no_gpu_type():
    with pytest.raises(BadInput, match="invalid gpu_type: got 'h100', expected empty with device cpu"):
        load_cluster("local", ["gpu_type=h100"])


def test_a_remote_cluster_requires_the_number_of_workers():
    (problem,) = check(load("bert_base"), load_cluster("local", ["ray_address=auto"]))
    assert problem.startswith(
        "invalid cluster.num_workers: got 0, which counts the workers of this machine only, expected a"
    )
    assert check(load("bert_base"), load_cluster("local", ["ray_address=auto", "num_workers=2"])) == []


@pytest.mark.parametrize(
    ("name", "overrides", "keys"),
    [
        *((name, [], []) for name in list_names("clusters")),
        (
            "local",
            ["scale_up_interval_minutes=0", "num_workers=2", "min_workers=2"],
            ["min_workers", "scale_up_interval_minutes"],
        ),
        ("cpu_cluster", ["scale_up_interval_minutes=0", "min_workers=2"], []),
        (
            "local",
            ["loss_spikes.threshold_sigmas=5", "loss_spikes.max_skips=3"],
            ["loss_spikes.threshold_sigmas", "loss_spikes.max_skips"],
        ),
        ("local", ["loss_spikes.threshold_sigmas=5", "loss_spikes.policy=warn"], []),
        ("local", ["engine.param_persistence_threshold=0"], ["engine.param_persistence_threshold"]),
        ("local", ["engine.param_persistence_threshold=0", "engine.zero_stage=3"], []),
        ("local", ["beam.options={flink_master: 'far:8081'}"], ["beam.options.flink_master"]),
        ("flink", ["beam.options={direct_num_workers: 4}"], ["beam.options.direct_num_workers"]),
        ("local", ["beam.options={direct_num_workers: 4}"], []),
    ],
)
def test_keys_of_a_cluster_without_effect_are_reported(name: str, overrides: list[str], keys: list[str]) -> None:
    actual = find_ignored_keys(load_cluster(name, overrides))
    assert [line.split()[2] for line in actual] == keys
    assert all(line.startswith(f"cluster {name}: ") for line in actual)


@pytest.mark.parametrize(
    ("overrides", "log", "evaluate", "save"),
    [
        ([], 10, 1_000, 1_000),
        (["cluster.save_every=50"], 10, 50, 50),
        (["cluster.save_every=50", "cluster.eval_every=20"], 10, 20, 50),
        (["cluster.eval_every=20", "cluster.log_every=1"], 1, 20, 1_000),
    ],
)
def test_by_default_a_run_evaluates_as_often_as_it_saves(
    overrides: list[str], log: int, evaluate: int, save: int
) -> None:
    intervals = load_cluster("local", overrides).intervals(load("bert_base"))
    assert intervals == {"log_every": log, "eval_every": evaluate, "save_every": save}


def test_a_short_run_saves_four_times() -> None:
    assert load_cluster("local").intervals(load("bert_base", scale="tiny"))["save_every"] == 1_000
    few = load("bert_base", ["phases=[{seq_length: 64, global_batch_size: 32, steps: 24}]"], scale="tiny")
    assert load_cluster("local").intervals(few)["save_every"] == 6


def test_the_device_and_the_number_of_gpus_must_agree():
    with pytest.raises(BadInput, match="invalid gpus_per_worker: got 1, expected 0 with device cpu"):
        load_cluster("local", ["gpus_per_worker=1"])
    for name, number, allowed in (("local", -1, "0 with device cpu"), ("one_gpu", 2, "1 with device cuda")):
        with pytest.raises(BadInput, match=f"invalid gpus_per_worker: got {number}, expected {allowed}"):
            load_cluster(name, [f"gpus_per_worker={number}"])
    with pytest.raises(BadInput, match="invalid gpus_per_worker: got 0, expected 1 with device cuda"):
        load_cluster("one_gpu", ["gpus_per_worker=0"])
    with pytest.raises(BadInput, match=r"invalid engine\.zero_stage: got 0, expected 1, 2 or 3 with bf16"):
        load_cluster("one_gpu", ["engine.zero_stage=0"])


def test_flatten_gives_the_path_and_value_of_every_leaf():
    assert dict(flatten({"a": {"b": [1, {"c": 2}]}, "d": []})) == {"a.b.0": 1, "a.b.1.c": 2, "d": []}


@pytest.mark.parametrize(
    ("cores", "memory", "workers"), [(0.5, 64e9, 1), (8, 64e9, 8), (8, 2e9, 1), (8, 6e9, 4), (2.9, 64e9, 2)]
)
def test_workers_are_limited_by_cores_and_memory_of_the_control_group(monkeypatch, cores, memory, workers):
    """With 2 GB and half a core, there used to be one worker per core of the machine, and the kernel killed them."""
    monkeypatch.setattr(limits, "cores", lambda root=limits.ROOT: limits.Cores(cores))
    monkeypatch.setattr(limits, "memory", lambda root=limits.ROOT: limits.MemoryLimit(memory, memory))
    assert load_cluster("local").count_workers(load("bert_base")) == workers


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("eng", "use en"), ("EN", "use en"), ("english", "use en"), ("xx", "see docs/guides/corpora.md")],
)
def test_an_unknown_language_is_refused(tmp_path: Path, code: str, remedy: str) -> None:
    """Every document used to be dropped, because no text is identified as such a language."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nclean: {{languages: [de, {code}]}}\n")
    with pytest.raises(
        BadInput, match=rf"invalid clean\.languages: got '{code}', expected a code of py3langid in .*; {remedy}"
    ):
        load_corpus(str(file))


@pytest.mark.parametrize(
    ("kind", "meant"), [("parquet", "table"), ("arrow", "table"), ("ndjson", "jsonl"), ("tsv", "csv"), ("txt", "text")]
)
def test_the_kind_of_a_source_is_suggested_by_the_format_of_its_files(tmp_path: Path, kind: str, meant: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nsources: [{{kind: {kind}, path: x}}]\n")
    with pytest.raises(BadInput, match=rf"invalid sources\.0\.kind: got '{kind}', expected one of .*; use {meant}$"):
        load_corpus(str(file))
