"""The way to ask a net that fits it."""

from functools import partial

from preprocessing.vocab import Vocab
from training.likelihood import Scorer
from training.likelihood.nets.batches import MICRO_TOKENS
from training.likelihood.nets.causal import causal
from training.likelihood.nets.masked import PseudoKind, masked
from training.model import Model


def scorer(
    model: Model, vocab: Vocab, *, pseudo: PseudoKind = "within_word_l2r", micro_tokens: int = MICRO_TOKENS
) -> Scorer:
    """Log-probabilities of a decoder, pseudo-log-likelihoods of a masked language model."""
    if model.spec.trunk.visibility == "causal":
        return partial(causal, model, vocab, micro_tokens=micro_tokens)
    return partial(masked, model, vocab, kind=pseudo, micro_tokens=micro_tokens)
