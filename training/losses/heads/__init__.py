"""The heads that compute the losses, on torch: hidden states, a batch and the token table -> a Score.

Read masked_tokens.py, then cross_entropy.py, which they share.
"""

from training.losses.heads.masked_tokens import MaskedTokensHead
from training.losses.heads.registry import count, head, names_tokens

__all__ = ["MaskedTokensHead", "count", "head", "names_tokens"]
