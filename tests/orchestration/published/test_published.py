"""Each recipe starts, decays and makes its first steps as in its paper: compared with numbers from the papers and the
authors' code, and with an implementation in numpy.

Models have width 128; optimizer, initial weights and schedule are the published ones. `--scale tiny` changes these
three, so it is not tested here.
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
from tests.orchestration.published.plain import Array, Distribution, Plain
from tests.orchestration.published.table import PUBLISHED, Published
from training.engines.local import LocalEngine
from training.losses import Loss
from training.model import Model
from training.optimizers import Optimizer, rate_at
from training.specs import Architecture, EngineSettings, Phase

STEPS = 20
# relative to the largest change of an element of a tensor; models are in float64 to make all differences visible
TIGHT = 1e-5
GPT_2 = ("gpt2", "gpt2_large", "gpt2_medium", "gpt2_xl")
ROUNDING = 1e-14  # relative to a weight, in twenty steps
of_every_recipe = pytest.mark.parametrize("name", family.RECIPES)


def published(name: str) -> Published:
    """Return the paper's settings; values that it does not state come from the recipe."""
    paper, recipe = PUBLISHED[name], family.recipe(name)
    keys = {"peak": "learning_rate", "warmup": "warmup_steps"}
    unstated = {name: getattr(recipe.optimizer, key) for name, key in keys.items() if getattr(paper, name) is None}
    return replace(paper, **unstated, **({"steps": recipe.num_steps} if paper.steps is None else {}))


def test_every_recipe_has_published_settings() -> None:
    assert sorted(PUBLISHED) == family.RECIPES


def test_settings_that_no_paper_states_are_known() -> None:
    """Peak rates, warmups and steps that Sesame chose itself; schedules without a horizon are omitted."""
    unstated = {
        name: [key for key in ("peak", "warmup", "steps") if getattr(paper, key) is None]
        for name, paper in PUBLISHED.items()
        if paper.curve not in ("root", "constant", "root from the warm-up")
    }
    assert {name: keys for name, keys in unstated.items() if keys} == {
        **{name: ["peak", "steps"] for name in GPT_2},
        **{f"albert_{size}_v2": ["peak", "warmup"] for size in ("base", "large", "xlarge", "xxlarge")},
        **{name: ["peak", "warmup"] for name in ("mbart_large", "xlm_roberta_base")},
        **{name: ["peak", "warmup", "steps"] for name in ("mistral_7b", "xlnet_base")},
    }


# Schedules


