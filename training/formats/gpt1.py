"""GPT-1 (Radford 2018): OpenAIGPTLMHeadModel. Its "gelu" is the tanh form; its intermediate size is 4 x hidden size."""

from collections.abc import Iterable
from typing import Any

from preprocessing.tokenization import Vocab
from training.formats import gpt2
from training.formats.format import (
    Config,
    Names,
    TaskHeadClass,
    TaskHeads,
    Tensors,
    Weights,
    causal_pipeline,
    explain_missing_heads,
    gather,
    our_keys,
    rename,
    their_keys,
)
from training.losses import NextToken
from training.model_spec import ModelSpec

pooler = ""
model_type = "openai-gpt"
by_layer = True
pipeline = causal_pipeline
ROW, NORM = "OpenAIGPTForSequenceClassification", "trunk.blocks.{last}.feed_forward_norm.bias"
task_heads: TaskHeads = {
    "row_label": TaskHeadClass(ROW, {"classify": ["score"]}, bias_into=NORM),
    "row_value": TaskHeadClass(ROW, {"regress": ["score"]}, bias_into=NORM),
    **explain_missing_heads(
        "transformers has only OpenAIGPTForSequenceClassification", "token_tag", "answer_span", "option_choice"
    ),
}

NAMES: Names = {
    **{ours: theirs for ours, theirs in gpt2.NAMES.items() if ours.startswith("trunk.blocks.")},
    "trunk.tokens": ["transformer.tokens_embed"],
    "trunk.positions": ["transformer.positions_embed"],
}
KEYS = {ours: theirs for ours, theirs in gpt2.KEYS.items() if ours not in ("intermediate_size", "activation")}
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}
BUILT_IN = {"tie_word_embeddings": True}


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    fits = (
        trunk.norm_position == "post"
        and trunk.inner_width == 4 * trunk.hidden_size
        and trunk.activation in ACTIVATIONS.values()
    )
    return "OpenAIGPTLMHeadModel" if fits and gpt2.is_like(spec) else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == spec.model.activation)
    return their_keys(spec.model, KEYS) | {"afn": activation, "embd_pdrop": spec.model.hidden_dropout}


def spec(config: Config, tensors: Weights) -> ModelSpec:
    activation = ACTIVATIONS[config.get("afn", "gelu")]
    trunk = gpt2.decoder(our_keys(config, KEYS, BUILT_IN), norm_position="post", activation=activation)
    return ModelSpec(model=trunk, losses=(NextToken(),), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    return rename(state, NAMES, gpt2.INPUT_FIRST)


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    return gather({modern(name): tensor for name, tensor in tensors.items()}, NAMES, wanted, gpt2.INPUT_FIRST)


def modern(name: str) -> str:
    """Return the current name in transformers; files on the hub lack the prefix.

    >>> modern("tokens_embed.weight")
    'transformer.tokens_embed.weight'
    """
    return f"transformer.{name}" if name.startswith(("h.", "tokens_embed.", "positions_embed.")) else name
