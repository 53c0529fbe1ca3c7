"""Small texts for the pipeline, derived from a number, so that they are equal in every test and every process."""

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

WORDS = [
    "sesame",
    "seeds",
    "grow",
    "in",
    "warm",
    "lands",
    "and",
    "every",
    "open",
    "door",
    "hides",
    "a",
    "small",
    "lamp",
]


@pytest.fixture(scope="module", autouse=True)
def freeze_old_objects() -> None:
    """Each job runs a garbage collection at its start, which takes 0.3 s; freeze the objects of earlier modules."""
    gc.collect()
    gc.freeze()


def story(number: int, sentences: int = 6) -> str:
    """Return a document of a few sentences that differs for each number."""
    rng = np.random.default_rng([7, number])
    lines = (" ".join(rng.choice(WORDS, size=int(rng.integers(4, 12)))) for _ in range(sentences))
    return f"Story {number}. " + " ".join(f"{line.capitalize()}." for line in lines)


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes texts as JSON lines to a file in the test's directory."""

    def write(texts: list[str], name: str = "input/stories.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    return write
