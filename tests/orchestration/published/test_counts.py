"""Exact parameter counts of models: classes of transformers on the meta device, and closed forms without a class.

A config has the published shape; its source is in the recipe. A tensor that several modules share is counted once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import torch

from orchestration.config import list_names, load
from tests.training.parity import hf


@dataclass(frozen=True)
class Count:
    """The count of a model: a class of transformers with a config, or a formula; tensors beside those are `besides`."""

    parameters: int
    architecture: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    besides: int = 0

    def of_class(self) -> int:
        """Return the number of parameters of the class, without memory for them."""
        kind = getattr(hf(), self.architecture)
        with torch.device("meta"):
            model = kind(kind.config_class(**self.config))
        return self.besides + sum(tensor.numel() for tensor in model.parameters())


def encoder(vocab: int, layers: int, width: int, heads: int, **more: Any) -> dict[str, Any]:
    """Return the sizes of a BERT-like config, with a feed-forward layer of four times the width unless stated."""
    sizes = {"vocab_size": vocab, "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    return {**sizes, "intermediate_size": 4 * width, **more}


def pythia(parameters: int, layers: int, width: int, heads: int, vocab: int = 50_304) -> Count:
    """Return the count of a Pythia (models/*.yml of EleutherAI/pythia), whose output table is its own.

    The table of 50,277 tokens is padded to a multiple of 128 x the tensor-parallel size, which is 2 (6.9B) and 4 (12B).
    """
    return Count(
        parameters, "GPTNeoXForCausalLM", {**encoder(vocab, layers, width, heads), "tie_word_embeddings": False}
    )


def t5(parameters: int, architecture: str, vocab: int, width: int, inner: int, layers: int, heads: int) -> Count:
    """Return the count of a T5 version 1.1 (models/t5.1.1.*.gin). Its output table is its own.

    Transformers 5 ties both tables of a new model and reads two from a checkpoint.
    """
    sizes = {"vocab_size": vocab, "d_model": width, "d_kv": 64, "d_ff": inner, "num_layers": layers, "num_heads": heads}
    config = {**sizes, "feed_forward_proj": "gated-gelu"}
    return Count(parameters, architecture, config, besides=vocab * width)


def albert(parameters: int, layers: int, width: int, heads: int) -> Count:
    """Return the count of an ALBERT, which both versions have."""
    return Count(parameters, "AlbertForPreTraining", encoder(30_000, layers, width, heads))


DEBERTA: Final = {  # experiments/language_model/rtd_base.json of microsoft/DeBERTa
    **encoder(128_100, 12, 768, 12),
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "max_relative_positions": -1,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}
COUNTS: Final[dict[str, Count]] = {
    "albert_base_v2": albert(11_813_810, 12, 768, 12),
    "albert_large_v2": albert(17_847_474, 24, 1024, 16),
    "albert_xlarge_v2": albert(59_021_490, 24, 2048, 16),
    "albert_xxlarge_v2": albert(223_158_450, 12, 4096, 64),
    "bert_multilingual": Count(178_566_653, "BertForPreTraining", encoder(119_547, 12, 768, 12)),
    "cpm_2_6b": Count(
        2_597_073_920,
        "GPT2LMHeadModel",
        {"vocab_size": 30_000, "n_embd": 2560, "n_layer": 32, "n_head": 32, "n_positions": 1024}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "gptj_6b": Count(6_050_882_784, "GPTJForCausalLM"),
    "llama_110m": Count(
        109_529_856,
        "LlamaForCausalLM",
        {**encoder(32_000, 12, 768, 12, intermediate_size=2048), "tie_word_embeddings": True},
    ),
    "llama_7b": Count(6_738_415_616, "LlamaForCausalLM"),
    "mbart_large": Count(610_851_840, "MBartForConditionalGeneration", {"vocab_size": 250_027}),
    # Megatron-LM's two classes of sentence pairs and its padded table
    "megatron_bert_1_3b": Count(1_277_591_938, "MegatronBertForPreTraining", encoder(29_056, 24, 2048, 32)),
    "megatron_bert_3_9b": Count(3_865_326_978, "MegatronBertForPreTraining", encoder(29_056, 48, 2560, 40)),
    "mistral_7b": Count(7_241_732_096, "MistralForCausalLM"),
    "modernbert_base": Count(149_655_232, "ModernBertForMaskedLM"),
    "modernbert_large": Count(
        395_881_664, "ModernBertForMaskedLM", encoder(50_368, 28, 1024, 16, intermediate_size=2624)
    ),
    "mt5_small": t5(300_176_768, "MT5ForConditionalGeneration", 250_112, 512, 1024, 8, 6),
    "opt_125m": Count(125_239_296, "OPTForCausalLM"),
    "pythia_14m": pythia(14_067_712, 6, 128, 4),
    "pythia_31m": pythia(30_494_720, 6, 256, 8),
    "pythia_70m": pythia(70_426_624, 6, 512, 8),
    "pythia_160m": pythia(162_322_944, 12, 768, 12),
    "pythia_410m": pythia(405_334_016, 24, 1024, 16),
    "pythia_1b": pythia(1_011_781_632, 16, 2048, 8),
    "pythia_1_4b": pythia(1_414_647_808, 24, 2048, 16),
    "pythia_2_8b": pythia(2_775_208_960, 32, 2560, 32),
    "pythia_6_9b": pythia(6_857_302_016, 32, 4096, 32, vocab=50_432),
    "pythia_12b": pythia(11_846_072_320, 36, 5120, 40, vocab=50_688),
    "t5_v1_1_base": t5(247_577_856, "T5ForConditionalGeneration", 32_128, 768, 2048, 12, 12),
    "t5_v1_1_small": t5(76_961_152, "T5ForConditionalGeneration", 32_128, 512, 1024, 8, 6),
    "tinyllama_1_1b": Count(
        1_100_048_384,
        "LlamaForCausalLM",
        encoder(32_000, 22, 2048, 32, intermediate_size=5632, num_key_value_heads=4),
    ),
    "xlm_roberta_base": Count(
        278_295_186,
        "XLMRobertaForMaskedLM",
        encoder(250_002, 12, 768, 12, max_position_embeddings=514, type_vocab_size=1),
    ),
    # Both models have a token table: that of the discriminator is the difference to the generator's (arXiv:2111.09543,
    # 3.3). The head of replaced tokens has a norm, a linear layer and a classifier.
    "deberta_v3_base": Count(
        326_448_997,
        "DebertaV2Model",
        DEBERTA,
        besides=142_024_548 + 2 * 768 + (768 * 768 + 768) + (768 + 1),
    ),
}


def mosaicbert(vocab: int = 30_528, layers: int = 12, width: int = 768, inner: int = 3072) -> int:
    """Return the parameters of a MosaicBERT with its head (src/bert_layers.py of mosaicml/examples).

    The embeddings have tokens, two segments and a norm, and no positions. The gated layer has no bias.
    """
    norm = 2 * width
    attention = (width * 3 * width + 3 * width) + (width * width + width) + norm
    feed_forward = width * 2 * inner + (inner * width + width) + norm
    head = (width * width + width) + norm + vocab
    return (vocab + 2) * width + norm + layers * (attention + feed_forward) + head


def cpm(vocab: int = 30_000, positions: int = 1024, layers: int = 32, width: int = 2560) -> int:
    """Return the parameters of CPM (scripts/generate_text.sh of TsinghuaAI/CPM-1-Generate), which is a GPT-2."""
    norm = 2 * width
    attention = (width * 3 * width + 3 * width) + (width * width + width)
    feed_forward = (width * 4 * width + 4 * width) + (4 * width * width + width)
    return (vocab + positions) * width + layers * (attention + feed_forward + 2 * norm) + norm


CLOSED: Final[dict[str, tuple[int, Callable[[], int]]]] = {
    "cpm_2_6b": (2_597_073_920, cpm),
    "mosaicbert_base": (137_400_384, mosaicbert),
}


@pytest.mark.parametrize("name", COUNTS)
def test_class_of_transformers_has_the_published_number_of_parameters(name: str) -> None:
    assert COUNTS[name].of_class() == COUNTS[name].parameters


@pytest.mark.parametrize("name", CLOSED)
def test_closed_form_has_the_published_number_of_parameters(name: str) -> None:
    parameters, formula = CLOSED[name]
    assert formula() == parameters


def test_generator_of_deberta_has_half_the_layers_of_its_discriminator() -> None:
    generator = Count(142_024_548, "DebertaV2ForMaskedLM", {**DEBERTA, "num_hidden_layers": 6})
    assert generator.of_class() == generator.parameters


@pytest.mark.parametrize("name", sorted({*COUNTS, *CLOSED} & {*list_names("recipes")}))
def test_recipe_states_the_number_of_parameters_of_its_class(name: str) -> None:
    parameters = COUNTS[name].parameters if name in COUNTS else CLOSED[name][0]
    assert load(name).reported_results["parameters"] == parameters
