"""A small text that is the same everywhere: the mini-world, its words spelled in syllables."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.mini_world import world

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


def spell(id: int) -> str:
    """A word of two or three syllables for a token of the mini-world.

    >>> spell(0), spell(466)
    ('baba', 'rezede')
    """
    syllables = [c + v for c in _CONSONANTS for v in _VOWELS]
    first, second, third = id % 70, (id // 7) % 70, id // 70
    return syllables[first] + syllables[second] + (syllables[third] if third else "")


def write(path: Path, num_documents: int = 400) -> Path:
    """Documents of 8 to 14 sentences as JSON lines."""
    text = world(seed=7, num_documents=num_documents)
    words = [spell(id) for id in text.ids_T.tolist()]
    sentence_starts = [*np.flatnonzero(text.sentence_starts_T).tolist(), len(words)]
    document_ends = set(np.cumsum(text.num_tokens_N).tolist())
    lines, sentences = [], []
    for start, stop in pairwise(sentence_starts):
        sentences.append(" ".join(words[start:stop]).capitalize() + ".")
        if stop in document_ends:
            lines.append(json.dumps({"text": " ".join(sentences)}))
            sentences.clear()
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
