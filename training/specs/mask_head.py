"""The head for masked language modeling: its tensors (BERT 3.1, task 1)."""

from training.specs.tensors import LinearSpec, ModelTensors, NormSpec, VectorsSpec


def mask_head(
    width: int, table_width: int, vocab_size: int, *, bias: bool = True, norm: NormSpec | None = None
) -> ModelTensors:
    """A linear layer with or without `bias`, and a norm; then the tied token table with a bias per token."""
    transform = LinearSpec("transform", width, (table_width,), bias)
    return ModelTensors((transform, norm or NormSpec("norm", table_width), VectorsSpec("bias", (vocab_size,))), ())
