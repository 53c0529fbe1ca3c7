"""ELECTRA (arXiv:2003.10555): ElectraForPreTraining; for loading also ElectraForMaskedLM.

The discriminator of a generator_discriminator is exported, and loaded as an Encoder. The generator is the other
`half`: an Encoder with the loss masked_tokens, which other classes of transformers support too.
"""

from dataclasses import replace
from typing import Final, Literal

from training.formats.albert import without_projection
from training.formats.bert import BERT, with_mask_argument
from training.formats.format import Format, ModelClass
from training.formats.keys import Config
from training.formats.names import Names, Tensors, Weights, add_prefix, without_heads_in
from training.formats.roberta import GELU
from training.formats.task_classes import explain_missing_heads, make_pooled_heads
from training.formats.transformers_pipeline import TransformersPipeline
from training.losses import MaskedTokens, ReplacedTokenDetection
from training.model_spec import ModelSpec
from training.specs import Architecture, Encoder, GeneratorDiscriminator

# A fine-tuned model with a pooler is exported as BERT or, with smaller embeddings, as ALBERT.
TANH: Final = "the pooler of ELECTRA's classes has a GELU; that of Sesame has a tanh, as in BERT"


def half(state: Weights, spec: ModelSpec, which: Literal["generator", "discriminator"]) -> tuple[Weights, ModelSpec]:
    """Return the generator or the discriminator as an Encoder with its own embeddings and head."""
    trunk = spec.model
    assert isinstance(trunk, GeneratorDiscriminator)
    tower = "discriminator" if trunk.weight_sharing == "all" else which
    head = "masked_tokens" if which == "generator" else "replaced"
    net = trunk.net(which)
    others = ("generator", "discriminator", "frozen", "difference")
    other = tuple(f"trunk.{name}." for name in others if name != tower)
    selected = {
        name.replace(f"trunk.{tower}.", "trunk."): tensor
        for name, tensor in state.items()
        if name.startswith(("trunk.", f"heads.{head}.")) and not name.startswith(other)
    }
    if which == "discriminator":
        selected |= add_difference(state)
    return selected, replace(spec, model=net, losses=tuple(loss for loss in spec.losses if loss.head_name == head))


def add_difference(state: Weights) -> Tensors:
    """The embeddings of a discriminator with gradient-disentangled sharing (DeBERTaV3, arXiv:2111.09543, 3.3).

    Its tables are those of the generator plus the differences; its norm is separate.
    """
    prefix, tensors = "trunk.difference.", Tensors()
    for name, tensor in state.items():
        if name.startswith(prefix):
            place = name.replace(prefix, "trunk.")
            tensors[place] = tensor if ".embedding_norm." in name else state[place] + tensor
    return tensors


def select_discriminator(state: Weights, spec: ModelSpec) -> tuple[Weights, ModelSpec]:
    """The discriminator of both models; another model unchanged."""
    if isinstance(spec.model, GeneratorDiscriminator):
        return half(state, spec, "discriminator")
    return with_mask_argument(state, spec)


def extract_features(names: Names, config: Config) -> TransformersPipeline:
    """Feature extraction: no pipeline uses the predictions of a discriminator."""
    return TransformersPipeline("feature-extraction", "ElectraModel", unused=("discriminator_predictions.",))


def simplify(trunk: Architecture, tensors: Weights) -> Architecture:
    """The encoder without an embedding size that is the hidden size."""
    assert isinstance(trunk, Encoder)
    return without_projection(trunk)


ELECTRA: Final[Format] = replace(
    BERT,
    model_type="electra",
    classes=(
        ModelClass("ElectraForMaskedLM", (MaskedTokens(),), GELU),
        ModelClass("ElectraForPreTraining", (ReplacedTokenDetection(),)),
    ),
    names={
        **without_heads_in(add_prefix(BERT.names, "bert.", "electra.")),
        "trunk.widen": ["electra.embeddings_project"],
        "heads.replaced.transform": ["discriminator_predictions.dense"],
        "heads.replaced.classify": ["discriminator_predictions.dense_prediction"],
        "heads.masked_tokens.transform": ["generator_predictions.dense"],
        "heads.masked_tokens.norm": ["generator_predictions.LayerNorm"],
        "heads.masked_tokens": ["generator_lm_head"],
    },
    keys={**BERT.keys, "embedding_size": "embedding_size"},
    defaults={**BERT.defaults, "intermediate_size": 1_024, "embedding_size": 128},
    pooler="",
    task_heads={
        **make_pooled_heads("Electra", ""),
        **explain_missing_heads(TANH, "row_label", "row_value", "option_choice"),
    },
    pipeline_of=extract_features,
    as_class=select_discriminator,
    check_tensors=simplify,
)
