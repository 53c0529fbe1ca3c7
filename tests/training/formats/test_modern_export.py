"""LLaMA, Mistral, Qwen3, GPT-NeoX, GPT-J, MPT and ModernBERT compute the same as in transformers, in both directions.

Their public directories are read, with the keys and tensors of older versions; what Sesame does not compute is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing.errors import BadInput
from preprocessing.schema import Row
from tests.training import modern
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.modern import GPTJ, LLAMA, LONGEST, MODERN_BERT, MPT, NEOX
from tests.training.parity import ONE_PAD, built, gradients, inside, loaded, randomized, vocabulary, weights
from training.evaluation.generation import GenerationLimits, Prompt, generate
from training.formats import FORMATS, describe_export, save_weights, to_transformers
from training.formats.load import from_transformers
from training.formats.round_trip import normal_form
from training.formats.start import load_init_checkpoint, require_fitting_weights
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import (
    CausalSlidingWindow,
    Decoder,
    Encoder,
    EncoderAlternatingWindow,
    FullAttention,
    LinearScaling,
    Llama3Scaling,
    RotaryPositions,
    SlidingWindow,
    YarnScaling,
)

TABLE: Final = 320
FORMAT_OF: Final = {format.model_type: format for format in FORMATS}


def rotary(**keys: Any) -> RotaryPositions:
    return RotaryPositions(max_position_embeddings=LONGEST, **keys)


LINEAR, LLAMA3, YARN = (
    rotary(rope_scaling=LinearScaling(factor=4.0)),
    rotary(rope_theta=500.0, rope_scaling=Llama3Scaling(factor=8.0, original_max_position_embeddings=16)),
    rotary(rope_theta=100.0, rope_scaling=YarnScaling(factor=2.5, original_max_position_embeddings=16, beta_fast=4.0)),
)
TRUNKS: Final[dict[str, Decoder | Encoder]] = {
    "llama": LLAMA,
    "llama, tied": replace(LLAMA, tie_word_embeddings=True),
    "llama, biases, wide heads": replace(LLAMA, attention_bias=True, mlp_bias=True, head_dim=12, num_key_value_heads=0),
    "llama, linear": replace(LLAMA, position_embedding=LINEAR),
    "llama, llama3": replace(LLAMA, position_embedding=LLAMA3),
    "llama, yarn": replace(LLAMA, position_embedding=YARN),
    "mistral": modern.DECODERS["mistral"],
    "mistral, without a window": replace(LLAMA, hidden_size=36, num_attention_heads=8, head_dim=8),
    "qwen3": modern.DECODERS["qwen 3"],
    "qwen3, untied": replace(LLAMA, qk_norm=True, attention_bias=True),
    "gpt_neox": NEOX,
    "gpt_neox, tied": replace(NEOX, tie_word_embeddings=True, attention_bias=False),
    "gpt_neox, sequential": replace(NEOX, parallel_residual="none", position_embedding=YARN),
    "gptj": GPTJ,
    "gptj, tied": replace(GPTJ, tie_word_embeddings=True),
    "mpt": MPT,
    "mpt, 6 heads, untied": replace(MPT, hidden_size=48, num_attention_heads=6, tie_word_embeddings=False),
    "modernbert": MODERN_BERT,
    "modernbert, biases": replace(MODERN_BERT, bias=True, tie_word_embeddings=False),
    "modernbert, every second layer": replace(
        MODERN_BERT, attention_window=EncoderAlternatingWindow(size=4, global_attn_every_n_layers=2)
    ),
    "modernbert, full": replace(MODERN_BERT, attention_window=FullAttention(), position_embedding=LLAMA3),
    "modernbert, all local, scaled": replace(
        MODERN_BERT, attention_window=SlidingWindow(size=6), position_embedding=YARN
    ),
}
DECODERS: Final = [case for case, trunk in TRUNKS.items() if trunk.kind == "decoder"]
every_case = pytest.mark.parametrize("case", TRUNKS)


def spec_of(case: str) -> ModelSpec:
    trunk = TRUNKS[case]
    loss = MaskedTokens() if trunk.kind == "encoder" else NextToken(bias=case.startswith("gptj"))
    return ModelSpec(model=trunk, losses=(loss,), vocab_size=TABLE)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small vocabulary whose padding is token 1."""
    return vocabulary(ONE_PAD, tmp_path_factory.mktemp("pieces"))


