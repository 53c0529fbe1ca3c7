"""A scaling law from a ladder of runs: the optimal size for each budget, and the exponents over the budgets.

This is approach 2 of Hoffmann et al. 2022 (arXiv:2203.15556, section 3.2): a parabola of the loss over the logarithm of
the parameters for each budget of FLOPs, and a power law through the minima of the parabolas. Approach 1 needs the loss
at each step of long runs, and a learning rate that is decayed at each of these steps. Approach 3 fits five constants
to the losses, more than a small ladder can determine.

Intervals are from a bootstrap of residuals: a ladder has few runs at chosen sizes, so runs cannot be drawn with
replacement, because a parabola needs three sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from preprocessing.schema import Floats

CHINCHILLA: Final = 0.49  # exponent of the parameters, approach 2 (table 2)
LEAST_SIZES = 4  # different sizes of a budget; three determine a parabola without residuals
NUM_RESAMPLES, SEED = 2_000, 0
COVERED: Final = (2.5, 97.5)  # percentiles of an interval
_MOST_FAILED: Final = 0.025  # fraction of resamples without a law, above which the interval has no end
_FURTHER: Final = 10.0  # factor from the largest budget to the one that the law predicts


@dataclass(frozen=True)
class LadderRun:
    """A finished run: its budget is named by `budget`, and `flops` are those that it used."""

    budget: float
    parameters: float
    tokens: float
    flops: float
    loss: float


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; no interval if it cannot be determined."""

    value: float
    interval: tuple[float, float] | None

    def describe(self, digits: str = ".2f") -> str:
        """
        >>> Estimate(0.487, (0.45, 0.53)).describe(), Estimate(0.487, None).describe()
        ('0.49 (95 % interval 0.45 to 0.53)', '0.49 (no interval)')
        """
        if self.interval is None:
            return f"{self.value:{digits}} (no interval)"
        return f"{self.value:{digits}} (95 % interval {self.interval[0]:{digits}} to {self.interval[1]:{digits}})"


@dataclass(frozen=True)
class IsoflopProfile:
    """The runs of a budget, and the parabola of their loss over ln(parameters / `center`)."""

    runs: tuple[LadderRun, ...]
    center: float
    coefficients: tuple[float, float, float]  # of the square, the line and the constant

    @property
    def flops(self) -> float:
        """Geometric mean over the runs, whose numbers of steps are rounded."""
        return _mean([run.flops for run in self.runs])

    @property
    def has_minimum(self) -> bool:
        """Whether the parabola has its minimum between the smallest and the largest size."""
        sizes = [run.parameters for run in self.runs]
        return self.coefficients[0] > 0 and min(sizes) <= self.parameters <= max(sizes)

    @property
    def parameters(self) -> float:
        """The optimal size."""
        square, line, _ = self.coefficients
        return self.center * math.exp(min(max(-line / (2 * square), -50.0), 50.0)) if square > 0 else math.nan

    @property
    def tokens(self) -> float:
        """The tokens of a run with the optimal size."""
        slope, offset = _fit_tokens(self.runs, self.center)
        return math.exp(offset + slope * math.log(self.parameters / self.center))

    @property
    def loss(self) -> float:
        """The loss at the optimal size."""
        return self.predict(self.parameters)

    @property
    def why_not(self) -> str:
        """The reason why the budget is not part of the law; "" if it is."""
        if self.coefficients[0] <= 0:
            return "the parabola has no minimum"
        sizes = [run.parameters for run in self.runs]
        if self.parameters < min(sizes):
            return "the minimum is below the smallest size"
        return "the minimum is above the largest size" if self.parameters > max(sizes) else ""

    def predict(self, parameters: float) -> float:
        """The loss of a size by the parabola."""
        return float(np.polyval(self.coefficients, math.log(parameters / self.center)))


