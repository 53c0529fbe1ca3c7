"""What a recipe says about the net and the machine. No torch in here: `sesame check` answers without it.

Read trunk.py, then machine.py. Losses and optimisers have rooms of their own.
"""

from training.specs.machine import Machine, Phase
from training.specs.trunk import Activation, Decoder, Encoder, EncoderDecoder, Stack, Trunk, Twin, TwoStream, Visibility

__all__ = [
    "Activation",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "Machine",
    "Phase",
    "Stack",
    "Trunk",
    "Twin",
    "TwoStream",
    "Visibility",
]
