"""The limits of the keys of every optimizer, on both sides, and the default values."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from training.optimizers import SCHEDULES, Adafactor, AdamW, Lamb, Lion, Muon, Optimizer

OUTSIDE: list[tuple[type[Optimizer], dict[str, Any], str]] = [
    (
        AdamW,
        {"learning_rate": 0},
        r"invalid optimizer\.learning_rate: got 0, expected a learning rate above 0 and below 100",
    ),
    (AdamW, {"learning_rate": -0.5}, r"optimizer\.learning_rate: got -0.5"),
    (AdamW, {"learning_rate": 100}, r"optimizer\.learning_rate: got 100"),
    (AdamW, {"learning_rate": 100.5}, r"optimizer\.learning_rate: got 100.5"),
    (AdamW, {"warmup_steps": -1}, r"invalid optimizer\.warmup_steps: got -1, expected a number of steps, at least 0"),
    (
        AdamW,
        {"warmup_steps": 10, "lr_decay_steps": 10},
        r"invalid optimizer\.lr_decay_steps: got 10, expected 0, or a step after the 10 warmup steps",
    ),
    (AdamW, {"lr_decay_steps": -1}, r"optimizer\.lr_decay_steps: got -1"),
    (AdamW, {"warmup_steps": 10, "lr_decay_steps": 1}, r"optimizer\.lr_decay_steps: got 1,"),
    (AdamW, {"min_lr_ratio": -0.5}, r"invalid optimizer\.min_lr_ratio: got -0.5, expected a fraction from 0 to 1"),
    (AdamW, {"min_lr_ratio": 1.5}, r"optimizer\.min_lr_ratio: got 1.5"),
    (AdamW, {"weight_decay": -0.5}, r"invalid optimizer\.weight_decay: got -0.5, expected a number from 0 to below 1"),
    (AdamW, {"weight_decay": 1}, r"optimizer\.weight_decay: got 1"),
    (AdamW, {"weight_decay": 1.5}, r"optimizer\.weight_decay: got 1.5"),
    (AdamW, {"max_grad_norm": -0.5}, r"invalid optimizer\.max_grad_norm: got -0.5, expected a norm, at least 0"),
    (Lamb, {"beta1": -0.5}, r"invalid optimizer\.beta1: got -0.5, expected a number from 0 to below 1"),
    (Lamb, {"beta1": 1}, r"optimizer\.beta1: got 1"),
    (Lamb, {"beta1": 1.5}, r"optimizer\.beta1: got 1.5"),
    (Lamb, {"beta2": -0.5}, r"invalid optimizer\.beta2: got -0.5, expected a number from 0 to below 1"),
    (Lamb, {"beta2": 1}, r"optimizer\.beta2: got 1"),
    (Lamb, {"beta2": 1.5}, r"optimizer\.beta2: got 1.5"),
    (Lamb, {"eps": 0}, r"invalid optimizer\.eps: got 0, expected a positive number"),
    (Lamb, {"eps": -0.5}, r"optimizer\.eps: got -0.5"),
    (Lamb, {"learning_rate": 0}, r"optimizer\.learning_rate: got 0"),
    (Adafactor, {"learning_rate": 0}, r"optimizer\.learning_rate: got 0"),
    (Adafactor, {"beta2": -0.5}, r"invalid optimizer\.beta2: got -0.5, expected a number from 0 to below 1"),
    (Adafactor, {"beta2": 1}, r"optimizer\.beta2: got 1"),
    (Adafactor, {"beta2": 1.5}, r"optimizer\.beta2: got 1.5"),
    (Lion, {"beta1": -0.5}, r"invalid optimizer\.beta1: got -0.5, expected a number from 0 to below 1"),
    (Lion, {"beta1": 1}, r"optimizer\.beta1: got 1"),
    (Lion, {"beta2": -0.5}, r"invalid optimizer\.beta2: got -0.5, expected a number from 0 to below 1"),
    (Lion, {"beta2": 1}, r"optimizer\.beta2: got 1"),
    (Lion, {"learning_rate": 0}, r"optimizer\.learning_rate: got 0"),
    (Muon, {"momentum": -0.5}, r"invalid optimizer\.momentum: got -0.5, expected a number from 0 to below 1"),
    (Muon, {"momentum": 1}, r"optimizer\.momentum: got 1"),
    (Muon, {"adamw_lr_ratio": 0}, r"invalid optimizer\.adamw_lr_ratio: got 0, expected a number above 0"),
    (Muon, {"eps": 0}, r"optimizer\.eps: got 0"),
]
AT_THE_LIMIT: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (AdamW, {"learning_rate": 0.5}),
    (AdamW, {"learning_rate": 99.5}),
    (AdamW, {"warmup_steps": 0, "lr_decay_steps": 0}),
    (AdamW, {"warmup_steps": 10, "lr_decay_steps": 11}),
    (AdamW, {"lr_decay_steps": 1}),
    (AdamW, {"min_lr_ratio": 0.0}),
    (AdamW, {"min_lr_ratio": 1.0}),
    (AdamW, {"weight_decay": 0.0, "max_grad_norm": 0.0}),
    (AdamW, {"max_grad_norm": 0.5}),
    (Lamb, {"beta1": 0.0, "beta2": 0.0}),
    (Lamb, {"eps": 0.5}),
    (Adafactor, {"beta2": 0.0}),
    (Lion, {"beta1": 0.0, "beta2": 0.0}),
    (Muon, {"momentum": 0.0, "adamw_lr_ratio": 0.5}),
]


@pytest.mark.parametrize(("part", "keys", "message"), OUTSIDE, ids=lambda case: str(case))
def test_a_value_outside_the_limits_is_refused(part: type[Optimizer], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(**{"learning_rate": 0.1} | keys)


@pytest.mark.parametrize(("part", "keys"), AT_THE_LIMIT, ids=lambda case: str(case))
def test_a_value_at_the_limit_is_accepted(part: type[Optimizer], keys: dict[str, Any]) -> None:
    made = part(**{"learning_rate": 0.1} | keys)
    assert {name: getattr(made, name) for name in keys} == keys


PLAIN = {
    "warmup_steps": 0,
    "lr_schedule": "linear_from_start",
    "min_lr_ratio": 0.0,
    "lr_decay_steps": 0,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
}
MOMENTS = PLAIN | {"beta1": 0.9, "beta2": 0.999, "eps": 1e-6}
T5 = {
    "learning_rate": 0.01,
    "warmup_steps": 10_000,
    "lr_schedule": "constant_then_inverse_sqrt",
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
    "scale_parameter": True,
}


@pytest.mark.parametrize(
    ("optim", "values"),
    [
        (AdamW(learning_rate=0.1), MOMENTS | {"bias_correction": True}),
        (Lamb(learning_rate=0.1), MOMENTS),
        (Adafactor(), T5 | {"min_lr_ratio": 0.0, "lr_decay_steps": 0, "beta2": 0.0}),
        (Lion(learning_rate=0.1), PLAIN | {"beta1": 0.9, "beta2": 0.99}),
        (
            Muon(learning_rate=0.1),
            MOMENTS | {"eps": 1e-8, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw", "adamw_lr_ratio": 1.0},
        ),
    ],
    ids=["adamw", "lamb", "adafactor", "lion", "muon"],
)
def test_default_values_are_the_usual_ones(optim: Optimizer, values: dict[str, Any]) -> None:
    assert {name: getattr(optim, name) for name in values} == values


def test_the_shape_of_a_schedule_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        SCHEDULES["linear_from_start"].warm_up = "none"  # type: ignore[misc]
