"""Generation: a trained net goes on from prompts.

Read spec.py (what is asked for: limits, and the methods), filters.py (which tokens may follow, in the order of
transformers), rows.py (rows so far, and one step of a net, with a cache or without), then sample.py (greedy and
sampled), beam.py and decoding.py, which is the way in. masked.py writes with nets that fill in masks, in no order.
in_training.py shows what a net writes while it is trained; novelty.py looks at what came out: how much of it a corpus
has, and where.
"""

from training.generation.decoding import generate
from training.generation.filters import filter_scores
from training.generation.in_training import generate_samples
from training.generation.masked import GibbsDecoding, MaskedPrompt, MaskPredict, fill
from training.generation.novelty import Novelty, Passage, find, novelties
from training.generation.rows import MaskSlot, Prompt
from training.generation.sample import GeneratedText
from training.generation.spec import BeamSearch, GenerationLimits, GreedyDecoding, Method, SampledDecoding

__all__ = [
    "BeamSearch",
    "GeneratedText",
    "GenerationLimits",
    "GibbsDecoding",
    "GreedyDecoding",
    "MaskPredict",
    "MaskSlot",
    "MaskedPrompt",
    "Method",
    "Novelty",
    "Passage",
    "Prompt",
    "SampledDecoding",
    "fill",
    "filter_scores",
    "find",
    "generate",
    "generate_samples",
    "novelties",
]
