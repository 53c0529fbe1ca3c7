"""Scores of several nets side by side, as a page and as pictures, from the run folders that `sesame eval` has scored.

    python benchmarks/scores.py RUN... [--ngram NGRAM.json] [--curves sst2,stsb] --page PAGE.md --pictures DIR

NGRAM.json is what `benchmarks/ngram.py --json` printed. A task that was scored with several numbers of labels stands in
the table with the largest; --curves names those that are drawn over their labels.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from orchestration.figures import ACCENT, INK, MUTED
from orchestration.reports import SHARES, finished, scaled, unit_of
from orchestration.reports.score_table import beyond_seeds, shown
from training.tasks import STARTS, TaskScore

Scores = Mapping[str, Sequence[TaskScore]]
"""The scores of each net, by its name."""


def of_run(folder: Path) -> list[TaskScore]:
    """All finished scores that a run has, of its end; an error where a task has two with as many labels."""
    found: dict[tuple[str, int], TaskScore] = {}
    for name, (score, (step, _)) in finished(folder).items():
        if step is not None:
            continue
        if (score.task, score.labels) in found:
            raise SystemExit(
                f"{folder / 'scores' / name}: {folder} has other scores of {score.task} too; leave one of them there"
            )
        found[score.task, score.labels] = score
    return list(found.values())


def whole(scores: Sequence[TaskScore]) -> dict[str, TaskScore]:
    """Of each task the score with most labels: 0 is all of them."""
    by_labels = sorted(scores, key=lambda score: score.labels or 10**9)
    return {score.task: score for score in by_labels}


def table(nets: Scores) -> str:
    """A row for each task and net."""
    head = ("task", "metric", "split", "guess", "net", "random", "pretrained", "gain", "beyond the seeds")
    lines = [head, ("---",) * len(head)]
    for task in dict.fromkeys(task for scores in nets.values() for task in whole(scores)):
        for net, scores in nets.items():
            if score := whole(scores).get(task):
                lines.append((task, *_row(net, score)))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(net: str, score: TaskScore) -> tuple[str, ...]:
    guess = f"{scaled(score.chance, score.metric):.1f}" if score.chance is not None else ""
    gain = f"{scaled(score.margin, score.metric):+.1f}" if score.margin is not None else ""
    both = (shown(score.values(start), score.metric) for start in ("random", "pretrained"))
    return (score.metric.replace("_", " "), score.split, guess, net, *both, gain, beyond_seeds(score))


def bars(nets: Scores) -> Figure:
    """Each task that was scored from both starts by a share: a bar for each net, and random weights as a line."""
    shared = set.intersection(*(set(whole(scores)) for scores in nets.values()))
    first = whole(next(iter(nets.values())))
    tasks = [task for task in first if task in shared and unit_of(first[task].metric) == SHARES]
    tasks = [task for task in tasks if _has_both([whole(scores)[task] for scores in nets.values()])]
    figure = Figure(figsize=(max(7.0, 1.3 * len(tasks)), 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(nets)
    for number, (net, scores) in enumerate(nets.items()):
        for at, task in enumerate(tasks):
            score, x = whole(scores)[task], at + number * width
            values = [scaled(value, score.metric) for value in score.values("pretrained")]
            random = [scaled(value, score.metric) for value in score.values("random")]
            axes.bar(x, median(values), 0.9 * width, color=_colour(number), label=net if at == 0 else None)
            axes.plot([x] * len(values), values, "o", color=INK, markersize=3)
            label = "the same net, not pretrained" if at == number == 0 else ""
            axes.hlines(median(random), x - 0.45 * width, x + 0.45 * width, color=INK, linestyle=":", label=label)
    names = [f"{task}\n{first[task].metric}" for task in tasks]
    axes.set_xticks([at + width * (len(nets) - 1) / 2 for at in range(len(tasks))], names, fontsize=8)
    axes.set_ylabel("score, %")
    return _dressed(figure)


def _has_both(scores: Sequence[TaskScore]) -> bool:
    return all(score.values(start) for score in scores for start in STARTS)


def curves(nets: Scores, tasks: Sequence[str]) -> Figure:
    """Scores over labelled rows, a panel for each task."""
    figure = Figure(figsize=(3.8 * len(tasks), 3.8), dpi=120, layout="constrained")
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for number, (net, scores) in enumerate(nets.items()):
            mine = sorted((one for one in scores if one.task == task and one.labels), key=lambda one: one.labels)
            if not mine or not _has_both(mine):
                raise SystemExit(f"--curves {task}: {net} was not scored with --labels A,B and --against random")
            for start, line in (("pretrained", "o-"), ("random", "o:")):
                places = [score.labels for score in mine]
                medians = [scaled(median(score.values(start)), score.metric) for score in mine]
                label = net if start == "pretrained" else None
                axes.plot(places, medians, line, color=_colour(number), label=label, markersize=4)
                for score in mine:
                    each = [scaled(value, score.metric) for value in score.values(start)]
                    axes.plot([score.labels] * len(each), each, "o", color=_colour(number), markersize=2, alpha=0.6)
                axes.set_ylabel(mine[0].metric + (", %" if unit_of(mine[0].metric) == SHARES else ""))
                axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.set(title=task, xlabel="labelled rows (dotted: not pretrained)")
    return _dressed(figure)


def grammar(nets: Scores, ngram: Mapping[str, Any]) -> Figure:
    """BLiMP: the mean over its subsets with its 95 % interval, beside n-grams of the same text and chance."""
    figure = Figure(figsize=(5, 3.8), dpi=120, layout="constrained")
    axes = figure.subplots()
    found = {net: whole(scores)["blimp"].starts["pretrained"].scores["test"] for net, scores in nets.items()}
    rows: dict[str, Mapping[str, Any]] = {f"{len(ngram['ngrams'])}-gram": ngram["blimp"]} if ngram else {}
    for at, values in enumerate([*rows.values(), *found.values()]):
        value, low, high = (100 * _one(values[key]) for key in ("macro_accuracy", "macro_low", "macro_high"))
        axes.bar(at, value, 0.7, color=MUTED if at < len(rows) else _colour(at - len(rows)))
        axes.errorbar(at, value, yerr=[[value - low], [high - value]], color=INK, capsize=4)
    axes.axhline(50, color=INK, linestyle=":", linewidth=1)
    names = [*rows, *found]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(ylabel="BLiMP, % (line: chance)", ylim=(40, None))
    return _dressed(figure)


def _one(value: Any) -> float:
    return float(value[0] if isinstance(value, list | tuple) else value)


def _colour(number: int) -> str:
    return (ACCENT, "#4c78a8", "#59a14f", MUTED)[number % 4]


def _dressed(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    if figure.axes[0].get_legend_handles_labels()[0]:
        figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--ngram", type=Path)
    parser.add_argument("--curves", default="", help="tasks, with commas between")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, required=True)
    given = parser.parse_args()
    names = [run.name.rpartition("-")[0].removesuffix("_small") for run in given.runs]
    alike = len(set(names)) < len(names)  # then the folders tell them apart
    nets = {run.name if alike else name: of_run(run) for run, name in zip(given.runs, names, strict=True)}
    ngram = json.loads(given.ngram.read_text()) if given.ngram else {}
    given.page.write_text(table(nets) + "\n")
    given.pictures.mkdir(parents=True, exist_ok=True)
    bars(nets).savefig(given.pictures / "scores.png")
    if given.curves:
        curves(nets, given.curves.split(",")).savefig(given.pictures / "scores_by_labels.png")
    if all("blimp" in whole(scores) for scores in nets.values()):
        grammar(nets, ngram).savefig(given.pictures / "blimp.png")


if __name__ == "__main__":
    main()
