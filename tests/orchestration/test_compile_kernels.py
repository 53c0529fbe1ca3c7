"""`make setup` compiles every kernel that jobs with shipped recipes use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

ROOT = Path(__file__).parents[2]
BATCHES = """
import sys
from dataclasses import replace
from orchestration.config import list_names, load
from preprocessing.compiled import explain_gap
from preprocessing.rows import ExampleDataset
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab

store = TokenStore.open(sys.argv[1], "train")
vocab = replace(Vocab.load(store.vocab_dir), sentinels=100)
names = []
for name in list_names("recipes"):
    recipe = load(name, scale="tiny")
    if not explain_gap(recipe.sampling):
        rows = ExampleDataset(store, vocab, recipe.sampling, recipe.phases[0].seq_length)
        rows.load_kernels()
        rows.batch_at(3, 11)
        assert not rows._kernels[0]._has_failed, name
        names.append(name)
print(len(names))
"""


def list_code() -> dict[str, int]:
    """The files of machine code, and when each was written."""
    return {str(path): path.stat().st_mtime_ns for path in ROOT.glob("preprocessing/**/__pycache__/*.nb?")}


def run(*words: str, home: Path) -> str:
    environment = os.environ | {"HOME": str(home)}
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_after_setup_jobs_compile_nothing(tmp_path: Path) -> None:
    run("-m", "orchestration.compile_kernels", home=tmp_path)
    before = list_code()
    assert before
    text = tmp_path / "text.txt"
    with text.open("w") as file:  # 6 MB: from 4 MB on, kernels train the tokenizer if they are compiled
        for number in range(60_000):
            file.write(
                f"Document {number} is the {number * 7919 % 60_000}th one. The mill's caf\u00e9 has {number} cups.\n\n"
            )
    flags = ("--data", str(text), "--scale", "tiny", "--output-dir", str(tmp_path / "out"))
    for recipe in ("bert_tiny", "gpt2"):
        run("-m", "sesame", "corpus", recipe, *flags, home=tmp_path)
    (corpus,) = (path.parents[1] for path in (tmp_path / "out").rglob("vocab/vocab.txt"))
    assert int(run("-c", BATCHES, str(corpus), home=tmp_path)) > 40
    assert list_code() == before
    assert not [*tmp_path.rglob("*.nb?")]
