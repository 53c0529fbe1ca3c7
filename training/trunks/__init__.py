"""The nets: batches -> hidden states.

Read layers.py and transformer.py first (BERT, GPT); encoder_decoder.py (BART, T5, MASS), relative.py (Transformer-XL),
two_stream.py (XLNet) and twin.py (ELECTRA) build on them. What a recipe says about each is in specs/trunk.py.
"""

from training.trunks.adaptive import bounds
from training.trunks.encoder_decoder import EncoderDecoderNet
from training.trunks.layers import activate
from training.trunks.relative import RelativeDecoder
from training.trunks.transformer import Transformer, sinusoids_at
from training.trunks.twin import FROZEN, TwinNet
from training.trunks.two_stream import TwoStreamNet

__all__ = [
    "FROZEN",
    "EncoderDecoderNet",
    "RelativeDecoder",
    "Transformer",
    "TwinNet",
    "TwoStreamNet",
    "activate",
    "bounds",
    "sinusoids_at",
]
