"""GPT-1 (Radford 2018): OpenAIGPTLMHeadModel. Its "gelu" is the tanh form; its intermediate size is 4 x hidden size."""

from dataclasses import replace
from typing import Final

from training.formats.format import ModelClass
from training.formats.gpt2 import BLOCKS, GPT2
from training.formats.keys import activation
from training.formats.task_classes import explain_missing_heads, make_causal_row_heads
from training.losses import NextToken


def modernize(name: str) -> str:
    """Return the current name in transformers; files on the hub lack the prefix.

    >>> modernize("tokens_embed.weight")
    'transformer.tokens_embed.weight'
    """
    return f"transformer.{name}" if name.startswith(("h.", "tokens_embed.", "positions_embed.")) else name


GPT1: Final = replace(
    GPT2,
    model_type="openai-gpt",
    classes=(ModelClass("OpenAIGPTLMHeadModel", (NextToken(),)),),
    names={
        **BLOCKS,
        "trunk.tokens": ["transformer.tokens_embed"],
        "trunk.positions": ["transformer.positions_embed"],
    },
    keys={
        **{ours: theirs for ours, theirs in GPT2.keys.items() if ours != "intermediate_size"},
        "activation": activation("afn", {"gelu": "gelu_tanh", "relu": "relu"}),
    },
    fixed={**GPT2.fixed, "norm_position": "post"},
    built_in={"tie_word_embeddings": True},
    defaults={**GPT2.defaults, "n_positions": 512, "afn": "gelu"},
    task_heads={
        **make_causal_row_heads("OpenAIGPT", "trunk.blocks.{last}.feed_forward_norm.bias"),
        **explain_missing_heads(
            "transformers has only OpenAIGPTForSequenceClassification", "token_tag", "answer_span", "option_choice"
        ),
    },
    modern=modernize,
)
