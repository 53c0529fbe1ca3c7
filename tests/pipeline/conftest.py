"""Small text for the pipeline: made from an address, so that it is the same in every test and every process."""

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
def few_objects_to_search() -> None:
    """Each job searches all objects for garbage at its start, a third of a second; those of earlier modules stay."""
    gc.collect()
    gc.freeze()


def story(number: int, sentences: int = 6) -> str:
    """A document of a few sentences that no other number has."""
    rng = np.random.default_rng([7, number])
    lines = (" ".join(rng.choice(WORDS, size=int(rng.integers(4, 12)))) for _ in range(sentences))
    return f"Story {number}. " + " ".join(f"{line.capitalize()}." for line in lines)


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Writes texts as JSON lines into a file of the test's folder."""

    def write(texts: list[str], name: str = "input/stories.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    return write
