"""Nets that say how likely a text is, on torch.

Read causal.py (decoders), masked.py (masked language models), rolling.py (perplexity), then scorer.py, which picks the
one that fits a net; batches.py is what they share.
"""

from training.likelihood.nets.causal import causal
from training.likelihood.nets.masked import masked
from training.likelihood.nets.rolling import perplexity
from training.likelihood.nets.scorer import scorer

__all__ = ["causal", "masked", "perplexity", "scorer"]
