"""ALBERT (arXiv:1909.11942): AlbertForMaskedLM, AlbertForPreTraining.

The classes of transformers share whole layers, and always project the embeddings. A model that shares only attention
or only feed-forward layers is exported without sharing, as copies. If embedding_size equals hidden_size, the
projection is an identity matrix.
"""

import re
from dataclasses import replace
from typing import Final

from training.formats.bert import BERT, classes_of, from_zero
from training.formats.names import Tensors, Weights
from training.formats.task_classes import make_pooled_heads
from training.model_spec import ModelSpec
from training.specs import Architecture, Encoder

POOLER: Final = "albert.pooler"
LAYER: Final = "albert.encoder.albert_layer_groups.*.albert_layers.0"
WIDEN: Final = "albert.encoder.embedding_hidden_mapping_in"


def share_all(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The same model as groups of layers that share all weights. A group has one layer if not all are shared."""
    state, spec = from_zero(state, spec)
    trunk = spec.model
    if not isinstance(trunk, Encoder):
        return state, spec
    copies = {copy: tensor.clone() for name, tensor in state.items() for copy in _list_copies(name, trunk)}
    groups = trunk.num_hidden_groups if trunk.parameter_sharing == "all" else trunk.num_hidden_layers
    return copies, replace(spec, model=replace(trunk, parameter_sharing="all", num_hidden_groups=groups))


def _list_copies(name: str, trunk: Encoder) -> list[str]:
    """The names of a tensor with the number of a group: one for each group that contains it."""
    block = re.search(r"blocks\.(\d+)\.(attention|feed_forward)", name)
    if block is None:
        return [name]
    number, layers, groups = int(block[1]), trunk.num_hidden_layers, trunk.num_hidden_groups
    numbers = [number]
    if trunk.parameter_sharing == "all":
        numbers = [number * groups // layers]
    elif trunk.parameter_sharing == block[2]:
        numbers = [i for i in range(layers) if i * groups // layers == number * groups // layers]
    return [name.replace(f"blocks.{number}.", f"blocks.{copy}.") for copy in numbers]


def find_copy(name: str, spec: ModelSpec) -> str:
    """The name of the first copy of a tensor."""
    assert isinstance(spec.model, Encoder)
    return _list_copies(name, spec.model)[0]


def make_projection(spec: ModelSpec) -> Tensors:
    """The identity matrix that projects embeddings of the hidden size."""
    width = spec.model.hidden_size
    if spec.model.table_width != width:
        return {}
    import torch

    return {f"{WIDEN}.weight": torch.eye(width), f"{WIDEN}.bias": torch.zeros(width)}


def check_projection(trunk: Architecture, tensors: Weights) -> Architecture:
    """The encoder without a projection that is an identity matrix, and without groups of one layer."""
    assert isinstance(trunk, Encoder)
    trunk = without_projection(trunk)
    if not trunk.embedding_size:
        import torch

        if not torch.equal(tensors[f"{WIDEN}.weight"], torch.eye(trunk.hidden_size)):
            raise ValueError(
                "embedding_size equals hidden_size, so embedding_hidden_mapping_in must be an identity matrix"
            )
    if trunk.num_hidden_groups == trunk.num_hidden_layers:
        trunk = replace(trunk, parameter_sharing="none", num_hidden_groups=1)
    return trunk


def without_projection(trunk: Encoder) -> Encoder:
    """The same encoder, whose embedding_size is 0 if it is the hidden size."""
    return replace(trunk, embedding_size=0) if trunk.embedding_size == trunk.hidden_size else trunk


ALBERT: Final = replace(
    BERT,
    model_type="albert",
    classes=classes_of("Albert"),
    names={
        "trunk.tokens": ["albert.embeddings.word_embeddings"],
        "trunk.positions": ["albert.embeddings.position_embeddings"],
        "trunk.segments": ["albert.embeddings.token_type_embeddings"],
        "trunk.embedding_norm": ["albert.embeddings.LayerNorm"],
        "trunk.widen": [WIDEN],
        "trunk.blocks.*.attention.qkv": [f"{LAYER}.attention.{x}" for x in ("query", "key", "value")],
        "trunk.blocks.*.attention.out": [f"{LAYER}.attention.dense"],
        "trunk.blocks.*.attention_norm": [f"{LAYER}.attention.LayerNorm"],
        "trunk.blocks.*.feed_forward.up": [f"{LAYER}.ffn"],
        "trunk.blocks.*.feed_forward.down": [f"{LAYER}.ffn_output"],
        "trunk.blocks.*.feed_forward_norm": [f"{LAYER}.full_layer_layer_norm"],
        "heads.masked_tokens": ["predictions"],
        "heads.masked_tokens.transform": ["predictions.dense"],
        "heads.masked_tokens.norm": ["predictions.LayerNorm"],
        "heads.pair_label.pooler": [POOLER],
        "heads.pair_label.classify": ["sop_classifier.classifier"],
    },
    keys={**BERT.keys, "embedding_size": "embedding_size", "num_hidden_groups": "num_hidden_groups"},
    fixed={**BERT.fixed, "parameter_sharing": "all"},
    built_in={"tie_word_embeddings": True, "position_embedding_type": "absolute", "inner_group_num": 1},
    defaults={
        **BERT.defaults,
        "intermediate_size": 16_384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "embedding_size": 128,
        "num_hidden_groups": 1,
    },
    written={"classifier_dropout_prob": "hidden_dropout"},
    pooler=POOLER,
    task_heads=make_pooled_heads("Albert", POOLER),
    as_class=share_all,
    place_of=find_copy,
    constants=make_projection,
    check_tensors=check_projection,
)
