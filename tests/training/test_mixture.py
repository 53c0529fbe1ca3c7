"""The batches of a mixture are the same for any number of workers, and after a run has resumed."""

import numpy as np
import pytest

from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from tests.preprocessing.test_mixture import BERT, GPT, mixed
from tests.preprocessing.toy import ToyVocab
from training.data import Loader
from training.specs import EngineSettings, Phase

PHASES = (
    Phase(seq_length=32, global_batch_size=12, steps=5),
    Phase(seq_length=64, global_batch_size=6, steps=4),
    Phase(seq_length=32, global_batch_size=12, steps=6),
)


def loader(parts, rank: int = 0, world: int = 1) -> Loader:
    rows = {length: ExampleDataset(mixed(), ToyVocab(), ExampleSpec(**parts), length) for length in (32, 64)}
    return Loader(rows, PHASES, EngineSettings(), pad=0, rank=rank, world=world)


def tokens_of(batches) -> list[int]:
    return np.concatenate([batch["input_ids"] for batch in batches]).tolist()


@pytest.mark.parametrize("parts", [GPT, BERT], ids=["gpt", "bert"])
@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_workers_reads_the_same_tokens_at_each_step_and_after_a_restart(parts, world: int):
    alone, workers = loader(parts), [loader(parts, rank, world) for rank in range(world)]
    steps = [tokens_of(alone.at(step)) for step in range(15)]
    for step in range(7, 15):  # the workers start at step 7
        assert [token for worker in workers for token in tokens_of(worker.at(step))] == steps[step]


def test_a_phase_continues_the_mixture_of_the_last_phase_with_its_length():
    one = loader(GPT)
    rows = one.rows_by_length[32]
    wanted = [rows.row(*address)["input_ids"] for address in rows.addresses(60, 72)]
    assert tokens_of(one.at(9)) == np.concatenate(wanted).tolist()
