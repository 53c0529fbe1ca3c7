"""Tables of the scores of a model on downstream tasks, as text, Markdown and CSV, with the results of its paper."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from statistics import median
from typing import Any, Final

from training.evaluation.tasks import SMOOTH_METRICS, TaskScore, measure_spread

LEGEND: Final = (  # meaning of the numbers in a table
    "Median and standard deviation over the seeds, in brackets the 95 % confidence interval over seeds and examples; "
    "gain: the difference of the means, with its interval; p: two-sided paired t test over the same seeds and "
    "examples, not adjusted for the number of tasks"
)
LONG: Final = 1e6  # numbers with decimal places have a power of ten from here on
LONG_COUNT: Final = 1e12  # the same for counts
ROWS: Final = "rows"  # name of the metric for the number of examples of a split
TRAIN_ROWS: Final = "train_rows"  # name of the metric for the number of training examples
GUESSES: Final = ("majority", "chance")
SHARES = "percent"  # the unit of fractions
_SHARES: Final = {  # words in the names of metrics that are fractions or correlations, at most 1
    *("accuracy", "f1", "exact", "precision", "recall", "matthews", "pearson", "spearman", "rouge1", "rouge2"),
    *("rougeL", "rougeLsum", "bleu", "chrf", "macro", "top5", "ties", "chance", "majority"),
}
_NAMES: Final = ("last_word", "last_token")  # fractions whose names have no word of _SHARES
KEYS = ("learning_rate", "batch_size", "epochs", "max_steps")  # hyperparameters to show
HEAD = (
    *(
        "task",
        "metric",
        "unit",
        "split",
        "rows",
        "step",
        "labels",
        "random",
        "pretrained",
        "gain",
        "p",
        "bits/byte",
        "margin",
        "majority",
        "chance",
        "paper",
    ),
)


def score_rows(scores: Sequence[TaskScore]) -> list[dict[str, str]]:
    """A row of texts for each score. Columns that are empty for all scores are left out. Fractions are in percent."""
    rows = [dict(zip(HEAD, _row(score), strict=True)) for score in scores]
    empty = {column for column in HEAD if not any(row[column] for row in rows)}
    return [{column: words for column, words in row.items() if column not in empty} for row in rows]


def _row(score: TaskScore) -> tuple[str, ...]:
    gain, guess = score.margin, guesses(score)
    return (
        score.task,
        score.metric.replace("_", " "),
        _unit(score.metric),
        score.split,
        format_score(_count(score, ROWS), ROWS),
        f"{score.step:,}" if score.step is not None else "",
        f"{score.labels:,}" if score.labels else "",
        score_of(score, "random"),
        score_of(score, "pretrained"),
        f"{format_decimal(scale_value(gain, score.metric), _digits(score.metric), '+')}{_gain_interval(score)}"
        if gain is not None
        else "",
        p_value(score),
        *(
            "" if name == score.metric else format_score(_values_of_pretrained(score, name), name)
            for name in SMOOTH_METRICS
        ),
        *(format_value(guess[name], score.metric) if name in guess else "" for name in GUESSES),
        ", ".join(_figure(name, value) for name, value in score.paper.items()),
    )


def _figure(name: str, value: float) -> str:
    figure, split = figure_of(name)
    return f"{figure} {value:g}" + (f" ({split})" if split else "")


def figure_of(name: str) -> tuple[str, str]:
    """The last part of the name of a paper's result, and its split, or "" if the split is unknown.

    >>> figure_of("glue.rte (test)"), figure_of("lambada.accuracy")
    (('rte', 'test'), ('accuracy', ''))
    """
    figure, _, split = name.partition(" (")
    return figure.rpartition(".")[2], split.removesuffix(")")


def guesses(score: TaskScore) -> dict[str, float]:
    """The scores of guessing, by name; {} if they are unknown.

    `majority` always gives the most frequent answer, `chance` gives a random answer.
    """
    counted = next(iter(score.starts.values())).scores[score.split]
    found = {name: counted[name][0] for name in GUESSES if name in counted}
    if not found and score.chance is not None:
        found["majority"] = score.chance
    return found


def _values_of_pretrained(score: TaskScore, metric: str) -> tuple[float, ...]:
    """The values of another metric of the pretrained model; () if it has none."""
    return score.starts["pretrained"].scores[score.split].get(metric, ()) if "pretrained" in score.starts else ()


def _count(score: TaskScore, name: str) -> tuple[float, ...]:
    """A count among the metrics of a score; () if it is unknown."""
    return next(iter(score.starts.values())).scores[score.split].get(name, ())


def _unit(metric: str) -> str:
    """The unit of a metric; "" for fractions, because the text above the table says that they are in percent.

    >>> [_unit(metric) for metric in ("f1", "word_perplexity", "bits_per_byte", "effective_length")]
    ['', 'perplexity', 'bits', 'tokens']
    """
    if unit_of(metric) == SHARES:
        return ""
    named = {"perplexity": "perplexity", "bits": "bits", "length": "tokens", "loss": "nats", "margin": "nats"}
    return next((unit for word, unit in named.items() if word in metric.split("_")), unit_of(metric))


def score_of(score: TaskScore, start: str) -> str:
    """The score of an initialization as text: median, deviation and interval, with a note if all answers are equal."""
    words = format_score(score.values(start), score.metric)
    if start in score.intervals:
        words += f" {format_interval(score.intervals[start], score.metric)}"
    return f"{words}, constant answer" if start in score.constant else words


def format_interval(ends: tuple[float, float], metric: str, sign: str = "") -> str:
    """An interval as text, in the unit of its metric.

    >>> format_interval((0.712, 0.8), "accuracy"), format_interval((-0.01, 0.1), "f1", "+")
    ('[71.2, 80.0]', '[-1.0, +10.0]')
    """
    low, high = (format_decimal(scale_value(end, metric), _digits(metric), sign) for end in ends)
    return f"[{low}, {high}]"


def _digits(metric: str) -> int:
    return 2 if "bits" in metric or metric == "margin" else 1


def format_decimal(value: float, digits: int, sign: str = "") -> str:
    """A number with `digits` decimal places; a number of LONG or more (a count: LONG_COUNT) has a power of ten.

    >>> format_decimal(1234.56, 1), format_decimal(0.5, 1, "+"), format_decimal(1.0e50, 1)
    ('1,234.6', '+0.5', '1e+50')
    >>> format_decimal(2_345_678.9, 4), format_decimal(2_345_678.0, 0)
    ('2.35e+06', '2,345,678')
    """
    is_short = abs(value) < (LONG if digits else LONG_COUNT) or not isfinite(value)
    return f"{value:{sign},.{digits}f}" if is_short else f"{value:{sign}.3g}"


def _gain_interval(score: TaskScore) -> str:
    return f" {format_interval((score.gain.low, score.gain.high), score.metric, '+')}" if score.gain else ""


def p_value(score: TaskScore) -> str:
    """p of the gain, or the reason why there is none; "" if there is no gain.

    A test needs two fine-tunings of each initialization, whatever the number of examples. For a task without
    fine-tuning, it needs two examples.
    """
    if score.margin is None:
        return ""
    if score.gain is not None:
        return format_p(score.gain.p)
    if _count(score, ROWS) and not any(one.how for one in score.starts.values()):
        return "one example" if _count(score, ROWS) == (1.0,) else "not tested"
    return "one seed" if len(score.values("pretrained")) == 1 or len(score.values("random")) == 1 else "not tested"


def format_p(p: float) -> str:
    """A p value as text.

    >>> format_p(0.0004), format_p(0.0123), format_p(0.5)
    ('<0.001', '0.012', '0.500')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def format_score(values: Sequence[float], metric: str) -> str:
    """The median and the standard deviation over the seeds, as text.

    >>> accuracy = format_score((0.81, 0.82, 0.80), "accuracy")
    >>> accuracy, format_score((35.13,), "perplexity"), format_score((1.057,), "bits_per_byte")
    ('81.0 +- 1.0', '35.1', '1.06')
    >>> format_score((5000.0,), "tokens"), format_score((), "f1")
    ('5,000', '')
    >>> format_score((1.5e12,), "perplexity")
    '1.5e+12'
    """
    if not values:
        return ""
    counts = unit_of(metric) != SHARES and all(float(value).is_integer() for value in values)
    digits = 0 if counts else _digits(metric)
    spread = f" +- {format_decimal(scale_value(measure_spread(values), metric), digits)}" if len(values) > 1 else ""
    return f"{format_decimal(scale_value(median(values), metric), digits)}{spread}"


