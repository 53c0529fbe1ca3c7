"""How likely a net finds a text: what is asked, how options are compared, perplexities. No torch in here.

Read perplexities.py, then requests.py (what is asked and answered; the tokens of a request) and normalise.py; trees.py
lets requests share what they begin with, prompts.py draws examples for few-shot prompts. ngram.py is a baseline that is
asked what a net is asked. nets/ has the nets that
answer: causal.py, masked.py (pseudo-log-likelihood) and rolling.py (perplexity of long texts).
"""

from training.likelihood.ngram import NGramLikelihood, NGrams, fit
from training.likelihood.normalize import NORMALISATIONS, Normalise, normalised
from training.likelihood.perplexities import (
    MOST_WINDOW,
    Perplexity,
    PerplexityText,
    Targets,
    Windowing,
    detokenised,
    exp_of,
    targets_of,
    total,
    unknown_of,
    windows,
)
from training.likelihood.prompts import FewShotExample, prompt, shots, too_few
from training.likelihood.requests import (
    PSEUDO_KINDS,
    JoinedTokens,
    LikelihoodModel,
    LogP,
    NoToken,
    Option,
    Pair,
    PseudoKind,
    Request,
    Scorer,
    TextEncoder,
    UnscoredRequests,
    cut_to,
    each_of,
    encoder,
    first_of,
    joined,
    no_token,
    pair_of,
    pairs_of,
    split_at_word,
)
from training.likelihood.trees import Tree, alone, as_array, trees

__all__ = [
    "MOST_WINDOW",
    "NORMALISATIONS",
    "PSEUDO_KINDS",
    "FewShotExample",
    "JoinedTokens",
    "LikelihoodModel",
    "LogP",
    "NGramLikelihood",
    "NGrams",
    "NoToken",
    "Normalise",
    "Option",
    "Pair",
    "Perplexity",
    "PerplexityText",
    "PseudoKind",
    "Request",
    "Scorer",
    "Targets",
    "TextEncoder",
    "Tree",
    "UnscoredRequests",
    "Windowing",
    "alone",
    "as_array",
    "cut_to",
    "detokenised",
    "each_of",
    "encoder",
    "exp_of",
    "first_of",
    "fit",
    "joined",
    "no_token",
    "normalised",
    "pair_of",
    "pairs_of",
    "prompt",
    "shots",
    "split_at_word",
    "targets_of",
    "too_few",
    "total",
    "trees",
    "unknown_of",
    "windows",
]
