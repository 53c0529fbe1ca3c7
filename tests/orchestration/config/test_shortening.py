"""A shortened recipe keeps the proportions of its phases, its warm-up and its decay."""

import pytest

from orchestration.config import describe_shortening, list_names, load, shorten
from preprocessing.errors import BadInput


@pytest.mark.parametrize(("steps", "counts"), [(1_000, [900, 100]), (7, [6, 1]), (3, [3])])
def test_each_phase_and_the_warmup_keep_their_fraction_of_the_steps(steps: int, counts: list[int]) -> None:
    short = load("bert_base", shorten(load("bert_base"), steps))
    assert [phase.steps for phase in short.phases] == counts
    assert [phase.seq_length for phase in short.phases] == [128, 512][: len(counts)]
    assert short.optimizer.warmup_steps == max(1, steps // 100)  # the recipe has 10,000 of a million


def test_a_recipe_has_no_more_steps_than_before() -> None:
    recipe = load("bert_base")
    assert shorten(recipe, recipe.num_steps) == []
    for steps in (1, recipe.num_steps + 1):
        with pytest.raises(BadInput) as refusal:
            shorten(recipe, steps)
        assert str(refusal.value) == (
            f"invalid --max-steps: got {steps}, expected 2 to 1,000,000, the steps of the recipe; change it"
        )


def test_a_shortened_recipe_is_described_in_one_line() -> None:
    recipe = load("bert_base")
    short = load("bert_base", shorten(recipe, 1_000))
    assert describe_shortening(recipe, short) == (
        "--max-steps: 1,000 of 1,000,000 steps in phases of 900, 100; warm-up 10,000 -> 10 steps"
    )


@pytest.mark.parametrize("steps", [2, 7])
def test_each_recipe_can_be_shortened(steps: int) -> None:
    """GPT-3 ends its decay before the end of the run: the decay stays longer than the warm-up."""
    for name in list_names("recipes"):
        recipe = load(name)
        assert load(name, shorten(recipe, steps)).num_steps == steps
