"""Rotary position embeddings (RoFormer, arXiv:2104.09864, 3.2): queries and keys are rotated by their positions.

The product of a rotated query and a rotated key depends on their distance only. Axes as in layout.py; R rotated
elements of a head, which form R / 2 pairs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from training.architectures.constants import constant
from training.specs import RotaryPositions


class Rotation(NamedTuple):
    """Cosine and sine of the angle of each pair of elements, [..., 1, R / 2], for all tokens of a batch."""

    cos: Tensor
    sin: Tensor
    interleaved: bool  # pairs are elements 2 i and 2 i + 1 (GPT-J); otherwise i and i + R / 2 (GPT-NeoX, LLaMA)

    def apply(self, x: Tensor) -> Tensor:
        """Rotate the first R elements of each head, [..., heads, K] -> [..., heads, K].

        >>> quarter = Rotation(torch.tensor([[0.0]]), torch.tensor([[1.0]]), interleaved=False)
        >>> quarter.apply(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[-2.,  1.,  3.]])
        """
        pairs = self.cos.shape[-1]
        rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        left, right = (rotated[..., 0::2], rotated[..., 1::2]) if self.interleaved else rotated.chunk(2, -1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        turned = left * cos - right * sin, right * cos + left * sin
        if self.interleaved:
            return torch.cat([torch.stack(turned, dim=-1).flatten(-2), rest], dim=-1)
        return torch.cat([*turned, rest], dim=-1)


def rotation_at(position: Tensor, spec: RotaryPositions, head_dim: int, *, local: bool = False) -> Rotation:
    """The rotation of tokens at their positions, [B, S] or [T]; `local`: in layers with an attention window."""
    # float64, because in float32 the angles of position 500 have an error of 3e-5
    frequency = constant(spec.frequencies(head_dim, local=local), position.device, torch.float64)
    angle, factor = position[..., None, None] * frequency, spec.attention_factor(local=local)
    return Rotation((angle.cos() * factor).float(), (angle.sin() * factor).float(), spec.interleaved)


def rotations_of(position: Tensor, spec: RotaryPositions, head_dim: int) -> tuple[Rotation, Rotation]:
    """The rotations in layers with full attention and with a window."""
    full = rotation_at(position, spec, head_dim)
    return full, rotation_at(position, spec, head_dim, local=True) if spec.local_rope_theta else full
