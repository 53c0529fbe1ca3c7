"""Sample texts of a model during training, for inspection."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from preprocessing.rng import key
from preprocessing.tokenization import Vocab
from training.evaluation.generation.decoding import generate
from training.evaluation.generation.rows import Prompt
from training.evaluation.generation.spec import GenerationLimits, SampledDecoding
from training.model import Model

METHOD: Final = SampledDecoding(top_k=40)  # as in the samples published with GPT-2
MAX_NEW: Final = 64


def generate_samples(model: Model, vocab: Vocab, prompts: Sequence[str], *, seed: int) -> list[str]:
    """Return each prompt with its continuation; equal weights and seeds give equal texts.

    A prompt is read as the start of a document. If it is too long, its first tokens are dropped, and the text says
    so. The model returns to training mode afterwards if it was in training mode before. The global random generator
    is not used.
    """
    was_training = model.training
    model.eval()
    try:
        most = model.spec.model.longest // 2
        encoded = [vocab.encode(text) for text in prompts]
        starts = [[*([] if vocab.sep is None else [vocab.sep]), *ids[-most:]] for ids in encoded]
        ends = () if vocab.sep is None else (vocab.sep,)
        special = set(vocab.special_ids)
        barred = sorted({*special, *range(vocab.size, model.spec.vocab_size)} - set(ends))
        rows = generate(
            model,
            [Prompt(np.array(ids, np.int64)) for ids in starts],
            GenerationLimits(max_new_tokens=MAX_NEW, ends=ends, barred=tuple(barred)),
            method=METHOD,
            key=key(seed, "task"),
        )
        texts = [
            vocab.decode(id for id in (*ids, *row.ids.tolist()) if id not in special)
            for ids, row in zip(starts, rows, strict=True)
        ]
        return [_describe_dropped(len(ids) - most) + text for ids, text in zip(encoded, texts, strict=True)]
    finally:
        model.train(was_training)


def _describe_dropped(tokens: int) -> str:
    return f"[prompt without its first {tokens} tokens] " if tokens > 0 else ""