def compared_steps(paper: Published, steps: int) -> list[int]:
    """Return the steps to compare: twenty at the start, around the peak, halfway, and at the end of the decay and of
    the run."""
    assert paper.warmup is not None
    middles = {paper.warmup, (paper.steps or steps) // 2, paper.steps or steps, steps}
    if paper.again:
        middles.add(paper.again[0] + paper.again[2])
    around = {at + offset for at in middles for offset in range(-STEPS // 2, STEPS // 2)}
    return sorted({*range(STEPS), *(step for step in around if 0 <= step < steps)})


@of_every_recipe
def test_learning_rates_match_the_paper(name: str) -> None:
    recipe, paper = family.recipe(name), published(name)
    steps = compared_steps(paper, recipe.num_steps)
    found = {step: rate_at(recipe.optimizer, recipe.phases, step) for step in steps}
    assert found == pytest.approx({step: plain.rate(paper, step) for step in steps}, rel=1e-6, abs=1e-15)


# Optimizers


@cache
def perturbed(trunk: Architecture, losses: tuple[Loss, ...]) -> dict[str, torch.Tensor]:
    """Return initial weights in float64 with random biases, because zeros would not show whether biases decay."""
    state, generator = {}, torch.Generator().manual_seed(1)
    for name, weight in shrunk.model(trunk, losses).named_parameters():
        noise = torch.empty_like(weight).normal_(0, 0.02, generator=generator) if weight.ndim == 1 else 0.0
        state[name] = weight.detach() + noise
    return state


def relative_error(engine: LocalEngine, papers: Plain, start: dict[str, Array], names: set[str]) -> float:
    """Return the largest deviation from the paper's weights, relative to the largest change within the tensor."""
    ratios = [0.0]
    for one, part in shrunk.separate_tensors(
        {name: one for name, one in engine.model.named_parameters() if name in names}
    ).items():
        change, deviation = np.abs(papers.weights[one] - start[one]).max(), np.abs(part - papers.weights[one]).max()
        deviation = max(0.0, deviation - ROUNDING * np.abs(part).max())  # biases of keys hardly change
        ratios.append(float(deviation / change) if change else float(deviation > 0))
    return max(ratios)


@cache
def largest_error(
    optim: Optimizer,
    trunk: Architecture,
    losses: tuple[Loss, ...],
    paper: Published,
    rows: str,
    steps: tuple[int, ...],
    phases: tuple[Phase, ...],
) -> float:
    """Return the largest `relative_error` after any of these updates of a run with `phases`, made by the engine's own
    step.

    Both implementations get the gradients of the model on sequences of a recipe.
    """
    model = deepcopy(shrunk.model(trunk, losses))
    model.load_state_dict(perturbed(trunk, losses), strict=False)
    engine, start = LocalEngine(model, optim, EngineSettings()), shrunk.separate_tensors(perturbed(trunk, losses))
    papers, batches, worst = Plain(paper, dict(start)), shrunk.gradients(trunk, losses, rows), 0.0
    ours = dict(model.named_parameters())
    for number, step in enumerate(steps):
        gradient = batches[number % len(batches)]
        for name, one in gradient.items():
            ours[name].grad.copy_(one)
        engine.step(rate_at(optim, phases, step))
        papers.step(shrunk.separate_tensors(gradient), plain.rate(paper, step))
        worst = max(worst, relative_error(engine, papers, start, set(gradient)))
    return worst


@cache
def shrunk_of(name: str) -> tuple[Architecture, tuple[Loss, ...]]:
    """Return the architecture with two layers and the losses of a recipe."""
    recipe = family.recipe(name)
    return shrunk.trunk_of(recipe, family.recipe(name, "tiny")), recipe.losses


@cache
def stepping(name: str) -> tuple[Architecture, tuple[Loss, ...]]:
    """Return the model for step comparisons: one layer contains all tensors, unless layers share parameters."""
    trunk, losses = shrunk_of(name)
    return (trunk if getattr(trunk, "sharing", "none") != "none" else replace(trunk, num_hidden_layers=1)), losses


@cache
def recipe_for_rows() -> dict[tuple[Architecture, tuple[Loss, ...]], str]:
    """Return, for each model, the first recipe that has it; its sequences are read."""
    return {stepping(name): name for name in reversed(family.RECIPES)}


def error_of(
    name: str, steps: tuple[int, ...], paper: Published | None = None, optim: Optimizer | None = None
) -> float:
    """Return `largest_error` for a recipe, or for another paper or optimizer with its model."""
    net, recipe = stepping(name), family.recipe(name)
    paper, optim = replace(paper or published(name), source=""), optim or recipe.optimizer
    return largest_error(optim, *net, paper, recipe_for_rows()[net], steps, recipe.phases)


@pytest.mark.one_in(9)
@of_every_recipe
def test_first_steps_match_the_paper(name: str) -> None:
    assert error_of(name, tuple(range(STEPS))) < TIGHT


@pytest.mark.slow
@of_every_recipe
def test_steps_around_the_peak_and_halfway_match_the_paper(name: str) -> None:
    """The run starts at these steps, so running means are initialized there."""
    paper, total = published(name), family.recipe(name).num_steps
    assert paper.warmup is not None
    first = max(0, paper.warmup - STEPS // 2)
    for at in (first, (paper.steps or total) // 2):
        assert error_of(name, tuple(range(at, at + STEPS))) < TIGHT


# Errors that must be detected

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
def test_changed_optimizer_is_detected(name: str, changes: dict[str, Any]) -> None:
    other = replace(family.recipe(name).optimizer, **changes)
    assert error_of(name, tuple(range(STEPS)), optim=other) > 10 * TIGHT


def largest_error_uncached(name: str) -> float:
    """Return `error_of` without cached results, for a test that has changed the code."""
    net, recipe, paper = stepping(name), family.recipe(name), replace(published(name), source="")
    return largest_error.__wrapped__(
        recipe.optimizer, *net, paper, recipe_for_rows()[net], tuple(range(STEPS)), recipe.phases
    )


@pytest.mark.parametrize("name", ["bert_base", "roberta_base", "albert_base", "grover_mega"])
def test_rate_that_is_one_step_late_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_time = plain.rate
    monkeypatch.setattr(plain, "rate", lambda paper, step: on_time(paper, max(0, step - 1)))
    assert largest_error_uncached(name) > 1000 * TIGHT


@pytest.mark.parametrize("name", ["albert_base", "bert_wwm", "t5_base", "grover_mega"])
def test_fused_queries_keys_and_values_are_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(model: nn.Module) -> dict[str, list[tuple[int, ...]]]:
        return {name: [tuple(tensor.shape)] for name, tensor in model.named_parameters()}

    monkeypatch.setattr("training.model.shapes_of", whole)
    assert largest_error_uncached(name) > 100 * TIGHT


# Initial weights


def initial_values(name: str) -> Iterator[tuple[str, Array, Distribution]]:
    """Yield the name, initial values and expected distribution of each tensor of a recipe's model at width 128."""
    trunk, losses = shrunk_of(name)
    model, paper = shrunk.model(trunk, losses), published(name)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
    for ours, tensor in model.named_parameters():
        inputs = shapes.get(ours.removesuffix("bias") + "weight", (0, shrunk.WIDTH))[-1]
        for one, part in shrunk.separate_tensors({ours: tensor}).items():
            shape = (len(part), part.shape[-1] if part.ndim > 1 else inputs)
            yield one, part, plain.initial_distribution(paper, one, shape, shrunk.LAYERS, shrunk.WIDTH)


def describe_mismatch(values: Array, law: Distribution) -> str:
    """Return how the values differ from draws of the distribution, or "" if they may be draws of it."""
    count = values.size
    if law.kind == "constant":
        return "" if (values == law.mean).all() else f"not all values are {law.mean}"
    mean, std = float(values.mean()), float(values.std())
    if abs(mean - law.mean) > 5 * law.std / count**0.5:
        return f"mean {mean:.4g}, expected {law.mean:.4g}"
    if abs(std - law.std) > 5 * law.std / (2 * count) ** 0.5:
        return f"standard deviation {std:.4g}, expected {law.std:.4g}"
    extreme = float(np.abs(values - law.mean).max())
    if extreme > law.bound * (1 + 1e-6):
        return f"largest deviation {extreme:.4g}, expected at most {law.bound:.4g}"
    nearest = {"normal": 2.6, "truncated": 2.1}.get(law.kind, 1.6) * law.std
    if count >= 2_000 and extreme < nearest:
        return f"largest deviation {extreme:.4g}, expected at least {nearest:.4g}"
    return ""


@pytest.mark.one_in(4)
@of_every_recipe
def test_initial_weights_match_the_paper(name: str) -> None:
    found = {one: describe_mismatch(values, law) for one, values, law in initial_values(name)}
    assert {one: why for one, why in found.items() if why} == {}


@pytest.mark.parametrize("kind", ["normal", "truncated", "uniform"])
def test_draws_of_another_distribution_are_detected(kind: str) -> None:
    rng = np.random.default_rng(0)
    normal = rng.normal(0, 1, 60_000)
    draws = {
        "normal": normal[:16_384],
        "truncated": normal[np.abs(normal) < 2][:16_384] / plain.CUT_STD,
        "uniform": rng.uniform(-1, 1, 16_384) * 3**0.5,
    }
    law = Distribution(kind, 0.0, 0.02)
    assert describe_mismatch(0.02 * draws[kind], law) == ""
    assert describe_mismatch(0.021 * draws[kind], law)
    assert describe_mismatch(0.02 * draws[kind] + 0.002, law)
    for other in draws.keys() - {kind}:
        assert describe_mismatch(0.02 * draws[other], law), other


# Dropout, which is off in the models above


@of_every_recipe
def test_dropout_matches_the_paper(name: str) -> None:
    recipe, paper = family.recipe(name), PUBLISHED[name]
    assert (recipe.model.hidden_dropout, recipe.model.attention_dropout) == (paper.dropout, paper.attention_dropout)
    trunk, losses = stepping(name)
    whole = replace(trunk, hidden_dropout=recipe.model.hidden_dropout, attention_dropout=recipe.model.attention_dropout)
    others, inner, attention = dropout_rates(whole, losses)
    assert others == {paper.dropout}
    assert inner == {paper.dropout if paper.inner_dropout else 0.0}
    assert attention == {paper.attention_dropout}


@cache
def dropout_rates(trunk: Architecture, losses: tuple[Loss, ...]) -> tuple[set[float], set[float], set[float]]:
    """Return the dropout rates of states, inside feed-forward layers, and of attention weights."""
    with torch.device("meta"):
        modules = dict(Model(trunk, losses, shrunk.VOCAB, 0).named_modules())
    dropouts = {one: module.p for one, module in modules.items() if isinstance(module, nn.Dropout)}
    inner = {p for one, p in dropouts.items() if one.endswith("feed_forward.dropout")}
    others = {p for one, p in dropouts.items() if not one.endswith("feed_forward.dropout")}
    return others, inner, {module.dropout for one, module in modules.items() if one.endswith(("attention", "cross"))}
