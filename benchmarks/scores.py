"""Writes a page with a table of the scores of several models, and draws the table.

    python benchmarks/scores.py PAGE.md [RUN...] [--ngram NGRAM.json] [--curves sst2,stsb] [--pictures DIR]

The page is created if it does not exist. New scores come from RUN directories, which `sesame eval` has scored, and from
NGRAM.json, the output of `benchmarks/ngram.py --json`. They replace the same rows of the table; other rows are kept.
--curves names tasks whose scores are drawn over the number of labeled examples. All figures are drawn from the table.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestration.figures import ACCENT, INK, MUTED
from orchestration.reports import SHARES, load_finished_scores, scale_value, unit_of
from orchestration.reports.score_table import format_score, p_value
from training.evaluation.tasks import TaskScore


@dataclass(frozen=True)
class Row:
    """A row of the table, as text.

    `71.9 +- 2.4` is a median with the standard deviation over the seeds, `60.3 (54.2 to 66.0)` a score with its 95 %
    confidence interval.
    """

    task: str
    metric: str
    split: str
    guess: str
    net: str
    labels: str
    random: str
    pretrained: str
    gain: str
    p: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The values that identify a row."""
        return self.task, self.net, self.labels

    @property
    def rows(self) -> float:
        """The number of labeled examples; infinite for all examples."""
        return float(self.labels.replace(",", "")) if self.labels else float("inf")

    @property
    def has_both(self) -> bool:
        """Whether the row has scores of both initializations."""
        return bool(self.random and self.pretrained)


HEAD = tuple(field.name.replace("_", " ") for field in fields(Row))


