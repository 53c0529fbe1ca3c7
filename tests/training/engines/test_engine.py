from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from tests.training.batches import random_rows
from tests.training.corpora import mini_run, resampled
from training.architectures import host_of
from training.checkpoint import Topology
from training.engines import Engine, Fragments, to_tensors, write
from training.engines.local import LocalEngine
from training.formats import build_model, save_weights
from training.losses import MaskedTokens
from training.run import Run
from training.saver import Saver


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return mini_run(corpus, tmp_path)


def local(run: Run) -> LocalEngine:
    return LocalEngine(build_model(run), run.optimizer, run.engine)


def update(engine: Engine, rate: float = 1e-2, factor: float = 1.0) -> tuple[float, bool]:
    scores = engine.forward(collate_unpadded(random_rows([9, 7], 467)))
    engine.backward(factor * scores["masked_tokens"].loss)
    result = engine.step(rate)
    return result.grad_norm, result.skipped


def test_the_reported_norm_is_unclipped_and_clipping_bounds_the_step(run: Run) -> None:
    norm, _ = update(local(run))
    hundredfold, _ = update(local(run), factor=100)
    assert hundredfold == pytest.approx(100 * norm, rel=1e-4)
    clipped, raw = local(run), local(replace(run, optimizer=replace(run.optimizer, max_grad_norm=0)))
    for engine in (clipped, raw):
        engine.backward(engine.forward(collate_unpadded(random_rows([9], 467)))["masked_tokens"].loss)
        assert engine.flat is not None
        engine.flat.clear = lambda: None  # type: ignore[method-assign]  # keep the gradient to look at it
        engine.step(0.0)
    norms = [torch.nn.utils.get_total_norm(engine.flat.gradients) for engine in (clipped, raw) if engine.flat]
    assert norms[0].item() == pytest.approx(1.0, rel=1e-4)
    assert norms[1].item() > 2


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_nonfinite_gradient_changes_nothing(run: Run, factor: float) -> None:
    engine, untouched = local(run), local(run)
    assert update(engine, factor=factor)[1]
    update(engine)
    update(untouched)
    assert all(torch.equal(a, b) for a, b in zip(engine.model.parameters(), untouched.model.parameters(), strict=True))


def test_a_saved_engine_resumes_bit_for_bit(run: Run, tmp_path: Path) -> None:
    engine, resumed = local(run), local(resampled(run, seed=9))
    update(engine)
    write(engine.part(lambda name, tensor: tensor), tmp_path / "part")
    resumed.load(Fragments([tmp_path / "part"]), {})
    update(engine)
    update(resumed)
    assert all(torch.equal(weight, resumed.full_state()[name]) for name, weight in engine.full_state().items())


def test_a_run_starts_from_given_weights_and_new_heads_stay_random(run: Run, tmp_path: Path) -> None:
    given = build_model(replace(resampled(run, seed=1), losses=(MaskedTokens(),)))
    save_weights(given.state_dict(), given.spec, tmp_path / "weights")
    started = build_model(replace(run, init_checkpoint=str(tmp_path / "weights"))).state_dict()
    assert all(torch.equal(weight, started[name]) for name, weight in given.state_dict().items())
    scratch = build_model(run).state_dict()
    assert torch.equal(started["heads.pair_label.pooler.weight"], scratch["heads.pair_label.pooler.weight"])


def test_a_run_starts_from_a_checkpoint_of_another_run(run: Run, tmp_path: Path) -> None:
    given = LocalEngine(build_model(resampled(run, seed=1)), run.optimizer, run.engine)
    about: Topology = {"recipe": "", "workers": 1, "zero_stage": "none", "precision": "fp32"}
    Saver(given, tmp_path, about, asdict(given.model.spec), keep=1, background=False).save(3, {})
    path = tmp_path / "step-000000003"
    started = build_model(replace(run, init_checkpoint=str(path))).state_dict()
    assert all(torch.equal(weight, started[name]) for name, weight in given.full_state().items())
    part = path / "rank-00000.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(BadInput, match=r"rank-00000\.safetensors is damaged"):
        build_model(replace(run, init_checkpoint=str(path)))


def test_weights_of_another_shape_are_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    given = build_model(replace(run, vocab_size=500))
    save_weights(given.state_dict(), given.spec, tmp_path)
    with pytest.raises(BadInput, match=r"trunk.tokens.weight: got \[500, 32\], expected \[467, 32\]"):
        build_model(replace(run, init_checkpoint=str(tmp_path)))


def test_weights_of_a_shallower_trunk_are_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    given = build_model(replace(run, model=replace(run.model, num_hidden_layers=1)))
    save_weights(given.state_dict(), given.spec, tmp_path)
    with pytest.raises(BadInput, match=r"invalid model\.num_hidden_layers: got 2, expected 1 as in"):
        build_model(replace(run, init_checkpoint=str(tmp_path)))


def test_columns_that_python_reads_stay_on_the_host() -> None:
    batch = collate_unpadded(random_rows([5, 3], 50)) | {"slot": np.array(0)}
    tensors = to_tensors(batch, torch.device("meta"))
    there = {name for name, x in tensors.items() if x.is_meta}
    assert batch.keys() - there == {"slot"}
    assert [host_of(tensors, name).tolist() for name in ("lengths", "slot")] == [[5, 3], 0]
