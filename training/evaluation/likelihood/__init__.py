"""Likelihoods of texts: requests, comparison of choices, perplexities. This package does not import torch.

Reading order: perplexities.py, requests.py (requests, results, and the tokens of a request), normalization.py.
trees.py lets requests share common prefixes; prompts.py draws few-shot examples. ngram.py is an n-gram baseline with
the same interface as a model. models/ has the implementations on torch, among them
models/masked.py (pseudo-log-likelihood) and models/rolling.py (perplexity of long texts).
"""

from training.evaluation.likelihood.ngram import NGramLikelihood, NGrams, fit
from training.evaluation.likelihood.normalization import NORMALISATIONS, Normalise, normalize
from training.evaluation.likelihood.perplexities import (
    MOST_WINDOW,
    Perplexity,
    PerplexityText,
    Targets,
    Windowing,
    detokenize,
    exp_of,
    targets_of,
    total,
    unknown_of,
    windows,
)
from training.evaluation.likelihood.prompts import FewShotExample, prompt, shots, too_few
from training.evaluation.likelihood.requests import (
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
    join_request,
    no_token,
    pair_of,
    pairs_of,
    split_at_word,
)
from training.evaluation.likelihood.trees import Tree, as_array, separate_trees, trees

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
    "as_array",
    "cut_to",
    "detokenize",
    "each_of",
    "encoder",
    "exp_of",
    "first_of",
    "fit",
    "join_request",
    "no_token",
    "normalize",
    "pair_of",
    "pairs_of",
    "prompt",
    "separate_trees",
    "shots",
    "split_at_word",
    "targets_of",
    "too_few",
    "total",
    "trees",
    "unknown_of",
    "windows",
]
