"""The initial values of the tensors of published recipes, as stated by a paper or its code."""

import math

import pytest

from orchestration.config import load
from training.architectures import Backbone
from training.model import Model

SMALLER = [
    "model.num_hidden_layers=2",
    "model.hidden_size=128",
    "model.num_attention_heads=2",
    "data.tokenizer.vocab_size=500",
]
GPT2 = ["gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl"]
GPT3 = ["gpt3_125m", "gpt3_350m", "gpt3_760m", "gpt3_1_3b", "gpt3_2_7b", "gpt3_6_7b", "gpt3_13b", "gpt3_175b"]


def backbone_of(name: str) -> Backbone:
    """The model of a recipe with all of its keys, except its sizes."""
    recipe = load(name, SMALLER)
    return Model(recipe.model, recipe.losses, 500, seed=0).trunk


@pytest.mark.parametrize(
    ("name", "positions", "tokens"),
    [
        *((name, 0.01, 0.02) for name in (*GPT2, *GPT3)),  # model.py of openai/gpt-2; GPT-3 uses it too (section 2.1)
        ("gpt1", 0.02, 0.02),  # train.py of openai/finetune-transformer-lm: positions are rows of the same table
        ("megatron_1_2b", 0.02, 0.02),  # one init_method for both in NVIDIA/Megatron-LM
        ("turing_nlg", 0.02, 0.02),
        ("mt_nlg_530b", 0.004, 0.004),
        ("grover_mega", 0.01414 * 0.8796, 0.01414 * 0.8796),  # truncated at two standard deviations
    ],
)
def test_positions_and_tokens_of_a_decoder_have_the_initial_deviations_of_its_code(
    name: str, positions: float, tokens: float
) -> None:
    backbone = backbone_of(name)
    for table, std in ((backbone.positions.weight, positions), (backbone.tokens.weight, tokens)):
        assert float(table.detach().std()) == pytest.approx(std, rel=4 / math.sqrt(2 * table.numel()))


@pytest.mark.parametrize("scale", ["tiny", "small"])
def test_a_scaled_recipe_has_sinusoidal_initial_positions(scale: str) -> None:
    positions = load("gpt2", scale=scale).model.position_embedding
    assert (positions.init_method, positions.init_std) == ("sinusoidal", 0.0)
