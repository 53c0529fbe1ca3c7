"""Model architectures, which compute hidden states from batches.

Read backbone.py (the common base class), then layout.py, attention.py, feed_forward.py, block.py and transformer.py
(BERT, GPT). made.py creates modules from the tensors that an architecture declares. host_columns.py reads columns of a
batch without waiting for a device. encoder_decoder.py (BART, T5, MASS), relative.py (Transformer-XL),
two_stream.py (XLNet), disentangled.py (DeBERTa) and generator_discriminator.py (ELECTRA) build on them. cache.py
contains the key-value cache for generation. kernels.py and float8.py try kernels of GPUs before a run uses them.
training/specs/ defines the keys of each architecture.
"""

from typing import Final

from training.architectures.adaptive import bounds
from training.architectures.backbone import Backbone, MaskHead
from training.architectures.cache import KVCache
from training.architectures.compiled import BlockCompiler, compile_blocks, has_compiled_blocks
from training.architectures.constants import constant
from training.architectures.encoder_decoder import EncoderDecoderModel
from training.architectures.feed_forward import apply_activation
from training.architectures.float8 import use_float8
from training.architectures.fused import FusedModule
from training.architectures.generator_discriminator import GeneratorDiscriminatorModel
from training.architectures.host_columns import DeviceBatch, copy_to_device, host_of
from training.architectures.kernels import trust_kernels
from training.architectures.linears import Embedding, SplitTable, Table, whole
from training.architectures.made import add_modules
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
    "BlockCompiler",
    "DeviceBatch",
    "Embedding",
    "FusedModule",
    "KVCache",
    "ParameterSlice",
    "PipelineStage",
    "Share",
    "SplitTable",
    "StageInputs",
    "Table",
    "add_modules",
    "apply_activation",
    "bounds",
    "build",
    "compile_blocks",
    "constant",
    "copy_to_device",
    "cut_net",
    "cut_stages",
    "has_compiled_blocks",
    "host_of",
    "set_chunks",
    "set_recompute",
    "sinusoids",
    "sinusoids_at",
    "trust_kernels",
    "use_float8",
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
    """Build the backbone of an architecture with a token table of `vocab_size` rows; see `Backbone.build`."""
    backbones = (kind.build(trunk, vocab_size, mask_head) for kind in NETS)
    return next(backbone for backbone in backbones if backbone is not None)
