"""Draw the picture of the README from a finished demo: python benchmarks/picture.py work docs/demo.png"""

import sys
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from orchestration.figures import ACCENT, INK, MUTED
from orchestration.reports import load_finished_scores, select_final_scores
from orchestration.tracking import metrics


def main(out: Path, picture: Path) -> None:
    """Draw the losses (left) and the downstream scores (right) of the newest run in `out`."""
    run = max(out.glob("runs/*"), key=lambda folder: folder.stat().st_mtime)
    history = metrics.history(run)
    scores = select_final_scores(load_finished_scores(run))
    figure = Figure(figsize=(11, 3.6), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])

    for name, color in (("train/loss", MUTED), ("eval/loss", ACCENT)):
        steps, values = zip(*history[name], strict=True)
        left.plot(steps, values, "o-" if name.startswith("eval") else "-", color=color, label=name, linewidth=1.4)
    left.set(xlabel="step", ylabel="loss (nats)", title=f"{run.name.rsplit('-', 1)[0]}: pretraining")
    left.legend(frameon=False)

    for at, score in enumerate(scores):
        for side, (start, color) in enumerate((("random", MUTED), ("pretrained", ACCENT))):
            values = score.values(start)
            x = at + 0.38 * side
            right.bar(x, median(values), width=0.34, color=color, label=start if at == 0 else None)
            right.plot([x] * len(values), values, "o", color=INK, markersize=3)
        guess = [score.chance] * 2
        right.plot([at - 0.2, at + 0.58], guess, ":", color=INK, label="chance or majority" if at == 0 else None)
    right.set_xticks([at + 0.19 for at in range(len(scores))], [score.task for score in scores])
    right.set(ylabel="accuracy", ylim=(0, 1), title="downstream scores")
    right.legend(frameon=False)

    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
