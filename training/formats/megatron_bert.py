"""Megatron-BERT (arXiv:1909.08053): pre-norm, without embedding norm, with a final norm."""

from dataclasses import replace
from typing import Final

from training.formats.bert import BERT, POOLER, classes_of
from training.formats.task_classes import make_pooled_heads

MEGATRON_BERT: Final = replace(
    BERT,
    model_type="megatron-bert",
    classes=classes_of("MegatronBert"),
    names={
        **{ours: theirs for ours, theirs in BERT.names.items() if ours != "trunk.embedding_norm"},
        "trunk.blocks.*.attention_norm": ["bert.encoder.layer.*.attention.ln"],
        "trunk.blocks.*.feed_forward_norm": ["bert.encoder.layer.*.ln"],
        "trunk.final_norm": ["bert.encoder.ln"],
    },
    fixed={**BERT.fixed, "norm_position": "pre"},
    defaults={**BERT.defaults, "intermediate_size": 4_096},
    task_heads=make_pooled_heads("MegatronBert", POOLER),
)
