import os
from pathlib import Path

import pytest

from tests.mini_world import World, world
from tests.training.corpora import mini_corpus

os.environ["DS_ACCELERATOR"] = "cpu"  # DeepSpeed reads it when it is imported


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished corpus of the mini-world."""
    return mini_corpus(tmp_path_factory.mktemp("mini_world") / "corpus")


@pytest.fixture(scope="session")
def train() -> World:
    """The mini-world's training text, whose unigram and bigram entropies are known."""
    return world(seed=0, num_documents=4000)


@pytest.fixture(scope="session")
def held_out() -> World:
    """Held-out documents of the mini-world."""
    return world(seed=1, num_documents=400)
