"""The number of batches of one epoch: counted in a corpus, or estimated from the size of the text."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestration.config import Recipe
from pipeline.readers import plan_splits
from pipeline.spec import Corpus
from preprocessing.rows import ExampleDataset
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.specs import Phase, list_blends

BYTES_PER_TOKEN: Final = 4  # a rough mean over English text and usual vocabularies


def count_batches(folder: Path, recipe: Recipe, phase: Phase) -> float:
    """The number of batches of the first epoch of the training split. Raises BadInput if it has no sequence."""
    store = TokenStore.open(folder, "train")
    if phase.batch_unit == "token":
        return store.manifest.splits["train"]["tokens"] / (phase.global_batch_size * phase.seq_length)
    vocab = recipe.sampling.adapt_tokenizer(Vocab.load(store.vocab_dir, store.manifest.vocab["hash"]))
    mixed = replace(phase, mixture=phase.mixture or recipe.data.mixture)
    blends = list_blends(sorted(store.manifest.mixture), [mixed], phase.seq_length)
    rows = ExampleDataset(store, vocab, recipe.sampling, phase.seq_length, blends)
    return rows.count_pass() / phase.global_batch_size


def estimate_batches(corpus: Corpus, phase: Phase) -> float:
    """The number of batches of one epoch, estimated from the size of the text."""
    num_bytes = sum(piece.weight for split in plan_splits(corpus.sources) for piece in split.pieces)
    train = 1 - corpus.validation_ratio - corpus.test_ratio
    return train * num_bytes / BYTES_PER_TOKEN / (phase.seq_length * phase.global_batch_size)
