"""What a recipe says about the net and the machine. No torch in here: `sesame check` answers without it.

Read part.py (the facts of a trunk), then stack.py and encoder.py, then positions.py and window.py; the other trunks
have a file each. The union is the registry; parts inside of a trunk are listed below it. Losses and optimisers have
rooms of their own.
"""

from typing import Final

from training.specs.blocks import Blocks
from training.specs.buffers import BUCKET, LIVE, LOGITS_AT_ONCE, PREFETCH
from training.specs.decoder import Decoder
from training.specs.encoder import Encoder
from training.specs.encoder_decoder import EncoderDecoder
from training.specs.machine import ActivationCheckpointing, Machine, Offload, Phase
from training.specs.part import Init, NetName, Read, TrunkPart, Visibility
from training.specs.positions import (
    Buckets,
    Learned,
    LearnedPlain,
    Positions,
    Relative,
    RelativeStreams,
    Sinusoidal,
    SinusoidalStacks,
)
from training.specs.stability import Stability
from training.specs.stack import Activation, Stack
from training.specs.tables import Adaptive, Plain, Tables
from training.specs.twin import Twin
from training.specs.two_stream import TwoStream
from training.specs.weights import Layers, Weights, linear_weights, mask_head_weights, norm_weights
from training.specs.window import Around, Band, Everything, Window
from training.specs.work import Work

__all__ = [
    "BUCKET",
    "LIVE",
    "LOGITS_AT_ONCE",
    "POSITIONS",
    "PREFETCH",
    "TABLES",
    "WINDOWS",
    "Activation",
    "ActivationCheckpointing",
    "Adaptive",
    "Around",
    "Band",
    "Blocks",
    "Buckets",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "Everything",
    "Init",
    "Layers",
    "Learned",
    "LearnedPlain",
    "Machine",
    "NetName",
    "Offload",
    "Phase",
    "Plain",
    "Positions",
    "Read",
    "Relative",
    "RelativeStreams",
    "Sinusoidal",
    "SinusoidalStacks",
    "Stability",
    "Stack",
    "Tables",
    "Trunk",
    "TrunkPart",
    "Twin",
    "TwoStream",
    "Visibility",
    "Weights",
    "Window",
    "Work",
    "linear_weights",
    "mask_head_weights",
    "norm_weights",
]

Trunk = Encoder | Decoder | EncoderDecoder | TwoStream | Twin
POSITIONS: Final[tuple[type[Positions], ...]] = (
    *(Learned, LearnedPlain),
    *(Sinusoidal, SinusoidalStacks, Relative, RelativeStreams, Buckets),
)
WINDOWS: Final[tuple[type[Window], ...]] = (Everything, Around, Band)
TABLES: Final[tuple[type[Tables], ...]] = (Plain, Adaptive)


def _has_every_fact(trunk: Trunk) -> TrunkPart:
    return trunk  # a member without a fact is a type error here
