"""Formats of transformers, a module each (see named.py). The first that has a net's class is the one it goes out as."""

from typing import Final

from training.formats import (
    albert,
    bart,
    bert,
    electra,
    ernie,
    gpt1,
    gpt2,
    longformer,
    megatron_bert,
    pegasus,
    roberta,
    t5,
    xlm,
    xlnet,
)
from training.formats.format import ModelFormat

FORMATS: Final[tuple[ModelFormat, ...]] = (
    roberta,
    bert,
    albert,
    megatron_bert,
    longformer,
    xlm,
    ernie,
    electra,
    gpt1,
    gpt2,
    bart,
    pegasus,
    t5,
    xlnet,
)
