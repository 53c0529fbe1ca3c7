"""Pictures: what their bars and lines stand for."""

import io
import math

from orchestration import figures


def test_the_bar_of_a_task_ends_at_the_median_of_its_seeds_as_its_table_does() -> None:
    (axes,) = figures.plot_comparison("rte", {"pretrained": (0.1, 0.7, 0.8), "random": (0.5,)}).axes
    assert [bar.get_height() for bar in axes.patches] == [0.7, 0.5]


def test_a_loss_curve_has_the_parts_of_a_loss_only_where_they_are_several() -> None:
    points = [(10, 8.0), (20, 7.0)]
    one = {"train/loss": points, "train/next_token/loss": points, "eval/loss": points, "eval/next_token/loss": points}
    several = one | {"train/pairs/loss": points}

    def lines(history: figures.History) -> list[str]:
        (axes,) = figures.plot_training(history)["loss_curve"].axes
        return [str(line.get_label()) for line in axes.lines]

    assert lines(one) == ["train", "eval"]
    assert lines(several) == ["train", "train/next_token", "eval", "eval/next_token", "train/pairs"]


def test_a_metric_is_written_in_words_beside_its_axis() -> None:
    (axes,) = figures.plot_comparison("wikitext2", {"pretrained": (30.0,)}, ylabel="word_perplexity").axes
    assert axes.get_ylabel() == "word perplexity"


def test_what_is_infinite_is_left_out_of_a_picture() -> None:
    """As a perplexity of words may be."""
    figures.plot_comparison("x", {"random": [math.inf], "pretrained": [2.0]}).savefig(io.BytesIO())
    bars = [figures.Bar("x", {"random": [math.inf], "pretrained": [2.0]}), figures.Bar("y", {"random": [math.nan]})]
    figures.plot_scores({"perplexity": bars}).savefig(io.BytesIO())
    figures.plot_curves({"x": [(1, math.inf), (2, 3.0)]}, "perplexity").savefig(io.BytesIO())
