"""The steps and sequences that contain a document, compared with an enumeration of all sequences of all steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from preprocessing.find_rows import DocumentPlace
from preprocessing.manifest import MixtureGroupStats
from preprocessing.masking import NoMasking, TokenMasking
from preprocessing.objectives import CausalLM, MaskedLM
from preprocessing.packing import (
    BestFit,
    Contiguous,
    Packing,
    ParallelSentences,
    SegmentPair,
    SingleSentence,
    Stream,
    StreamPair,
)
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.toy import ToyShard, ToyStore, ToyVocab, random_shard
from training.data import Loader
from training.document_steps import find_steps
from training.specs import EngineSettings, Phase, list_blends

GPT = {"masking": NoMasking(), "objective": CausalLM()}
BERT = {  # predicts tokens, but replaces none
    "masking": TokenMasking(rate=0.15),
    "objective": MaskedLM(mask_replace_prob=0.0, random_replace_prob=0.0),
}
PHASES = (
    Phase(seq_length=32, global_batch_size=12, steps=7),
    Phase(seq_length=48, global_batch_size=5, steps=6),
    Phase(seq_length=32, global_batch_size=8, steps=9),
)
FULL = (Phase(seq_length=32, global_batch_size=4, steps=40, batch_unit="token"), replace(PHASES[1], steps=20))

CURRICULUM = tuple(
    replace(phase, mixture=mixture)
    for phase, mixture in zip(PHASES[:1] + PHASES[:2], ({}, {"small": 1.0}, {"large": 1.0, "small": 3.0}), strict=True)
)
LONG = tuple(replace(phase, steps=6 * phase.steps) for phase in PHASES)


def unique_shards(sizes: list[int], most_sentences: int = 6) -> tuple[ToyShard, ...]:
    """Shards in which each token has an ID of its own."""
    shards, first = [], 10
    for k, size in enumerate(sizes):
        made = random_shard(size, seed=k, most_sentences=most_sentences)
        ids_T = np.arange(first, first + len(made.ids_T), dtype=np.uint32)
        units_T = np.isin(np.arange(len(ids_T)), made.sentence_at_M)  # each sentence is a side of a translation
        shards.append(replace(made, ids_T=ids_T, path=made.path.with_name(f"train-{k}.arrow"), units_T=units_T))
        first += len(ids_T)
    return tuple(shards)


TEXT = ToyStore(unique_shards([7, 11, 2]))
MIXTURE = replace(
    TEXT,
    groups=tuple(
        MixtureGroupStats(weight=weight, share=weight / 4, documents=0, tokens=0, epochs=0.0, shards=shards)
        for weight, shards in ((3.0, ("train-1.arrow",)), (1.0, ("train-0.arrow", "train-2.arrow")))
    ),
)


def loader_of(
    packing: Packing, parts: dict[str, Any], phases: tuple[Phase, ...], store: ToyStore, static_masks: int = 0
) -> Loader:
    spec = ExampleSpec(packing=packing, **{"seed": 3, "static_masks": static_masks, **parts})
    lengths = {phase.seq_length for phase in phases}
    rows = {
        length: ExampleDataset(
            store, ToyVocab(size=100_000), spec, length, list_blends(["large", "small"], phases, length)
        )
        for length in lengths
    }
    return Loader(rows, phases, EngineSettings(), pad=0, rank=0, world=1)


def enumerate_documents(loader: Loader, store: ToyStore) -> dict[int, dict[tuple[int, int], set[int]]]:
    """For the first ID of each document: by step and sequence, its IDs that the sequence reads or predicts."""
    firsts = np.concatenate([shard.ids_T[shard.offset_N1[:-1]] for shard in store.shards])
    found: dict[int, dict[tuple[int, int], set[int]]] = {}
    for step in range(sum(phase.steps for phase in loader.phases)):
        row = 0
        for batch in loader.at(step):
            target_T = np.zeros(len(batch["input_ids"]), np.int64)
            target_T[batch["targets_at"]] = batch["targets"]
            for first, length in zip(batch["first_at"].tolist(), batch["lengths"].tolist(), strict=True):
                here = slice(first, first + length)
                ids = np.unique(np.concatenate([batch["input_ids"][here], target_T[here]]))
                ids = ids[ids >= firsts[0]]
                for id, document in zip(ids.tolist(), np.searchsorted(firsts, ids, side="right").tolist(), strict=True):
                    of_document = found.setdefault(int(firsts[document - 1]), {})
                    of_document.setdefault((step, row), set()).add(id)
                row += 1
    return found


CASES: list[tuple[str, Packing, dict[str, Any], tuple[Phase, ...], ToyStore, int]] = [
    ("tokens", Contiguous(unit="token"), GPT, PHASES, TEXT, 0),
    ("sentences", Contiguous(unit="sentence"), BERT, FULL, TEXT, 2),
    ("random pairs", SegmentPair(negatives="random"), BERT, PHASES, MIXTURE, 0),
    ("languages", ParallelSentences(sentence_order="shuffled"), BERT, PHASES, TEXT, 0),
    ("streams", Stream(), GPT, PHASES, TEXT, 0),
    ("curriculum", SegmentPair(negatives="random"), BERT, CURRICULUM, MIXTURE, 0),
    ("best fit", BestFit(), GPT, PHASES, TEXT, 0),
    ("windows", Contiguous(unit="sentence"), BERT | {"shuffle_window_shards": 2}, FULL, TEXT, 0),
]
SLOW: list[Any] = [
    ("tokens, one document", Contiguous(unit="token", cross_documents=False), BERT, PHASES, TEXT, 0),
    ("tokens, no separators", Contiguous(unit="token", add_separators=False), BERT, PHASES, MIXTURE, 0),
    ("sentences, dropped", Contiguous(unit="sentence", overlong="drop"), BERT, FULL, MIXTURE, 0),
    ("random pairs, static", SegmentPair(negatives="random", short_seq_prob=0.5), BERT, FULL, TEXT, 2),
    ("swapped pairs", SegmentPair(negatives="swapped"), BERT, PHASES, TEXT, 0),
    ("dialogues", SegmentPair(negatives="dialogue"), BERT, PHASES, TEXT, 3),
    ("consecutive pairs", SegmentPair(negatives="none", single_segment_prob=0.2), BERT, FULL, MIXTURE, 0),
    ("single sentences", SingleSentence(), BERT, FULL, MIXTURE, 0),
    ("translations", ParallelSentences(translation_ratio=0.7), GPT, FULL, MIXTURE, 2),
    ("best fit, with cls", BestFit(add_cls=True), BERT, FULL, MIXTURE, 2),
    ("stream pairs", StreamPair(reuse_len=20), BERT, LONG, TEXT, 0),
]


@pytest.mark.parametrize(
    ("name", "packing", "parts", "phases", "store", "static"),
    [pytest.param(*one, id=one[0]) for one in CASES]
    + [pytest.param(*one, id=one[0], marks=pytest.mark.slow) for one in SLOW],
)
def test_the_sequences_of_each_document_are_those_of_all_steps(
    name: str, packing: Packing, parts: dict[str, Any], phases: tuple[Phase, ...], store: ToyStore, static: int
) -> None:
    loader = loader_of(packing, parts, phases, store, static)
    every, epochs = enumerate_documents(loader, store), set[int]()
    steps = range(sum(phase.steps for phase in phases))
    places = [DocumentPlace(shard, one) for shard in store.shards for one in range(len(shard.offset_N1) - 1)]
    shares = list[int]()
    together, later = find_steps(loader, places, steps, shares.append), find_steps(loader, places, range(5, 10))
    assert shares == sorted(shares)
    assert shares[-1] == len(steps)
    for place, found, part in zip(places, together, later, strict=True):
        shard, document = place
        expected = every.get(int(shard.ids_T[shard.offset_N1[document]]), {})
        actual = dict[tuple[int, int], set[int]]()
        for step, row, start, stop in zip(found.step_K, found.row_K, found.start_K, found.stop_K, strict=True):
            tokens = shard.ids_T[shard.offset_N1[document] + start : shard.offset_N1[document] + stop]
            there = actual.setdefault((int(step), int(row)), set())
            assert not there & set(tokens.tolist())
            there |= set(tokens.tolist())
        assert actual == expected, (name, document)
        assert np.all(np.diff(found.step_K) >= 0)
        assert np.all(found.start_K < found.stop_K)
        epochs |= set(found.epoch_K.tolist())
        wanted = (found.step_K >= 5) & (found.step_K < 10)
        assert part.step_K.tolist() == found.step_K[wanted].tolist()
        assert part.start_K.tolist() == found.start_K[wanted].tolist()
    assert len(epochs) > 1, "the case must have several epochs"


@pytest.mark.parametrize("case", [CASES[1], CASES[4]], ids=["sentences", "streams"])
def test_the_addresses_of_a_step_are_those_of_its_sequences(case: Any) -> None:
    loader = loader_of(*case[1:])
    for step in (0, 8, sum(phase.steps for phase in case[3]) - 1):
        rows = loader.rows_by_length[loader.phase_of(step).seq_length]
        wanted = np.concatenate([batch["input_ids"] for batch in loader.at(step)])
        assert np.array_equal(np.concatenate([rows.row(*at)["input_ids"] for at in loader.addresses(step)]), wanted)
