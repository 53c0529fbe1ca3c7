"""A model is exported only if config.json returns its function: for each key of each recipe and of small models with
newer parts, and for each format."""

import json
from collections.abc import Collection, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from preprocessing.errors import BadInput
from preprocessing.tokenization import Vocab
from tests.family import RECIPES, recipe
from tests.training import modern
from tests.training.formats import newer
from tests.training.formats.changes import changed_specs
from tests.training.formats.logits import IDS, our_logits, their_logits
from tests.training.parity import ONE_PAD, ZERO_PAD, built, hf, loaded, vocabulary, weights
from training.formats import FORMATS, describe_export, to_transformers
from training.formats.classes import choose_format, exportable_part
from training.formats.export import common_config
from training.formats.format import Format
from training.formats.keys import get_key, merge, nest
from training.formats.round_trip import TRAINS_ONLY, normal_form
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Architecture

ROWS = 310  # of the token table: more than the vocabularies have
RESOLVED = {
    "head_dim": "width_of_head",
    "intermediate_size": "inner_width",
    "embedding_size": "table_width",
    "num_key_value_heads": "groups",
    **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), "bias"),
    "embedding_norm": "normalizes_embeddings",
    "feed_forward.up_bias": "bias",
    "position_embedding.local_rope_theta": "position_embedding.rope_theta",
}
MODEL_TYPES = {format.model_type for format in FORMATS}
ONLY_LOADED = {"ernie", "xlm-roberta"}  # exported as BERT and RoBERTa
# Keys that classes of transformers lack, because the same function has another form there; logits are compared below.
OTHER_FORM = {
    "position_embedding.offset",  # the table begins at the first row in use
    "position_embedding.max_position_embeddings",
    "parameter_sharing",  # ALBERT: copies
    "num_hidden_groups",
    "attention_mask",  # per_sequence: an argument
    "type_vocab_size",  # XLNet: whether two segments are equal
    "generator_size_ratio",  # ELECTRA: the discriminator only
    "generator_num_hidden_layers",
    "weight_sharing",
    "sample_from",
    "allow_correct",
}


NEWER = modern.TRUNKS | {
    "yarn": replace(modern.LLAMA, position_embedding=newer.YARN),
    "gpt-neox, yarn": replace(modern.NEOX, position_embedding=newer.YARN),
    "modernbert, yarn": replace(modern.MODERN_BERT, position_embedding=newer.YARN),
    "mt5": newer.TRUNKS["mt5"],
}


@cache
def exportable_specs() -> dict[str, ModelSpec]:
    """The distinct exportable models of the recipes, at tiny scale, and those with newer parts."""
    candidates = dict[str, ModelSpec]()
    for name in RECIPES:
        one = recipe(name, "tiny")
        candidates[name] = ModelSpec(model=one.model, losses=one.losses, vocab_size=ROWS)
    for name, trunk in NEWER.items():
        candidates[name] = newer.make_spec(trunk, ROWS)
    found = dict[str, ModelSpec]()
    for name, spec in candidates.items():
        if is_exported(spec) and spec not in found.values():
            found[name] = spec
    return found


def pad_of(trunk: Architecture) -> int:
    return int(trunk.kind == "encoder_decoder" or trunk.position_embedding.offset > 1)


def is_exported(spec: ModelSpec) -> bool:
    try:
        describe_export(spec, pad_of(spec.model))
    except BadInput:
        return False
    return True


def type_of(spec: ModelSpec) -> str:
    return choose_format(exportable_part(spec), pad_of(spec.model))[0].model_type


@cache
def exported_changes() -> dict[tuple[str, str], ModelSpec]:
    """The models with a changed key that are exported: by recipe, and by key with its value."""
    changes = ((name, change, spec) for name, one in exportable_specs().items() for change, spec in changed_specs(one))
    return {(name, change): spec for name, change, spec in changes if is_exported(spec)}


