"""No sequence is lost or read twice if a run continues with another number of workers, for each packing."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import pytest

from preprocessing.compiled import explain_gap
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
from preprocessing.schema import Batch, Ints
from tests import facts, family
from tests.preprocessing.test_mixture import mixed
from tests.preprocessing.toy import ToyStore, random_shard
from training.data import Loader
from training.specs import EngineSettings, Phase

LENGTH = 96
BATCH = 7  # sequences a step, which neither 2, 3 nor 5 workers divide evenly
Unit = Literal["sequence", "token"]
Address = tuple[int, int]

PACKINGS = (
    Contiguous(unit="token"),
    Contiguous(unit="sentence"),
    BestFit(),
    BestFit(add_cls=True),
    SegmentPair(negatives="random"),
    SegmentPair(negatives="dialogue"),
    Stream(),
    StreamPair(reuse_len=32),
    SingleSentence(),
    ParallelSentences(translation_ratio=0.5),
)


def translations(documents: int) -> ToyStore:
    """The first documents of family.translations()."""
    (whole,) = family.translations().shards
    total = int(whole.offset_N1[documents])
    part = replace(
        whole,
        ids_T=whole.ids_T[:total],
        offset_N1=whole.offset_N1[: documents + 1],
        sentence_at_M=whole.sentence_at_M[: 2 * documents],
        starts_T=whole.starts_T[:total],
        units_T=whole.units_T[:total],
        source_names=whole.source_names[:documents],
    )
    return ToyStore((part,))


TRANSLATIONS = translations(50)
TEXT = ToyStore(tuple(random_shard(5, seed=number, most_sentences=12) for number in range(3)))


@dataclass(frozen=True)
class Recorded(ExampleDataset):
    """Examples that record the addresses of the sequences that are read."""

    read: list[Address] = field(default_factory=list)

    def batch(self, addresses: Any) -> Batch:
        self.read.extend((int(epoch), int(sample)) for epoch, sample in np.array(addresses).reshape(-1, 2))
        return super().batch(addresses)


@dataclass(frozen=True)
class Steps:
    """Workers that train some steps, and the sequences that they read: addresses and tokens, both in any order."""

    packing: Packing
    unit: Unit
    text: Any
    compiled: bool = False

    @property
    def spec(self) -> ExampleSpec:
        """Masked tokens if sequences have `cls`, otherwise causal language modeling."""
        if "cls" in self.packing.specials:
            return ExampleSpec(packing=self.packing, masking=TokenMasking(), objective=MaskedLM())
        return ExampleSpec(packing=self.packing, masking=NoMasking(), objective=CausalLM())

    def open(self, rank: int, world: int) -> Loader:
        """The loader of one worker, as a process that starts opens it."""
        vocab: Any = family.Words()
        rows = Recorded(self.text, vocab, self.spec, LENGTH)
        if self.compiled:
            rows.load_kernels()
            assert rows._kernels
            rows.read.clear()
        phase = Phase(seq_length=LENGTH, global_batch_size=BATCH, steps=10**9, batch_unit=self.unit)
        return Loader({LENGTH: rows}, [phase], EngineSettings(), pad=0, rank=rank, world=world)

    def read(self, steps: range, world: int) -> tuple[Counter[Address], Counter[bytes]]:
        addresses, tokens = Counter[Address](), Counter[bytes]()
        for rank in range(world):
            loader = self.open(rank, world)
            for step in steps:
                for batch in loader.at(step):
                    tokens.update(one.tobytes() for one in np.split(batch["input_ids"], batch["first_at"][1:]))
            (rows,) = loader.rows_by_length.values()
            assert isinstance(rows, Recorded)
            addresses.update(rows.read)
        return addresses, tokens

    def count_steps(self) -> int:
        """Steps of an epoch and a bit."""
        (rows,) = self.open(0, 1).rows_by_length.values()
        if self.unit == "sequence":
            return rows.count(0) * 5 // 4 // BATCH + 1
        tokens = BATCH * LENGTH
        return next(
            count for count in range(10**6) if 4 * rows.rows_in_token_range(0, count * tokens).stop > 5 * rows.count(0)
        )


def require_all_once(steps: Steps, worlds: tuple[int, ...]) -> None:
    """Compare a run whose number of workers changes at some steps with one worker that reads all steps."""
    num_steps = steps.count_steps()
    wanted, wanted_tokens = steps.read(range(num_steps), 1)
    bounds = np.linspace(0, num_steps, len(worlds) + 1).astype(int).tolist()
    assert min(stop - start for start, stop in pairwise(bounds)) >= 1
    found, found_tokens = Counter[Address](), Counter[bytes]()
    for world, (start, stop) in zip(worlds, pairwise(bounds), strict=True):
        addresses, tokens = steps.read(range(start, stop), world)
        found += addresses
        found_tokens += tokens
    assert found == wanted
    assert found_tokens == wanted_tokens
    assert set(found.values()) == {1}  # none twice
    (rows,) = steps.open(0, 1).rows_by_length.values()
    if not steps.text.groups:
        samples: Ints = np.sort([sample for epoch, sample in found if epoch == 0])
        whole = rows.count(0) // BATCH * BATCH if steps.packing.ordered else rows.count(0)  # streams of equal lengths
        assert samples.tolist() == list(range(whole))  # none lost
        assert 0 < sum(epoch == 1 for epoch, _ in found) < rows.count(1)


def cases(*packings: Packing, text: Any = None) -> list[Any]:
    """Each packing with each unit of batches that `check` accepts, and the toy text that it needs."""
    return [
        pytest.param(
            packing, unit, text or (TRANSLATIONS if packing.kind == "parallel" else TEXT), id=f"{number}-{unit}"
        )
        for number, packing in enumerate(packings)
        for unit in get_args(Unit)
        if unit == "sequence" or not packing.ordered
    ]


MIXTURES = cases(BestFit(), SegmentPair(negatives="random"), text=mixed())


def test_every_kind_of_packing_is_tested() -> None:
    facts.assert_covers(PACKINGS, Packing)


@pytest.mark.parametrize(("packing", "unit", "text"), cases(*PACKINGS))
def test_a_run_reads_each_sequence_once_with_any_number_of_workers(packing: Packing, unit: Unit, text: Any) -> None:
    require_all_once(Steps(packing, unit, text), (1, 3, 2, 5))


@pytest.mark.slow
@pytest.mark.parametrize(("packing", "unit", "text"), MIXTURES)
def test_a_run_on_a_mixture_does_too(packing: Packing, unit: Unit, text: Any) -> None:
    require_all_once(Steps(packing, unit, text), (1, 3, 2, 5))


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [(1, 2), (2, 3), (3, 5), (5, 1)], ids=str)
@pytest.mark.parametrize(("packing", "unit", "text"), [*cases(*PACKINGS), *MIXTURES])
def test_compiled_batches_are_read_once_too(packing: Packing, unit: Unit, text: Any, worlds: tuple[int, ...]) -> None:
    pytest.importorskip("numba")
    steps = Steps(packing, unit, text, compiled=True)
    if gap := explain_gap(steps.spec):
        pytest.skip(gap)
    require_all_once(steps, worlds)
