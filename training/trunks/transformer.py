"""Encoder and Decoder: one transformer, told apart by its knobs."""

from collections.abc import Mapping

from torch import Tensor, nn

from training.spec import Encoder, Trunk
from training.trunks.layers import Block, layout


class Transformer(nn.Module):
    """Embeddings and blocks of BERT (arXiv:1810.04805), RoBERTa (arXiv:1907.11692) and GPT-2 (Radford et al. 2019).

    A post-norm Encoder normalises the summed embeddings; a pre-norm stack ends with a norm of its own.
    """

    def __init__(self, trunk: Trunk, vocab_size: int) -> None:
        super().__init__()
        self.causal = trunk.visibility == "causal"
        self.position_offset = trunk.position_offset
        self.tokens = nn.Embedding(vocab_size, trunk.width)
        self.positions = nn.Embedding(trunk.max_positions, trunk.width)
        self.segments = nn.Embedding(trunk.segments, trunk.width) if trunk.segments else None
        normalised = trunk.norm == "post" and isinstance(trunk, Encoder)
        self.embedding_norm = nn.LayerNorm(trunk.width, eps=trunk.norm_eps) if normalised else nn.Identity()
        self.dropout = nn.Dropout(trunk.dropout)
        self.blocks = nn.ModuleList(Block(trunk) for _ in range(trunk.layers))
        self.final_norm = nn.LayerNorm(trunk.width, eps=trunk.norm_eps) if trunk.norm == "pre" else nn.Identity()

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Hidden states of `ids`, `positions`, `segments`, `lengths`: [B, S] -> [B, S, D] padded, [T] -> [T, D] not."""
        ids = batch["ids"]
        rows = layout(ids, batch["lengths"], self.causal)
        x = self.tokens(ids) + self.positions(batch["positions"] + self.position_offset)
        if self.segments is not None:
            # RoBERTa's table has one row: to it, the segments of a downstream pair are all the same
            x = x + self.segments(batch["segments"].clamp(max=self.segments.num_embeddings - 1))
        x = self.dropout(self.embedding_norm(x))
        for block in self.blocks:
            x = block(x, rows)
        return self.final_norm(x)