@pytest.fixture(scope="module")
def vocabs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories with vocabularies whose padding is token 0 and token 1."""
    return [vocabulary(spec, tmp_path_factory.mktemp("vocab")) for spec in (ZERO_PAD, ONE_PAD)]


def read_back(spec: ModelSpec, vocab: Vocab) -> Architecture:
    """The architecture that config.json returns."""
    spec = exportable_part(spec)
    format, _ = choose_format(spec, vocab.pad)
    return format.read(json.loads(json.dumps(common_config(spec, vocab) | format.config(spec, vocab))))


def value_of(trunk: Any, key: str) -> Any:
    """The value of a key; that of another attribute if the key is 0 or null."""
    value = get_key(trunk, key)
    return get_key(trunk, RESOLVED[key]) if key in RESOLVED and value in (0, None) and value is not False else value


@pytest.mark.slow
def test_most_recipes_and_changes_are_exported() -> None:
    """The next tests are about something."""
    assert {type_of(spec) for spec in exportable_specs().values()} == MODEL_TYPES - ONLY_LOADED
    assert len(changes := exported_changes()) > 800
    assert {type_of(spec) for spec in changes.values()} == MODEL_TYPES - ONLY_LOADED


@pytest.mark.slow
def test_each_changed_key_is_refused_or_returned(vocabs: list[Path]) -> None:
    for (name, change), spec in exported_changes().items():
        if not change.startswith("model."):
            continue
        back = read_back(spec, Vocab.load(vocabs[pad_of(spec.model)]))
        key = change.removeprefix("model.").partition("=")[0]
        if key not in OTHER_FORM and key.rpartition(".")[2] not in TRAINS_ONLY:
            assert value_of(back, key) == value_of(spec.model.net("discriminator"), key), (name, change)


@cache
def sampled_changes() -> dict[tuple[str, str], ModelSpec]:
    """For each class and each key that computes something, the last change that is exported."""
    found = dict[tuple[str, str], ModelSpec]()
    for (_, change), spec in exported_changes().items():
        key = change.partition("=")[0]
        if key.rpartition(".")[2] not in TRAINS_ONLY and spec.model.longest >= len(IDS):
            _, architecture = choose_format(exportable_part(spec), pad_of(spec.model))
            found[architecture, key] = spec
    return found


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(MODEL_TYPES - ONLY_LOADED))
def test_transformers_computes_the_logits_of_changed_models(
    model_type: str, vocabs: list[Path], tmp_path: Path
) -> None:
    changes = {place: spec for place, spec in sampled_changes().items() if type_of(spec) == model_type}
    assert changes
    for (architecture, key), spec in changes.items():
        model, folder = built(spec), tmp_path / architecture / key
        to_transformers(weights(model), spec, vocabs[pad_of(spec.model)], folder)
        oracle = loaded(folder)
        assert type(oracle).__name__ == architecture
        for found, wanted in zip(our_logits(model), their_logits(oracle), strict=True):
            assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(2.0, float(wanted.abs().max()))), key


# A key that no table has.


@pytest.mark.parametrize("name", ["bert_base", "gpt2", "bart_base", "t5_base", "xlnet_base", "electra_small"])
def test_a_key_that_the_table_lacks_is_refused_unless_it_has_its_default(name: str) -> None:
    """As a key of a later version of Sesame, before a table has it."""
    one = recipe(name, "tiny")
    spec = ModelSpec(model=one.model, losses=one.losses, vocab_size=ROWS)
    format, _ = choose_format(spec, pad_of(spec.model))
    defaults = {field.name: field.default for field in fields(spec.model) if field.default is not NO_DEFAULT}
    tried = set()
    for key in defaults.keys() & format.keys.keys() - TRAINS_ONLY:
        shorter = replace(format, keys={ours: theirs for ours, theirs in format.keys.items() if ours != key})
        for change, changed in changed_specs(spec):
            usual = replace(changed.model, **{key: defaults[key]})
            if not change.startswith(f"model.{key}=") or value_of(changed.model, key) == value_of(usual, key):
                continue
            if format.architecture(changed, pad_of(spec.model)):
                assert shorter.architecture(changed, pad_of(spec.model)) is None, change
                tried.add(key)
    assert len(tried) > 1


# Keys that only the training uses.


def test_keys_of_the_training_are_keys_of_models_or_losses() -> None:
    parts = [part for spec in exportable_specs().values() for part in (spec.model, *spec.losses)]
    assert {field.name for part in parts for field in fields(part)} >= TRAINS_ONLY


@pytest.mark.one_in(4)
@pytest.mark.parametrize("key", sorted(TRAINS_ONLY))
def test_keys_of_the_training_do_not_change_logits(key: str) -> None:
    tried = 0
    for spec in exportable_specs().values():
        expected = None
        for change, changed in changed_specs(spec):
            if change.partition("=")[0].rpartition(".")[2] == key and "losses=" not in change:
                model = built(spec)
                expected = our_logits(model) if expected is None else expected
                other = Model(changed.model, changed.losses, ROWS, seed=1).eval()
                other.load_state_dict(model.state_dict())
                torch.testing.assert_close(our_logits(other), expected, rtol=0, atol=0)
                tried += 1
                break
    assert tried


# config.json of transformers.

# Keys of the config classes that do not change the logits of the classes here.
HARMLESS = {
    *("_name_or_path", "architectures", "dtype", "model_type", "transformers_version", "vocab_size"),
    *("id2label", "label2id", "problem_type", "classifier_dropout", "classifier_dropout_prob"),  # of task heads
    *("output_attentions", "output_hidden_states", "return_dict", "use_cache", "onnx_export"),  # outputs
    *("chunk_size_feed_forward", "reorder_and_upcast_attn"),  # the same result, computed in another way
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "mask_token_id", "unk_index", "mask_index"),
    *("decoder_start_token_id", "forced_eos_token_id", "lang_id", "is_encoder_decoder"),  # of generation
    *("embd_pdrop", "embed_init_std", "initializer_factor", "activation_dropout"),  # of the training
    # heads that are not exported: GPT2DoubleHeadsModel, XLMForQuestionAnswering
    *("start_n_top", "end_n_top", "summary_activation", "summary_first_dropout", "summary_last_dropout"),
    *("summary_proj_to_labels", "summary_type", "summary_use_proj"),
    *("dense_act_fn", "is_gated_act"),  # T5Config derives them from feed_forward_proj
    *("pooler_dropout", "pooler_hidden_act", "pooler_hidden_size"),  # of task heads of DeBERTa
    "legacy",  # the same head of DeBERTa with other names
    "task_type_vocab_size",  # without use_task_id
    "d_head",  # XLNetConfig requires d_model / n_head
    *("use_mems_eval", "use_mems_train"),  # without memory in the input
    *("embedding_dropout", "emb_pdrop", "resid_pdrop", "initializer_cutoff_factor"),  # of the training
    *("sparse_prediction", "sparse_pred_ignore_index"),  # logits of the labeled tokens only, with labels in the input
    *("classifier_pooling", "deterministic_flash_attn", "cls_token_id"),
    # MptForCausalLM ignores them, with linear biases in any case
    *("learned_pos_emb", "attn_impl", "embedding_fraction", "init_device", "norm_type"),
}


# Set by the classes of one side themselves.
SET_BY_CLASSES = {name: {"is_decoder"} for name in ("bart", "mbart", "pegasus", "t5", "mt5")}
SET_BY_CLASSES["qwen3"] = {"sliding_window", "max_window_layers"}  # without use_sliding_window


def flatten(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The keys of config.json, with dots for those of nested mappings, except where `names` has the whole mapping."""
    found = dict[str, Any]()
    for key, value in config.items():
        inside = isinstance(value, dict) and any(name.startswith(f"{key}.") for name in names)
        nested = {name.removeprefix(f"{key}.") for name in names}
        found |= {f"{key}.{name}": one for name, one in flatten(value, nested).items()} if inside else {key: value}
    return found


