"""DeBERTa-v2 and v3 (arXiv:2006.03654, arXiv:2111.09543): DebertaV2ForMaskedLM, DebertaV2Model.

The discriminator of a generator_discriminator is exported without its head. The enhanced mask decoder of the paper
(3.2) is in no class of transformers either.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from training.formats.bert import BERT
from training.formats.electra import select_discriminator
from training.formats.format import Format, ModelClass
from training.formats.keys import Config, Key, alike
from training.formats.names import Names, add_prefix
from training.formats.task_classes import TaskHeadClass, TaskHeads, make_pooled_heads
from training.formats.transformers_pipeline import TransformersPipeline, fill_masks
from training.losses import MaskedTokens, ReplacedTokenDetection

TERMS: Final = ("c2p", "p2c")
SELF: Final = "deberta.encoder.layer.*.attention.self"


def write_terms(kind: str) -> list[str]:
    """The scores of positions, for a kind of positions.

    >>> write_terms("disentangled")
    ['c2p', 'p2c']
    """
    if kind != "disentangled":
        raise ValueError(f"invalid position_embedding.kind: got {kind!r}, expected 'disentangled'")
    return list(TERMS)


def read_terms(given: str | Sequence[str] | None) -> str:
    """The kind of positions with these scores, which files of the authors have in one text.

    >>> read_terms("p2c|c2p"), read_terms(["c2p", "p2c"])
    ('disentangled', 'disentangled')
    """
    terms = given.lower().split("|") if isinstance(given, str) else given or ()
    if sorted(term.strip() for term in terms) != sorted(TERMS):
        raise ValueError(f"invalid pos_att_type: got {given!r}, expected {list(TERMS)}")
    return "disentangled"


def read_farthest(distance: int, longest: int) -> int:
    """The distance threshold, which is the maximum sequence length in files that have none.

    >>> read_farthest(-1, 512), read_farthest(128, 512)
    (512, 128)
    """
    return longest if distance < 1 else distance


def modernize(name: str) -> str:
    """The name in the class that we export. Files of the authors, and those with `legacy` false, have other heads.

    >>> modernize("lm_predictions.lm_head.LayerNorm.weight"), modernize("lm_predictions.lm_head.bias")
    ('cls.predictions.transform.LayerNorm.weight', 'cls.predictions.bias')
    """
    name = name.replace("lm_predictions.lm_head.bias", "cls.predictions.bias")
    return name.replace("lm_predictions.lm_head.", "cls.predictions.transform.")


def fill_masks_or_extract(names: Names, config: Config) -> TransformersPipeline:
    """Feature extraction for a model without a head.

    >>> fill_masks_or_extract({}, {"architectures": ["DebertaV2Model"]}).task
    'feature-extraction'
    """
    if config["architectures"][0] == "DebertaV2Model":
        return TransformersPipeline("feature-extraction", "DebertaV2Model")
    return fill_masks(names, config)


def with_tanh(heads: TaskHeads) -> TaskHeads:
    """The task heads with the activation of Sesame's pooler.

    >>> with_tanh(make_pooled_heads("DebertaV2", "pooler.dense"))["row_label"].config
    {'pooler_hidden_act': 'tanh'}
    """
    return {
        kind: head._replace(config={"pooler_hidden_act": "tanh"})
        if isinstance(head, TaskHeadClass) and "summary.pooler" in head.names
        else head
        for kind, head in heads.items()
    }


DEBERTA_V2: Final[Format] = replace(
    BERT,
    model_type="deberta-v2",
    classes=(
        ModelClass("DebertaV2ForMaskedLM", (MaskedTokens(),)),
        ModelClass("DebertaV2Model", (ReplacedTokenDetection(),), lacks="transformers has no DeBERTa with such a head"),
    ),
    names={
        **{
            ours: theirs
            for ours, theirs in add_prefix(BERT.names, "bert.", "deberta.").items()
            if not ours.startswith(("trunk.positions", "heads.pair_label"))
        },
        "trunk.blocks.*.attention.qkv": [f"{SELF}.{x}_proj" for x in ("query", "key", "value")],
        "trunk.relative.rel_embeddings": ["deberta.encoder.rel_embeddings"],
        "trunk.relative.norm": ["deberta.encoder.LayerNorm"],
    },
    keys={
        **{ours: theirs for ours, theirs in BERT.keys.items() if "position_embedding." not in ours},
        "hidden_size": alike("hidden_size", "embedding_size"),
        "type_vocab_size": "type_vocab_size",
        "position_embedding.kind": Key(("pos_att_type",), write_terms, read_terms),
        "position_embedding.position_buckets": "position_buckets",
        # the second one is the length of a buffer of positions, which these models do not use
        "position_embedding.max_relative_positions": Key(
            ("max_relative_positions", "max_position_embeddings"), lambda farthest: (farthest, farthest), read_farthest
        ),
    },
    fixed={"kind": "encoder", "norm_position": "post"},
    built_in={
        "relative_attention": True,
        "position_biased_input": False,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 0,
        "tie_word_embeddings": True,
    },
    defaults={
        **BERT.defaults,
        "intermediate_size": 6_144,
        "layer_norm_eps": 1e-7,
        "type_vocab_size": 0,
        "relative_attention": False,
        "position_biased_input": True,
        "share_att_key": False,
        "norm_rel_ebd": "none",
        "pos_att_type": None,
        "position_buckets": -1,
        "max_relative_positions": -1,
    },
    pooler="",
    task_heads=with_tanh(make_pooled_heads("DebertaV2", "pooler.dense")),
    pipeline_of=fill_masks_or_extract,
    modern=modernize,
    as_class=select_discriminator,
)
