"""The score of a task from the trials of a grid."""

import pytest

from training.evaluation.metrics import PairedDifference
from training.evaluation.tasks import SelectedTrials, TaskScore, TrialScore, select_trials, sign_of_metric


def cell(start: str, peak: float, seed: int, dev: float, test: float, metric: str = "accuracy") -> TrialScore:
    return TrialScore.of(start, {"learning_rate": peak, "seed": seed}, {"dev": {metric: dev}, "test": {metric: test}})


def test_the_best_median_on_dev_selects_the_hyperparameters_and_test_scores_them() -> None:
    cells = [cell("pretrained", 1e-3, seed, dev, 0.9) for seed, dev in enumerate((0.99, 0.5, 0.5))]
    cells += [cell("pretrained", 1e-4, seed, 0.6, 0.7 + seed / 10) for seed in range(3)]
    found = select_trials(cells, "accuracy", "dev")["pretrained"]
    assert found.how == {"learning_rate": 1e-4}
    assert found.scores["test"]["accuracy"] == pytest.approx((0.7, 0.8, 0.9))


def test_the_lowest_perplexity_is_the_best() -> None:
    cells = [cell("pretrained", peak, 0, dev, dev, "perplexity") for peak, dev in ((1e-3, 20.0), (1e-4, 30.0))]
    assert select_trials(cells, "perplexity", "dev")["pretrained"].how == {"learning_rate": 1e-3}
    assert [sign_of_metric(name) for name in ("perplexity", "word_perplexity", "bits_per_byte", "f1")] == [
        -1,
        -1,
        -1,
        1,
    ]


def test_of_equal_hyperparameters_the_first_of_the_grid_is_selected() -> None:
    cells = [cell("random", peak, 0, 0.5, 0.5) for peak in (3e-4, 1e-4)]
    assert select_trials(cells, "accuracy", "dev")["random"].how == {"learning_rate": 3e-4}


def test_hyperparameters_with_diverged_seeds_are_not_selected() -> None:
    cells = [cell("pretrained", 1e-4, seed, dev, dev) for seed, dev in enumerate((0.80, 0.82, 0.81))]
    lucky = cell("pretrained", 1e-3, 2, 0.83, 0.83)
    assert select_trials([lucky, *cells], "accuracy", "dev")["pretrained"].how == {"learning_rate": 1e-4}
    assert select_trials([lucky], "accuracy", "dev")["pretrained"].how == {"learning_rate": 1e-3}


def test_each_initialization_has_its_own_selection() -> None:
    cells = [cell(*one, 0, dev, 0.5) for *one, dev in (("random", 1e-3, 0.4), ("random", 1e-4, 0.6))]  # type: ignore[misc]
    cells += [cell("pretrained", 1e-3, 0, 0.8, 0.5), cell("pretrained", 1e-4, 0, 0.7, 0.5)]
    found = select_trials(cells, "accuracy", "dev")
    assert {start: one.how["learning_rate"] for start, one in found.items()} == {"random": 1e-4, "pretrained": 1e-3}


def score(
    pretrained: tuple[float, ...],
    random: tuple[float, ...],
    metric: str = "accuracy",
    gain: PairedDifference | None = None,
) -> TaskScore:
    both = {"pretrained": pretrained, "random": random}
    starts = {name: SelectedTrials({}, {"test": {metric: values}}) for name, values in both.items() if values}
    return TaskScore("t", metric, "test", "", starts, gain=gain)


def test_pretraining_wins_only_if_its_gain_is_significant() -> None:
    both = (0.70, 0.72, 0.74), (0.60, 0.61, 0.62)
    assert score(*both).wins is None  # the values of single questions are unknown
    assert score(*both).margin == pytest.approx(0.11)
    found = {p: score(*both, gain=PairedDifference(0.1, 0.01, 0.19, p, 3, 71)) for p in (0.04, 0.06)}
    assert [(one.wins, one.margin) for one in found.values()] == [(True, 0.1), (False, 0.1)]
    assert score(*both, gain=PairedDifference(-0.1, -0.19, -0.01, 0.04, 3, 71)).wins is False
    assert score((20.0, 21.0), (40.0, 41.0), "perplexity").margin == 20.0


def test_without_random_initialization_there_is_no_margin() -> None:
    alone = score((0.7,), ())
    assert (alone.margin, alone.wins, alone.spread) == (None, None, 0.0)


def test_one_seed_has_no_spread() -> None:
    one = score((0.7,), (0.6,))
    assert (one.wins, one.spread) == (None, 0.0)
    assert one.margin == pytest.approx(0.1)


def test_infinite_scores_have_no_margin() -> None:
    starts = {
        start: SelectedTrials({}, {"test": {"perplexity": (float("inf"),)}}) for start in ("pretrained", "random")
    }
    assert TaskScore("x", "perplexity", "test", "", starts).margin is None
