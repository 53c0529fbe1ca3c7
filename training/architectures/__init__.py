"""The nets: batches -> hidden states.

Read backbone.py (what all share), layers.py and transformer.py first (BERT, GPT); encoder_decoder.py (BART, T5, MASS),
relative.py (Transformer-XL), two_stream.py (XLNet) and generator_discriminator.py (ELECTRA) build on them. cache.py is
what generation goes on from. What a recipe says about each is in specs/.
"""

from typing import Final

from training.architectures.adaptive import bounds
from training.architectures.backbone import Backbone, MaskHead
from training.architectures.cache import KVCache
from training.architectures.encoder_decoder import EncoderDecoderModel
from training.architectures.fused import FusedModule
from training.architectures.generator_discriminator import GeneratorDiscriminatorModel
from training.architectures.layers import apply_activation
from training.architectures.linears import Embedding, SplitTable, Table, whole
from training.architectures.parameter_slices import ParameterSlice, cut_net
from training.architectures.pipeline_stages import ONLY, PipelineStage, StageInputs, cut_stages
from training.architectures.recompute import set_recompute
from training.architectures.relative import RelativeDecoder, sinusoids
from training.architectures.tensor_parallel import WHOLE, Share
from training.architectures.transformer import Transformer, sinusoids_at
from training.architectures.two_stream import TwoStreamModel
from training.architectures.ulysses import set_chunks
from training.specs import Architecture

__all__ = [
    "NETS",
    "ONLY",
    "WHOLE",
    "Backbone",
    "Embedding",
    "FusedModule",
    "KVCache",
    "ParameterSlice",
    "PipelineStage",
    "Share",
    "SplitTable",
    "StageInputs",
    "Table",
    "apply_activation",
    "bounds",
    "build",
    "cut_net",
    "cut_stages",
    "set_chunks",
    "set_recompute",
    "sinusoids",
    "sinusoids_at",
    "whole",
]

NETS: Final[tuple[type[Backbone], ...]] = (
    Transformer,
    RelativeDecoder,
    EncoderDecoderModel,
    TwoStreamModel,
    GeneratorDiscriminatorModel,
)


def build(trunk: Architecture, vocab_size: int, mask_head: MaskHead) -> Backbone:
    """The net of a trunk with so many rows of its token table; see Net.build."""
    made = (kind.build(trunk, vocab_size, mask_head) for kind in NETS)
    return next(net for net in made if net is not None)
