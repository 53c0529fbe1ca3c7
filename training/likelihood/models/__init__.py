"""Nets that say how likely a text is, on torch.

Read causal.py (decoders; ordered.py makes one of XLNet), masked.py (masked language models), seq2seq.py (a decoder on
top of an encoder), rolling.py (perplexity), then reader.py, which picks the one that fits a net; batches.py is what
they share.
"""

from training.likelihood.models.causal import causal
from training.likelihood.models.masked import masked
from training.likelihood.models.reader import CausalLikelihood
from training.likelihood.models.rolling import perplexities, perplexity
from training.likelihood.models.seq2seq import seq2seq

__all__ = ["CausalLikelihood", "causal", "masked", "perplexities", "perplexity", "seq2seq"]
