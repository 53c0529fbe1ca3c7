"""The parity program itself: the cells it chooses, the cells that `check` refuses, and that it detects differences."""

import json
from pathlib import Path

import pytest

from tests.parity import bare, nets, table
from tests.parity.__main__ import _reference
from tests.parity.cells import AXES, Cell, combined, covering, pairs, plain_product, whole_product
from tests.parity.group import Seen, train_in_groups
from tests.training.corpora import mini_corpus

CELL = Cell("BERT", 2, 2, 1, 1, 1, "fp32", "AdamW")


@pytest.fixture(scope="module")
def legal() -> list[Cell]:
    return [cell for cell in whole_product() if cell.world <= 8 and not nets.refusal(cell)]


def test_each_pair_of_values_that_is_legal_is_covered(legal: list[Cell]) -> None:
    done = [cell for cell in plain_product() if cell in set(legal)]
    chosen = covering(legal, done)
    covered = set().union(*map(pairs, [*done, *chosen]))
    assert covered == set().union(*map(pairs, legal))
    assert len(done) + len(chosen) < 200
    assert chosen == covering(legal, done)


def test_adamw_in_float32_is_trained_on_every_stage_and_data_parallel_world() -> None:
    cells = set(plain_product())
    for net in AXES["net"]:
        assert {(cell.zero, cell.data) for cell in cells if cell.net == net} == {
            (zero, data) for zero in AXES["zero"] for data in AXES["data"]
        }


def test_impossible_cells_are_refused_by_check_in_one_line() -> None:
    lines = {cell: nets.refusal(cell) for cell in whole_product()}
    assert all("\n" not in line for line in lines.values())
    assert "invalid engine.zero_stage: got 0, expected 1, 2 or 3 with bf16" in lines[CELL._replace(zero=0, mode="bf16")]
    assert (
        "model.kind is encoder_decoder, which does not support sequence parallelism"
        in lines[CELL._replace(net="T5", sequence=2)]
    )
    assert not lines[CELL]


def test_the_reference_is_one_process_of_the_same_precision() -> None:
    cell = Cell("ELECTRA", 3, 4, 2, 1, 1, "bf16", "Lion")
    # each of the four data-parallel workers samples for itself
    assert _reference(cell) == Cell("ELECTRA", 1, 4, 1, 1, 1, "bf16", "Lion")
    assert _reference(cell._replace(net="T5", mode="offload")) == Cell("T5", 1, 1, 1, 1, 1, "fp32", "Lion")


def test_modes_of_several_keys_are_legal_and_have_the_right_reference_precision() -> None:
    cells = combined()
    assert [nets.refusal(cell) for cell in cells] == [""] * len(cells)
    assert {cell.net for cell in cells} == set(AXES["net"])
    sums = CELL._replace(mode="sums in bf16")
    assert (sums.machine["reduce_dtype"], _reference(sums).mode) == ("bf16", "fp32")
    assert _reference(CELL._replace(mode="bf16+offload")).mode == "bf16"
    assert table.outcome(sums, Seen([1.0]), Seen([1.001])).failed is False


def test_different_losses_nan_and_errors_count_as_failures() -> None:
    right = table.outcome(CELL, Seen([2.0, 1.0]), Seen([2.0, 1.000005]))
    off = table.outcome(CELL, Seen([2.0, 1.0]), Seen([2.0, 1.0001]))
    nothing = table.outcome(CELL, Seen([2.0, float("nan")]), Seen([2.0, 1.0]))
    ended = table.outcome(CELL, Seen([], error="ValueError: no"), Seen([2.0, 1.0]))
    assert [one.failed for one in (right, off, nothing, ended)] == [False, True, True, True]
    assert ended.verdict == "FAILED: ValueError: no"
    page = table.markdown(["# Heading"], [off], [CELL], {"a line": 3})
    assert "FAILED: 1.0e-04" in page
    assert "| 3 | a line |" in page


def test_references_of_bare_deepspeed_are_trained_cells() -> None:
    cells = bare.cells()
    assert all(bare.has_our_rule(cell) or bare.reference(cell) in cells for cell in cells)


PROGRAM = """
import json, sys
jobs = json.loads(open(sys.argv[4]).read())
seen = []
for job in jobs:
    if job == "bad":
        print("Traceback\\nValueError: this one is bad\\nmore about it")
        sys.exit(1)
    seen.append({"losses": [1.0], "cpu_s": 0.5})
    open(sys.argv[5], "w").write(json.dumps(seen))
"""


def test_a_new_group_trains_the_other_cells_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker_of_test.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reported: list[str] = []
    jobs = {"a": "good", "b": "bad", "c": "good"}
    seen = train_in_groups(jobs, 1, tmp_path / "group", "worker_of_test", lambda name, _: reported.append(name))
    assert reported == ["a", "b", "c"]
    assert seen == {"a": Seen([1.0], 0.5), "b": Seen([], error="ValueError: this one is bad"), "c": Seen([1.0], 0.5)}
    assert json.loads((tmp_path / "group" / "2" / "jobs.json").read_text()) == ["good"]


def test_run_of_a_cell_has_the_model_and_optimizer_of_its_recipe(tmp_path: Path) -> None:
    run = nets.run(CELL, mini_corpus(tmp_path / "corpus"), tmp_path / "runs")
    wanted = nets.recipe(CELL.net, CELL.optimizer)
    assert (run.model, run.optimizer, run.losses) == (wanted.model, wanted.optimizer, wanted.losses)
    assert run.engine.zero_stage == CELL.zero