@dataclass(frozen=True)
class ScalingLaw:
    """Profiles of all budgets, and the power laws through their minima. The exponents are None with fewer than two
    budgets that have a minimum."""

    profiles: tuple[IsoflopProfile, ...]
    parameters: Estimate | None = None  # exponent a of N = k C^a
    tokens: Estimate | None = None  # exponent b of D = m C^b
    loss: Estimate | None = None  # exponent of the optimal loss; negative
    coefficient: float = 0.0  # k
    predicted: Estimate | None = None  # optimal size for ten times the largest budget
    failed: float = 0.0  # fraction of resamples in which a budget has no minimum
    line: tuple[tuple[float, Estimate], ...] = ()  # optimal size over the FLOPs, for the figure

    @property
    def used(self) -> list[IsoflopProfile]:
        """The profiles with a minimum."""
        return [one for one in self.profiles if one.has_minimum]

    @property
    def next_flops(self) -> float:
        """The budget of `predicted`."""
        return _FURTHER * self.used[-1].flops

    def describe(self) -> str:
        """The exponent in one line."""
        if not self.parameters:
            return (
                f"No exponent: {len(self.used)} of {len(self.profiles)} budgets have a minimum between their smallest "
                "and largest size, and two are needed."
            )
        text = f"Optimal parameters grow as C^{self.parameters.describe()}; Chinchilla has {CHINCHILLA:.2f}."
        if not self.parameters.interval:
            text += f" A budget has no minimum in {self.failed:.0%} of the resamples."
        return text

    def metrics(self) -> dict[str, float]:
        """The exponents as metrics."""
        found = {"parameters": self.parameters, "tokens": self.tokens, "loss": self.loss}
        metrics = dict[str, float]()
        for name, one in found.items():
            if one:
                metrics[f"exponent/{name}"] = one.value
                if one.interval:
                    metrics[f"exponent/{name}/low"], metrics[f"exponent/{name}/high"] = one.interval
        return metrics

    def values(self) -> dict[str, Any]:
        """Values as plain types."""

        def plain(one: Estimate | None) -> dict[str, Any] | None:
            if one is None:
                return None
            return {"value": one.value, "interval": list(one.interval) if one.interval else None}

        budgets = [
            {
                "flops": one.flops,
                "parameters": one.parameters if one.has_minimum else None,
                "tokens": one.tokens if one.has_minimum else None,
                "loss": one.loss if one.has_minimum else None,
                "why_not": one.why_not,
            }
            for one in self.profiles
        ]
        return {
            "budgets": budgets,
            "parameters": plain(self.parameters),
            "tokens": plain(self.tokens),
            "loss": plain(self.loss),
            "coefficient": self.coefficient if self.parameters else None,
            "predicted": plain(self.predicted),
            "failed_resamples": self.failed,
        }


def fit_law(runs: Sequence[LadderRun]) -> ScalingLaw:
    """The scaling law of a ladder, with 95 % intervals. Runs whose loss is not finite are left out.

    >>> runs = [
    ...     LadderRun(c, n, c / (6 * n), c, 2 + 0.1 * math.log(n / (0.1 * c**0.5)) ** 2)
    ...     for c in (1e12, 1e13)
    ...     for n in (5e4, 1e5, 2e5, 4e5, 8e5)
    ... ]
    >>> round(fit_law(runs).parameters.value, 3)
    0.5
    """
    by_budget: dict[float, list[LadderRun]] = {}
    for run in runs:
        if math.isfinite(run.loss):
            by_budget.setdefault(run.budget, []).append(run)
    profiles = tuple(
        sorted(
            (_fit_profile(of) for of in by_budget.values() if len({run.parameters for run in of}) >= LEAST_SIZES),
            key=lambda one: one.flops,
        )
    )
    used = [one for one in profiles if one.has_minimum]
    if len(used) < 2:
        return ScalingLaw(profiles)
    log_flops = np.log([one.flops for one in used])
    further = math.log(_FURTHER) + log_flops[-1]
    minima = np.array([[one.parameters, one.tokens, one.loss] for one in used])
    slopes, offsets = _fit_lines(log_flops, np.log(minima)[None])
    resampled = _resample_minima(used)
    kept = np.isfinite(resampled).all(axis=(1, 2))
    failed = 1 - float(kept.mean())
    of_slopes, of_offsets = _fit_lines(log_flops, resampled[kept])

    def estimate(value: float, drawn: Floats) -> Estimate:
        if failed > _MOST_FAILED:
            return Estimate(float(value), None)
        low, high = np.percentile(drawn, COVERED)
        return Estimate(float(value), (float(low), float(high)))

    of_parameters, of_tokens, of_loss = (estimate(slopes[0, i], of_slopes[:, i]) for i in range(3))

    def size_at(log_c: float) -> Estimate:
        drawn = np.exp(of_offsets[:, 0] + of_slopes[:, 0] * log_c)
        return estimate(math.exp(offsets[0, 0] + slopes[0, 0] * log_c), drawn)

    sizes = [(math.exp(at), size_at(at)) for at in np.linspace(log_flops[0], further, 20)]
    coefficient, line = math.exp(offsets[0, 0]), tuple(sizes)
    return ScalingLaw(profiles, of_parameters, of_tokens, of_loss, coefficient, sizes[-1][1], failed, line)


