"""Workers with tensor or sequence parallelism learn the same as one plain process, for every ZeRO stage."""

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
from tests.training.corpora import deberta, electra, gpt, mini_run, two_sided
from tests.training.engines.test_zero import Plain as PlainRun
from tests.training.engines.test_zero import in_one_process, losses, machine, outcome
from tests.training.worker import job
from training.optimizers import Adafactor, Lamb, Muon, Optimizer
from training.run import CHECKPOINTS, Run
from training.specs import ActivationCheckpointing, DisentangledPositions, Offload, Phase, PlainEmbedding

pytestmark = pytest.mark.timeout(3600)  # in seconds; a busy machine takes several times as long as an idle one

SHORT = (Phase(seq_length=48, global_batch_size=9, steps=3),)
RESUMED = (Phase(seq_length=48, global_batch_size=9, steps=6),)
ROWS = 467  # of the token table: an odd number, so that one worker has one row more


def unchanged(run: Run) -> Run:
    return run


def albert(run: Run) -> Run:
    """One block for all layers, and embeddings narrower than the block."""
    return replace(run, model=replace(run.model, parameter_sharing="all", embedding_size=16))


def twin(run: Run) -> Run:
    """A generator with two attention heads, one for each worker."""
    run = electra(run)
    return replace(run, model=replace(run.model, num_attention_heads=4))


def four_heads(run: Run) -> Run:
    return replace(run, model=replace(run.model, num_attention_heads=4))


def deep(run: Run) -> Run:
    """Five layers, so that pipeline stages have one or two of them."""
    return replace(run, model=replace(run.model, num_hidden_layers=5))


def with_dropout(run: Run) -> Run:
    return replace(run, model=replace(run.model, hidden_dropout=0.2, attention_dropout=0.2))


def relative(run: Run, name: str) -> Run:
    """Without dropout, because each worker draws different dropout masks."""
    run = xlnet(run) if name == "xlnet" else transformer_xl(run)
    tables = {"token_embedding": PlainEmbedding()} if name == "transformer_xl" else {}
    return replace(run, model=replace(run.model, hidden_dropout=0, attention_dropout=0, **tables))


def disentangled(run: Run) -> Run:
    """BERT with the attention of DeBERTa; its samples do not depend on the worker, unlike those of a generator."""
    positions = DisentangledPositions(position_buckets=8, max_relative_positions=24)
    return replace(run, model=replace(run.model, position_embedding=positions))


NETS: dict[str, Callable[[Run], Run]] = {
    "bert": unchanged,
    "gpt": gpt,
    "albert": albert,
    "t5": two_sided,
    "electra": twin,
    "deberta": deberta,
    "disentangled": disentangled,
}
NETS |= {"wide": four_heads, "noisy": with_dropout, "deep": deep}
# models with a memory; the last one has adaptive embeddings, which stay whole
RELATIVE = ("xlnet", "transformer_xl", "adaptive")
NETS |= {name: partial(relative, name=name) for name in RELATIVE}
WHOLE: dict[str, Optimizer] = {  # optimizers that need whole tensors
    "lamb": Lamb(learning_rate=1e-2, warmup_steps=1),
    "adafactor": Adafactor(learning_rate=0.03, warmup_steps=2),
    "muon": Muon(learning_rate=1e-2, warmup_steps=2),
}
SHARED = ("bert", "gpt", "albert", "t5", "electra")  # on two workers


class Cell(NamedTuple):
    """A run with its numbers of tensor-parallel and sequence-parallel workers and other layout settings."""

    net: str
    zero: int
    tensor: int = 2
    sequence: int = 1
    recompute: ActivationCheckpointing = "none"
    offload: Offload = "none"  # offload of the optimizer
    optimizer: str = ""  # empty: AdamW

    @property
    def name(self) -> str:
        return " ".join(map(str, self))

    def run(self, corpus: Path, folder: Path, **changes: Any) -> Run:
        shared = replace(machine(self.zero), tensor_parallel_size=self.tensor, sequence_parallel_size=self.sequence)
        shared = replace(shared, activation_checkpointing=self.recompute, offload_optimizer=self.offload)
        if self.net == "wide":
            shared = replace(shared, padding="padded")
        run = mini_run(corpus, folder / self.name, engine=shared, vocab_size=ROWS)
        return replace(with_optimizer(NETS[self.net](run), self.optimizer), **changes)


