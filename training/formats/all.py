"""All formats of transformers, one module each (see format.py). A model is exported in the first format that
supports it."""

from typing import Final

from training.formats import (
    albert,
    bart,
    bert,
    deberta_v2,
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
    deberta_v2,
    gpt1,
    gpt2,
    bart,
    pegasus,
    t5,
    xlnet,
)