def _fit_profile(runs: Sequence[LadderRun]) -> IsoflopProfile:
    center = _mean([run.parameters for run in runs])
    logs = np.log([run.parameters / center for run in runs])
    square, line, constant = np.polyfit(logs, [run.loss for run in runs], 2)
    return IsoflopProfile(tuple(runs), center, (float(square), float(line), float(constant)))


def _fit_tokens(runs: Sequence[LadderRun], center: float) -> tuple[float, float]:
    """Slope and offset of ln(tokens) over ln(parameters / center) at equal FLOPs."""
    logs = np.log([run.parameters / center for run in runs])
    slope, offset = np.polyfit(logs, np.log([run.tokens for run in runs]), 1)
    return float(slope), float(offset)


def _fit_lines(x_B: Floats, y_RBV: Floats) -> tuple[Floats, Floats]:
    """Least-squares slopes and offsets [R, V] of each variable over x: R resamples, B budgets, V variables."""
    centered_B = x_B - x_B.mean()
    slope_RV = np.einsum("b,rbv->rv", centered_B, y_RBV) / (centered_B**2).sum()
    return slope_RV, y_RBV.mean(axis=1) - slope_RV * x_B.mean()


def _resample_minima(profiles: Sequence[IsoflopProfile]) -> Floats:
    """Logarithms of the optimal parameters, tokens and loss [R, B, 3] of each budget with resampled residuals.

    Residuals of all budgets are drawn from one pool, because a budget has few. Each is divided by sqrt(1 - leverage),
    so that all have the variance of the noise (Davison and Hinkley 1997, section 6.2.3). A resample whose parabola has
    no minimum has no numbers.
    """
    designs = [np.vander(np.log([run.parameters / one.center for run in one.runs]), 3) for one in profiles]
    fits = [np.linalg.pinv(design) for design in designs]
    losses = [np.array([run.loss for run in one.runs]) for one in profiles]
    residuals = list[Floats]()
    for design, fit, loss in zip(designs, fits, losses, strict=True):
        hat = design @ fit
        residuals.append((loss - hat @ loss) / np.sqrt(1 - np.diag(hat)))
    pool_P = np.concatenate(residuals)
    pool_P -= pool_P.mean()
    rng, drawn = np.random.default_rng(SEED), list[Floats]()
    for one, design, fit, loss in zip(profiles, designs, fits, losses, strict=True):
        noise = rng.choice(pool_P, size=(NUM_RESAMPLES, len(loss)))
        square, line, constant = fit @ (design @ (fit @ loss) + noise).T
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.where(square > 0, -line / (2 * square), np.nan)
            lowest = np.log(constant - line**2 / (4 * square))
        slope, offset = _fit_tokens(one.runs, one.center)
        drawn.append(np.stack([place + math.log(one.center), offset + slope * place, lowest], axis=-1))
    return np.stack(drawn, axis=1)


def _mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def ladder_runs(
    computes: Mapping[str, float], scores: Mapping[str, Sequence[float]], facts: Mapping[str, Mapping[Any, float]]
) -> list[LadderRun]:
    """The runs of a ladder: budgets, losses of the seeds and facts by row."""
    return [
        LadderRun(computes[row], facts[row]["parameters"], facts[row]["tokens"], facts[row]["FLOPs"], loss)
        for row, losses in scores.items()
        for loss in losses
    ]