def with_optimizer(run: Run, optimizer: str) -> Run:
    """The run with an optimizer of WHOLE, wide enough for Adafactor to keep rows and columns; unchanged if the name is
    empty."""
    if not optimizer:
        return run
    trunk = replace(run.model, hidden_size=128, intermediate_size=160) if optimizer == "adafactor" else run.model
    return replace(run, model=trunk, optimizer=WHOLE[optimizer])


def trained(corpus: Path, folder: Path, cells: list[Cell], world: int, **changes: Any) -> dict[Cell, Any]:
    """The metrics of the first worker, by cell."""
    jobs = [job(cell.run(corpus, folder, **changes)) for cell in cells]
    return dict(zip(cells, outcome(world, jobs, folder / f"group-{world}"), strict=True))


def train_plainly(corpus: Path, folder: Path, nets: list[str], **changes: Any) -> dict[str, PlainRun]:
    """The same runs in one plain process."""
    runs = {net: NETS[net](mini_run(corpus, folder / net, vocab_size=ROWS)) for net in nets}
    return {net: in_one_process(replace(run, **changes)) for net, run in runs.items()}


def assert_alike(cell: Cell, found: Any, wanted: PlainRun, folder: Path) -> None:
    """Assert equal losses, last gradient norm and whole weights."""
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
    return train_plainly(corpus, tmp_path_factory.mktemp("plain"), ["bert"], phases=SHORT, eval_every=3)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_workers_learn_the_same_as_one_plain_process(cell: Cell, seen, plain) -> None:
    folder, runs = seen
    assert_alike(cell, runs[cell], plain[cell.net], folder)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_workers_evaluate_the_same_as_one_plain_process(cell: Cell, seen, plain) -> None:
    found, wanted = seen[1][cell]["steps"]["3"], plain[cell.net].last
    assert found["eval/loss"] == pytest.approx(wanted["eval/loss"], rel=1e-5)
    assert found["train/tokens"] == wanted["train/tokens"]


@pytest.mark.slow
def test_every_zero_stage_learns_the_same_for_twenty_updates(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell(net, zero) for net, zero in product(SHARED, (0, 1, 2, 3))]
    cells += [Cell(net, zero, 1, 2) for net, zero in product(("bert", "gpt", "electra"), (0, 1, 2, 3))]
    found, wanted = trained(corpus, tmp_path, cells, 2), train_plainly(corpus, tmp_path / "plain", list(SHARED))
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
def test_two_groups_of_two_workers_learn_the_same(corpus: Path, tmp_path: Path) -> None:
    nets = [net for net in SHARED if net != "electra"]  # its samples depend on the sequences of a worker
    cells = [Cell(net, zero) for net, zero in product(nets, (1, 2, 3))]
    found, wanted = trained(corpus, tmp_path, cells, 4), train_plainly(corpus, tmp_path / "plain", nets)
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_optimizers_of_whole_tensors_learn_the_same_on_slices(world: int, corpus: Path, tmp_path: Path) -> None:
    stages = (0, 1, 2, 3) if world == 2 else (1, 3)
    cells = [Cell("bert", zero, optimizer=optimizer) for zero, optimizer in product(stages, WHOLE)]
    cells += [Cell(net, 2, optimizer=optimizer) for net, optimizer in product(("t5", "albert"), WHOLE)]
    found = trained(corpus, tmp_path, cells, world)
    for cell in cells:
        run = NETS[cell.net](mini_run(corpus, tmp_path / "plain" / cell.name, vocab_size=ROWS))
        wanted = in_one_process(with_optimizer(run, cell.optimizer))
        assert losses(found[cell]) == pytest.approx(wanted.losses, rel=1e-5), cell
        weights = safetensors.torch.load_file(tmp_path / cell.name / "final.safetensors")
        for name, weight in wanted.weights.items():
            mine = weights[name]
            # the bias of the keys has no gradient except rounding noise, but Adafactor uses its sign
            if name.endswith("qkv.bias"):
                mine, weight = (torch.cat(each.chunk(3)[::2]) for each in (mine, weight))
            torch.testing.assert_close(mine, weight, rtol=1e-3, atol=1e-4, msg=f"{name}, {cell}")


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_relative_attention_is_split_by_heads(world: int, corpus: Path, tmp_path: Path) -> None:
    stages = (0, 1, 3) if world == 2 else (2,)
    cells = [Cell(net, zero) for net, zero in product(RELATIVE, stages)]
    cells += [Cell("xlnet", 1, recompute="full"), Cell("xlnet", 3, recompute="selective")]
    cells += [Cell("transformer_xl", 1, optimizer="lamb")]
    found, wanted = trained(corpus, tmp_path, cells, world), train_plainly(corpus, tmp_path / "plain", list(RELATIVE))
    for cell in cells:
        if not cell.optimizer:
            assert_alike(cell, found[cell], wanted[cell.net], tmp_path)
    by_lamb = with_optimizer(NETS["transformer_xl"](mini_run(corpus, tmp_path / "lamb", vocab_size=ROWS)), "lamb")
    assert_alike(cells[-1], found[cells[-1]], in_one_process(by_lamb), tmp_path)