def scale_value(value: float, metric: str) -> float:
    """A value in the unit for display: fractions become percent; perplexities, losses and counts do not change."""
    return 100 * value if unit_of(metric) == SHARES else value


def unit_of(metric: str) -> str:
    """The unit of a metric, for metrics that can share an axis: percent for fractions, else the name of the metric.

    >>> unit_of("accuracy_of_hans"), unit_of("last_word"), unit_of("word_perplexity"), unit_of("best_f1_thresh")
    ('percent', 'percent', 'word perplexity', 'best f1 thresh')
    """
    words = metric.split("_")
    is_share = metric in _NAMES or (words[-1] != "thresh" and not _SHARES.isdisjoint(words))
    return SHARES if is_share else metric.replace("_", " ")


def format_value(value: float, metric: str) -> str:
    """A value of a metric as text, in the unit for display.

    >>> format_value(0.9, "accuracy"), format_value(25.31, "perplexity"), format_value(4e9, "perplexity")
    ('90.0', '25.3', '4e+09')
    """
    return format_decimal(scale_value(value, metric), _digits(metric))


def select_applied(how: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters that have an effect: max_steps replaces epochs, and 0 steps are none.

    >>> select_applied({"epochs": 1.0, "max_steps": 60}), select_applied({"epochs": 1.0, "max_steps": 0})
    ({'max_steps': 60}, {'epochs': 1.0})
    """
    unused = "epochs" if how.get("max_steps") else "max_steps"
    begin = {"begin": select_applied(how["begin"])} if "begin" in how else {}
    return {key: value for key, value in how.items() if key != unused} | begin


def score_page(name: str, scores: Sequence[TaskScore], glue: Mapping[str, float] | None = None) -> str:
    """A page with the table, averages of GLUE, selected hyperparameters, all splits and metrics, and failures."""
    table = score_rows(scores)
    parts = [f"# Scores of {name}", f"{LEGEND}; fractions in percent.", _table(table)]
    parts += [f"GLUE, average as {which}: {100 * value:.1f}" for which, value in (glue or {}).items()]
    for score in scores:
        for start, one in score.starts.items():
            applied = select_applied(one.how)
            how = ", ".join(f"{key} {applied[key]:g}" for key in KEYS if applied.get(key))
            decided = f" (best on {score.chosen_on})" if score.chosen_on else ""
            others = "; ".join(
                f"{split} {metric} {format_score(values, metric)}"
                for split, metrics in one.scores.items()
                for metric, values in metrics.items()
            )
            parts.append(f"* {name_score(score)}, {start}: {f'{how}{decided}: ' if how else ''}{others}")
        parts += [f"* {name_score(score)}: no score of {failed}" for failed in score.failed]
    parts += _notes(scores)
    return "\n\n".join(parts) + "\n"


def _notes(scores: Sequence[TaskScore]) -> list[str]:
    """A line for each note, after the names of its scores. Scores of a task at several steps share most notes."""
    of: dict[tuple[str, str], list[TaskScore]] = {}
    for score in scores:
        for note in score.notes:
            of.setdefault((score.task, note), []).append(score)
    count = Counter(score.task for score in scores)
    return [
        f"* {task}, all {count[task]} scores: {note}"
        if 1 < len(those) == count[task]
        else f"* {', '.join(map(name_score, those))}: {note}"
        for (task, note), those in of.items()
    ]


def name_score(score: TaskScore) -> str:
    """The name of a score: its task, and its step and labels if it has them."""
    return score_name(score.task, score.step, score.labels)


def score_name(task: str, step: int | None, labels: int) -> str:
    """The name of a score.

    >>> score_name("rte", 1_000, 0), score_name("rte", None, 20)
    ('rte at step 1,000', 'rte with 20 labels')
    """
    return task + (f" at step {step:,}" if step is not None else "") + (f" with {labels:,} labels" if labels else "")


def score_csv(scores: Sequence[TaskScore]) -> str:
    """The scores as CSV, with a line for each task, initialization, split, metric and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("task", "step", "labels", "start", "split", "metric", "number", "value"))
    for score in scores:
        for start, one in score.starts.items():
            for split, metrics in one.scores.items():
                for metric, values in metrics.items():
                    for number, value in enumerate(values):
                        place = ("" if score.step is None else score.step, score.labels or "")
                        writer.writerow((score.task, *place, start, split, metric, number, repr(value)))
    return text.getvalue()


def _table(table: Sequence[Mapping[str, str]]) -> str:
    if not table:
        return "No task."
    lines = [list(table[0]), ["---"] * len(table[0]), *(list(row.values()) for row in table)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def score_values(scores: Sequence[TaskScore]) -> list[dict[str, Any]]:
    """The scores as plain values for JSON, with medians and all values."""
    return [
        asdict(score)
        | {start: score.values(start) for start in score.starts}
        | {"chance": None, "majority": None}
        | guesses(score)
        | {name: next(iter(_count(score, name)), None) for name in (ROWS, TRAIN_ROWS)}
        | {"margin": score.margin, "spread": score.spread, "wins": score.wins}
        | {"p": score.gain.p if score.gain else None}
        for score in scores
    ]
