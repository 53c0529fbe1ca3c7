"""The limits of the keys of every optimiser, from both sides, and the values that a recipe need not name."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from training.optim import SCHEDULES, Adafactor, AdamW, Lamb, Lion, Muon, Optim

OUTSIDE: list[tuple[type[Optim], dict[str, Any], str]] = [
    (AdamW, {"peak": 0}, r"optim\.peak is 0, allowed is a learning rate above 0 and below 100"),
    (AdamW, {"peak": -0.5}, r"optim\.peak is -0.5"),
    (AdamW, {"peak": 100}, r"optim\.peak is 100"),
    (AdamW, {"peak": 100.5}, r"optim\.peak is 100.5"),
    (AdamW, {"warmup": -1}, r"optim\.warmup is -1, allowed is a number of steps from 0 up"),
    (AdamW, {"warmup": 10, "horizon": 10}, r"optim\.horizon is 10, allowed is 0, or a step after the warm-up of 10"),
    (AdamW, {"horizon": -1}, r"optim\.horizon is -1"),
    (AdamW, {"warmup": 10, "horizon": 1}, r"optim\.horizon is 1,"),
    (AdamW, {"floor": -0.5}, r"optim\.floor is -0.5, allowed is a share from 0 to 1"),
    (AdamW, {"floor": 1.5}, r"optim\.floor is 1.5"),
    (AdamW, {"decay": -0.5}, r"optim\.decay is -0.5, allowed is a number from 0 up to 1"),
    (AdamW, {"decay": 1}, r"optim\.decay is 1"),
    (AdamW, {"decay": 1.5}, r"optim\.decay is 1.5"),
    (AdamW, {"clip": -0.5}, r"optim\.clip is -0.5, allowed is a norm from 0"),
    (Lamb, {"beta1": -0.5}, r"optim\.beta1 is -0.5, allowed is a number from 0 up to 1"),
    (Lamb, {"beta1": 1}, r"optim\.beta1 is 1"),
    (Lamb, {"beta1": 1.5}, r"optim\.beta1 is 1.5"),
    (Lamb, {"beta2": -0.5}, r"optim\.beta2 is -0.5, allowed is a number from 0 up to 1"),
    (Lamb, {"beta2": 1}, r"optim\.beta2 is 1"),
    (Lamb, {"beta2": 1.5}, r"optim\.beta2 is 1.5"),
    (Lamb, {"eps": 0}, r"optim\.eps is 0, allowed is a positive number"),
    (Lamb, {"eps": -0.5}, r"optim\.eps is -0.5"),
    (Lamb, {"peak": 0}, r"optim\.peak is 0"),
    (Adafactor, {"peak": 0}, r"optim\.peak is 0"),
    (Adafactor, {"square_decay": -0.5}, r"optim\.square_decay is -0.5, allowed is a number from 0 up to 1"),
    (Adafactor, {"square_decay": 1}, r"optim\.square_decay is 1"),
    (Adafactor, {"square_decay": 1.5}, r"optim\.square_decay is 1.5"),
    (Lion, {"beta1": -0.5}, r"optim\.beta1 is -0.5, allowed is a number from 0 up to 1"),
    (Lion, {"beta1": 1}, r"optim\.beta1 is 1"),
    (Lion, {"beta2": -0.5}, r"optim\.beta2 is -0.5, allowed is a number from 0 up to 1"),
    (Lion, {"beta2": 1}, r"optim\.beta2 is 1"),
    (Lion, {"peak": 0}, r"optim\.peak is 0"),
    (Muon, {"momentum": -0.5}, r"optim\.momentum is -0.5, allowed is a number from 0 up to 1"),
    (Muon, {"momentum": 1}, r"optim\.momentum is 1"),
    (Muon, {"adam_scale": 0}, r"optim\.adam_scale is 0, allowed is a share above 0"),
    (Muon, {"eps": 0}, r"optim\.eps is 0"),
]
AT_THE_LIMIT: list[tuple[type[Optim], dict[str, Any]]] = [
    (AdamW, {"peak": 0.5}),
    (AdamW, {"peak": 99.5}),
    (AdamW, {"warmup": 0, "horizon": 0}),
    (AdamW, {"warmup": 10, "horizon": 11}),
    (AdamW, {"horizon": 1}),
    (AdamW, {"floor": 0.0}),
    (AdamW, {"floor": 1.0}),
    (AdamW, {"decay": 0.0, "clip": 0.0}),
    (AdamW, {"clip": 0.5}),
    (Lamb, {"beta1": 0.0, "beta2": 0.0}),
    (Lamb, {"eps": 0.5}),
    (Adafactor, {"square_decay": 0.0}),
    (Lion, {"beta1": 0.0, "beta2": 0.0}),
    (Muon, {"momentum": 0.0, "adam_scale": 0.5}),
]


@pytest.mark.parametrize(("part", "keys", "message"), OUTSIDE, ids=lambda case: str(case))
def test_a_value_outside_of_the_limits_is_refused(part: type[Optim], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(**{"peak": 0.1} | keys)


@pytest.mark.parametrize(("part", "keys"), AT_THE_LIMIT, ids=lambda case: str(case))
def test_a_value_at_the_limit_is_accepted(part: type[Optim], keys: dict[str, Any]) -> None:
    made = part(**{"peak": 0.1} | keys)
    assert {name: getattr(made, name) for name in keys} == keys


PLAIN = {"warmup": 0, "schedule": "linear", "floor": 0.0, "horizon": 0, "decay": 0.01, "clip": 1.0}
MOMENTS = PLAIN | {"beta1": 0.9, "beta2": 0.999, "eps": 1e-6}
T5 = {"peak": 0.01, "warmup": 10_000, "schedule": "rsqrt", "decay": 0.0, "clip": 0.0, "relative": True}


@pytest.mark.parametrize(
    ("optim", "values"),
    [
        (AdamW(peak=0.1), MOMENTS | {"bias_correction": True}),
        (Lamb(peak=0.1), MOMENTS),
        (Adafactor(), T5 | {"floor": 0.0, "horizon": 0, "square_decay": 0.0}),
        (Lion(peak=0.1), PLAIN | {"beta1": 0.9, "beta2": 0.99}),
        (Muon(peak=0.1), MOMENTS | {"eps": 1e-8, "momentum": 0.95, "scaling": "rms", "adam_scale": 1.0}),
    ],
    ids=["adamw", "lamb", "adafactor", "lion", "muon"],
)
def test_keys_that_a_recipe_does_not_name_have_the_usual_values(optim: Optim, values: dict[str, Any]) -> None:
    assert {name: getattr(optim, name) for name in values} == values


def test_the_shape_of_a_schedule_stays_the_same() -> None:
    with pytest.raises(FrozenInstanceError):
        SCHEDULES["linear"].warm_up = "none"  # type: ignore[misc]
