"""Compiles all kernels that shipped recipes use: `python -m orchestration.compile_kernels`, as `make setup` does.

It trains small tokenizers and makes a batch of each recipe, so the kernels and the types of their arguments are those
of a run. Machine code that exists is not compiled again.
"""

import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Final, cast

import numpy as np

from orchestration.config import list_names, load
from pipeline.spec import Dedup
from preprocessing.compiled import COMPILING, explain_gap
from preprocessing.manifest import Ledger, Manifest
from preprocessing.packing import BestFit, count_rows
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.shards import Shard, TokenStore, shard_name, write_shard
from preprocessing.text import hash_bands, sign_texts
from preprocessing.tokenization import Vocab, compile_training_kernels

log = logging.getLogger(__name__)

_MAX_NARROW: Final = 1 << 16  # larger vocabularies have token IDs of four bytes
_LENGTH: Final = 64
_NUM_SIGNED: Final = 200_000  # texts: enough that kernels sign them
_PACKINGS: Final = {"contiguous": BestFit()}  # by the kind in a recipe: packings that no recipe has
_NUM_DOCUMENTS, _NUM_SENTENCES, _NUM_TOKENS = 40, 5, 12


@dataclass(frozen=True)
class _SmallVocab:
    """The token IDs of a vocabulary that kernels read."""

    size: int
    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3
    mask: int = 4
    special_ids: tuple[int, ...] = (0, 1, 2, 3, 4)
    sentinels: int = 100

    @property
    def sentinel(self) -> int:
        return self.size - 1


def list_examples() -> dict[tuple[ExampleSpec, bool], str]:
    """The training examples that have kernels, whether their token IDs have four bytes, and a recipe of each."""
    found = dict[tuple[ExampleSpec, bool], str]()
    for name in list_names("recipes"):
        sampling = load(name, scale="tiny").sampling  # short sequences
        is_wide = load(name).data.tokenizer.vocab_size > _MAX_NARROW
        packed = replace(sampling, packing=_PACKINGS.get(sampling.packing.kind, sampling.packing))
        for each in (sampling, packed):
            if not explain_gap(each):
                found.setdefault((each, is_wide), name)
    return found


def compile_kernels(folder: Path) -> Iterator[str]:
    """Yield what is compiled next, and compile it. `folder` is a directory for temporary files."""
    stores = {is_wide: _make_store(folder, is_wide) for is_wide in (False, True)}
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        training = other.submit(compile_training_kernels)
        for (sampling, is_wide), name in list_examples().items():
            yield f"batches of {name}"
            store, vocab = stores[is_wide]
            rows = ExampleDataset(store, cast(Vocab, vocab), sampling, _LENGTH)
            rows.load_kernels()
            rows.batch_at(0, 8)
            count_rows(sampling.packing, store.shards, _LENGTH, 0, lambda _: np.random.Generator(np.random.Philox(0)))
        yield "near-duplicates"
        settings = Dedup()
        num_permutations = settings.num_bands * settings.rows_per_band
        signature_NP, _ = sign_texts(["one two three "] * _NUM_SIGNED, settings.ngram_size, num_permutations)
        hash_bands(signature_NP, settings.num_bands)
        yield "training of tokenizers"
        training.result()


def _make_store(folder: Path, is_wide: bool) -> tuple[TokenStore, _SmallVocab]:
    """A small text whose token IDs have two or four bytes, and its vocabulary."""
    vocab = _SmallVocab(_MAX_NARROW + 1 if is_wide else 1000)
    path = folder / str(vocab.size) / shard_name("train", 0, 1)
    path.parent.mkdir()
    rng = np.random.Generator(np.random.Philox(0))
    shape = _NUM_DOCUMENTS, _NUM_SENTENCES * _NUM_TOKENS
    id_NT = rng.integers(len(vocab.special_ids), 800, shape)
    first_T = np.arange(shape[1]) % _NUM_TOKENS == 0
    word_start_NT = first_T | (rng.random(shape) < 0.7)
    keys = [bytes([number]) * 16 for number in range(_NUM_DOCUMENTS)]
    info = write_shard(
        path, [*id_NT], [*word_start_NT], [first_T] * shape[0], ["text"] * shape[0], keys, vocab_size=vocab.size
    )
    manifest = Manifest("small", "", "", {}, {}, (info,), Ledger())
    return TokenStore(path.parent, "train", manifest, (Shard(path),)), vocab


def main() -> None:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.root.handlers[0].addFilter(lambda record: record.getMessage() != COMPILING)
    if find_spec("numba") is None:
        sys.exit("numba is not installed, so there are no kernels: run `pip install 'sesame-pretraining[fast]'`")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for what in compile_kernels(Path(folder)):
            log.info("compiling kernels: %s", what)
    print(f"all kernels are compiled ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
