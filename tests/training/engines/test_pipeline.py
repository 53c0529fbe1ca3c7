"""Workers that each have a stage of a net learn what one plain process does."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch

from tests.training.corpora import mini_run
from tests.training.engines.test_tensor_parallel import NETS, ROWS, SHORT, Plain, plainly
from tests.training.engines.test_zero import losses, machine, outcome
from tests.training.worker import job
from training.run import Run
from training.specs import ActivationCheckpointing

pytestmark = pytest.mark.timeout(3600)  # seconds: a busy machine takes minutes for what an idle one does in one


class Cell(NamedTuple):
    """A run of a net in so many stages, each by so many workers for each group that shares its layers."""

    net: str
    zero: int
    stages: int = 2
    tensor: int = 1
    sequence: int = 1
    recompute: ActivationCheckpointing = "none"

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    def run(self, corpus: Path, folder: Path, **changes: Any) -> Run:
        shared = replace(
            machine(self.zero),
            pipeline_parallel=self.stages,
            tensor_parallel=self.tensor,
            sequence_parallel=self.sequence,
            activation_checkpointing=self.recompute,
        )
        run = mini_run(corpus, folder / self.name, machine=shared, vocab_size=ROWS)
        return replace(NETS[self.net](run), **changes)


def trained(corpus: Path, folder: Path, cells: list[Cell], world: int, **changes: Any) -> dict[Cell, Any]:
    """What the first worker saw of each cell."""
    jobs = [job(cell.run(corpus, folder, **changes)) for cell in cells]
    return dict(zip(cells, outcome(world, jobs, folder / f"group-{world}"), strict=True))


def assert_alike(cell: Cell, found: Any, wanted: Plain, folder: Path) -> None:
    """Losses, the norm of the last gradient, and whole weights."""
    assert losses(found) == pytest.approx(wanted.losses, rel=1e-5), cell
    last = found["steps"][str(len(wanted.losses))]
    assert last["train/grad_norm"] == pytest.approx(wanted.last["train/grad_norm"], rel=1e-4), cell
    weights = safetensors.torch.load_file(folder / cell.name / "final.safetensors")
    assert weights.keys() == wanted.weights.keys(), cell
    for name, weight in wanted.weights.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=1e-4, msg=f"{name}, {cell}")


CELLS = [Cell("bert", 0), Cell("bert", 1, recompute="full"), Cell("gpt", 0), Cell("gpt", 1)]


@pytest.fixture(scope="module")
def seen(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Cell, Any]]:
    folder = tmp_path_factory.mktemp("pipeline")
    return folder, trained(corpus, folder, CELLS, 2, phases=SHORT, eval_every=3)


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plain]:
    return plainly(corpus, tmp_path_factory.mktemp("plain"), ["bert", "gpt"], phases=SHORT, eval_every=3)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_stages_learn_as_one_plain_process_does(cell: Cell, seen, plain) -> None:
    folder, runs = seen
    assert_alike(cell, runs[cell], plain[cell.net], folder)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_stages_evaluate_as_one_plain_process_does(cell: Cell, seen, plain) -> None:
    found, wanted = seen[1][cell]["steps"]["3"], plain[cell.net].last
    assert found["eval/loss"] == pytest.approx(wanted["eval/loss"], rel=1e-5)
    assert found["train/tokens"] == wanted["train/tokens"]
