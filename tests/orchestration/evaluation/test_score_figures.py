"""Figures of scores: bars, curves and confusion matrices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration import figures
from orchestration.evaluation import score_figures
from tests.orchestration.evaluation.test_evaluate_tracked import HANS, make_plan
from training.evaluation import EvalResult
from training.evaluation.tasks import STARTS, SelectedTrials, TaskScore, TextToText


def confusion_arguments(kind: Any, answers: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Return the arguments of the confusion plot: labels, counts and other columns."""
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "plot_confusion", lambda title, *what: drawn.append(what))
    one = make_plan(Path("run"), "hans", kind=kind)
    results = [(one.cells[0], EvalResult({"test": {"accuracy": 1.0}}, {"test": answers}))]
    score = TaskScore(
        "hans", "accuracy", "test", "", {"pretrained": SelectedTrials({}, {"test": {"accuracy": (1.0,)}})}
    )
    score_figures._confusion(one, results, score)
    return drawn[0]


def test_confusion_matrix_uses_merged_labels_and_an_other_column(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["non-entailment", "entailment", "entailment"]  # labels: contradiction, entailment, neutral
    assert confusion_arguments(HANS, answers, monkeypatch) == (["non-entailment", "entailment"], [[1, 1], [0, 1]], [])
    written = TextToText(task=replace(HANS, merge_labels={}))
    labels, counts, others = confusion_arguments(written, ["", "entailment", "contradiction"], monkeypatch)
    assert (labels, others) == (list(HANS.labels), ["other"])
    assert counts == [[0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]]


def test_numbers_of_a_confusion_matrix_contrast_with_their_cells() -> None:
    (axes,) = figures.plot_confusion("t", ["no", "yes"], [[9, 1], [4, 6]]).axes
    assert [one.get_color() for one in axes.texts] == ["white", figures.INK, figures.INK, "white"]


def test_confusion_figure_includes_the_other_column() -> None:
    (axes,) = figures.plot_confusion("t", ["no", "yes"], [[1, 2, 0], [0, 1, 4]], ["other"]).axes
    assert [one.get_text() for one in axes.get_xticklabels()] == ["no", "yes", "other"]
    assert [one.get_text() for one in axes.get_yticklabels()] == ["no", "yes"]
    assert [one.get_text() for one in axes.texts] == ["1", "2", "0", "0", "1", "4"]


def test_score_figure_groups_tasks_by_unit_with_seeds_and_reported_scores() -> None:
    def score(task: str, metric: str, *values: float, **more: Any) -> TaskScore:
        return TaskScore(
            task, metric, "test", "", {"pretrained": SelectedTrials({}, {"test": {metric: values}})}, **more
        )

    scores = [
        score("squad1", "f1", 0.8, 0.7, 0.9, paper={"squad.em": 80.8, "squad.f1": 88.5}),
        score("cnndm", "rougeL", 0.2, paper={"cnn_dailymail.rouge_l": 40.9}),
        score("wikitext103", "word_perplexity", 35.0, paper={"wikitext103.perplexity": 37.5}),
        score("length", "effective_length", 300.0),
    ]
    panels = {axes.get_ylabel(): axes for axes in score_figures.draw_tasks(scores)["scores"].axes}
    names = {unit: [one.get_text() for one in axes.get_xticklabels()] for unit, axes in panels.items()}
    assert names == {
        "percent": ["squad1\nf1", "cnndm\nrougeL"],
        "word perplexity": ["wikitext103\nword perplexity"],
        "effective length": ["length\neffective length"],
    }
    assert [bar.get_height() for bar in panels["percent"].patches] == pytest.approx([80.0, 20.0])
    dots, *_, papers = panels["percent"].lines
    assert list(dots.get_ydata()) == pytest.approx([80.0, 70.0, 90.0])
    assert (papers.get_label(), list(papers.get_ydata())) == ("paper", [88.5, 40.9])
    assert list(panels["word perplexity"].lines[-1].get_ydata()) == [37.5]


def test_curves_of_different_units_are_separate_figures() -> None:
    def score(metric: str, labels: int, value: float) -> TaskScore:
        starts = {"pretrained": SelectedTrials({}, {"test": {metric: (value,)}})}
        return TaskScore("mine", metric, "test", "", starts, labels=labels)

    each = [score(metric, n, 0.5) for metric in ("accuracy", "loss") for n in (10, 20)]
    drawn = score_figures.draw_tasks(each)
    assert set(drawn) == {"scores", "scores_by_labels", "scores_by_labels_loss"}
    assert [list(drawn[name].axes[0].lines[0].get_ydata()) for name in sorted(drawn)[1:]] == [[50.0, 50.0], [0.5, 0.5]]


def test_label_count_figure_has_a_line_per_initialization() -> None:
    def score(labels: int, value: float, step: int | None = None) -> TaskScore:
        starts = {start: SelectedTrials({}, {"dev": {"accuracy": (value,)}}) for start in STARTS}
        return TaskScore("sst2", "accuracy", "dev", "", starts, labels=labels, step=step)

    pictures = score_figures.draw_tasks([score(200, 0.5), score(1_000, 0.75)])
    (axes,) = pictures["scores_by_labels"].axes
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "labeled examples")
    assert {line.get_label(): list(line.get_xdata()) for line in axes.lines} == {
        f"sst2, accuracy, {start}": [200, 1_000] for start in STARTS
    }
    assert set(score_figures.draw_tasks([score(0, 0.5)])) == {"scores"}
    both = score_figures.draw_tasks([score(n, 0.5, at) for at in (10, 20) for n in (200, 1_000)])
    assert [line.get_label() for line in both["scores_by_step"].axes[0].lines][:2] == [
        "sst2, accuracy, pretrained, 200 labels", "sst2, accuracy, random, 200 labels",
    ]  # fmt: skip
