"""The number of batches of one epoch: counted in a corpus, or estimated from the size of the text.

An epoch reads the text once. If the corpus requests epochs for each group, it reads each group as often. A group
without weight is not read. Weights of the recipe replace those of the corpus, and its requests, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestration.config import Recipe
from pipeline.readers import Source, plan_splits
from pipeline.spec import Corpus
from preprocessing.manifest import Manifest
from preprocessing.rows import ExampleDataset
from preprocessing.shard_cache import CacheSettings
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.specs import Phase, list_blends

BYTES_PER_TOKEN: Final = 4  # a rough mean over English text and usual vocabularies


def count_batches(folder: Path, phase: Phase, *, recipe: Recipe, cache: CacheSettings) -> float:
    """The number of batches of the first epoch of the training split. Raises BadInput if it has no sequence.

    The shards of a linked corpus are fetched into `cache`.
    """
    store = TokenStore.open(folder, "train", cache=cache)
    if phase.batch_unit == "token":
        return count_batches_of_tokens(store.manifest, recipe, phase)
    vocab = recipe.sampling.adapt_tokenizer(Vocab.load(store.vocab_dir, store.manifest.vocab["hash"]))
    mixed = replace(phase, mixture=dict(_mixture_of(recipe, phase)))
    blends = list_blends(sorted(store.manifest.mixture), [mixed], phase.seq_length)
    rows = ExampleDataset(store, vocab, recipe.sampling, phase.seq_length, blends)
    return rows.count_pass() / phase.global_batch_size


def count_batches_of_tokens(manifest: Manifest, recipe: Recipe, phase: Phase) -> float:
    """The number of batches of one epoch by the tokens of the training split, without special tokens and packing."""
    mixture, tokens = _mixture_of(recipe, phase), float(manifest.splits.get("train", {}).get("tokens", 0))
    if manifest.mixture:
        tokens = sum(
            _count_passes(name, group.requested_epochs or float(group.weight > 0), mixture) * group.tokens
            for name, group in manifest.mixture.items()
        )
    return tokens / (phase.seq_length * phase.global_batch_size)


def estimate_batches(corpus: Corpus, recipe: Recipe, phase: Phase) -> float:
    """The number of batches of one epoch, estimated from the size of the text."""
    mixture, num_bytes = _mixture_of(recipe, phase), 0.0
    if corpus.mixture:
        for group in corpus.mixture:
            num_bytes += _count_passes(group.name, group.epochs or 1.0, mixture) * _count_bytes(group.sources)
    else:
        num_bytes = _count_bytes(corpus.sources)
    train = 1 - corpus.validation_ratio - corpus.test_ratio
    return train * num_bytes / BYTES_PER_TOKEN / (phase.seq_length * phase.global_batch_size)


def _mixture_of(recipe: Recipe, phase: Phase) -> Mapping[str, float]:
    """The weights of a phase that replace those of the corpus; {} if none do."""
    return phase.mixture or recipe.data.mixture


def _count_passes(group: str, requested: float, mixture: Mapping[str, float]) -> float:
    """How often an epoch reads a group.

    >>> _count_passes("wiki", 3.0, {}), _count_passes("wiki", 3.0, {"wiki": 1}), _count_passes("web", 1.0, {"wiki": 1})
    (3.0, 1.0, 0.0)
    """
    return float(mixture.get(group, 0) > 0) if mixture else requested


def _count_bytes(sources: Iterable[Source]) -> int:
    return sum(piece.weight for split in plan_splits(tuple(sources)) for piece in split.pieces)
