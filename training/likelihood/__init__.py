"""How likely a net finds a text: what is asked, how options are compared, perplexities. No torch in here.

Read requests.py (what is asked and answered; the tokens of a request), then normalise.py and perplexities.py; trees.py
lets requests share what they begin with, prompts.py draws examples for few-shot prompts. nets/ has the nets that
answer: causal.py, masked.py (pseudo-log-likelihood) and rolling.py (perplexity of long texts).
"""

from training.likelihood.normalise import NORMALISATIONS, Normalise, normalised
from training.likelihood.perplexities import Perplexity, Text, windows
from training.likelihood.prompts import Example, prompt, shots
from training.likelihood.requests import LogP, Pair, Request, Scorer, cut_to, first_of, pair_of, split_at_word
from training.likelihood.trees import Tree, alone, as_array, trees

__all__ = [
    "NORMALISATIONS",
    "Example",
    "LogP",
    "Normalise",
    "Pair",
    "Perplexity",
    "Request",
    "Scorer",
    "Text",
    "Tree",
    "alone",
    "as_array",
    "cut_to",
    "first_of",
    "normalised",
    "pair_of",
    "prompt",
    "shots",
    "split_at_word",
    "trees",
    "windows",
]
