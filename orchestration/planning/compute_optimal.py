"""Compute-optimal sizes: the parameters N and the training tokens D with the lowest loss for C training FLOPs.

Hoffmann et al. 2022 (Chinchilla, arXiv:2203.15556) estimate N and D in three ways, and Besiroglu et al. 2024
(arXiv:2404.10102) repeat the third one. Each estimate is a power law N = k C^a, and D = C / (6 N). The paper prints its
exponents with two digits and no coefficients. So the power laws of the approaches 1 and 2 are least-squares fits to the
sizes and FLOPs of its tables 3 and A3, without the row of 67 billion parameters: in both tables, its size does not
agree with its FLOPs and the other rows. Approach 3 minimizes the parametric loss. Its alpha and beta are those of the
LaTeX source of the paper, as Besiroglu et al. use them: N is then 3 % to 8 % less than in table A3, and 40 billion for
the FLOPs of Gopher, as in figure 4. With the two digits of equation 10, N is up to 30 % less than in table A3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestration.config import Recipe, list_names, load
from orchestration.planning.workload import Workload, workload_of

LEAST_FLOPS, MOST_FLOPS = 1e12, 1e32  # of a budget; outside, N is not the size of a model
FITTED_FLOPS: Final = (6e18, 3e21)  # section 3.2: budgets of the runs


@dataclass(frozen=True)
class ParametricLoss:
    """The loss L = E + A / N^alpha + B / D^beta in nats per token (section 3.3, equation 2)."""

    constant: float  # E: the entropy of the text
    of_parameters: float  # A
    of_tokens: float  # B
    alpha: float
    beta: float

    @property
    def exponent(self) -> float:
        """a of N = k C^a (equation 4)."""
        return self.beta / (self.alpha + self.beta)

    @property
    def coefficient(self) -> float:
        """k of N = k C^a: G / 6^a (equation 4)."""
        balance = self.alpha * self.of_parameters / (self.beta * self.of_tokens)
        return balance ** (1 / (self.alpha + self.beta)) / 6**self.exponent

    def predict(self, parameters: float, tokens: float) -> float:
        """The loss of a model of this size after these tokens."""
        return self.constant + self.of_parameters / parameters**self.alpha + self.of_tokens / tokens**self.beta


@dataclass(frozen=True)
class Approach:
    """One estimate of the optimal sizes: N = `coefficient` x C^`exponent`."""

    name: str
    method: str
    exponent: float
    coefficient: float
    source: str
    interval: tuple[float, float] | None = None  # published 10th and 90th percentile of the exponent
    loss: ParametricLoss | None = None

    def parameters(self, flops: float) -> float:
        """Optimal parameters for these FLOPs."""
        return self.coefficient * flops**self.exponent

    def tokens(self, flops: float) -> float:
        """Optimal tokens for these FLOPs, with 6 FLOPs for each parameter and token."""
        return flops / (6 * self.parameters(flops))

    def flops(self, parameters: float) -> float:
        """The FLOPs for which this number of parameters is optimal."""
        return (parameters / self.coefficient) ** (1 / self.exponent)


_PRINTED: Final = ParametricLoss(1.69, 406.4, 410.7, alpha=0.33917, beta=0.28491)
_REFITTED: Final = ParametricLoss(1.8172, 482.01, 2085.43, alpha=0.3478, beta=0.3658)
APPROACHES: Final[Sequence[Approach]] = (
    Approach(
        *("1", "minimum over training curves", 0.498092, 0.0993487),
        "arXiv:2203.15556, section 3.1; k and a fitted to table 3, interval from table 2",
        (0.488, 0.502),
    ),
    Approach(
        *("2", "IsoFLOP profiles", 0.489927, 0.145574),
        "arXiv:2203.15556, section 3.2; k and a fitted to table A3, interval from table 2",
        (0.462, 0.534),
    ),
    Approach(
        *("3", "parametric loss", _PRINTED.exponent, _PRINTED.coefficient),
        "arXiv:2203.15556, section 3.3; E=1.69, A=406.4, B=410.7, alpha=0.33917 and beta=0.28491, which equation 10 "
        "rounds to 0.34 and 0.28; interval from table 2",
        (0.454, 0.455),
        _PRINTED,
    ),
    Approach(
        *("3, refitted", "parametric loss", _REFITTED.exponent, _REFITTED.coefficient),
        "arXiv:2404.10102, which repeats the fit; E=1.8172, A=482.01, B=2085.43, alpha=0.3478 and beta=0.3658",
        loss=_REFITTED,
    ),
)


@dataclass(frozen=True)
class RecipePosition:
    """A recipe relative to the optimum of one approach."""

    optimal_tokens: float  # for its number of parameters
    ratio: float  # its tokens divided by these
    optimal_parameters: float  # for its FLOPs

    @property
    def verdict(self) -> str:
        """
        >>> RecipePosition(2e9, 10.0, 1e8).verdict, RecipePosition(2e9, 0.5, 1e8).verdict
        ('overtrained 10x', 'undertrained 2x')
        """
        factor = max(self.ratio, 1 / self.ratio)
        if factor < 1.05:
            return "optimal within 5 %"
        return f"{'over' if self.ratio > 1 else 'under'}trained {factor:,.3g}x"


@dataclass(frozen=True)
class Optimum:
    """The optimal sizes of one approach for a budget."""

    approach: Approach
    parameters: float
    tokens: float
    nearest: tuple[str, int] | None = None  # the recipe with the nearest number of parameters, and this number
    position: RecipePosition | None = None  # of the recipe that was named

    @property
    def loss(self) -> float | None:
        """Predicted loss in nats per token; None if the approach has no formula of the loss."""
        return self.approach.loss.predict(self.parameters, self.tokens) if self.approach.loss else None

    def values(self) -> dict[str, Any]:
        """Values as plain types."""
        approach, values = self.approach, dict[str, Any]()
        if self.nearest and self.position:
            values = {
                "nearest_recipe": {"name": self.nearest[0], "parameters": self.nearest[1]},
                "optimal_tokens_of_recipe": self.position.optimal_tokens,
                "tokens_divided_by_optimal": self.position.ratio,
                "optimal_parameters_for_its_flops": self.position.optimal_parameters,
            }
        return {
            "approach": approach.name,
            "method": approach.method,
            "parameters": self.parameters,
            "tokens": self.tokens,
            "loss": self.loss,
            "exponent": approach.exponent,
            "interval": list(approach.interval) if approach.interval else None,
            "coefficient": approach.coefficient,
            "source": approach.source,
            **values,
        }


@dataclass(frozen=True)
class ComputeOptimum:
    """The optimal sizes for a budget of FLOPs by each approach, and the position of a recipe."""

    flops: float
    optima: tuple[Optimum, ...]
    demand: Workload | None  # of the recipe, if one was named

    @property
    def notes(self) -> list[str]:
        """Limits of the estimates."""
        low, high = FITTED_FLOPS
        lines = [
            "Sources count all parameters, and train decoders on the next token for less than one epoch. Their runs "
            f"have {low:.0e} to {high:.0e} FLOPs.".replace("e+", "e")
        ]
        if not low <= self.flops <= high:
            far = max(low / self.flops, self.flops / high)
            lines.append(f"{self.flops:.3g} FLOPs is outside this range by a factor of {far:,.3g}: an extrapolation.")
        if self.demand and not _is_like_the_sources(self.demand.recipe):
            recipe = self.demand.recipe
            lines.append(
                f"{recipe.name} has the model {recipe.model.kind} and the objective {recipe.objective.kind}, for which "
                "no such fit is published: an indication only."
            )
        return lines

    def values(self) -> dict[str, Any]:
        """Values as plain types."""
        values: dict[str, Any] = {"flops": self.flops, "approaches": [one.values() for one in self.optima]}
        if self.demand:
            values["recipe"] = {
                "name": self.demand.recipe.name,
                "parameters": self.demand.parameters,
                "tokens": self.demand.recipe.num_tokens,
                "flops": self.demand.training_flops,
            }
        return values | {"notes": self.notes}


def find_compute_optimum(flops: float, recipe: Recipe | None = None) -> ComputeOptimum:
    """The optimal sizes for a budget. With a recipe, also its position, and for each size the nearest recipe with the
    same kind of model and objective.

    >>> [f"{one.parameters:.3g}" for one in find_compute_optimum(1e21).optima]
    ['2.86e+09', '2.83e+09', '2.22e+09', '2.78e+09']
    """
    if recipe is None:
        found = (Optimum(each, each.parameters(flops), each.tokens(flops)) for each in APPROACHES)
        return ComputeOptimum(flops, tuple(found), None)
    demand, sizes = workload_of(recipe), count_parameters_of_kind(recipe)
    optima = []
    for each in APPROACHES:
        parameters, tokens = each.parameters(flops), each.tokens(each.flops(demand.parameters))
        name = min(sizes, key=lambda one: abs(math.log(sizes[one] / parameters)))
        position = RecipePosition(tokens, recipe.num_tokens / tokens, each.parameters(demand.training_flops))
        optima.append(Optimum(each, parameters, each.tokens(flops), (name, sizes[name]), position))
    return ComputeOptimum(flops, tuple(optima), demand)


def count_parameters_of_kind(recipe: Recipe) -> dict[str, int]:
    """The parameters of all recipes of Sesame with the same kinds of model and objective as `recipe`, and of it."""
    known = (load(name) for name in list_names("recipes"))
    alike = [one for one in known if _kinds(one) == _kinds(recipe)]
    return {one.name: workload_of(one).parameters for one in (*alike, recipe)}


def _kinds(recipe: Recipe) -> tuple[str, str]:
    return recipe.model.kind, recipe.objective.kind


def _is_like_the_sources(recipe: Recipe) -> bool:
    """Whether a recipe trains a decoder on the next token, as the runs of the papers do."""
    return recipe.model.attention_mask == "causal" and not recipe.model.reads_source
