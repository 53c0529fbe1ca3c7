"""A model on the meta device gets its weights one by one, with the same values as a model that is built at once."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.training.architectures.test_recompute import every_net
from tests.training.corpora import mini_run
from training.engines.local import LocalEngine
from training.formats import build_model, describe_model, save_weights
from training.model import ReplicaGroup, _Initializer, materialize, parameter_groups, shapes_of
from training.run import CHECKPOINTS, Run


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return mini_run(corpus, tmp_path)


@every_net
def test_every_model_has_the_same_weights_bit_for_bit(make: Callable[[Run], Run], run: Run) -> None:
    run = make(run)
    described, whole = describe_model(run), build_model(run)
    assert all(weight.is_meta for weight in described.parameters())
    made = LocalEngine(described, run.optimizer, run.engine).full_state()
    wanted = dict(whole.named_parameters())
    assert made.keys() == wanted.keys()
    assert all(torch.equal(made[name], weight) for name, weight in wanted.items())
    assert [weight.requires_grad for weight in described.parameters()] == [w.requires_grad for w in whole.parameters()]
    assert not any(buffer.is_meta for buffer in described.buffers())


def test_at_most_one_new_weight_is_in_float32(run: Run) -> None:
    alive: list[weakref.ref[Tensor]] = []

    def settle(value: Tensor) -> nn.Parameter:
        assert not any(ref() is not None for ref in alive)
        alive.append(weakref.ref(value))
        assert value.dtype == torch.float32
        return nn.Parameter(value.bfloat16())

    model = describe_model(run)
    materialize(model, settle)
    assert len(alive) == len(list(model.parameters()))
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


def test_weights_drawn_by_another_worker_are_received_on_the_device(run: Run) -> None:
    received: list[torch.device] = []

    def passed(value: Tensor, owner: int) -> Tensor:
        if owner == 0:
            received.append(value.device)
        return torch.zeros(value.shape)

    materialize(describe_model(run), nn.Parameter, ReplicaGroup(1, 2, passed, torch.device("meta")))
    assert set(received) == {torch.device("meta")}


def test_an_initial_checkpoint_is_loaded_weight_by_weight(corpus: Path, tmp_path: Path) -> None:
    given = build_model(mini_run(corpus, tmp_path))
    with torch.no_grad():
        for weight in given.parameters():
            weight.add_(1)
    state = {name: weight for name, weight in given.named_parameters() if not name.startswith("heads.pair_label")}
    save_weights(state, given.spec, tmp_path / "weights")
    run = mini_run(corpus, tmp_path, init_checkpoint=str(tmp_path / "weights"))
    found, wanted = describe_model(run), dict(build_model(run).named_parameters())
    materialize(found, nn.Parameter)
    assert all(torch.equal(weight, wanted[name]) for name, weight in found.named_parameters())
    assert not found.given


def test_a_resumed_run_draws_no_weights(run: Run) -> None:
    checkpoint = Path(run.folder) / CHECKPOINTS / "step-000000002"
    checkpoint.mkdir(parents=True)
    model = describe_model(run)
    materialize(model, nn.Parameter)
    assert all(weight.isnan().all() for weight in model.parameters())
    anew = describe_model(replace(run, resume="never"))
    materialize(anew, nn.Parameter)
    assert not any(weight.isnan().any() for weight in anew.parameters())


@pytest.mark.parametrize("number", [0, 1, 2])
def test_workers_draw_a_third_each_and_receive_the_rest(run: Run, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = list(build_model(run).parameters())
    drawn: list[str] = []
    fill = _Initializer.fill
    monkeypatch.setattr(_Initializer, "fill", lambda self, name, *rest: (drawn.append(name), fill(self, name, *rest)))
    passed: list[int] = []

    def pass_on(value: Tensor, owner: int) -> Tensor:
        of_all = wanted[len(passed)].detach()
        assert owner != number or torch.equal(value, of_all)
        passed.append(owner)
        return of_all.clone()

    model = describe_model(run)
    names = [name for name, _ in model.named_parameters()]
    materialize(model, nn.Parameter, ReplicaGroup(number, 3, pass_on))
    assert drawn == names[number::3]
    assert passed == [at % 3 for at in range(len(names))]
    assert all(torch.equal(weight, of_all) for weight, of_all in zip(model.parameters(), wanted, strict=True))


def test_groups_and_shapes_of_a_partitioned_weight_are_those_of_the_whole_weight(run: Run) -> None:
    whole, partitioned = build_model(run), build_model(run)
    for weight in partitioned.parameters():
        weight.ds_shape = weight.shape  # type: ignore[attr-defined]  # as DeepSpeed leaves it
        weight.data = torch.empty(0)
    assert shapes_of(partitioned) == shapes_of(whole)
    for found, wanted in zip(parameter_groups(partitioned, 0.1), parameter_groups(whole, 0.1), strict=True):
        assert found["shapes"] == wanted["shapes"]
