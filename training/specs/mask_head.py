"""The head for masked language modeling: its tensors (BERT 3.1, task 1)."""

from training.specs.counts import count_weights
from training.specs.tensors import LinearSpec, ModelTensors, NormSpec, VectorsSpec


def mask_head(width: int, table_width: int, vocab_size: int) -> ModelTensors:
    """A linear layer and a norm, then the tied token table with a bias per token."""
    transform, norm = LinearSpec("transform", width, (table_width,)), NormSpec("norm", table_width)
    return ModelTensors((transform, norm, VectorsSpec("bias", (vocab_size,))), ())


def mask_head_weights(width: int, table_width: int, vocab_size: int) -> int:
    """Number of weights of the head with its linear layer and norm."""
    return count_weights(mask_head(width, table_width, vocab_size)).total
