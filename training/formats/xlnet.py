"""XLNet (arXiv:1906.08237): XLNetLMHeadModel, whose matrices have the shape [hidden size, heads, head size]."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from training.formats.format import Format, ModelClass
from training.formats.keys import Key, activation
from training.formats.names import Reshape, Weights
from training.formats.task_classes import TaskHeadClass
from training.losses import MaskedTokens
from training.model_spec import ModelSpec
from training.specs import Architecture, TwoStream

if TYPE_CHECKING:
    from torch import Tensor

POOL: Final = {"summary.pooler": ["sequence_summary.summary"]}
LEFT: Final = {"padding_side": "left"}  # the head reads the last place of a batch
ROW: Final = "XLNetForSequenceClassification"
ATTENTION: Final = "transformer.layer.*.rel_attn"


def with_two_segments(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The same model: attention uses only whether two tokens have the same segment."""
    if not isinstance(spec.model, TwoStream):
        return state, spec
    return state, replace(spec, model=replace(spec.model, type_vocab_size=2))


def _their_shape(name: str, ours: "Tensor", trunk: Architecture) -> "Tensor":
    if name == "trunk.unknown":
        return ours[None]
    if ".attention." in name and name.endswith("weight"):  # the weight of a linear layer
        return (ours if name.endswith("out.weight") else ours.T).unflatten(1, (trunk.num_attention_heads, -1))
    return ours


def _our_shape(name: str, theirs: "Tensor", trunk: Architecture) -> "Tensor":
    if name == "trunk.unknown":
        return theirs[0]
    if ".attention." in name and name.endswith("weight"):
        return theirs.flatten(1) if name.endswith("out.weight") else theirs.flatten(1).T
    return theirs


def _write_length(tokens: int) -> int | None:
    return tokens or None


def _read_length(tokens: int | None) -> int:
    return tokens or 0


XLNET: Final = Format(
    model_type="xlnet",
    classes=(ModelClass("XLNetLMHeadModel", (MaskedTokens(transform=False),)),),
    names={
        "trunk.tokens": ["transformer.word_embedding"],
        "trunk.unknown": ["transformer.mask_emb"],
        "trunk.blocks.*.attention_norm": ["transformer.layer.*.rel_attn.layer_norm"],
        "trunk.blocks.*.attention.query.weight": [f"{ATTENTION}.q"],
        "trunk.blocks.*.attention.key_value.weight": [f"{ATTENTION}.k", f"{ATTENTION}.v"],
        "trunk.blocks.*.attention.distance.weight": [f"{ATTENTION}.r"],
        "trunk.blocks.*.attention.out.weight": [f"{ATTENTION}.o"],
        "trunk.blocks.*.attention.segments": [f"{ATTENTION}.seg_embed"],
        "trunk.blocks.*.attention.biases.content": [f"{ATTENTION}.r_w_bias"],
        "trunk.blocks.*.attention.biases.distance": [f"{ATTENTION}.r_r_bias"],
        "trunk.blocks.*.attention.biases.segment": [f"{ATTENTION}.r_s_bias"],
        "trunk.blocks.*.feed_forward.up": ["transformer.layer.*.ff.layer_1"],
        "trunk.blocks.*.feed_forward.down": ["transformer.layer.*.ff.layer_2"],
        "trunk.blocks.*.feed_forward_norm": ["transformer.layer.*.ff.layer_norm"],
        "heads.masked_tokens": ["lm_loss"],
    },
    keys={
        "num_hidden_layers": "n_layer",
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "intermediate_size": "d_inner",
        "norm_eps": "layer_norm_eps",
        "activation": activation("ff_activation"),
        "position_embedding.mem_len": Key(("mem_len",), _write_length, _read_length),
        "position_embedding.reuse_len": Key(("reuse_len",), _write_length, _read_length),
        "attention_dropout": "dropout",  # the class has one rate; the next line writes it
        "hidden_dropout": "dropout",
        "init_std": "initializer_range",
    },
    fixed={"kind": "two_stream", "norm_position": "post", "position_embedding.kind": "relative"},
    built_in={
        "attn_type": "bi",
        "bi_data": False,
        "clamp_len": -1,
        "same_length": False,
        "untie_r": True,  # of older versions of transformers
        "tie_word_embeddings": True,
    },
    defaults={
        "d_inner": 4_096,
        "layer_norm_eps": 1e-12,
        "ff_activation": "gelu",
        "mem_len": 512,
        "dropout": 0.1,
        "initializer_range": 0.02,
    },
    written={"d_head": "head_dim"},
    old_keys={"n_token": "vocab_size"},
    task_heads={
        "row_label": TaskHeadClass(ROW, POOL | {"classify": ["logits_proj"]}, tokenizer=LEFT),
        "row_value": TaskHeadClass(ROW, POOL | {"regress": ["logits_proj"]}, tokenizer=LEFT),
        "token_tag": TaskHeadClass("XLNetForTokenClassification", {"classify": ["classifier"]}, tokenizer=LEFT),
        "answer_span": TaskHeadClass("XLNetForQuestionAnsweringSimple", {"ends": ["qa_outputs"]}, tokenizer=LEFT),
        "option_choice": TaskHeadClass("XLNetForMultipleChoice", POOL | {"rate": ["logits_proj"]}, tokenizer=LEFT),
    },
    as_class=with_two_segments,
    reshape=Reshape(_their_shape, _our_shape),
)
