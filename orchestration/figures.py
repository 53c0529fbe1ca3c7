"""The pictures of a run, drawn with matplotlib's objects (no pyplot: no global state, no display)."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

History = dict[str, list[tuple[int, float]]]
"""Steps and values of each metric, in order of the steps."""

INK, ACCENT, MUTED = "#1f2933", "#b4451f", "#9aa5b1"


def training(history: History) -> dict[str, Figure]:
    """Loss curve, learning rate and throughput: name -> figure, for those that have points."""
    losses = {key: key.removesuffix("/loss") for key in history if key.endswith("/loss")}
    wanted = {
        "loss_curve": (losses, "loss (nats per target)"),
        "learning_rate": ({"train/lr": "learning rate"}, "learning rate"),
        "throughput": ({"perf/tokens_per_s": "tokens per second"}, "tokens per second"),
    }
    return {
        name: curves({label: history[key] for key, label in labels.items() if key in history}, ylabel)
        for name, (labels, ylabel) in wanted.items()
        if any(key in history for key in labels)
    }


def curves(points: Mapping[str, Sequence[tuple[int, float]]], ylabel: str) -> Figure:
    """One line per name over the steps."""
    figure, axes = _axes(ylabel)
    for name, line in points.items():
        steps, values = zip(*line, strict=True)
        dots = "o-" if len(line) < 20 else "-"
        axes.plot(steps, values, dots, label=name, linewidth=1.5, markersize=4)
    axes.set_xlabel("step")
    if len(points) > 1:
        axes.legend(frameon=False)
    return figure


def comparison(title: str, scores: Mapping[str, Sequence[float]], chance: float) -> Figure:
    """One bar per name, the mean of its scores, with each score as a dot and chance as a line."""
    figure, axes = _axes("accuracy")
    colours = [ACCENT, MUTED, INK]
    for index, values in enumerate(scores.values()):
        axes.bar(index, sum(values) / len(values), width=0.5, color=colours[index % len(colours)], alpha=0.8)
        axes.plot([index] * len(values), values, "o", color=INK, markersize=4)
    axes.axhline(chance, color=INK, linestyle=":", linewidth=1)
    axes.annotate("chance", (len(scores) - 0.6, chance), ha="right", va="bottom", color=INK, fontsize=9)
    axes.set_xticks(range(len(scores)), list(scores))
    axes.set_ylim(0, 1)
    axes.set_title(title, color=INK)
    return figure


def _axes(ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=MUTED, alpha=0.3)
    return figure, axes
