"""What a net that is being trained writes behind a few prompts, to be looked at."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from preprocessing.rng import key
from preprocessing.tokenization import Vocab
from training.generation.decoding import generate
from training.generation.rows import Prompt
from training.generation.spec import GenerationLimits, SampledDecoding
from training.model import Model

METHOD: Final = SampledDecoding(top_k=40)  # as GPT-2's samples were made
MAX_NEW: Final = 64


def generate_samples(model: Model, vocab: Vocab, prompts: Sequence[str], *, seed: int) -> list[str]:
    """Each prompt with what the net writes behind it: the same for the same weights and seed.

    A prompt begins a document, and loses its beginning where it leaves no room: its text says so. The model is in
    training mode afterwards where it was before; the global generator is not drawn from.
    """
    was_training = model.training
    model.eval()
    try:
        most = model.spec.model.longest // 2
        encoded = [vocab.encode(text) for text in prompts]
        begun = [[*([] if vocab.sep is None else [vocab.sep]), *ids[-most:]] for ids in encoded]
        ends = () if vocab.sep is None else (vocab.sep,)
        unspoken = set(vocab.special_ids)
        barred = sorted({*unspoken, *range(vocab.size, model.spec.vocab_size)} - set(ends))
        rows = generate(
            model,
            [Prompt(np.array(ids, np.int64)) for ids in begun],
            GenerationLimits(max_new_tokens=MAX_NEW, ends=ends, barred=tuple(barred)),
            method=METHOD,
            key=key(seed, "task"),
        )
        texts = [
            vocab.decode(id for id in (*ids, *row.ids.tolist()) if id not in unspoken)
            for ids, row in zip(begun, rows, strict=True)
        ]
        return [_cut(len(ids) - most) + text for ids, text in zip(encoded, texts, strict=True)]
    finally:
        model.train(was_training)


def _cut(tokens: int) -> str:
    return f"[the prompt without its first {tokens} tokens] " if tokens > 0 else ""