def value_of(words: str) -> tuple[float, float, float]:
    """A value, and the lengths of its error bar downwards and upwards.

    >>> value_of("71.9 +- 2.4"), value_of("60.0 (54.0 to 66.5)"), value_of("1,035.1")
    ((71.9, 2.4, 2.4), (60.0, 6.0, 6.5), (1035.1, 0.0, 0.0))
    """
    numbers = [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*\.?\d*", words.replace("+-", " "))]
    if len(numbers) == 3:
        value, low, high = numbers
        return value, round(value - low, 6), round(high - value, 6)
    value, deviation = (*numbers, 0.0)[:2]
    return value, deviation, deviation


def of_run(folder: Path, net: str) -> list[Row]:
    """The rows for the scores of a finished run. SystemExit if a task has two scores with equal labels."""
    found: dict[tuple[str, str, str], Row] = {}
    for name, (score, (step, _)) in load_finished_scores(folder).items():
        if step is not None:
            continue
        row = row_of(net, score)
        if row.key in found:
            raise SystemExit(
                f"{folder / 'scores' / name}: {folder} has another score of {score.task}; delete one of them"
            )
        found[row.key] = row
    return list(found.values())


def row_of(net: str, score: TaskScore) -> Row:
    """A score as a row of the table."""
    return Row(
        task=score.task,
        metric=score.metric.replace("_", " "),
        split=score.split,
        guess=f"{scale_value(score.chance, score.metric):.1f}" if score.chance is not None else "",
        net=net,
        labels=f"{score.labels:,}" if score.labels else "",
        random=_figure(score, "random"),
        pretrained=_figure(score, "pretrained"),
        gain=f"{scale_value(score.margin, score.metric):+.1f}" if score.margin is not None else "",
        p=p_value(score),
    )


def _figure(score: TaskScore, start: str) -> str:
    """The score of an initialization, with its interval if the task has one."""
    words = format_score(score.values(start), score.metric)
    of_split = score.starts[start].scores[score.split] if start in score.starts else {}
    if score.metric != "macro_accuracy" or "macro_low" not in of_split:
        return words
    low, high = (100 * _one(of_split[key]) for key in ("macro_low", "macro_high"))
    return f"{words} ({low:.1f} to {high:.1f})"


def of_ngram(found: Mapping[str, Any]) -> Row:
    """The row of an n-gram model on BLiMP."""
    value, low, high = (100 * _one(found["blimp"][key]) for key in ("macro_accuracy", "macro_low", "macro_high"))
    net, figure = f"{len(found['ngrams'])}-gram", f"{value:.1f} ({low:.1f} to {high:.1f})"
    return Row("blimp", "macro accuracy", "test", "50.0", net, "", "", figure, "", "")


def _one(value: Any) -> float:
    return float(value[0] if isinstance(value, list | tuple) else value)


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table, sorted by task, then by decreasing number of labels."""
    rows = list(rows)
    tasks, nets = (list(dict.fromkeys(getattr(row, of) for row in rows)) for of in ("task", "net"))
    ordered = sorted(rows, key=lambda row: (tasks.index(row.task), nets.index(row.net), -row.rows))
    lines = [HEAD, ("---",) * len(HEAD), *(astuple(row) for row in ordered)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page_with(page: str, new: Sequence[Row]) -> tuple[str, list[Row]]:
    """The page with the new rows in its table, and all rows of the table."""
    lines = page.splitlines()
    first = "| " + " | ".join(HEAD[:-1])
    at = next((number for number, line in enumerate(lines) if line.startswith(first)), len(lines))
    is_tested = at < len(lines) and lines[at].endswith(
        f"| {HEAD[-1]} |"
    )  # the last column of older pages is not p, but a word
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    had = [Row(*(cell.strip() for cell in line[1:-1].split("|"))) for line in lines[at + 2 : end]]
    had = had if is_tested else [replace(row, p="") for row in had]
    rows = list({row.key: row for row in [*had, *new]}.values())
    return "\n".join([*lines[:at], table(rows), *lines[end:]]) + "\n", rows


def bars(rows: Sequence[Row]) -> Figure:
    """A bar chart of the tasks whose scores are fractions, for the largest number of labels.

    Each model has a bar, with the score of its random initialization as a line. Standard deviations over the seeds are
    whiskers, or a band around the line.
    """
    most = {(row.task, row.net): row for row in sorted(rows, key=lambda row: row.rows)}
    drawn = [row for row in most.values() if row.has_both and _is_share(row) and row.task != "blimp"]
    tasks, nets = (list(dict.fromkeys(getattr(row, of) for row in drawn)) for of in ("task", "net"))
    figure = Figure(figsize=(max(7.0, 1.4 * len(tasks)), 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(nets)
    for row in drawn:
        number, x = nets.index(row.net), tasks.index(row.task) + nets.index(row.net) * width
        (value, low, high), (random, down, up) = value_of(row.pretrained), value_of(row.random)
        axes.bar(x, value, 0.9 * width, color=_color(number), label=row.net)
        axes.errorbar(x, value, yerr=[[low], [high]], color=INK, capsize=3, linewidth=1)
        edges = x - 0.45 * width, x + 0.45 * width
        axes.fill_between(edges, random - down, random + up, color="white", alpha=0.45, linewidth=0)
        axes.hlines(random, *edges, color="white", linewidth=2.5)
        axes.hlines(random, *edges, color=INK, linestyle=":", label="same model, not pretrained")
    metric_of = {row.task: row.metric for row in drawn}
    names = [f"{task.replace('_', ' ')}\n{metric_of[task]}" for task in tasks]
    axes.set_xticks([at + width * (len(nets) - 1) / 2 for at in range(len(tasks))], names, fontsize=8)
    axes.set_ylabel("score, % (whiskers: standard deviation)")
    return _dressed(figure)


def curves(rows: Sequence[Row], tasks: Sequence[str]) -> Figure:
    """Scores by the number of labeled examples, with a panel for each task, for models with several such scores."""
    figure = Figure(figsize=(3.8 * len(tasks), 3.8), dpi=120, layout="constrained")
    nets = list(dict.fromkeys(row.net for row in rows if row.has_both))
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        mine = sorted(
            (row for row in rows if row.task == task and row.labels and row.has_both), key=lambda row: row.rows
        )
        counts = Counter(row.net for row in mine)
        mine = [row for row in mine if counts[row.net] > 1]
        if not mine:
            raise SystemExit(
                f"--curves {task}: no scores for several numbers of examples; run `sesame eval --max-train-samples A,B`"
            )
        for net in dict.fromkeys(row.net for row in mine):
            of_net = [row for row in mine if row.net == net]
            _curve(axes, of_net, _color(nets.index(net)))
        places = sorted({row.rows for row in mine})
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:,.0f}" for place in places])
        axes.set_xticks([], minor=True)
        axes.set_ylabel(mine[0].metric + (", %" if _is_share(mine[0]) else ""))
        axes.set(title=task, xlabel="labeled examples (dotted: not pretrained)")
    return _dressed(figure)


def _curve(axes: Axes, rows: Sequence[Row], color: str) -> None:
    places = [row.rows for row in rows]
    for start, line in (("pretrained", "o-"), ("random", "o:")):
        values = [value_of(getattr(row, start)) for row in rows]
        label = rows[0].net if start == "pretrained" else None
        spread = [[low for _, low, _ in values], [high for _, _, high in values]]
        axes.errorbar(
            places,
            [value for value, _, _ in values],
            yerr=spread,
            fmt=line,
            color=color,
            label=label,
            markersize=4,
            capsize=2,
            elinewidth=0.8,
        )


def grammar(rows: Sequence[Row]) -> Figure:
    """Mean accuracy on the subsets of BLiMP with 95 % intervals, for models, n-gram models and chance."""
    figure = Figure(figsize=(5, 3.8), dpi=120, layout="constrained")
    axes = figure.subplots()
    nets = list(dict.fromkeys(row.net for row in rows))
    blimp_rows = [row for row in rows if row.task == "blimp"]
    for at, row in enumerate(blimp_rows):
        value, low, high = value_of(row.pretrained)
        axes.bar(at, value, 0.7, color=_color(nets.index(row.net)) if row.random else MUTED)
        axes.errorbar(at, value, yerr=[[low], [high]], color=INK, capsize=4)
        if row.random:
            axes.plot(at, value_of(row.random)[0], "D", color="white", markeredgecolor=INK, label="not pretrained")
    axes.axhline(50, color=INK, linestyle=":", linewidth=1)
    axes.set_xticks(range(len(blimp_rows)), [row.net for row in blimp_rows], fontsize=8)
    axes.set(ylabel="BLiMP, % (dotted line: chance)", ylim=(40, None))
    return _dressed(figure)


def _is_share(row: Row) -> bool:
    return unit_of(row.metric.replace(" ", "_")) == SHARES


def _color(number: int) -> str:
    return (ACCENT, "#4c78a8", "#59a14f", MUTED)[number % 4]


def _dressed(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = dict(zip(labels, handles, strict=True))
    if legend:
        figure.axes[0].legend(legend.values(), legend.keys(), frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--ngram", type=Path)
    parser.add_argument("--curves", default="", help="tasks, separated by commas")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    names = [run.name.rpartition("-")[0].removesuffix("_small") for run in given.runs]
    if len(set(names)) < len(names):
        names = [run.name for run in given.runs]
    new = [row for run, name in zip(given.runs, names, strict=True) for row in of_run(run, name)]
    new += [of_ngram(json.loads(given.ngram.read_text()))] if given.ngram else []
    text, rows = page_with(given.page.read_text() if given.page.is_file() else "", new)
    given.page.write_text(text)
    if not given.pictures:
        return
    given.pictures.mkdir(parents=True, exist_ok=True)
    bars(rows).savefig(given.pictures / "scores.png")
    if given.curves:
        curves(rows, given.curves.split(",")).savefig(given.pictures / "scores_by_labels.png")
    if any(row.task == "blimp" for row in rows):
        grammar(rows).savefig(given.pictures / "blimp.png")


if __name__ == "__main__":
    main()
