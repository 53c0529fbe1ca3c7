"""The nets: batches -> hidden states.

Read net.py (what all share), layers.py and transformer.py first (BERT, GPT); encoder_decoder.py (BART, T5, MASS),
relative.py (Transformer-XL), two_stream.py (XLNet) and twin.py (ELECTRA) build on them. cache.py is what generation
goes on from. What a recipe says about each is in specs/.
"""

from typing import Final

from training.specs import Trunk
from training.trunks.adaptive import bounds
from training.trunks.cache import Cache
from training.trunks.encoder_decoder import EncoderDecoderNet
from training.trunks.fused import Fused
from training.trunks.layers import activate
from training.trunks.linears import Embedding, SplitTable, Table, whole
from training.trunks.net import MaskHead, Net
from training.trunks.recompute import set_recompute
from training.trunks.relative import RelativeDecoder, sinusoids
from training.trunks.share import WHOLE, Share
from training.trunks.split import Cut, cut_net
from training.trunks.stages import ONLY, Given, Stage, cut_stages
from training.trunks.transformer import Transformer, sinusoids_at
from training.trunks.twin import TwinNet
from training.trunks.two_stream import TwoStreamNet
from training.trunks.ulysses import set_chunks

__all__ = [
    "NETS",
    "ONLY",
    "WHOLE",
    "Cache",
    "Cut",
    "Embedding",
    "Fused",
    "Given",
    "Net",
    "Share",
    "SplitTable",
    "Stage",
    "Table",
    "activate",
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

NETS: Final[tuple[type[Net], ...]] = (Transformer, RelativeDecoder, EncoderDecoderNet, TwoStreamNet, TwinNet)


def build(trunk: Trunk, vocab_size: int, mask_head: MaskHead) -> Net:
    """The net of a trunk with so many rows of its token table; see Net.build."""
    made = (kind.build(trunk, vocab_size, mask_head) for kind in NETS)
    return next(net for net in made if net is not None)
