import os
from pathlib import Path

import pytest

from tests.training.corpora import mini_corpus

os.environ["DS_ACCELERATOR"] = "cpu"  # DeepSpeed looks at its import


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished corpus of the mini-world."""
    return mini_corpus(tmp_path_factory.mktemp("mini_world") / "corpus")
