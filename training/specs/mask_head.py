"""The head for masked language modeling: its tensors (BERT 3.1, task 1)."""

from training.specs.stack import Stack
from training.specs.tensors import LinearSpec, ModelTensors, VectorsSpec


def list_mask_head(trunk: Stack, table_width: int, vocab_size: int) -> ModelTensors:
    """A linear layer and a norm, with biases as in the model; then the tied token table with a bias per token."""
    transform = LinearSpec("transform", trunk.hidden_size, (table_width,), trunk.bias)
    return ModelTensors((transform, trunk.norm("norm", table_width), VectorsSpec("bias", (vocab_size,))), ())
