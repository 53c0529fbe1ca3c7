"""Text generation: a trained model continues prompts.

Reading order: spec.py (limits and decoding methods), filters.py (scores of the allowed next tokens, in the order of
transformers), rows.py (the sequences so far, and one decoding step with or without a KV cache), sample.py (greedy
and sampled decoding), beam.py, and decoding.py, the entry point. masked.py generates with masked language models, in
any order. in_training.py generates samples during training. novelty.py reports how much of a generated text is in
the corpus, and where.
"""

from training.evaluation.generation.decoding import Address, check_prompts, generate
from training.evaluation.generation.filters import filter_scores
from training.evaluation.generation.in_training import generate_samples
from training.evaluation.generation.masked import GibbsDecoding, MaskedPrompt, MaskPredict, can_fill_masks, fill
from training.evaluation.generation.novelty import Novelty, Passage, find, novelties
from training.evaluation.generation.rows import MaskSlot, Prompt
from training.evaluation.generation.sample import GeneratedText, OnToken
from training.evaluation.generation.spec import BeamSearch, GenerationLimits, GreedyDecoding, Method, SampledDecoding

__all__ = [
    "Address",
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
    "OnToken",
    "Passage",
    "Prompt",
    "SampledDecoding",
    "can_fill_masks",
    "check_prompts",
    "fill",
    "filter_scores",
    "find",
    "generate",
    "generate_samples",
    "novelties",
]
