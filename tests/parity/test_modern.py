"""Modern parts on two workers: rotary positions, ALiBi, grouped queries, windows, parallel residuals, untied tables.

Each layout of two workers must give the losses of one process.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.parity import nets
from tests.parity.cells import Cell
from tests.parity.group import Seen, train_in_groups
from tests.training import modern
from tests.training.corpora import mini_corpus
from training.run import Run

STEPS: Final = 6
LAYOUTS: Final = {
    "tensor": Cell("", 1, 1, 2, 1, 1, "fp32", "AdamW"),
    "pipeline": Cell("", 1, 1, 1, 2, 1, "fp32", "AdamW"),
    "sequence": Cell("", 1, 1, 1, 1, 2, "fp32", "AdamW"),
    "ZeRO-3": Cell("", 3, 2, 1, 1, 1, "fp32", "AdamW"),
    "selective": Cell("", 2, 2, 1, 1, 1, "selective", "AdamW"),
}
ALONE: Final = Cell("", 1, 1, 1, 1, 1, "fp32", "AdamW")
NETS: Final = (
    *("llama", "mistral", "qwen 3", "gated attention", "gpt-neox", "gpt-j", "mpt"),
    *("modernbert", "mosaicbert", "t5 1.1"),
)


def run_of(name: str, cell: Cell, corpus: Path, folder: Path) -> Run:
    """A run of a modern net with the text and the optimizer of an old one; a model of one key head gets two."""
    like = {"encoder": "BERT", "decoder": "GPT-2", "encoder_decoder": "T5"}[modern.TRUNKS[name].kind]
    run = nets.run(cell._replace(net=like), corpus, folder / name)
    phases = tuple(replace(phase, steps=STEPS) for phase in run.phases)
    trunk = modern.TRUNKS[name]
    if name == "qwen 3":
        trunk = replace(trunk, num_key_value_heads=2)
    if trunk.kind != "encoder_decoder":
        trunk = replace(trunk, position_embedding=replace(trunk.position_embedding, max_position_embeddings=64))
    losses = [loss for loss in run.losses if loss.kind != "sentence_pair"]
    return replace(run, model=trunk, losses=tuple(losses), phases=phases)


def is_possible(name: str, layout: str) -> bool:
    trunk = modern.TRUNKS[name]
    if layout == "sequence":
        return not trunk.chunks_over(2)
    return layout != "pipeline" or not trunk.stages_over(2)


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    folder = tmp_path_factory.mktemp("modern")
    corpus = mini_corpus(folder / "corpus")
    found = dict[str, list[float]]()

    def report(name: str, seen: Seen) -> None:
        assert not seen.error, f"{name}: {seen.error}"
        found[name] = seen.losses

    for workers, layouts in ((1, {"alone": ALONE}), (2, LAYOUTS)):
        jobs = {
            f"{name}, {layout}": {
                "plain": False,
                "run": run_of(name, cell, corpus, folder / layout).to_json(),
                "data": cell.data,
            }
            for layout, cell in layouts.items()
            for name in NETS
            if layout == "alone" or is_possible(name, layout)
        }
        train_in_groups(jobs, workers, folder / f"groups of {workers}", "tests.parity.worker", report)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NETS)
def test_two_workers_compute_the_losses_of_one(name: str, layout: str, losses: dict[str, list[float]]) -> None:
    alone = losses[f"{name}, alone"]
    assert len(alone) == STEPS
    assert alone[-1] < alone[0]
    if is_possible(name, layout):
        assert losses[f"{name}, {layout}"] == pytest.approx(alone, rel=1e-4)
    else:
        assert f"{name}, {layout}" not in losses
