"""Models that assign likelihoods to texts, on torch.

Reading order: causal.py (decoders; ordered.py is for XLNet), masked.py (masked language models), seq2seq.py
(encoder-decoders), rolling.py (perplexity), and reader.py, which selects the method that fits a model. batches.py
has shared functions.
"""

from training.likelihood.models.causal import causal
from training.likelihood.models.masked import masked
from training.likelihood.models.reader import CausalLikelihood
from training.likelihood.models.rolling import perplexities, perplexity
from training.likelihood.models.seq2seq import seq2seq

__all__ = ["CausalLikelihood", "causal", "masked", "perplexities", "perplexity", "seq2seq"]
