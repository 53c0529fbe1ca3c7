"""MPT (MosaicML 2023): MptForCausalLM. Its attention has linear biases (ALiBi), and no layer has biases."""

from typing import Final

from training.formats.format import Format, ModelClass
from training.formats.keys import Key
from training.formats.output_table import tie_as_stored
from training.formats.task_classes import explain_missing_heads, make_causal_token_heads
from training.losses import NextToken

BLOCK: Final = "transformer.blocks.*"
# The config class of transformers 5 accepts only integers, so that no other probability can be written.
DROPOUT: Final = Key(("attn_config.attn_pdrop",), lambda dropout: 0, lambda dropout: dropout)

MPT: Final = Format(
    model_type="mpt",
    classes=(ModelClass("MptForCausalLM", (NextToken(),)),),
    names={
        "trunk.tokens": ["transformer.wte"],
        "trunk.output": ["lm_head"],
        "trunk.blocks.*.attention_norm": [f"{BLOCK}.norm_1"],
        "trunk.blocks.*.attention.qkv": [f"{BLOCK}.attn.Wqkv"],
        "trunk.blocks.*.attention.out": [f"{BLOCK}.attn.out_proj"],
        "trunk.blocks.*.feed_forward_norm": [f"{BLOCK}.norm_2"],
        "trunk.blocks.*.feed_forward.up": [f"{BLOCK}.ffn.up_proj"],
        "trunk.blocks.*.feed_forward.down": [f"{BLOCK}.ffn.down_proj"],
        "trunk.final_norm": ["transformer.norm_f"],
    },
    keys={
        "num_hidden_layers": "n_layers",
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "norm_eps": "layer_norm_epsilon",
        "position_embedding.max_position_embeddings": "max_seq_len",
        "tie_word_embeddings": "tie_word_embeddings",
        "attention_dropout": DROPOUT,
        "hidden_dropout": DROPOUT,
        "init_std": "initializer_range",
    },
    fixed={
        "kind": "decoder",
        "norm_position": "pre",
        "bias": False,
        "activation": "gelu",
        "position_embedding.kind": "alibi",
    },
    built_in={
        "expansion_ratio": 4,
        "no_bias": True,
        "logit_scale": None,
        "attn_config.alibi": True,
        "attn_config.alibi_bias_max": 8,
        "attn_config.attn_type": "multihead_attention",
        "attn_config.clip_qkv": None,
        "attn_config.softmax_scale": None,
        "attn_config.prefix_lm": False,
        "attn_config.qk_ln": False,
        "attn_config.attn_uses_sequence_id": False,
    },
    defaults={
        "layer_norm_epsilon": 1e-5,
        "max_seq_len": 2_048,
        "tie_word_embeddings": True,
        "attn_config.attn_pdrop": 0,
        "initializer_range": 0.02,
    },
    task_heads={
        **make_causal_token_heads("Mpt", "classifier"),
        **explain_missing_heads(
            "MptForSequenceClassification has no bias in its head, and its norms have none", "row_label", "row_value"
        ),
        "option_choice": "transformers has no MptForMultipleChoice",
    },
    check_tensors=tie_as_stored("transformer.wte.weight", "lm_head.weight"),
)
