"""Paired comparisons: exact tests against scipy and closed forms, coverage of intervals in simulations."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest

from preprocessing.schema import Floats
from training.evaluation.metrics import ModelScores, ScoreDifference, compare_scores, holm, matthews, mcnemar
from training.evaluation.metrics.comparison import find_values


def model(value_Q: Sequence[float] | Floats, units: Sequence[Sequence[int]] = ()) -> ModelScores:
    """A model whose score is the mean of these values."""
    return ModelScores.of(lambda n: float(np.mean([value_Q[k] for k in n])), units or singles(len(value_Q)))


def singles(count: int) -> list[list[int]]:
    return [[n] for n in range(count)]


def compare(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> ScoreDifference:
    return compare_scores([[model(one)]], [[model(other)]], singles(len(one)))


@pytest.mark.parametrize(("first", "second"), list(combinations(range(0, 40, 7), 2)))
def test_mcnemar_is_the_exact_binomial_test_of_the_questions_that_differ(first: int, second: int) -> None:
    assert mcnemar(first, second) == pytest.approx(binomtest(first, first + second, 0.5).pvalue)


def test_mcnemar_of_a_table_by_hand() -> None:
    """b = 1, c = 5: p = 2 (C(6,0) + C(6,1)) / 2^6 = 14 / 64."""
    one, other = [1] * 5 + [0] * 6 + [1], [1] * 4 + [0] + [1] * 5 + [0, 1]
    found = compare(one, other)
    assert (found.wins, found.losses, found.test) == (5, 1, "McNemar")
    assert found.p == pytest.approx(14 / 64)
    assert found.difference == pytest.approx(4 / 12)


def test_equal_models_have_no_difference_and_p_1() -> None:
    for value_Q in ([1.0, 0.0, 1.0, 1.0], [0.3, -2.0, 5.5, 0.1]):
        found = compare(value_Q, value_Q)
        assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)
        assert (found.wins, found.losses) == (0, 0)


def test_equal_arguments_give_equal_results_and_swapped_models_the_opposite_difference() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=50), rng.normal(size=50)
    found, swapped = compare(one, other), compare(other, one)
    assert found == compare(one, other)
    assert (swapped.difference, swapped.low, swapped.high) == pytest.approx(
        (-found.difference, -found.high, -found.low)
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["accuracy", "margin"])
def test_intervals_over_questions_cover_the_true_difference(kind: str) -> None:
    """400 pairs of models with a true difference: 95 % of the intervals contain it, up to the error of 400 draws."""
    rng, inside, truth = np.random.default_rng(1), 0, 0.1 if kind == "accuracy" else 0.5
    for _ in range(400):
        shared_Q = rng.normal(size=80)
        if kind == "accuracy":
            one = (rng.random(80) < 0.5).astype(float)
            other = np.where(rng.random(80) < 0.2, (rng.random(80) < 1.0), one).astype(float)  # 0.8 * 0.5 + 0.2
        else:
            one, other = shared_Q + rng.normal(size=80), shared_Q + 0.5 + rng.normal(size=80)
        found = compare(one, other)
        inside += found.low <= truth <= found.high
    assert 0.91 <= inside / 400 <= 0.98


def test_intervals_over_seeds_cover_the_true_difference_with_three_seeds() -> None:
    """Seeds and questions both have an effect, and the models do not differ: p is below 5 % in at most about 5 %."""
    rng, rejected, inside = np.random.default_rng(2), 0, 0
    for _ in range(400):
        question_Q = rng.normal(size=60)
        groups = [[[model(question_Q + rng.normal(0, 0.3) + rng.normal(size=60))] for _ in range(3)] for _ in range(2)]
        found = compare_scores(*groups, singles(60))
        assert found.covers == "questions and pretraining seeds"
        rejected += found.is_significant
        inside += found.low <= 0 <= found.high
    assert inside / 400 >= 0.94
    assert rejected == 400 - inside


def test_the_interval_over_seeds_is_that_of_students_t_if_questions_do_not_matter() -> None:
    seeds = [[0.1, 0.2, 0.3], [0.4, 0.6, 0.8]]
    groups = [[[model([value] * 20)] for value in group] for group in seeds]
    found = compare_scores(*groups, singles(20))
    error = math.sqrt(np.var(seeds[0], ddof=1) / 3 + np.var(seeds[1], ddof=1) / 3)
    assert found.high - found.difference == pytest.approx(4.302653 * error, rel=1e-5)  # t of 2 degrees of freedom
    assert found.test == "t over seeds"


def test_fine_tuning_seeds_of_single_models_are_named() -> None:
    rng = np.random.default_rng(3)
    trials = [[model(rng.normal(size=30)) for _ in range(3)] for _ in range(2)]
    assert compare_scores([trials[0]], [trials[1]], singles(30)).covers == "questions and fine-tuning seeds"
    assert compare_scores([trials[0][:1]], [trials[1][:1]], singles(30)).covers == "questions"


def test_dependent_questions_are_sampled_together() -> None:
    """Ten texts with ten equal questions each: the interval is as wide as that of ten questions."""
    rng = np.random.default_rng(4)
    value_U = rng.normal(size=10)
    texts = [list(range(10 * at, 10 * at + 10)) for at in range(10)]
    wide = compare_scores([[model(np.zeros(100), texts)]], [[model(np.repeat(value_U, 10), texts)]], texts)
    alone = compare([0.0] * 10, value_U)
    narrow = compare(np.zeros(100), np.repeat(value_U, 10))
    assert wide.units == 10
    assert wide.high - wide.low == pytest.approx(alone.high - alone.low)
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)
    with pytest.raises(ValueError, match="means over"):
        compare_scores([[model(np.zeros(100))]], [[model(value_U)]], texts)


def test_a_mean_over_subsets_has_the_interval_of_its_subsets_in_each_sample() -> None:
    """A subset that is drawn twice counts twice: the interval is that of the accuracies of the subsets."""
    rng = np.random.default_rng(7)
    units = [list(range(start, start + size)) for start, size in zip(range(0, 400, 10), [4, 10] * 20, strict=True)]
    share_U = rng.random(40)
    value_Q = np.array([float(rng.random() < share_U[n // 10]) for n in range(400)])

    def score(numbers: Sequence[int]) -> float:
        subsets: dict[int, list[float]] = {}
        for n in numbers:
            subsets.setdefault(n // 10, []).append(value_Q[n])
        return float(np.mean([np.mean(of) for of in subsets.values()]))

    found = compare_scores([[model(np.zeros(400), units)]], [[ModelScores.of(score, units)]], units)
    mean_U = np.array([score(unit) for unit in units])
    assert found.difference == pytest.approx(mean_U.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * mean_U.std(ddof=1) / math.sqrt(40), rel=0.06)


def test_the_mean_of_splits_weighs_splits_equally_in_each_sample() -> None:
    value_Q = np.random.default_rng(8).normal(size=60)
    split_Q = ["a"] * 12 + ["b"] * 48
    one = ModelScores.of_splits(lambda n: float(np.mean([value_Q[k] for k in n])), singles(60), split_Q)
    assert one.score(range(60)) == pytest.approx((value_Q[:12].mean() + value_Q[12:].mean()) / 2)
    found = compare_scores([[model(np.zeros(60))]], [[one]], singles(60))
    slow = compare_scores([[model(np.zeros(60))]], [[ModelScores(one.score)]], singles(60))
    assert (found.low, found.high) == pytest.approx((slow.low, slow.high), abs=0.06)  # other samples


def test_many_questions_and_several_seeds_have_a_jackknife_if_the_metric_is_no_mean() -> None:
    rng = np.random.default_rng(9)
    gold_Q = rng.integers(2, size=1_200)
    calls = [0]

    def scorer(share: float) -> ModelScores:
        answer_Q = np.where(rng.random(1_200) < share, gold_Q, 1 - gold_Q)

        def score(numbers: Sequence[int]) -> float:
            calls[0] += 1
            return float(np.corrcoef(gold_Q[list(numbers)], answer_Q[list(numbers)])[0, 1])

        return ModelScores(score)

    single = compare_scores([[scorer(0.6)]], [[scorer(0.7)]], singles(1_200))
    assert (single.test, calls[0] < 300) == ("jackknife", True)
    several = compare_scores([[scorer(0.6), scorer(0.6)]], [[scorer(0.7), scorer(0.7)]], singles(1_200))
    assert (several.test, calls[0] < 900) == ("t over seeds", True)


def test_seeds_of_one_model_only_are_named() -> None:
    rng = np.random.default_rng(10)
    models = [[model(rng.normal(size=30))] for _ in range(4)]
    assert compare_scores(models[:1], models[1:], singles(30)).covers == "questions and pretraining seeds of one model"


def test_a_metric_that_is_no_mean_is_recomputed_on_each_sample() -> None:
    rng = np.random.default_rng(5)
    gold_Q = rng.integers(2, size=60)
    answers = [np.where(rng.random(60) < share, gold_Q, 1 - gold_Q) for share in (0.6, 0.9)]

    def scorer(answer_Q: np.ndarray) -> ModelScores:
        return ModelScores.of(lambda n: matthews(gold_Q[list(n)], answer_Q[list(n)]), singles(60))

    one, other = map(scorer, answers)
    assert not one.means
    found = compare_scores([[one]], [[other]], singles(60))
    assert found.test == "bootstrap"
    assert found.difference == pytest.approx(matthews(gold_Q, answers[1]) - matthews(gold_Q, answers[0]))
    assert found.low < found.difference < found.high
    blocks = compare_scores([[one]], [[other]], singles(60), is_slow=True)
    assert blocks.test == "jackknife"
    assert blocks.high - blocks.low == pytest.approx(found.high - found.low, rel=0.25)


def test_values_of_questions_are_found_only_for_means() -> None:
    values = [1.0, 0.0, 0.0, 1.0, 1.0]
    units = singles(5)
    assert find_values(lambda n: float(np.mean([values[k] for k in n])), units, units) is not None
    assert find_values(lambda n: math.exp(np.mean([values[k] for k in n])), units, units) is None


def test_a_perplexity_is_resampled_by_its_logarithm() -> None:
    value_Q = np.random.default_rng(6).normal(3.0, 1.0, size=40)
    fast = ModelScores.of(lambda n: math.exp(np.mean([value_Q[k] for k in n])), singles(40))
    (means,) = fast.means
    assert (means.is_log, fast.value_Q) == (True, None)
    assert means.value_Q == pytest.approx(value_Q)
    base = ModelScores.of(lambda n: 1.0, singles(40))
    found = compare_scores([[base]], [[fast]], singles(40))
    slow = compare_scores([[base]], [[ModelScores(fast.score)]], singles(40))
    assert found.difference == slow.difference == pytest.approx(math.exp(value_Q.mean()) - 1)
    assert (found.low, found.high) == pytest.approx((slow.low, slow.high), rel=0.1)  # other samples


def test_holm_is_the_step_down_procedure() -> None:
    """Holm 1979: sorted p are multiplied by 4, 3, 2, 1, and do not decrease."""
    assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])
    assert holm([]) == []


def test_no_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="no questions"):
        compare_scores([[model([1.0])]], [[model([1.0])]], [])
