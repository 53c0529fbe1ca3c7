"""The gate: compiled batches are used while they equal those of numpy."""

import logging
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing import compiled
from preprocessing.collate import collate_unpadded
from preprocessing.compiled import CheckedBatches, explain_gap
from preprocessing.errors import ResourceError
from preprocessing.masking import TokenMasking
from preprocessing.objectives import MaskedLM
from preprocessing.packing import SegmentPair
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Batch
from tests import family
from tests.preprocessing.test_rows import random_shard
from tests.preprocessing.toy import ToyStore
from training.data import WORTH_KERNELS

BERT = ExampleSpec(packing=SegmentPair(negatives="random"), masking=TokenMasking(), objective=MaskedLM())
ADDRESSES = np.array([[0, 1], [0, 2]])
ROW = {"input_ids": np.array([5, 6]), "token_type_ids": np.zeros(2), "labels": np.array([9, 8])}
BATCH = collate_unpadded([ROW, ROW])
ROOT = Path(__file__).parents[3]


class Fake:
    """Compiled batches that return, or raise, what a test wants."""

    def __init__(self, *results: Batch | Exception) -> None:
        self.results = list(results)

    def will_compile(self) -> bool:
        return False

    def make(self, address_B2: Any) -> Batch:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def rows() -> ExampleDataset:
    text: Any = ToyStore((random_shard(30),))
    vocab: Any = family.Words()
    return ExampleDataset(text, vocab, BERT, 64)


def oracle(address_B2: Any) -> Batch:
    return BATCH


def test_equal_batches_pass() -> None:
    batches = CheckedBatches(lambda: Fake(BATCH, BATCH, {}), oracle)
    assert batches.make(ADDRESSES) is BATCH
    assert batches.make(ADDRESSES) is BATCH
    assert batches.make(ADDRESSES) == {}  # only the first batches are compared


def test_a_compilation_is_said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "will_compile", lambda self: True)
    CheckedBatches(lambda: Fake(BATCH), oracle).make(ADDRESSES)
    (said,) = (record.message for record in caplog.records if record.levelno == logging.WARNING)
    assert said == "compiling the kernels that make batches: about ten seconds, once on this machine"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (BATCH | {"targets": BATCH["targets"] + 1}, "a difference in the columns targets"),
        (BATCH | {"lengths": BATCH["lengths"].astype(np.int64)}, "a difference in the columns lengths"),
        (BATCH | {"next_sentence_label": np.zeros(2)}, "a difference in the columns next_sentence_label"),
        (OSError("disk full"), "OSError: disk full"),
    ],
)
def test_numpy_makes_all_batches_after_a_difference(
    result: Batch | Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    batches = CheckedBatches(lambda: Fake(result, BATCH), oracle)
    assert batches.make(ADDRESSES) is None
    assert batches.make(ADDRESSES) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert reason in caplog.text


def test_an_error_of_the_store_is_not_one_of_the_kernels(caplog: pytest.LogCaptureFixture) -> None:
    batches = CheckedBatches(lambda: Fake(ResourceError("the store failed"), BATCH), oracle)
    with pytest.raises(ResourceError, match="the store failed"):
        batches.make(ADDRESSES)
    assert not caplog.records
    assert batches.make(ADDRESSES) is BATCH


def test_a_dataset_uses_compiled_batches_and_survives_pickling() -> None:
    pytest.importorskip("numba")
    made = rows()
    address_B2 = np.array(made.addresses(0, 8))
    wanted = collate_unpadded([made.row(*address) for address in address_B2.tolist()])
    made.load_kernels()
    assert made._kernels[0].make(address_B2) is not None
    again: ExampleDataset = pickle.loads(pickle.dumps(made))
    for one in (made, again):
        found = one.batch(address_B2)
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_only_a_loader_of_many_sequences_loads_kernels() -> None:
    """Kernels are loaded in a second, and compiled in ten."""
    loader = family.loader(family.recipe("bert_base", "tiny"), 10)
    (made,) = loader.rows_by_length.values()
    loaded: list[ExampleDataset] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExampleDataset, "load_kernels", lambda rows, position: loaded.append(rows))
        loader.prepare(0, 10)
        assert loaded == []
        long = replace(loader, phases=[replace(loader.phases[0], steps=WORTH_KERNELS)])
        long.prepare(WORTH_KERNELS - 10, WORTH_KERNELS)
        assert loaded == []
        long.prepare(0, WORTH_KERNELS)
    assert loaded == [made]


def test_without_numba_numpy_makes_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.coverage, "find_spec", lambda name: None)
    assert explain_gap(BERT) == "numba is not installed (the extra [fast])"
    made = rows()
    made.load_kernels()
    assert made._kernels == []
    assert made.batch_at(0, 3).keys() == rows().batch_at(0, 3).keys()


def test_importing_the_package_does_not_import_numba() -> None:
    program = "import sys, preprocessing.rows; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
