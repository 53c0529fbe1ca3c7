"""Each recipe begins, decays, and takes its first steps as its paper does: against numbers that are read in the papers
and in their authors' code, and against an implementation of them in numpy.

The nets have width 128; optimiser, first weights and schedule are those that are published. `--scale tiny` changes all
three, and says nothing of them.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests import family
from tests.orchestration.published import plain, shrunk
from tests.orchestration.published.plain import Array, Law, Plain
from tests.orchestration.published.table import PUBLISHED, Published
from training.engines.local import LocalEngine
from training.losses import Loss
from training.model import Model
from training.optimizers import Optimizer, rate_at
from training.specs import Architecture, EngineSettings, Phase

STEPS = 20
TIGHT = 1e-5  # of the longest way that an element of a tensor has gone: nets are in float64, so that this sees all
GPT_2 = ("gpt2", "gpt2_large", "gpt2_medium", "gpt2_xl")
ROUNDING = 1e-14  # of a weight, in twenty steps
of_every_recipe = pytest.mark.parametrize("name", family.RECIPES)


def published(name: str) -> Published:
    """What the paper says; what it does not say is as the recipe has it."""
    paper, recipe = PUBLISHED[name], family.recipe(name)
    keys = {"peak": "learning_rate", "warmup": "warmup_steps"}
    unsaid = {name: getattr(recipe.optimizer, key) for name, key in keys.items() if getattr(paper, name) is None}
    return replace(paper, **unsaid, **({"steps": recipe.num_steps} if paper.steps is None else {}))


def test_every_recipe_has_a_paper() -> None:
    assert sorted(PUBLISHED) == family.RECIPES


def test_what_no_paper_says() -> None:
    """Rates and steps that are ours; with the horizons that the schedule does not have."""
    unsaid = {
        name: [key for key in ("peak", "warmup", "steps") if getattr(paper, key) is None]
        for name, paper in PUBLISHED.items()
        if paper.curve not in ("root", "constant", "root from the warm-up")
    }
    assert {name: keys for name, keys in unsaid.items() if keys} == {
        **{name: ["peak", "steps"] for name in GPT_2},
        "xlnet_base": ["peak", "warmup", "steps"],
    }


# Schedules.


def windows(paper: Published, steps: int) -> list[int]:
    """Updates whose rates are compared: twenty at the start, around the peak, half way, and at the end of the decay and
    of the run."""
    assert paper.warmup is not None
    middles = {paper.warmup, (paper.steps or steps) // 2, paper.steps or steps, steps}
    if paper.again:
        middles.add(paper.again[0] + paper.again[2])
    around = {at + offset for at in middles for offset in range(-STEPS // 2, STEPS // 2)}
    return sorted({*range(STEPS), *(step for step in around if 0 <= step < steps)})


@of_every_recipe
def test_the_rates_are_those_of_the_paper(name: str) -> None:
    recipe, paper = family.recipe(name), published(name)
    steps = windows(paper, recipe.num_steps)
    found = {step: rate_at(recipe.optimizer, recipe.phases, step) for step in steps}
    assert found == pytest.approx({step: plain.rate(paper, step) for step in steps}, rel=1e-6, abs=1e-15)


# Optimisers.


@cache
def perturbed(trunk: Architecture, losses: tuple[Loss, ...]) -> dict[str, torch.Tensor]:
    """First weights in float64; with biases, of which zeros would not show whether they decay."""
    state, generator = {}, torch.Generator().manual_seed(1)
    for name, weight in shrunk.model(trunk, losses).named_parameters():
        noise = torch.empty_like(weight).normal_(0, 0.02, generator=generator) if weight.ndim == 1 else 0.0
        state[name] = weight.detach() + noise
    return state


def off(engine: LocalEngine, papers: Plain, start: dict[str, Array], names: set[str]) -> float:
    """How far weights are from those of the paper at most, as a share of the longest way in the tensor they are of."""
    shares = [0.0]
    for one, part in shrunk.apart(
        {name: one for name, one in engine.model.named_parameters() if name in names}
    ).items():
        way, distance = np.abs(papers.weights[one] - start[one]).max(), np.abs(part - papers.weights[one]).max()
        distance = max(0.0, distance - ROUNDING * np.abs(part).max())  # biases of keys hardly move
        shares.append(float(distance / way) if way else float(distance > 0))
    return max(shares)


@cache
def farthest(
    optim: Optimizer,
    trunk: Architecture,
    losses: tuple[Loss, ...],
    paper: Published,
    rows: str,
    steps: tuple[int, ...],
    phases: tuple[Phase, ...],
) -> float:
    """The most that our weights are `off` after any of these updates of a run of `phases`, with the engine's own step.

    Both are given the gradients that the net has on rows of a recipe.
    """
    model = deepcopy(shrunk.model(trunk, losses))
    model.load_state_dict(perturbed(trunk, losses), strict=False)
    engine, start = LocalEngine(model, optim, EngineSettings()), shrunk.apart(perturbed(trunk, losses))
    papers, batches, worst = Plain(paper, dict(start)), shrunk.gradients(trunk, losses, rows), 0.0
    ours = dict(model.named_parameters())
    for number, step in enumerate(steps):
        gradient = batches[number % len(batches)]
        for name, one in gradient.items():
            ours[name].grad = one.clone()
        engine.step(rate_at(optim, phases, step))
        papers.step(shrunk.apart(gradient), plain.rate(paper, step))
        worst = max(worst, off(engine, papers, start, set(gradient)))
    return worst


@cache
def shrunk_of(name: str) -> tuple[Architecture, tuple[Loss, ...]]:
    """The net of a recipe, of two layers."""
    recipe = family.recipe(name)
    return shrunk.trunk_of(recipe, family.recipe(name, "tiny")), recipe.losses


@cache
def stepping(name: str) -> tuple[Architecture, tuple[Loss, ...]]:
    """The net of a recipe that takes steps: of one layer, which has all tensors, but where layers share them."""
    trunk, losses = shrunk_of(name)
    return (trunk if getattr(trunk, "sharing", "none") != "none" else replace(trunk, num_hidden_layers=1)), losses


@cache
def rows_for() -> dict[tuple[Architecture, tuple[Loss, ...]], str]:
    """For each net the first recipe that has it, whose rows are read."""
    return {stepping(name): name for name in reversed(family.RECIPES)}


def distance(
    name: str, steps: tuple[int, ...], paper: Published | None = None, optim: Optimizer | None = None
) -> float:
    """`farthest` of a recipe, or of another paper or optimiser with its net."""
    net, recipe = stepping(name), family.recipe(name)
    paper, optim = replace(paper or published(name), source=""), optim or recipe.optimizer
    return farthest(optim, *net, paper, rows_for()[net], steps, recipe.phases)


@pytest.mark.one_in(3)
@of_every_recipe
def test_the_first_steps_are_those_of_the_paper(name: str) -> None:
    assert distance(name, tuple(range(STEPS))) < TIGHT


@pytest.mark.slow
@of_every_recipe
def test_the_steps_around_the_peak_and_half_way_are_those_of_the_paper(name: str) -> None:
    """Of a run that is resumed there: running means begin anew."""
    paper, total = published(name), family.recipe(name).num_steps
    assert paper.warmup is not None
    first = max(0, paper.warmup - STEPS // 2)
    for at in (first, (paper.steps or total) // 2):
        assert distance(name, tuple(range(at, at + STEPS))) < TIGHT


# What is caught.

MUTANTS: list[tuple[str, dict[str, Any]]] = [
    ("bert_base", {"warmup_steps": 10_010}),
    ("bert_base", {"bias_correction": True}),
    ("bert_base", {"eps": 1e-8}),
    ("bert_base", {"weight_decay": 0.0}),
    ("bert_base", {"weight_decay_params": "all"}),
    ("roberta_base", {"weight_decay_params": "matrices"}),
    ("roberta_base", {"beta2": 0.999}),
    ("roberta_base", {"max_grad_norm": 0.1}),
    ("bart_base", {"max_grad_norm": 0.0}),
    ("albert_base", {"beta1": 0.91}),
    ("albert_base", {"weight_decay": 0.0}),
    ("grover_mega", {"scale_parameter": True}),
    ("grover_mega", {"beta2": 0.0}),
    ("t5_base", {"beta2": 0.999}),
    ("xlnet_base", {"weight_decay_params": "all"}),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "changes"), MUTANTS, ids=lambda one: str(one))
def test_another_optimiser_takes_other_steps(name: str, changes: dict[str, Any]) -> None:
    other = replace(family.recipe(name).optimizer, **changes)
    assert distance(name, tuple(range(STEPS)), optim=other) > 10 * TIGHT


def farthest_anew(name: str) -> float:
    """`distance` without what is remembered of it, for a test that has changed the code."""
    net, recipe, paper = stepping(name), family.recipe(name), replace(published(name), source="")
    return farthest.__wrapped__(recipe.optimizer, *net, paper, rows_for()[net], tuple(range(STEPS)), recipe.phases)


@pytest.mark.parametrize("name", ["bert_base", "roberta_base", "albert_base", "grover_mega"])
def test_an_update_that_is_one_late_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_time = plain.rate
    monkeypatch.setattr(plain, "rate", lambda paper, step: on_time(paper, max(0, step - 1)))
    assert farthest_anew(name) > 1000 * TIGHT


@pytest.mark.parametrize("name", ["albert_base", "bert_wwm", "t5_base", "grover_mega"])
def test_queries_keys_and_values_that_are_taken_for_one_tensor_are_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(model: nn.Module) -> dict[str, list[tuple[int, ...]]]:
        return {name: [tuple(tensor.shape)] for name, tensor in model.named_parameters()}

    monkeypatch.setattr("training.model.shapes_of", whole)
    assert farthest_anew(name) > 100 * TIGHT


# First weights.


def laws(name: str) -> Iterator[tuple[str, Array, Law]]:
    """Name, first values and what they should be, of each tensor of the net of a recipe at width 128."""
    trunk, losses = shrunk_of(name)
    model, paper = shrunk.model(trunk, losses), published(name)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
    for ours, tensor in model.named_parameters():
        inputs = shapes.get(ours.removesuffix("bias") + "weight", (0, shrunk.WIDTH))[-1]
        for one, part in shrunk.apart({ours: tensor}).items():
            shape = (len(part), part.shape[-1] if part.ndim > 1 else inputs)
            yield one, part, plain.first(paper, one, shape, shrunk.LAYERS, shrunk.WIDTH)


def unlike(values: Array, law: Law) -> str:
    """In what the values are not draws of the law; "" where they may be."""
    count = values.size
    if law.kind == "constant":
        return "" if (values == law.mean).all() else f"not all are {law.mean}"
    mean, std = float(values.mean()), float(values.std())
    if abs(mean - law.mean) > 5 * law.std / count**0.5:
        return f"mean {mean:.4g} for {law.mean:.4g}"
    if abs(std - law.std) > 5 * law.std / (2 * count) ** 0.5:
        return f"deviation {std:.4g} for {law.std:.4g}"
    farthest = float(np.abs(values - law.mean).max())
    if farthest > law.bound * (1 + 1e-6):
        return f"as far as {farthest:.4g}, past {law.bound:.4g}"
    nearest = {"normal": 2.6, "truncated": 2.1}.get(law.kind, 1.6) * law.std
    if count >= 2_000 and farthest < nearest:
        return f"no farther than {farthest:.4g}, short of {nearest:.4g}"
    return ""


@of_every_recipe
def test_the_first_weights_are_those_of_the_paper(name: str) -> None:
    found = {one: unlike(values, law) for one, values, law in laws(name)}
    assert {one: why for one, why in found.items() if why} == {}


@pytest.mark.parametrize("kind", ["normal", "truncated", "uniform"])
def test_draws_of_another_law_are_seen(kind: str) -> None:
    rng = np.random.default_rng(0)
    normal = rng.normal(0, 1, 60_000)
    draws = {
        "normal": normal[:16_384],
        "truncated": normal[np.abs(normal) < 2][:16_384] / plain.CUT_STD,
        "uniform": rng.uniform(-1, 1, 16_384) * 3**0.5,
    }
    law = Law(kind, 0.0, 0.02)
    assert unlike(0.02 * draws[kind], law) == ""
    assert unlike(0.021 * draws[kind], law)
    assert unlike(0.02 * draws[kind] + 0.002, law)
    for other in draws.keys() - {kind}:
        assert unlike(0.02 * draws[other], law), other


# Dropout, which the nets above are without.


@of_every_recipe
def test_the_net_drops_out_as_the_paper_says(name: str) -> None:
    recipe, paper = family.recipe(name), PUBLISHED[name]
    assert (recipe.model.hidden_dropout, recipe.model.attention_dropout) == (paper.dropout, paper.attention_dropout)
    trunk, losses = stepping(name)
    whole = replace(trunk, hidden_dropout=recipe.model.hidden_dropout, attention_dropout=recipe.model.attention_dropout)
    others, inner, attention = shares(whole, losses)
    assert others == {paper.dropout}
    assert inner == {paper.dropout if paper.inner_dropout else 0.0}
    assert attention == {paper.attention_dropout}


@cache
def shares(trunk: Architecture, losses: tuple[Loss, ...]) -> tuple[set[float], set[float], set[float]]:
    """What a net drops out of states, inside of its feed-forward layers, and of attention weights."""
    with torch.device("meta"):
        modules = dict(Model(trunk, losses, shrunk.VOCAB, 0).named_modules())
    dropouts = {one: module.p for one, module in modules.items() if isinstance(module, nn.Dropout)}
    inner = {p for one, p in dropouts.items() if one.endswith("feed_forward.dropout")}
    others = {p for one, p in dropouts.items() if not one.endswith("feed_forward.dropout")}
    return others, inner, {module.dropout for one, module in modules.items() if one.endswith(("attention", "cross"))}
