"""GPT-J (Wang and Komatsuzaki 2021): GPTJForCausalLM. Its output layer has a bias."""

from math import nextafter
from typing import Final

from training.formats.format import Format, ModelClass
from training.formats.keys import Key, activation
from training.formats.output_table import tie_as_stored
from training.formats.task_classes import TaskHeadClass, explain_missing_heads, make_causal_row_heads
from training.losses import NextToken

LAYER: Final = "transformer.h.*"


def write_rotary(values: tuple[int, int, float]) -> tuple[int, int, int]:
    """The sizes, and the number of rotated elements of a head.

    >>> write_rotary((4096, 16, 0.25))
    (4096, 16, 64)
    """
    width, heads, part = values
    return width, heads, int(width // heads * part)


def read_rotary(width: int, heads: int, rotated: int | None) -> tuple[int, int, float]:
    """The sizes, and the fraction of a head that is rotated: the one whose product with the head is `rotated`.

    >>> read_rotary(4096, 16, 64)
    (4096, 16, 0.25)
    """
    if not rotated:
        raise ValueError(f"invalid rotary_dim: got {rotated}, expected an even number of at least 2")
    part = rotated * heads / width
    return width, heads, part if int(width // heads * part) == rotated else nextafter(part, 1)


GPTJ: Final = Format(
    model_type="gptj",
    classes=(ModelClass("GPTJForCausalLM", (NextToken(bias=True),)),),
    names={
        "trunk.tokens": ["transformer.wte"],
        "trunk.output": ["lm_head"],
        "trunk.blocks.*.attention_norm": [f"{LAYER}.ln_1"],
        "trunk.blocks.*.attention.qkv": [f"{LAYER}.attn.{x}_proj" for x in "qkv"],
        "trunk.blocks.*.attention.out": [f"{LAYER}.attn.out_proj"],
        "trunk.blocks.*.feed_forward.up": [f"{LAYER}.mlp.fc_in"],
        "trunk.blocks.*.feed_forward.down": [f"{LAYER}.mlp.fc_out"],
        "trunk.final_norm": ["transformer.ln_f"],
        "heads.next_token": ["lm_head"],
    },
    keys={
        "num_hidden_layers": "n_layer",
        ("hidden_size", "num_attention_heads", "position_embedding.partial_rotary_factor"): Key(
            ("n_embd", "n_head", "rotary_dim"), write_rotary, read_rotary
        ),
        "intermediate_size": "n_inner",
        "norm_eps": "layer_norm_epsilon",
        "activation": activation("activation_function"),
        "position_embedding.max_position_embeddings": "n_positions",
        "tie_word_embeddings": "tie_word_embeddings",
        "hidden_dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "init_std": "initializer_range",
    },
    fixed={
        "kind": "decoder",
        "norm_position": "pre",
        "parallel_residual": "one_norm",
        "attention_bias": False,
        "position_embedding.kind": "rotary",
        "position_embedding.interleaved": True,
    },
    built_in={"rotary": True, "scale_attn_weights": True},  # of older versions of transformers
    defaults={
        "rotary_dim": 64,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "n_positions": 2_048,
        "tie_word_embeddings": False,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "initializer_range": 0.02,
    },
    written={"embd_pdrop": "hidden_dropout"},
    task_heads={
        **make_causal_row_heads("GPTJ", "trunk.final_norm.bias"),
        "answer_span": TaskHeadClass("GPTJForQuestionAnswering", {"ends": ["qa_outputs"]}),
        **explain_missing_heads("transformers has no such class of GPT-J", "token_tag", "option_choice"),
    },
    check_tensors=tie_as_stored("transformer.wte.weight", "lm_head.weight"),
)
