"""Each optimizer and each schedule states its own facts."""

import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from preprocessing.spec import AtMost, spec
from tests import facts
from tests.training.corpora import mini_run
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import pretrain
from training.optimizers import SCHEDULES, Adafactor, AdamW, Lamb, Lion, Muon, Optimizer, OptimizerPart, Updates, rate
from training.optimizers.schedule import Shape

OPTIMS: tuple[Optimizer, ...] = (
    AdamW(learning_rate=1.0),
    AdamW(learning_rate=1.0, bias_correction=False),
    Lamb(learning_rate=1.0),
    Adafactor(),
    Lion(learning_rate=1.0),
    Muon(learning_rate=1.0),
)
every_optimiser = pytest.mark.parametrize("optim", OPTIMS, ids=repr)


def test_every_optimizer_of_the_union_is_tested() -> None:
    facts.assert_covers(OPTIMS, Optimizer)


@every_optimiser
def test_every_optimizer_has_every_fact(optim: Optimizer) -> None:
    facts.assert_every_fact(optim, OptimizerPart)


def test_optimizers_have_standard_names() -> None:
    facts.assert_described(OPTIMS)
    assert [optim.describe() for optim in OPTIMS] == ["Adam", "Adam", "LAMB", "Adafactor", "Lion", "Muon"]


@every_optimiser
def test_a_scale_sets_only_keys_of_the_optimizer(optim: Optimizer) -> None:
    facts.assert_shrinks_its_keys(optim)


STEPS = {"warmup_steps": 200, "lr_decay_steps": 0, "num_decay_steps": AtMost(0.2)}
SCALED = {
    AdamW: ({"learning_rate": 3e-3}, {"learning_rate": 1e-3}, {"beta2": 0.98, "bias_correction": True}),
    Lamb: ({"learning_rate": 1e-2}, {"learning_rate": 1e-2}, {"beta2": 0.98}),
    Adafactor: ({"learning_rate": 3e-2}, {"learning_rate": 2e-2}, {"scale_parameter": True}),
    Lion: ({"learning_rate": 1e-3}, {"learning_rate": 3e-4}, {}),
    Muon: ({"learning_rate": 1e-2}, {"learning_rate": 3e-3}, {"beta2": 0.98}),
}


@pytest.mark.parametrize("member", typing.get_args(Optimizer))
def test_a_scale_sets_measured_learning_rates(member: type[OptimizerPart]) -> None:
    tiny, small, both = SCALED[member]
    assert member.scale_overrides == {"tiny": STEPS | tiny | both, "small": STEPS | small | both}


@spec
class Plain(Updates):
    """Stochastic gradient descent."""

    kind: Literal["plain"] = "plain"

    def describe(self) -> str:
        return "SGD"

    def build(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(list(groups), lr=self.learning_rate)


def test_an_optimizer_that_no_other_module_mentions_is_trained(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path, optimizer=Plain(learning_rate=0.5, max_grad_norm=0.0))
    logged: dict[int, dict[str, float]] = {}
    pretrain(run, LocalEngine(build_model(run), run.optimizer, run.engine), logged.__setitem__)
    assert logged[20]["train/loss"] < logged[1]["train/loss"] - 0.1


# Schedules.


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_a_description(name: str) -> None:
    assert SCHEDULES[name].decay.__doc__
    assert AdamW(learning_rate=1.0, lr_schedule=name).describe_schedule().startswith(SCHEDULES[name].describes)
    assert SCHEDULES[name].describes != name


def test_schedules_have_different_descriptions() -> None:
    assert len({shape.describes for shape in SCHEDULES.values()}) == len(SCHEDULES)


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"^invalid optimizer\.lr_schedule: got 'linaer', expected "
        r"linear_from_start, .*, warmup_stable_decay$",
    ):
        AdamW(learning_rate=1.0, lr_schedule="linaer")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_decays_from_at_most_the_peak_and_never_rises(name: str) -> None:
    left = [SCHEDULES[name].decay(step, 10, 110) for step in range(10, 111)]
    assert 0.9 < left[0] <= 1.0
    assert left == sorted(left, reverse=True)
    assert left[-1] >= 0.0


@pytest.mark.parametrize(
    ("warm_up", "wanted"), [("replaces", [0.0, 0.5, 0.25]), ("multiplies", [0.0, 0.125, 0.25]), ("none", [0.25] * 3)]
)
def test_a_schedule_sets_its_own_warmup(warm_up: Any, wanted: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(typing.cast(Any, SCHEDULES), "quarter", Shape(lambda *_: 0.25, "a quarter", warm_up))
    optim = AdamW(learning_rate=1.0, warmup_steps=2, lr_schedule="quarter")
    assert [rate(optim, step, 10) for step in range(3)] == wanted