def remove(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The content of config.json without a key with dots."""
    name, _, rest = key.partition(".")
    if not rest:
        return {one: value for one, value in config.items() if one != name}
    return {**config, name: remove(config[name], rest)}


def their_keys(format: Format) -> set[str]:
    """The keys of config.json that a format reads or refuses."""
    names = ((theirs,) if isinstance(theirs, str) else theirs.names for theirs in format.keys.values())
    return {name for each in names for name in each} | format.built_in.keys()


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.model_type)
def test_each_key_of_a_config_class_is_read_refused_or_harmless(format: Format) -> None:
    """A key that changes the computation must not be ignored."""
    theirs = flatten(hf().AutoConfig.for_model(format.model_type).to_dict(), their_keys(format))
    left = theirs.keys() - their_keys(format) - SET_BY_CLASSES.get(format.model_type, set())
    assert {key for key in left if key.rpartition(".")[2] not in HARMLESS} == set()


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.model_type)
def test_a_missing_key_has_the_default_of_its_class(format: Format) -> None:
    config = {**hf().AutoConfig.for_model(format.model_type).to_dict(), **unusual_values(format)}
    expected = format.read(config)
    for key in their_keys(format) & flatten(config, their_keys(format)).keys():
        try:
            found = format.read(remove(config, key))
        except (TypeError, ValueError):
            continue
        assert normal_form(found) == normal_form(expected), key


NEEDED: dict[str, dict[str, Any]] = {
    "pegasus": {"activation_dropout": 0.1},
    "deberta-v2": {"pos_att_type": ["p2c", "c2p"], "position_buckets": 256},
}


def unusual_values(format: Format) -> dict[str, Any]:
    """Values that a format requires, and that are not the defaults of its class."""
    needed = NEEDED.get(format.model_type, {})
    return needed | {key: value for key, value in format.built_in.items() if format.defaults.get(key, value) != value}


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.model_type)
def test_other_values_of_built_in_keys_are_refused(format: Format) -> None:
    config = {**hf().AutoConfig.for_model(format.model_type).to_dict(), **unusual_values(format)}
    format.read(config)
    for key, value in format.built_in.items():
        other = not value if isinstance(value, bool) else f"not {value}"
        with pytest.raises(ValueError, match=f"invalid {key}: got "):
            format.read(merge(config, nest({key: other})))


def test_quantized_weights_are_refused() -> None:
    bert = next(format for format in FORMATS if format.model_type == "bert")
    config = hf().BertConfig().to_dict() | {"quantization_config": {"load_in_8bit": True}}
    with pytest.raises(ValueError, match="invalid quantization_config: got "):
        bert.read(config)