def exported(case: str, pieces: Path, folder: Path) -> tuple[Model, Any]:
    """Our model, and its export loaded by plain from_pretrained."""
    model = built(spec_of(case))
    to_transformers(weights(model), model.spec, pieces, folder)
    return model, loaded(folder)


def rows() -> list[Row]:
    """Sequences of which one is longer than the windows. No ID is padding."""
    return [
        {**row, "input_ids": row["input_ids"] + 2, "token_type_ids": row["token_type_ids"] * 0}
        for row in random_rows([5, 21, 1, 12], TABLE - 2)
    ]


def our_logits(model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits at each token of an unpadded batch."""
    hidden_TD, heads = model.trunk(batch), dict(model.heads.items())
    if "masked_tokens" in heads:
        hidden_TD = heads["masked_tokens"].features(hidden_TD)
    (head,) = heads.values()
    return F.linear(hidden_TD, model.trunk.table, head.bias)


def assert_alike(model: Model, oracle: Any) -> None:
    """Assert equal logits, loss and gradients, ours without padding and theirs with it."""
    ours, theirs = collate_unpadded(rows()), collate_padded(rows(), 24, pad=1)
    logits = oracle(input_ids=theirs["input_ids"], attention_mask=inside(theirs).long()).logits
    torch.testing.assert_close(our_logits(model, ours), logits[inside(theirs)], rtol=1e-6, atol=1e-5)
    wanted = F.cross_entropy(logits.flatten(0, 1)[theirs["targets_at"]], theirs["targets"])
    (score,) = model(ours).values()
    torch.testing.assert_close(score.loss / score.count, wanted, rtol=0, atol=1e-5)
    wanted.backward()
    (score.loss / score.count).backward()
    found = FORMAT_OF[oracle.config.model_type].theirs(gradients(model), model.spec)
    torch.testing.assert_close(found, gradients(oracle), rtol=0, atol=1e-5)


@pytest.mark.one_in(4)
@every_case
def test_an_exported_model_has_our_logits_loss_and_gradients(case: str, pieces: Path, tmp_path: Path) -> None:
    model, oracle = exported(case, pieces, tmp_path)
    assert oracle.config.model_type == case.partition(",")[0]
    assert type(oracle).__name__ == describe_export(model.spec, 1)
    assert_alike(model, oracle)


@pytest.mark.one_in(4)
@every_case
def test_a_model_of_transformers_has_the_same_logits_loss_and_gradients_here(
    case: str, pieces: Path, tmp_path: Path
) -> None:
    _, oracle = exported(case, pieces, tmp_path / "config")
    randomized(oracle).save_pretrained(tmp_path / "theirs")
    spec, state = from_transformers(tmp_path / "theirs")
    assert replace(spec, model=normal_form(spec.model)) == replace(spec_of(case), model=normal_form(TRUNKS[case]))
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    model.load_state_dict(state)
    assert_alike(model, oracle)


@pytest.mark.one_in(4)
@every_case
def test_weights_survive_export_and_import_bit_for_bit(case: str, pieces: Path, tmp_path: Path) -> None:
    model, oracle = exported(case, pieces, tmp_path / "ours")
    oracle.save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        _, state = from_transformers(tmp_path / folder)
        assert state.keys() == weights(model).keys()
        assert all(torch.equal(state[name], tensor) for name, tensor in weights(model).items())


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", DECODERS)
def test_greedy_generation_with_a_cache_equals_that_of_transformers(case: str, pieces: Path, tmp_path: Path) -> None:
    model, oracle = exported(case, pieces, tmp_path)
    prompts = [np.random.default_rng(7).integers(4, TABLE, size=length) for length in (9, 2)]
    found = generate(model, [Prompt(ids) for ids in prompts], GenerationLimits(max_new_tokens=14))
    for ids, ours in zip(prompts, found, strict=True):
        given = torch.from_numpy(ids)[None]
        wanted = oracle.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=14, eos_token_id=None
        )
        assert ours.ids.tolist() == wanted[0, len(ids) :].tolist()


# Public directories.

PUBLIC: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {  # config.json, and what it says about our keys
    "huggyllama/llama-7b": (
        {
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "initializer_range": 0.02,
            "max_sequence_length": 2048,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "rms_norm_eps": 1e-06,
            "tie_word_embeddings": False,
            "vocab_size": 32000,
        },
        {"groups": 32, "position_embedding": RotaryPositions(), "tie_word_embeddings": False, "norm_eps": 1e-6},
    ),
    "NousResearch/Yarn-Llama-2-7b-64k": (
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 65536,
            "pretraining_tp": 1,
            "rope_scaling": {
                "factor": 16.0,
                "original_max_position_embeddings": 4096,
                "type": "yarn",
                "finetuned": True,
            },
            "rope_theta": 10000.0,
            "vocab_size": 32000,
        },
        {
            "position_embedding": RotaryPositions(
                max_position_embeddings=65536,
                rope_scaling=YarnScaling(factor=16.0, original_max_position_embeddings=4096),
            )
        },
    ),
    "meta-llama/Llama-3.2-1B": (
        {
            "model_type": "llama",
            "attention_bias": False,
            "head_dim": 64,
            "hidden_act": "silu",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "num_attention_heads": 32,
            "num_hidden_layers": 16,
            "num_key_value_heads": 8,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "factor": 32.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
            "vocab_size": 128256,
        },
        {
            "tie_word_embeddings": True,
            "num_key_value_heads": 8,
            "position_embedding": RotaryPositions(
                max_position_embeddings=131072,
                rope_theta=500000.0,
                rope_scaling=Llama3Scaling(factor=32.0, original_max_position_embeddings=8192),
            ),
        },
    ),
    "mistralai/Mistral-7B-v0.1": (
        {
            "model_type": "mistral",
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0,
            "sliding_window": 4096,
            "tie_word_embeddings": False,
            "vocab_size": 32000,
        },
        {"attention_window": CausalSlidingWindow(size=4096), "groups": 8},
    ),
    "Qwen/Qwen3-0.6B": (
        {
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "max_position_embeddings": 40960,
            "max_window_layers": 28,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
        {"head_dim": 128, "qk_norm": True, "tie_word_embeddings": True, "attention_window": FullAttention()},
    ),
    "EleutherAI/pythia-70m": (
        {
            "model_type": "gpt_neox",
            "hidden_act": "gelu",
            "hidden_size": 512,
            "intermediate_size": 2048,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 2048,
            "num_attention_heads": 8,
            "num_hidden_layers": 6,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
            "vocab_size": 50304,
        },
        {"parallel_residual": "two_norms", "position_embedding": RotaryPositions(partial_rotary_factor=0.25)},
    ),
    "EleutherAI/gpt-neox-20b": (
        {
            "model_type": "gpt_neox",
            "attention_probs_dropout_prob": 0,
            "hidden_act": "gelu_fast",
            "hidden_dropout_prob": 0,
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 2048,
            "num_attention_heads": 64,
            "num_hidden_layers": 44,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
            "tie_word_embeddings": False,
            "vocab_size": 50432,
        },
        {"activation": "gelu_tanh", "parallel_residual": "two_norms"},
    ),
    "EleutherAI/gpt-j-6b": (
        {
            "model_type": "gptj",
            "activation_function": "gelu_new",
            "attn_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "layer_norm_epsilon": 1e-05,
            "n_embd": 4096,
            "n_head": 16,
            "n_inner": None,
            "n_layer": 28,
            "n_positions": 2048,
            "resid_pdrop": 0.0,
            "rotary": True,
            "rotary_dim": 64,
            "scale_attn_weights": True,
            "tie_word_embeddings": False,
            "vocab_size": 50400,
        },
        {"position_embedding": RotaryPositions(partial_rotary_factor=0.25, interleaved=True), "inner_width": 16384},
    ),
    "mosaicml/mpt-7b": (
        {
            "model_type": "mpt",
            "attn_config": {
                "alibi": True,
                "alibi_bias_max": 8,
                "attn_impl": "torch",
                "attn_pdrop": 0,
                "attn_type": "multihead_attention",
                "attn_uses_sequence_id": False,
                "clip_qkv": None,
                "prefix_lm": False,
                "qk_ln": False,
                "softmax_scale": None,
            },
            "d_model": 4096,
            "emb_pdrop": 0,
            "embedding_fraction": 1.0,
            "expansion_ratio": 4,
            "init_device": "cpu",
            "learned_pos_emb": True,
            "logit_scale": None,
            "max_seq_len": 2048,
            "n_heads": 32,
            "n_layers": 32,
            "no_bias": True,
            "norm_type": "low_precision_layernorm",
            "resid_pdrop": 0,
            "vocab_size": 50432,
        },
        {"bias": False, "attention_dropout": 0, "inner_width": 16384, "tie_word_embeddings": True},
    ),
    "answerdotai/ModernBERT-base": (
        {
            "model_type": "modernbert",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "classifier_activation": "gelu",
            "classifier_bias": False,
            "classifier_pooling": "mean",
            "decoder_bias": True,
            "embedding_dropout": 0.0,
            "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0,
            "hidden_activation": "gelu",
            "hidden_size": 768,
            "intermediate_size": 1152,
            "layer_norm_eps": 1e-05,
            "local_attention": 128,
            "local_rope_theta": 10000.0,
            "max_position_embeddings": 8192,
            "mlp_bias": False,
            "norm_bias": False,
            "norm_eps": 1e-05,
            "num_attention_heads": 12,
            "num_hidden_layers": 22,
            "position_embedding_type": "absolute",
            "sparse_prediction": False,
            "tie_word_embeddings": True,
            "vocab_size": 50368,
        },
        {
            "attention_window": EncoderAlternatingWindow(size=128),
            "position_embedding": RotaryPositions(
                max_position_embeddings=8192, rope_theta=160000.0, local_rope_theta=10000.0
            ),
            "bias": False,
            "embedding_norm": True,
        },
    ),
    "google/t5-v1_1-base": (
        {
            "model_type": "t5",
            "d_ff": 2048,
            "d_kv": 64,
            "d_model": 768,
            "dropout_rate": 0.1,
            "feed_forward_proj": "gated-gelu",
            "layer_norm_epsilon": 1e-06,
            "num_decoder_layers": 12,
            "num_heads": 12,
            "num_layers": 12,
            "relative_attention_num_buckets": 32,
            "tie_word_embeddings": False,
            "vocab_size": 32128,
        },
        {"activation": "gelu_tanh", "scale_decoder_outputs": False, "tie_word_embeddings": False},
    ),
    "google/mt5-small": (
        {
            "model_type": "mt5",
            "d_ff": 1024,
            "d_kv": 64,
            "d_model": 512,
            "feed_forward_proj": "gated-gelu",
            "num_decoder_layers": 8,
            "num_heads": 6,
            "num_layers": 8,
            "tie_word_embeddings": False,
            "vocab_size": 250112,
        },
        {"width_of_heads": 384, "scale_decoder_outputs": False, "tie_word_embeddings": False},
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_configuration_of_a_public_model_is_read(name: str) -> None:
    config, expected = PUBLIC[name]
    trunk = FORMAT_OF[config["model_type"]].read(config)
    assert {key: getattr(trunk, key) for key in expected} == expected


def rewrite(folder: Path, rename: Mapping[str, str], more: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Rename tensors, add others, and replace keys of config.json; None removes a key."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    kept = {rename.get(name, name): tensor for name, tensor in tensors.items()}
    safetensors.torch.save_file({**kept, **more}, folder / "model.safetensors")
    keys = json.loads((folder / "config.json").read_text()) | dict(config)
    content = {key: value for key, value in keys.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(content))


MASK: Final = torch.ones(1, 1, LONGEST, LONGEST, dtype=torch.bool)
OLDER: Final[dict[str, tuple[dict[str, str], dict[str, Tensor], dict[str, Any]]]] = {
    "llama, linear": (
        {},
        {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)},
        {"rope_parameters": None, "rope_theta": 10000, "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    "gpt_neox": (
        {"lm_head.weight": "embed_out.weight"},
        {
            "gpt_neox.layers.0.attention.bias": MASK,
            "gpt_neox.layers.0.attention.masked_bias": torch.tensor(-1e9),
            "gpt_neox.layers.0.attention.rotary_emb.inv_freq": torch.ones(1),
        },
        {"rope_parameters": None, "rotary_pct": 0.25, "rotary_emb_base": 10000},
    ),
    "gptj": (
        {},
        {"transformer.h.0.attn.bias": MASK, "transformer.h.0.attn.masked_bias": torch.tensor(-1e9)},
        {"rotary": True},
    ),
    "modernbert": (
        {},
        {},
        {
            "layer_types": None,
            "rope_parameters": None,
            "global_rope_theta": 160.0,
            "local_rope_theta": 10.0,
            "global_attn_every_n_layers": 3,
        },
    ),
}


@pytest.mark.parametrize("case", OLDER)
def test_older_files_are_initial_weights(case: str, pieces: Path, tmp_path: Path) -> None:
    """With keys and tensors of older versions, and for a recipe whose keys have values that stand for others."""
    model, _ = exported(case, pieces, tmp_path)
    rewrite(tmp_path, *OLDER[case])
    started = Model(TRUNKS[case], model.spec.losses, TABLE, seed=5)
    load_init_checkpoint(started, tmp_path)
    assert all(torch.equal(tensor, weights(started)[name]) for name, tensor in weights(model).items())


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "invalid rope_type: got 'dynamic'"),
        ("llama", {"rope_parameters": None, "rope_scaling": {"type": "longrope"}}, "invalid rope_type: got 'longrope'"),
        (
            "llama",
            {"rope_scaling": {"factor": 4.0}},
            r"invalid rope_scaling: got \{'factor': 4\.0\}, expected \{.*\} as",
        ),
        ("llama", {"rope_theta": 5.0}, r"invalid rope_theta: got 5\.0, expected 10000\.0 as rope_parameters"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 2.0}},
            r"invalid rope_parameters\.attention_factor: got 2\.0, expected 1\.1386",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0}},
            r"invalid rope_parameters\.mscale: got 1\.0, expected no such key",
        ),
        ("llama", {"partial_rotary_factor": 0.5}, r"invalid partial_rotary_factor: got 0\.5, expected 1\.0"),
        ("llama", {"pretraining_tp": 2}, "invalid pretraining_tp: got 2, expected 1"),
        ("llama", {"hidden_act": "relu2"}, "invalid hidden_act: got 'relu2'"),
        ("mistral", {"layer_types": ["full_attention"] * 3}, "invalid layer_types: got"),
        ("mistral", {"sliding_window": 0}, "invalid model.attention_window.size: got 0"),
        ("qwen3", {"use_sliding_window": True}, "invalid use_sliding_window: got True, expected False"),
        ("qwen3", {"layer_types": ["sliding_attention"] * 3}, "invalid layer_types: got 'sliding_attention'"),
        ("gpt_neox", {"use_parallel_residual": "no"}, "invalid use_parallel_residual: got 'no'"),
        ("gptj", {"rotary_dim": 0}, "invalid rotary_dim: got 0"),
        ("gptj", {"rotary_dim": 3}, "invalid model.position_embedding.partial_rotary_factor"),
        ("mpt", {"attn_config": {"clip_qkv": 6.0}}, r"invalid attn_config\.clip_qkv: got 6\.0, expected None"),
        ("mpt", {"no_bias": False}, "invalid no_bias: got False, expected True"),
        ("modernbert", {"decoder_bias": False}, "invalid decoder_bias: got False, expected True"),
        ("modernbert", {"classifier_activation": "silu"}, "invalid classifier_activation: got 'silu'"),
        (
            "modernbert",
            {"layer_types": [*["full_attention"] * 2, *["sliding_attention"] * 3]},
            "invalid layer_types: got",
        ),
        ("modernbert", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "invalid rope_scaling: got"),
        (
            "modernbert",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            r"invalid rope_parameters\.sliding_attention: got",
        ),
    ],
)
def test_a_value_that_sesame_does_not_compute_is_refused_in_one_line(
    case: str, change: dict[str, Any], message: str, pieces: Path, tmp_path: Path
) -> None:
    model = built(spec_of(case))
    to_transformers(weights(model), model.spec, pieces, tmp_path)
    rewrite(tmp_path, {}, {}, change)
    with pytest.raises(BadInput, match=message) as refused:
        from_transformers(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "trunk",
    [
        replace(LLAMA, norm_type="layernorm"),
        replace(LLAMA, bias=True),
        replace(LLAMA, hidden_size=48, activation="gelu", feed_forward=MPT.feed_forward),
        replace(LLAMA, position_embedding=rotary(partial_rotary_factor=0.5)),
        replace(LLAMA, position_embedding=rotary(interleaved=True)),
        replace(LLAMA, qk_norm=True, attention_window=CausalSlidingWindow(size=4)),
        replace(LLAMA, attention_bias=True, attention_window=CausalSlidingWindow(size=4)),
        replace(NEOX, num_key_value_heads=2),
        replace(NEOX, parallel_residual="one_norm"),
        replace(GPTJ, position_embedding=rotary(partial_rotary_factor=0.5, interleaved=True, rope_theta=500.0)),
        replace(MPT, activation="relu"),
        replace(MPT, intermediate_size=64),
        replace(MODERN_BERT, type_vocab_size=1),
        replace(MODERN_BERT, embedding_norm=False),
        replace(MODERN_BERT, num_key_value_heads=2),
        modern.MOSAIC_BERT,
        modern.DECODERS["gated attention"],
        modern.DECODERS["local theta"],
    ],
)
def test_a_model_that_transformers_does_not_have_is_not_exported(trunk: Any) -> None:
    loss = MaskedTokens() if trunk.kind == "encoder" else NextToken()
    with pytest.raises(BadInput, match="transformers has no class for this"):
        describe_export(ModelSpec(model=trunk, losses=(loss,), vocab_size=TABLE), 1)


# Tied and untied tables, as transformers decides.


def test_two_different_tables_in_the_files_are_not_tied(pieces: Path, tmp_path: Path) -> None:
    model, _ = exported("llama", pieces, tmp_path)
    rewrite(tmp_path, {}, {}, {"tie_word_embeddings": True})
    spec, state = from_transformers(tmp_path)
    assert not spec.model.tie_word_embeddings
    assert torch.equal(state["trunk.output.weight"], model.trunk.output.weight)
    assert torch.equal(loaded(tmp_path).lm_head.weight, model.trunk.output.weight)


def test_two_equal_tables_in_the_files_are_tied(pieces: Path, tmp_path: Path) -> None:
    model, _ = exported("llama, tied", pieces, tmp_path)
    rewrite(tmp_path, {}, {"lm_head.weight": model.trunk.tokens.weight.detach().clone()}, {})
    spec, state = from_transformers(tmp_path)
    assert spec.model.tie_word_embeddings
    assert "trunk.output.weight" not in state


# Initial weights.


@pytest.mark.parametrize(
    ("case", "keys"),
    [
        ("llama", {"num_key_value_heads": 2, "attention_bias": False, "norm_bias": False, "head_dim": 8}),
        ("gpt_neox", {"num_key_value_heads": 4, "mlp_bias": True, "intermediate_size": 128}),
        ("modernbert", {"embedding_norm": True, "mlp_bias": False}),
    ],
)
def test_values_that_stand_for_others_are_equal(case: str, keys: dict[str, Any], tmp_path: Path) -> None:
    model = built(spec_of(case))
    save_weights(weights(model), replace(model.spec, model=replace(TRUNKS[case], **keys)), tmp_path)
    require_fitting_weights(tmp_path, TRUNKS[case], model.spec.losses)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_key_value_heads": 0}, "invalid model.num_key_value_heads: got 4, expected 2 "),
        ({"attention_bias": True}, "invalid model.attention_bias: got true, expected false "),
        ({"feed_forward": MPT.feed_forward}, "invalid model.feed_forward.kind: got plain, expected gated "),
        ({"tie_word_embeddings": True}, "invalid model.tie_word_embeddings: got true, expected false "),
    ],
)
def test_another_architecture_is_refused_with_the_value_to_set(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = built(spec_of("llama"))
    save_weights(weights(model), model.spec, tmp_path)
    with pytest.raises(BadInput) as refused:
        require_fitting_weights(tmp_path, replace(LLAMA, **keys), model.spec.losses)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