@pytest.mark.slow
def test_disentangled_attention_is_split_by_heads(corpus: Path, tmp_path: Path) -> None:
    """The table of distances is whole on each worker; its gradient is the sum over the heads of all workers."""
    cells = [Cell("deberta", zero) for zero in (0, 1, 2, 3)]
    cells += [Cell("deberta", 1, recompute="full"), Cell("deberta", 3, recompute="selective")]
    cells += [Cell("disentangled", zero, tensor=1) for zero in (1, 3)]
    nets = ["deberta", "disentangled"]
    found, wanted = trained(corpus, tmp_path, cells, 2), train_plainly(corpus, tmp_path / "plain", nets)
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
def test_four_workers_combine_tensor_sequence_and_data_parallelism(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell("wide", zero, 2, 2) for zero in (1, 2, 3)]
    cells += [Cell(net, zero, 1, 2) for net, zero in product(("bert", "gpt", "albert"), (1, 2, 3))]
    found = trained(corpus, tmp_path, cells, 4)
    wanted = train_plainly(corpus, tmp_path / "plain", ["wide", "bert", "gpt", "albert"])
    for cell in cells:
        assert_alike(cell, found[cell], wanted[cell.net], tmp_path)


@pytest.mark.slow
def test_an_offloaded_optimizer_learns_the_same(corpus: Path, tmp_path: Path) -> None:
    cells = [Cell("bert", zero, tensor, 3 - tensor, offload="cpu") for zero, tensor in product((1, 2, 3), (1, 2))]
    found, wanted = (
        trained(corpus, tmp_path, cells, 2, phases=SHORT),
        train_plainly(corpus, tmp_path / "plain", ["bert"], phases=SHORT),
    )
    for cell in cells:
        assert_alike(cell, found[cell], wanted["bert"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "sequence"), [(2, 1), (1, 2)])
def test_recomputation_repeats_the_dropout(tensor: int, sequence: int, corpus: Path, tmp_path: Path) -> None:
    cells = [
        Cell(net, zero, tensor, sequence, which)
        for net, zero in (("noisy", 1), ("noisy", 3))
        for which in ("none", "full", "selective")
    ]
    found = trained(corpus, tmp_path, cells, 2, phases=SHORT)
    for cell in cells:
        assert losses(found[cell]) == losses(found[cell._replace(recompute="none")]), cell


@pytest.mark.slow
def test_a_parallel_run_resumes_bit_for_bit(corpus: Path, tmp_path: Path) -> None:
    cells = [*(Cell("bert", zero) for zero in (0, 1, 2)), Cell("gpt", 3), Cell("noisy", 1, 1, 2)]
    whole = trained(corpus, tmp_path, cells, 2, phases=RESUMED, save_every=3)
    for cell in cells:
        shutil.rmtree(Path(cell.run(corpus, tmp_path).folder) / CHECKPOINTS / "step-000000006")
    again = trained(corpus, tmp_path, cells, 2, phases=RESUMED, save_every=3)
    for cell in cells:
        assert losses(again[cell]) == losses(whole[cell])[3:], cell
