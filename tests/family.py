"""Helpers of tests of all recipes: load a recipe, build its model, and make batches for it without a corpus."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from orchestration.config import Recipe, list_names, load
from preprocessing.rows import ExampleDataset
from preprocessing.tokenization import table_rows
from tests.mini_world import AT, world
from tests.preprocessing.toy import ToyShard, ToyStore, ToyVocab
from training.data import Loader, choose_shapes
from training.model import Model
from training.specs import EngineSettings, Phase

RECIPES = list_names("recipes")


@dataclass(frozen=True)
class Words(ToyVocab):
    """A vocabulary with all special tokens that a recipe may need."""

    sentinels: int = 100
    sentinel: int = 999


@cache
def recipe(name: str, scale: str = "") -> Recipe:
    """A shipped recipe, read once."""
    return load(name, scale=scale)


@cache
def store() -> ToyStore:
    """200 documents of the mini-world. A collocation is one word, and a phrase together with the word before it."""
    text = world(seed=3, num_documents=200)
    is_first_T = (text.ids_T >= AT["first"]) & (text.ids_T < AT["second"])  # first tokens of collocations
    return ToyStore(
        (
            ToyShard(
                ids_T=text.ids_T.astype(np.uint16),
                offset_N1=np.append(0, np.cumsum(text.num_tokens_N)),
                sentence_at_M=np.flatnonzero(text.sentence_starts_T),
                starts_T=text.word_starts_T,
                units_T=text.word_starts_T & ~is_first_T,
            ),
        )
    )


@cache
def translations() -> ToyStore:
    """200 documents of two sentences: a sentence and its translation."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 20, 400)
    begin_M = np.cumsum(lengths) - lengths
    starts_T = np.zeros(lengths.sum(), bool)
    starts_T[begin_M] = True
    return ToyStore(
        (
            ToyShard(
                ids_T=rng.integers(5, 1000, len(starts_T)).astype(np.uint16),
                offset_N1=np.append(begin_M[::2], len(starts_T)),
                sentence_at_M=begin_M,
                starts_T=np.ones(len(starts_T), bool),
                units_T=starts_T,
                source_names=("toy.en-fr.en",) * 200,
            ),
        )
    )


def loader(one: Recipe, steps: int, rows: int = 8) -> Loader:
    """The batches of a small recipe on synthetic text, with `rows` sequences per step."""
    phase = Phase(seq_length=one.phases[0].seq_length, global_batch_size=rows, steps=steps)
    text = translations() if one.data.packing.kind == "parallel" else store()
    dataset = ExampleDataset(
        text,  # type: ignore[arg-type]
        Words(),  # type: ignore[arg-type]
        one.sampling,
        phase.seq_length,
    )
    return Loader({phase.seq_length: dataset}, [phase], EngineSettings(), pad=0, rank=0, world=1)


def fixed_loader(name: str, steps: int) -> Loader:
    """The loader of a tiny recipe with micro-batches of a fixed shape: at least two in a step."""
    unpadded = loader(recipe(name, "tiny"), steps, 12)
    most = 6 * max(unpadded.rows_by_length)
    machine = EngineSettings(padding="fixed", micro_batch_tokens=most)
    return replace(unpadded, machine=machine, shapes=choose_shapes(unpadded.phases, unpadded.rows_by_length, most))


def model(one: Recipe) -> Model:
    """The model of a recipe with its initial weights."""
    return Model(one.model, one.losses, table_rows(one.data.tokenizer), one.seed)
