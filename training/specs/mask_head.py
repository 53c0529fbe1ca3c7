"""The head for masked language modeling: its tensors (BERT 3.1, task 1)."""

from training.specs.tensors import LinearSpec, ModelTensors, NormSpec, VectorsSpec


def mask_head(width: int, table_width: int, vocab_size: int, *, transform: bool = True) -> ModelTensors:
    """A linear layer and a norm, unless `transform` is False, then the tied token table with a bias per token."""
    below = (LinearSpec("transform", width, (table_width,)), NormSpec("norm", table_width)) if transform else ()
    return ModelTensors((*below, VectorsSpec("bias", (vocab_size,))), ())
