"""GPT-2 (Radford 2019): GPT2LMHeadModel."""

from typing import Final

from training.formats.format import Format, ModelClass
from training.formats.keys import activation
from training.formats.names import Names
from training.formats.task_classes import TaskHeadClass, make_causal_row_heads
from training.losses import NextToken

BLOCKS: Final[Names] = {
    "trunk.blocks.*.attention_norm": ["transformer.h.*.ln_1"],
    "trunk.blocks.*.attention.qkv": ["transformer.h.*.attn.c_attn"],
    "trunk.blocks.*.attention.out": ["transformer.h.*.attn.c_proj"],
    "trunk.blocks.*.feed_forward_norm": ["transformer.h.*.ln_2"],
    "trunk.blocks.*.feed_forward.up": ["transformer.h.*.mlp.c_fc"],
    "trunk.blocks.*.feed_forward.down": ["transformer.h.*.mlp.c_proj"],
}


def modernize(name: str) -> str:
    """Return the current name in transformers; files on the hub lack the prefix.

    >>> modernize("h.0.ln_1.weight")
    'transformer.h.0.ln_1.weight'
    """
    return f"transformer.{name}" if name.startswith(("h.", "wte.", "wpe.", "ln_f.")) else name


GPT2: Final = Format(
    model_type="gpt2",
    classes=(ModelClass("GPT2LMHeadModel", (NextToken(),)),),
    names={
        "trunk.tokens": ["transformer.wte"],
        "trunk.positions": ["transformer.wpe"],
        **BLOCKS,
        "trunk.final_norm": ["transformer.ln_f"],
    },
    keys={
        "num_hidden_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "norm_eps": "layer_norm_epsilon",
        "position_embedding.max_position_embeddings": "n_positions",
        "activation": activation("activation_function"),
        "hidden_dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "init_std": "initializer_range",
    },
    fixed={"kind": "decoder", "norm_position": "pre", "position_embedding.kind": "learned"},
    built_in={
        "tie_word_embeddings": True,
        "add_cross_attention": False,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    },
    defaults={
        "layer_norm_epsilon": 1e-5,
        "n_positions": 1_024,
        "activation_function": "gelu_new",
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "initializer_range": 0.02,
    },
    written={"embd_pdrop": "hidden_dropout"},
    transposed=("c_attn.weight", "c_proj.weight", "c_fc.weight"),
    task_heads={
        **make_causal_row_heads("GPT2", "trunk.final_norm.bias"),
        "token_tag": TaskHeadClass("GPT2ForTokenClassification", {"classify": ["classifier"]}),
        "answer_span": TaskHeadClass("GPT2ForQuestionAnswering", {"ends": ["qa_outputs"]}),
        "option_choice": "transformers has no GPT2ForMultipleChoice",
    },
    modern=modernize,
)
