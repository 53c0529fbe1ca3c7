"""Figures: the values that bars and lines show."""

import io
import math

from orchestration import figures


def test_bar_height_is_the_median_over_seeds() -> None:
    (axes,) = figures.plot_comparison("rte", {"pretrained": (0.1, 0.7, 0.8), "random": (0.5,)}).axes
    assert [bar.get_height() for bar in axes.patches] == [0.7, 0.5]


def test_loss_curve_shows_partial_losses_only_if_there_are_several() -> None:
    points = [(10, 8.0), (20, 7.0)]
    one = {"train/loss": points, "train/next_token/loss": points, "eval/loss": points, "eval/next_token/loss": points}
    several = one | {"train/pairs/loss": points}

    def lines(history: figures.History) -> list[str]:
        (axes,) = figures.plot_training(history)["loss_curve"].axes
        return [str(line.get_label()) for line in axes.lines]

    assert lines(one) == ["train", "eval"]
    assert lines(several) == ["train", "train/next_token", "eval", "eval/next_token", "train/pairs"]


def test_axis_label_is_the_metric_name_in_words() -> None:
    (axes,) = figures.plot_comparison("wikitext2", {"pretrained": (30.0,)}, ylabel="word_perplexity").axes
    assert axes.get_ylabel() == "word perplexity"


def test_infinite_values_are_omitted_from_figures() -> None:
    """A word perplexity can be infinite."""
    figures.plot_comparison("x", {"random": [math.inf], "pretrained": [2.0]}).savefig(io.BytesIO())
    bars = [figures.Bar("x", {"random": [math.inf], "pretrained": [2.0]}), figures.Bar("y", {"random": [math.nan]})]
    figures.plot_scores({"perplexity": bars}).savefig(io.BytesIO())
    figures.plot_curves({"x": [(1, math.inf), (2, 3.0)]}, "perplexity").savefig(io.BytesIO())


def test_a_confusion_matrix_uses_the_words_of_the_table_of_questions() -> None:
    (axes,) = figures.plot_confusion("my, test", ["0", "1"], [[1, 2], [3, 4]]).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "expected")
