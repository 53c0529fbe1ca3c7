"""XLNet (arXiv:1906.08237): XLNetLMHeadModel, whose matrices have the shape [hidden size, heads, head size]."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from preprocessing.tokenization import Vocab
from training.formats.format import (
    Config,
    Names,
    TaskHeadClass,
    TaskHeads,
    Tensors,
    Weights,
    causal_pipeline,
    gather,
    heads_of,
    our_keys,
    rename,
    their_keys,
    their_names,
)
from training.losses import MaskedTokens, has_transform
from training.model_spec import ModelSpec
from training.specs import TwoStream, TwoStreamRelativePositions

if TYPE_CHECKING:
    from torch import Tensor

pooler = ""
model_type = "xlnet"
by_layer = True
pipeline = causal_pipeline
POOL = {"summary.pooler": ["sequence_summary.summary"]}
LEFT = {"padding_side": "left"}  # the head reads the last place of a batch
ROW = "XLNetForSequenceClassification"
task_heads: TaskHeads = {
    "row_label": TaskHeadClass(ROW, POOL | {"classify": ["logits_proj"]}, tokenizer=LEFT),
    "row_value": TaskHeadClass(ROW, POOL | {"regress": ["logits_proj"]}, tokenizer=LEFT),
    "token_tag": TaskHeadClass("XLNetForTokenClassification", {"classify": ["classifier"]}, tokenizer=LEFT),
    "answer_span": TaskHeadClass("XLNetForQuestionAnsweringSimple", {"ends": ["qa_outputs"]}, tokenizer=LEFT),
    "option_choice": TaskHeadClass("XLNetForMultipleChoice", POOL | {"rate": ["logits_proj"]}, tokenizer=LEFT),
}

NAMES: Names = {
    "trunk.tokens": ["transformer.word_embedding"],
    "trunk.blocks.*.attention_norm": ["transformer.layer.*.rel_attn.layer_norm"],
    "trunk.blocks.*.feed_forward.up": ["transformer.layer.*.ff.layer_1"],
    "trunk.blocks.*.feed_forward.down": ["transformer.layer.*.ff.layer_2"],
    "trunk.blocks.*.feed_forward_norm": ["transformer.layer.*.ff.layer_norm"],
    "heads.masked_tokens": ["lm_loss"],
}
SHAPED = {  # our tensors with another shape, or without a leaf name, in transformers
    "trunk.unknown": ["transformer.mask_emb"],
    "trunk.blocks.*.attention.query.weight": ["transformer.layer.*.rel_attn.q"],
    "trunk.blocks.*.attention.key_value.weight": ["transformer.layer.*.rel_attn.k", "transformer.layer.*.rel_attn.v"],
    "trunk.blocks.*.attention.distance.weight": ["transformer.layer.*.rel_attn.r"],
    "trunk.blocks.*.attention.out.weight": ["transformer.layer.*.rel_attn.o"],
    "trunk.blocks.*.attention.segments": ["transformer.layer.*.rel_attn.seg_embed"],
    "trunk.blocks.*.attention.biases.content": ["transformer.layer.*.rel_attn.r_w_bias"],
    "trunk.blocks.*.attention.biases.distance": ["transformer.layer.*.rel_attn.r_r_bias"],
    "trunk.blocks.*.attention.biases.segment": ["transformer.layer.*.rel_attn.r_s_bias"],
}
KEYS = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "intermediate_size": "d_inner",
    "norm_eps": "layer_norm_eps",
    "activation": "ff_activation",
    "hidden_dropout": "dropout",
    "init_std": "initializer_range",
}
BUILT_IN = {"attn_type": "bi", "bi_data": False, "clamp_len": -1, "same_length": False, "tie_word_embeddings": True}
LOSS = MaskedTokens(transform=False)


def architecture(spec: ModelSpec, pad: int | None) -> str | None:
    trunk = spec.model
    fits = isinstance(trunk, TwoStream) and trunk.hidden_size == trunk.num_attention_heads * trunk.width_of_head
    plain = not any(has_transform(loss, trunk) for loss in spec.losses if loss.logits_for == "masked")
    return "XLNetLMHeadModel" if fits and plain and heads_of(spec) == {"masked_tokens"} else None


def config(spec: ModelSpec, vocab: Vocab) -> dict[str, Any]:
    assert isinstance(spec.model, TwoStream)
    lengths = {"mem_len": spec.model.mem_len or None, "reuse_len": spec.model.reuse_len or None}
    return their_keys(spec.model, KEYS) | lengths | {"d_head": spec.model.width_of_head}


def spec(config: Config, tensors: Weights) -> ModelSpec:
    keys = our_keys(config, KEYS, BUILT_IN)
    positions = TwoStreamRelativePositions(mem_len=config.get("mem_len") or 0, reuse_len=config.get("reuse_len") or 0)
    trunk = TwoStream(**keys, position_embedding=positions, attention_dropout=keys.get("hidden_dropout", 0.1))
    return ModelSpec(model=trunk, losses=(LOSS,), vocab_size=config["vocab_size"])


def theirs(state: Weights, spec: ModelSpec) -> Tensors:
    shaped = {name: tensor for name, tensor in state.items() if is_shaped(name)}
    tensors = rename({name: tensor for name, tensor in state.items() if name not in shaped}, NAMES)
    for name, tensor in shaped.items():
        names = their_shaped_names(name)
        for piece_name, piece in zip(names, tensor.chunk(len(names)), strict=True):
            tensors[piece_name] = _their_shape(name, piece, spec.model.num_attention_heads).contiguous()
    return tensors


def ours(tensors: Weights, spec: ModelSpec, wanted: Iterable[str]) -> Tensors:
    import torch

    wanted = list(wanted)
    state = gather(tensors, NAMES, [name for name in wanted if not is_shaped(name)])
    for name in filter(is_shaped, wanted):
        pieces = [_our_shape(name, tensors[piece_name]) for piece_name in their_shaped_names(name)]
        state[name] = torch.cat(pieces).contiguous()
    return state


def is_shaped(name: str) -> bool:
    """Whether our tensor has another shape, or no leaf name, in transformers."""
    return re.sub(r"\d+", "*", name) in SHAPED


def their_shaped_names(name: str) -> list[str]:
    """
    >>> their_shaped_names("trunk.blocks.3.attention.out.weight")
    ['transformer.layer.3.rel_attn.o']
    """
    return [theirs.removesuffix(".") for theirs in their_names(f"{name}.", SHAPED)]  # as if the leaf name were empty


def _their_shape(name: str, ours: "Tensor", heads: int) -> "Tensor":
    if name == "trunk.unknown":
        return ours[None]
    if name.endswith("weight"):  # the weight of a linear layer
        return (ours if name.endswith("out.weight") else ours.T).unflatten(1, (heads, -1))
    return ours


def _our_shape(name: str, theirs: "Tensor") -> "Tensor":
    if name == "trunk.unknown":
        return theirs[0]
    if name.endswith("weight"):
        return theirs.flatten(1) if name.endswith("out.weight") else theirs.flatten(1).T
    return theirs
