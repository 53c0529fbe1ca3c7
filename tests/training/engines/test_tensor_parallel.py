"""Workers that share a net, or the tokens of its rows, learn what one plain process does, whatever ZeRO does."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch

from tests.training.architectures.test_memory import transformer_xl, xlnet
from tests.training.corpora import electra, gpt, mini_run, two_sided
from tests.training.engines.test_zero import Plain as PlainRun
from tests.training.engines.test_zero import in_one_process, losses, machine, outcome
from tests.training.worker import job
from training.optimizers import Adafactor, Lamb, Muon, Optimizer
from training.run import CHECKPOINTS, Run
from training.specs import ActivationCheckpointing, Offload, Phase, PlainEmbedding

pytestmark = pytest.mark.timeout(3600)  # seconds: a busy machine takes minutes for what an idle one does in one

SHORT = (Phase(seq_length=48, global_batch_size=9, steps=3),)
RESUMED = (Phase(seq_length=48, global_batch_size=9, steps=6),)
ROWS = 467  # of the token table, an odd number: one worker has a row more


def same(run: Run) -> Run:
    return run


def albert(run: Run) -> Run:
    """One block for all layers, and tables narrower than it."""
    return replace(run, model=replace(run.model, parameter_sharing="all", embedding_size=16))


def twin(run: Run) -> Run:
    """A generator of two heads, one for each worker."""
    run = electra(run)
    return replace(run, model=replace(run.model, num_attention_heads=4))


def four_heads(run: Run) -> Run:
    return replace(run, model=replace(run.model, num_attention_heads=4))


def deep(run: Run) -> Run:
    """Five layers, of which stages have one or two."""
    return replace(run, model=replace(run.model, num_hidden_layers=5))


def noisy(run: Run) -> Run:
    return replace(run, model=replace(run.model, hidden_dropout=0.2, attention_dropout=0.2))


def relative(run: Run, name: str) -> Run:
    """Without dropout, of which each worker has its own."""
    run = xlnet(run) if name == "xlnet" else transformer_xl(run)
    tables = {"token_embedding": PlainEmbedding()} if name == "transformer_xl" else {}
    return replace(run, model=replace(run.model, hidden_dropout=0, attention_dropout=0, **tables))


NETS: dict[str, Callable[[Run], Run]] = {"bert": same, "gpt": gpt, "albert": albert, "t5": two_sided, "electra": twin}
NETS |= {"wide": four_heads, "noisy": noisy, "deep": deep}
RELATIVE = ("xlnet", "transformer_xl", "adaptive")  # with a memory; the last has a table in clusters, which stays whole
NETS |= {name: partial(relative, name=name) for name in RELATIVE}
WHOLE: dict[str, Optimizer] = {  # rules that look at whole tensors
    "lamb": Lamb(learning_rate=1e-2, warmup_steps=1),
    "adafactor": Adafactor(learning_rate=0.03, warmup_steps=2),
    "muon": Muon(learning_rate=1e-2, warmup_steps=2),
}
SHARED = ("bert", "gpt", "albert", "t5", "electra")  # by two workers


class Cell(NamedTuple):
    """A run of so many workers for each group that shares a net, and of so many of these for the tokens of a row."""

    net: str
    zero: int
    tensor: int = 2
    sequence: int = 1
    recompute: ActivationCheckpointing = "none"
    offload: Offload = "none"  # of the optimiser
    optimiser: str = ""  # empty: AdamW

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    def run(self, corpus: Path, folder: Path, **changes: Any) -> Run:
        shared = replace(machine(self.zero), tensor_parallel_size=self.tensor, sequence_parallel_size=self.sequence)
        shared = replace(shared, activation_checkpointing=self.recompute, offload_optimizer=self.offload)
        if self.net == "wide":
            shared = replace(shared, padding="padded")
        run = mini_run(corpus, folder / self.name, engine=shared, vocab_size=ROWS)
        return replace(by_whole_tensors(NETS[self.net](run), self.optimiser), **changes)


def by_whole_tensors(run: Run, optimiser: str) -> Run:
    """The run with an optimiser of WHOLE, wide enough for Adafactor to keep rows and columns; or as it is."""
    if not optimiser:
        return run
    trunk = replace(run.model, hidden_size=128, intermediate_size=160) if optimiser == "adafactor" else run.model
    return replace(run, model=trunk, optimizer=WHOLE[optimiser])


def trained(corpus: Path, folder: Path, cells: list[Cell], world: int, **changes: Any) -> dict[Cell, Any]:
    """What the first worker saw of each cell."""
    jobs = [job(cell.run(corpus, folder, **changes)) for cell in cells]
    return dict(zip(cells, outcome(world, jobs, folder / f"group-{world}"), strict=True))


def plainly(corpus: Path, folder: Path, nets: list[str], **changes: Any) -> dict[str, PlainRun]:
    """The same in one plain process."""
    runs = {net: NETS[net](mini_run(corpus, folder / net, vocab_size=ROWS)) for net in nets}
    return {net: in_one_process(replace(run, **changes)) for net, run in runs.items()}


def assert_alike(cell: Cell, found: Any, wanted: PlainRun, folder: Path) -> None:
    """Losses, the norm of the last gradient, and whole weights."""
    assert losses(found) == pytest.approx(wanted.losses, rel=1e-5), cell
    last = found["steps"][str(len(wanted.losses))]
    assert last["train/grad_norm"] == pytest.approx(wanted.last["train/grad_norm"], rel=1e-4), cell
    weights = safetensors.torch.load_file(folder / cell.name / "final.safetensors")
    assert weights.keys() == wanted.weights.keys(), cell
    for name, weight in wanted.weights.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=1e-4, msg=f"{name}, {cell}")


CELLS = [
    Cell("bert", 0),
    Cell("bert", 1, recompute="selective"),
    Cell("bert", 3, recompute="full"),
    Cell("bert", 2, 1, 2),
]


@pytest.fixture(scope="module")
def seen(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Cell, Any]]:
    folder = tmp_path_factory.mktemp("tensor")
    return folder, trained(corpus, folder, CELLS, 2, phases=SHORT, eval_every=3)


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, PlainRun]:
    return plainly(corpus, tmp_path_factory.mktemp("plain"), ["bert"], phases=SHORT, eval_every=3)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_workers_that_share_a_net_or_its_rows_learn_as_one_plain_process_does(cell: Cell, seen, plain) -> None:
    folder, runs = seen
    assert_alike(cell, runs[cell], plain[cell.net], folder)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_workers_that_share_a_net_or_its_rows_evaluate_as_one_plain_process_does(cell: Cell, seen, plain) -> None:
    found, wanted = seen[1][cell]["steps"]["3"], plain[cell.net].last
    assert found["eval/loss"] == pytest.approx(wanted["eval/loss"], rel=1e-5)
    assert found["train/tokens"] == wanted["train/tokens"]


@pytest.mark.slow
def test_every_stage_does_so_for_twenty_updates(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell(net, zero) for net, zero in product(SHARED, (0, 1, 2, 3))]
    cells += [Cell(net, zero, 1, 2) for net, zero in product(("bert", "gpt", "electra"), (0, 1, 2, 3))]
    found, wanted = trained(corpus, tmp_path, cells, 2), plainly(corpus, tmp_path / "plain", list(SHARED))
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
def test_two_groups_of_two_workers_do_so_too(corpus: Path, tmp_path: Path) -> None:
    nets = [net for net in SHARED if net != "electra"]  # what it samples depends on the rows of a worker
    cells = [Cell(net, zero) for net, zero in product(nets, (1, 2, 3))]
    found, wanted = trained(corpus, tmp_path, cells, 4), plainly(corpus, tmp_path / "plain", nets)
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_optimisers_of_whole_tensors_do_so_with_slices_of_them(world: int, corpus: Path, tmp_path: Path) -> None:
    stages = (0, 1, 2, 3) if world == 2 else (1, 3)
    cells = [Cell("bert", zero, optimiser=optimiser) for zero, optimiser in product(stages, WHOLE)]
    cells += [Cell(net, 2, optimiser=optimiser) for net, optimiser in product(("t5", "albert"), WHOLE)]
    found = trained(corpus, tmp_path, cells, world)
    for cell in cells:
        run = NETS[cell.net](mini_run(corpus, tmp_path / "plain" / cell.name, vocab_size=ROWS))
        wanted = in_one_process(by_whole_tensors(run, cell.optimiser))
        assert losses(found[cell]) == pytest.approx(wanted.losses, rel=1e-5), cell
        weights = safetensors.torch.load_file(tmp_path / cell.name / "final.safetensors")
        for name, weight in wanted.weights.items():
            mine = weights[name]
            if name.endswith("qkv.bias"):  # that of a key has no gradient, whose sign Adafactor still takes
                mine, weight = (torch.cat(each.chunk(3)[::2]) for each in (mine, weight))
            torch.testing.assert_close(mine, weight, rtol=1e-3, atol=1e-4, msg=f"{name}, {cell}")


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_relative_attention_is_split_by_its_heads(world: int, corpus: Path, tmp_path: Path) -> None:
    stages = (0, 1, 3) if world == 2 else (2,)
    cells = [Cell(net, zero) for net, zero in product(RELATIVE, stages)]
    cells += [Cell("xlnet", 1, recompute="full"), Cell("xlnet", 3, recompute="selective")]
    cells += [Cell("transformer_xl", 1, optimiser="lamb")]
    found, wanted = trained(corpus, tmp_path, cells, world), plainly(corpus, tmp_path / "plain", list(RELATIVE))
    for cell in cells:
        if not cell.optimiser:
            assert_alike(cell, found[cell], wanted[cell.net], tmp_path)
    by_lamb = by_whole_tensors(NETS["transformer_xl"](mini_run(corpus, tmp_path / "lamb", vocab_size=ROWS)), "lamb")
    assert_alike(cells[-1], found[cells[-1]], in_one_process(by_lamb), tmp_path)


@pytest.mark.slow
def test_four_workers_share_rows_and_nets_in_every_way(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell("wide", zero, 2, 2) for zero in (1, 2, 3)]
    cells += [Cell(net, zero, 1, 2) for net, zero in product(("bert", "gpt", "albert"), (1, 2, 3))]
    found = trained(corpus, tmp_path, cells, 4)
    wanted = plainly(corpus, tmp_path / "plain", ["wide", "bert", "gpt", "albert"])
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
def test_an_optimiser_on_the_host_changes_nothing(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell("bert", zero, tensor, 3 - tensor, offload="cpu") for zero, tensor in product((1, 2, 3), (1, 2))]
    found, wanted = (
        trained(corpus, tmp_path, cells, 2, phases=SHORT),
        plainly(corpus, tmp_path / "plain", ["bert"], phases=SHORT),
    )
    for cell in cells:
        assert_alike(cell, found[cell], wanted["bert"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "sequence"), [(2, 1), (1, 2)])
def test_what_is_recomputed_drops_out_as_it_did(tensor: int, sequence: int, corpus: Path, tmp_path: Path) -> None:
    cells = [
        Cell(net, zero, tensor, sequence, which)
        for net, zero in (("noisy", 1), ("noisy", 3))
        for which in ("none", "full", "selective")
    ]
    found = trained(corpus, tmp_path, cells, 2, phases=SHORT)
    for cell in cells:
        assert losses(found[cell]) == losses(found[cell._replace(recompute="none")]), cell


@pytest.mark.slow
def test_a_run_of_workers_that_share_a_net_goes_on_to_the_last_bit(corpus: Path, tmp_path: Path) -> None:
    cells = [*(Cell("bert", zero) for zero in (0, 1, 2)), Cell("gpt", 3), Cell("noisy", 1, 1, 2)]
    whole = trained(corpus, tmp_path, cells, 2, phases=RESUMED, save_every=3)
    for cell in cells:
        shutil.rmtree(Path(cell.run(corpus, tmp_path).folder) / CHECKPOINTS / "step-000000006")
    again = trained(corpus, tmp_path, cells, 2, phases=RESUMED, save_every=3)
    for cell in cells:
        assert losses(again[cell]) == losses(whole[cell])[3:], cell
