"""Models that assign likelihoods to texts, on torch.

Reading order: causal.py (decoders; ordered.py is for XLNet), masked.py (masked language models), seq2seq.py
(encoder-decoders), rolling.py (perplexity), and reader.py, which selects the method that fits a model. batches.py
has shared functions.
"""

from training.evaluation.likelihood.models.causal import score_causal
from training.evaluation.likelihood.models.masked import score_masked
from training.evaluation.likelihood.models.reader import CausalLikelihood
from training.evaluation.likelihood.models.rolling import perplexities, perplexity
from training.evaluation.likelihood.models.seq2seq import score_seq2seq

__all__ = ["CausalLikelihood", "perplexities", "perplexity", "score_causal", "score_masked", "score_seq2seq"]
