"""The figures of a run, drawn with matplotlib objects. It avoids pyplot, which keeps global state."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # importing matplotlib takes a second
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


History = dict[str, list[tuple[int, float]]]
"""Step and value of each point of a metric, in order of steps."""

Intervals = Mapping[str, tuple[float, float]]
"""Lower and upper end of an interval, by initialization."""

INK, ACCENT, MUTED = "#1f2933", "#b4451f", "#9aa5b1"
_DARK = 0.5  # fraction from which a cell of a confusion matrix is so dark that its number is white


def plot_training(history: History) -> dict[str, "Figure"]:
    """Figures of the loss, the learning rate and the throughput, by name; a figure without points is left out.

    If a loss has several parts, they are drawn beside their sum.
    """
    losses = {key: key.removesuffix("/loss") for key in history if key.endswith("/loss")}
    parts = {label.partition("/")[2] for label in losses.values()} - {""}
    if len(parts) == 1:
        losses = {key: label for key, label in losses.items() if "/" not in label}
    contents = {
        "loss_curve": (losses, "loss (nats per target)"),
        "learning_rate": ({"train/learning_rate": "learning rate"}, "learning rate"),
        "throughput": ({"perf/tokens_per_second": "tokens per second"}, "tokens per second"),
    }
    return {
        name: plot_curves({label: history[key] for key, label in labels.items() if key in history}, ylabel)
        for name, (labels, ylabel) in contents.items()
        if any(key in history for key in labels)
    }


def plot_curves(
    points: Mapping[str, Sequence[tuple[int, float]]], ylabel: str, xlabel: str = "step", log: bool = False
) -> "Figure":
    """One curve per name. The x axis is the training step by default."""
    figure, axes = _new_axes(ylabel)
    for name, line in points.items():
        steps, values = zip(*line, strict=True)
        dots = "o-" if len(line) < 20 else "-"
        axes.plot(steps, values, dots, label=name, linewidth=1.5, markersize=4)
    axes.set_xlabel(xlabel)
    if log:
        axes.set_xscale("log")
    if len(points) > 1:
        axes.legend(frameon=False)
    return figure


def plot_comparison(
    title: str,
    scores: Mapping[str, Sequence[float]],
    guesses: Mapping[str, float] | None = None,
    ylabel: str = "accuracy",
    intervals: Intervals | None = None,
) -> "Figure":
    """One bar per name with the height of the median score; each score is a dot, each interval a vertical line.

    `guesses` are drawn as dotted horizontal lines.
    """
    figure, axes = _new_axes(ylabel)
    colors = [ACCENT, MUTED, INK]
    for index, values in enumerate(map(_drop_infinite, scores.values())):
        axes.bar(index, median(values), width=0.5, color=colors[index % len(colors)], alpha=0.8)
        axes.plot([index] * len(values), values, "o", color=INK, markersize=4)
    _draw_intervals(axes, {at: (intervals or {})[name] for at, name in enumerate(scores) if name in (intervals or {})})
    for name, value in (guesses or {}).items():
        axes.axhline(value, color=INK, linestyle=":", linewidth=1)
        axes.annotate(name, (len(scores) - 0.6, value), ha="right", va="bottom", color=INK, fontsize=9)
    axes.set_xticks(range(len(scores)), list(scores))
    if all(0 <= value <= 1 for values in scores.values() for value in values):
        axes.set_ylim(0, 1)
    axes.set_title(title, color=INK)
    return figure


def _drop_infinite(values: Sequence[float]) -> list[float]:
    """The values, with NaN in place of infinite ones, which matplotlib then leaves out."""
    return [value if math.isfinite(value) else math.nan for value in values]


class DifferenceBar(NamedTuple):
    """A difference of two models with its interval: positive if the candidate is better than the baseline."""

    label: str
    unit: str
    value: float
    low: float
    high: float
    candidate: str  # the name of the model that is compared


class Bar(NamedTuple):
    """The scores of a task: for each initialization the scores of its seeds, and the result in the paper, if any."""

    name: str
    scores: Mapping[str, Sequence[float]]
    paper: float | None = None
    intervals: Intervals = MappingProxyType({})  # 95 % confidence intervals


def plot_scores(of: Mapping[str, Sequence[Bar]]) -> "Figure":
    """The scores of a model on all tasks, with a panel for each unit.

    Each initialization has a bar with the height of the median of its seeds. Each seed is a dot, each 95 % confidence
    interval a line, and each result of the paper a diamond.
    """
    from matplotlib.figure import Figure

    widths = [1 + len(bars) for bars in of.values()]
    figure = Figure(figsize=(max(7, 2 * len(of) + 0.5 * sum(widths)), 4), dpi=120, layout="constrained")
    starts = list(dict.fromkeys(start for bars in of.values() for bar in bars for start in bar.scores))
    for axes, (unit, bars) in zip(
        figure.subplots(1, len(of), squeeze=False, width_ratios=widths)[0], of.items(), strict=True
    ):
        _style(axes, unit)
        _draw_scores(axes, bars, starts)
    legend = {
        name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(legend.values(), legend.keys(), frameon=False, ncols=3, fontsize=9, loc="outside lower center")
    return figure


def _draw_scores(axes: "Axes", bars: Sequence[Bar], starts: Sequence[str]) -> None:
    width = 0.8 / len(starts)
    for index, start in enumerate(starts):
        at = {
            place + (index - (len(starts) - 1) / 2) * width: _drop_infinite(bar.scores.get(start, ()))
            for place, bar in enumerate(bars)
        }
        at = {place: values for place, values in at.items() if values}
        if not at:
            continue
        color = [ACCENT, MUTED][index % 2]
        axes.bar(list(at), [median(values) for values in at.values()], width=0.9 * width, color=color, label=start)
        for place, values in at.items():
            axes.plot([place] * len(values), values, "o", color=INK, markersize=3)
        offset = (index - (len(starts) - 1) / 2) * width
        ends = {place + offset: bar.intervals[start] for place, bar in enumerate(bars) if start in bar.intervals}
        _draw_intervals(axes, ends, "95 % confidence interval")
    papers = [(place, bar.paper) for place, bar in enumerate(bars) if bar.paper is not None]
    if papers:
        axes.plot(*zip(*papers, strict=True), "D", color="white", markeredgecolor=INK, markersize=6, label="paper")
    axes.set_xticks(range(len(bars)), [_escape(bar.name) for bar in bars], rotation=30, ha="right")
    axes.set_xlim(-0.6, len(bars) - 0.4)


def _draw_intervals(axes: "Axes", ends: Mapping[float, tuple[float, float]], label: str = "_95 %") -> None:
    """Draw each interval as a vertical line at its x position. A label that starts with _ is not in the legend."""
    if ends:
        lows, highs = zip(*ends.values(), strict=True)
        axes.vlines(list(ends), lows, highs, color=INK, linewidth=1, label=label)


def plot_differences(title: str, bars: Sequence[DifferenceBar]) -> "Figure":
    """A forest plot: a row for each difference, with its interval, and a panel for each unit.

    Points right of the line are better than the baseline. A hollow point has an interval that contains 0. The
    background is opaque, so that the figure can be read on light and on dark pages.
    """
    from matplotlib.figure import Figure

    units = list(dict.fromkeys(bar.unit for bar in bars))
    heights = [1 + sum(bar.unit == unit for bar in bars) for unit in units]
    figure = Figure(figsize=(7.5, 1.2 + 0.32 * sum(heights) + 0.5 * len(units)), dpi=120, layout="constrained")
    candidates = list(dict.fromkeys(bar.candidate for bar in bars))
    panels = figure.subplots(max(1, len(units)), 1, squeeze=False, height_ratios=heights or [1])[:, 0]
    for axes, unit in zip(panels, units, strict=False):
        rows = [bar for bar in bars if bar.unit == unit]
        for place, bar in enumerate(rows):
            color = [ACCENT, INK, MUTED][candidates.index(bar.candidate) % 3]
            axes.hlines(place, bar.low, bar.high, color=color, linewidth=1.5)
            is_clear = not bar.low <= 0 <= bar.high
            axes.plot(bar.value, place, "o", color=color, markerfacecolor=color if is_clear else "white", markersize=5)
        axes.axvline(0, color=INK, linestyle=":", linewidth=1)
        axes.set_yticks(range(len(rows)), [_escape(bar.label) for bar in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel(f"difference in {unit}; right: better than the baseline", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color=MUTED, alpha=0.3)
    figure.suptitle(_escape(title), color=INK, fontsize=9)
    if len(candidates) > 1:
        handles = [
            figure.axes[0].plot([], [], "o", color=[ACCENT, INK, MUTED][number % 3], label=_escape(name))[0]
            for number, name in enumerate(candidates)
        ]
        figure.legend(handles=handles, frameon=False, fontsize=8, loc="outside lower center")
    return figure


def plot_against_rate(title: str, scores: Mapping[str, Sequence[tuple[float, float]]], ylabel: str) -> "Figure":
    """Scores over the learning rate, on a logarithmic axis: medians as a line, each trial as a dot."""
    figure, axes = _new_axes(ylabel)
    for color, (name, points) in zip([ACCENT, MUTED], scores.items(), strict=False):
        rates = sorted({rate for rate, _ in points})
        medians = [median(value for at, value in points if at == rate) for rate in rates]
        axes.plot(*zip(*points, strict=True), "o", color=color, markersize=4)
        axes.plot(rates, medians, color=color, linewidth=1.5, label=name)
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_title(title, color=INK)
    axes.legend(frameon=False)
    return figure


def plot_confusion(
    title: str, labels: Sequence[str], counts: Sequence[Sequence[int]], others: Sequence[str] = ()
) -> "Figure":
    """Confusion matrix: rows are expected labels, columns are predictions and `others`; shades are fractions of the
    row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.5 + 0.7 * len(counts[0]), 2 + 0.6 * len(labels)), dpi=120, layout="constrained")
    axes = figure.subplots()
    fractions = [[count / max(1, sum(row)) for count in row] for row in counts]
    axes.imshow(fractions, cmap="Oranges", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            color = "white" if fractions[i][j] > _DARK else INK
            axes.annotate(f"{count:,}", (j, i), ha="center", va="center", color=color, fontsize=9)
    columns = [*labels, *others]
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("expected")
    axes.set_title(title, color=INK, fontsize=10)
    return figure


def plot_groups(
    title: str, scores: Mapping[str, Mapping[str, Sequence[float]]], units: Mapping[str, str] | None = None
) -> "Figure":
    """A group of bars for each name, with one bar per label: the mean of its scores, and each score as a dot.

    `units` maps names to units (default: accuracy). Each unit has its own panel.
    """
    from matplotlib.figure import Figure

    unit_of = {name: (units or {}).get(name, "accuracy") for name in scores}
    kinds = list(dict.fromkeys(unit_of.values()))
    widths = [sum(kind == one for one in unit_of.values()) for kind in kinds]
    figure = Figure(figsize=(7 + 2 * (len(kinds) - 1), 4), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(kinds), squeeze=False, width_ratios=widths)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        _draw_bars(axes, {name: group for name, group in scores.items() if unit_of[name] == kind})
        _style(axes, kind)
        if kind == "accuracy":
            axes.set_ylim(0, 1)
    panels[0].set_title(title, color=INK, fontsize=10, loc="left")
    handles, labels = panels[0].get_legend_handles_labels()
    columns = max(
        1, min(len(labels), 95 // (max(map(len, labels)) + 4))
    )  # the number of columns that fit below the axes
    figure.legend(handles, labels, frameon=False, ncols=columns, fontsize=9, loc="outside lower center")
    return figure


def _draw_bars(axes: "Axes", scores: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    labels = list(next(iter(scores.values())))
    width = 0.8 / len(labels)
    for index, label in enumerate(labels):
        color = [ACCENT, MUTED, INK][index] if len(labels) <= 3 else f"C{index}"
        at = [place + (index - (len(labels) - 1) / 2) * width for place in range(len(scores))]
        means = [sum(group[label]) / len(group[label]) for group in scores.values()]
        hatch = "//" if index >= 10 else ""  # from here on the colors repeat
        axes.bar(at, means, width=0.9 * width, color=color, alpha=0.8, label=label, hatch=hatch)
        for place, group in zip(at, scores.values(), strict=True):
            axes.plot([place] * len(group[label]), group[label], "o", color=INK, markersize=3)
    axes.set_xticks(range(len(scores)), list(scores))


def panels(
    title: str, xlabel: str, of: Mapping[str, Mapping[str, Sequence[tuple[float, Sequence[float]]]]]
) -> "Figure":
    """A panel for each name with its curves: means over a logarithmic x axis, and each score as a dot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(of), 3.8), dpi=120, layout="constrained")
    color_of: dict[str, str] = {}
    for axes, (name, lines) in zip(figure.subplots(1, len(of), squeeze=False)[0], of.items(), strict=True):
        for line, points in lines.items():
            color = color_of.setdefault(line, f"C{len(color_of)}")
            places, scores = zip(*sorted(points), strict=True)
            axes.plot(places, [sum(each) / len(each) for each in scores], "o-", color=color, label=line, markersize=4)
            for place, each in zip(places, scores, strict=True):
                axes.plot([place] * len(each), each, "o", color=color, markersize=2, alpha=0.6)
        _style(axes, name)
        axes.set_xscale("log")
        axes.set_xlabel(xlabel)
        named = {f"{place:.2g}".replace("e+", "e"): place for points in lines.values() for place, _ in points}
        if all(later / sooner > 1.2 for sooner, later in pairwise(sorted(named.values()))):  # else labels would overlap
            axes.set_xticks(list(named.values()), list(named), fontsize=8, rotation=30)
            axes.set_xticks([], minor=True)
        if len(lines) > 1:
            axes.legend(frameon=False, fontsize=8)
    figure.suptitle(title, color=INK, fontsize=10)
    return figure


class ProfileCurve(NamedTuple):
    """The runs of one budget: their points, the fitted curve, and its minimum, if it has one."""

    name: str
    points: Sequence[tuple[float, float]]
    curve: Sequence[tuple[float, float]]
    minimum: tuple[float, float] | None


def plot_profiles(
    title: str,
    profiles: Sequence[ProfileCurve],
    minima: Sequence[tuple[float, float]],
    line: Sequence[tuple[float, float, tuple[float, float] | None]],
) -> "Figure":
    """A scaling law in two panels: loss over parameters for each budget, and the optimal parameters over FLOPs.

    `line` has FLOPs, the size by the law, and its interval. Beyond the last minimum it is an extrapolation and dotted.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, one in enumerate(profiles):
        color = f"C{number}"
        left.plot(*zip(*one.points, strict=True), "o", color=color, markersize=4, label=one.name)
        left.plot(*zip(*one.curve, strict=True), "-", color=color, linewidth=1)
        if one.minimum:
            left.plot(*one.minimum, "*", color=INK, markersize=9)
    _style(left, "loss (nats)")
    _style(right, "optimal parameters")
    left.set_xscale("log")
    left.set_xlabel("parameters")
    left.tick_params(axis="x", which="both", labelsize=8, rotation=30)
    if profiles:
        left.legend(frameon=False, fontsize=8)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("FLOPs")
    if minima:
        right.plot(*zip(*minima, strict=True), "*", color=INK, markersize=9)
    if line:
        last = max(flops for flops, _ in minima) * (1 + 1e-9)
        for style, part in (
            ("-", [one for one in line if one[0] <= last]),
            (":", [one for one in line if one[0] >= last]),
        ):
            right.plot([one[0] for one in part], [one[1] for one in part], style, color=ACCENT, linewidth=1.5)
        if ends := [(flops, *interval) for flops, _, interval in line if interval]:
            flops, lows, highs = zip(*ends, strict=True)
            right.fill_between(flops, lows, highs, color=ACCENT, alpha=0.2, linewidth=0)
    figure.suptitle(_escape(title), color=INK, fontsize=10)
    return figure


def _new_axes(ylabel: str) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    _style(axes, ylabel)
    return figure, axes


def _style(axes: "Axes", ylabel: str) -> None:
    axes.set_ylabel(ylabel.replace("_", " "))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=MUTED, alpha=0.3)


def plot_histogram(edges: Sequence[int], bins: Sequence[int], xlabel: str, ylabel: str) -> "Figure":
    """A histogram with a logarithmic x axis; the bins become wider by about a constant ratio."""
    figure, axes = _new_axes(ylabel)
    widths = [stop - start for start, stop in pairwise(edges)]
    axes.bar(edges[:-1], bins, width=widths, align="edge", color=ACCENT, alpha=0.8, edgecolor="white", linewidth=0.5)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(xlabel)
    return figure


def plot_zipf(points: Sequence[tuple[int, int]]) -> "Figure":
    """Token frequency over rank on logarithmic axes, with the line of Zipf's law (frequency ~ 1 / rank)."""
    figure, axes = _new_axes("frequency")
    ranks, counts = zip(*points, strict=True)
    axes.loglog(ranks, counts, color=ACCENT, linewidth=2, label="this corpus")
    middle = len(points) // 2  # fitted here, because both ends of the curve deviate from such a line
    law = [ranks[middle] * counts[middle] / rank for rank in (ranks[0], ranks[-1])]
    axes.loglog((ranks[0], ranks[-1]), law, ":", color=INK, linewidth=1, label="1 / rank")
    axes.set_xlabel("rank")
    axes.legend(frameon=False)
    return figure


def plot_funnel(panels: Mapping[str, Mapping[str, int]]) -> "Figure":
    """Panels side by side with the remaining amount (gray) after each filter, and the dropped amount (colored).

    Each panel maps names to amounts: first what was seen, then the drops in order.
    """
    num_steps = max(map(len, panels.values())) + 1
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 0.7 + 0.3 * num_steps), dpi=120, layout="constrained")
    for axes, (title, steps) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        (_, seen), *drops = steps.items()
        left = seen
        axes.barh(0, left, height=0.7, color=MUTED)
        axes.annotate(f" {seen:,}", (left, 0), va="center", color=INK, fontsize=9)
        for place, (_, drop) in enumerate(drops, 1):
            left -= drop
            axes.barh(place, left, height=0.7, color=MUTED, alpha=0.45)
            axes.barh(place, drop, left=left, height=0.7, color=ACCENT)
            axes.annotate(f" {-drop:+,}" if drop else " 0", (left + drop, place), va="center", color=INK, fontsize=9)
        axes.barh(num_steps - 1, left, height=0.7, color=MUTED)
        axes.annotate(f" {left:,}", (left, num_steps - 1), va="center", color=INK, fontsize=9)
        axes.set_yticks(range(num_steps), [*(_escape(name) for name in steps), "kept"])
        axes.set_xlim(0, 1.5 * max(seen, 1))  # space for the numbers
        axes.set_xticks([])
        axes.set_title(title, color=INK, fontsize=10, loc="left")
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    return figure


def _escape(text: str) -> str:
    """Escape `$`, so that matplotlib does not treat the text as mathematics."""
    return text.replace("$", r"\$")
